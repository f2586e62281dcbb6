//! Properties of a disk by name, as text or as numbers.
// Exports functions to C.
#![allow(unsafe_code)]

use crate::args::{place_of, text_of};
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle;
use forebay::{Disk, KNOBS};
use std::ffi::{c_char, c_int};

/// A property.
enum Value {
    Text(String),
    Number(u64),
}

/// A property and its name.
type Property = (&'static str, fn(&Disk) -> Value);

/// The properties beside the settings, which have the names of their keys in specs.
const PROPERTIES: [Property; 18] = [
    ("spec", |disk| Value::Text(disk.info().spec.clone())),
    ("driver", |disk| Value::Text(disk.info().driver.to_owned())),
    ("notice", |disk| Value::Text(disk.info().notice.clone().unwrap_or_default())),
    ("failure", |disk| Value::Text(disk.failure().unwrap_or_default())),
    ("features", |disk| Value::Text(features(disk))),
    ("failed", |disk| flag(disk.is_failed())),
    ("capacity", |disk| Value::Number(disk.capacity_bytes().unwrap_or(u64::MAX))),
    ("read_only", |disk| flag(disk.limits().read_only)),
    ("logical_block_size", |disk| Value::Number(disk.limits().logical_block_size.into())),
    ("physical_block_size", |disk| Value::Number(disk.limits().physical_block_size.into())),
    ("io_min", |disk| Value::Number(disk.limits().io_min.into())),
    ("io_opt", |disk| Value::Number(disk.limits().io_opt.into())),
    ("memory_alignment", |disk| Value::Number(u64::from(disk.limits().dma_alignment) + 1)),
    ("max_transfer", |disk| Value::Number(u64::from(disk.limits().max_sectors) * 512)),
    ("registers_memory", |disk| flag(disk.can_register_memory())),
    ("discard_granularity", |disk| Value::Number(disk.limits().discard_granularity.into())),
    ("write_zeroes", |disk| flag(disk.limits().max_write_zeroes_sectors > 0)),
    ("volatile_cache", |disk| flag(disk.limits().volatile_cache)),
];

fn flag(is_set: bool) -> Value {
    Value::Number(is_set.into())
}

/// Returns one line for each feature: its name, `yes` or `no`, and how or why.
fn features(disk: &Disk) -> String {
    let line = |feature: &forebay::Feature| match &feature.state {
        forebay::FeatureState::Present(how) => format!("{}: yes: {how}\n", feature.name),
        forebay::FeatureState::Missing(why) => format!("{}: no: {why}\n", feature.name),
    };
    disk.info().features.iter().map(line).collect()
}

fn property(disk: &Disk, name: &str) -> Result<Value, Failure> {
    if let Some((_, get)) = PROPERTIES.iter().find(|(known, _)| *known == name) {
        return Ok(get(disk));
    }
    let knob = KNOBS.iter().find(|knob| knob.key == name);
    let text = knob.map(|knob| knob.get(&disk.info().policy)).ok_or_else(|| {
        Failure::new(libc::ENOENT, format!("no property is named `{name}`: see forebay_info(3)"))
    })?;
    Ok(text.parse().map_or_else(|_| Value::Text(text), Value::Number))
}

/// Stores a property of a disk as text in buf, which has size bytes, with a zero byte at the end.
/// A longer text is cut. Numbers are decimal.
///
/// Returns the length of the whole text without the zero byte, or a negative errno: -ENOENT if
/// there is no such property.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_info(
    disk: *mut forebay_disk,
    name: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle, and a C string or null.
        let (disk, name) = unsafe { (handle::get::<OpenDisk>(disk)?, text_of(name, "name")?) };
        let text = match property(&disk.disk, name)? {
            Value::Text(text) => text,
            Value::Number(number) => number.to_string(),
        };
        if size > 0 {
            let (place, nr) = (place_of(buf)?.cast::<u8>(), text.len().min(size - 1));
            // SAFETY: the caller passes `size` bytes of its own, of which these are the first.
            unsafe {
                place.copy_from_nonoverlapping(text.as_ptr(), nr);
                place.add(nr).write(0);
            }
        }
        Ok(c_int::try_from(text.len()).unwrap_or(c_int::MAX))
    })
}

/// Stores a property that is a number in *value: see forebay_info(). Those that are true or false
/// are 1 or 0.
///
/// Returns 0, or a negative errno: -ENOENT if there is no such property, -EINVAL if it is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_info_number(
    disk: *mut forebay_disk,
    name: *const c_char,
    value: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle, and a C string or null.
        let (disk, name) = unsafe { (handle::get::<OpenDisk>(disk)?, text_of(name, "name")?) };
        let place = place_of(value)?;
        match property(&disk.disk, name)? {
            // SAFETY: the caller passes the place of a number; null was refused.
            Value::Number(number) => unsafe { place.write(number) },
            Value::Text(text) => {
                let text = format!("{name} is a text, `{text}`: call forebay_info()");
                return Err(Failure::invalid(text));
            }
        }
        Ok(0)
    })
}
