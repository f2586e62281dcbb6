//! Properties of a disk by name, as text or as numbers.
// Exports functions to C.
#![allow(unsafe_code)]

use crate::args::{place_of, store_text, text_of};
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle;
use forebay::{Disk, PropertyValue};
use std::ffi::{CString, c_char, c_int};
use std::sync::LazyLock;

/// Returns one line for each feature: its name, `yes` or `no`, and how or why.
fn features(disk: &Disk) -> String {
    let line = |feature: &forebay::Feature| match &feature.state {
        forebay::FeatureState::Present(how) => format!("{}: yes: {how}\n", feature.name),
        forebay::FeatureState::Missing(why) => format!("{}: no: {why}\n", feature.name),
    };
    disk.info().features.iter().map(line).collect()
}

/// The name of the list of features.
const FEATURES: &str = "features";

/// The names of all properties, in the order of their numbers.
static NAMES: LazyLock<Vec<CString>> = LazyLock::new(|| {
    let name = |name: &str| CString::new(name).expect("names have no zero bytes");
    forebay::property_names().chain([FEATURES]).map(name).collect()
});

/// Returns the number of properties, which every disk has. Properties are numbered from 0.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_info_count() -> u32 {
    u32::try_from(guard(|| Ok(NAMES.len() as i64))).unwrap_or(0)
}

/// Returns the name of a property, such as "capacity", or NULL if there is no such number.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_info_name(index: u32) -> *const c_char {
    let mut text = std::ptr::null();
    guard(|| {
        let name = NAMES.get(index as usize).ok_or_else(|| {
            Failure::invalid(format!("there is no property {index}: there are {}", NAMES.len()))
        })?;
        text = name.as_ptr();
        Ok(0)
    });
    text
}

/// Returns a property: one of the library's table, or the list of features.
fn property(disk: &Disk, name: &str) -> Result<PropertyValue, Failure> {
    let value = match name {
        FEATURES => Some(PropertyValue::Text(features(disk))),
        name => disk.property(name),
    };
    value.ok_or_else(|| {
        let text = format!("no property is named `{name}`; forebay_info_name() lists them");
        Failure::new(libc::ENOENT, text)
    })
}

/// Stores a property of a disk as text in buf, which has size bytes, with a zero byte at the end.
/// A longer text is truncated. Numbers are decimal, and a flag is 1 or 0. The text is empty if the
/// disk has no such value.
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
            PropertyValue::Flag(is_set) => u8::from(is_set).to_string(),
            value => value.to_string(),
        };
        // SAFETY: the caller passes `size` bytes of its own.
        unsafe { store_text(&text, buf, size) }
    })
}

/// Stores a property that is a number in *value: see forebay_info(). A flag is 1 or 0. Stores
/// UINT64_MAX if the disk has no such value, such as the capacity of a file that grows.
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
        let number = match property(&disk.disk, name)? {
            PropertyValue::Number(number) => number,
            PropertyValue::Flag(is_set) => is_set.into(),
            PropertyValue::None => u64::MAX,
            text => {
                let text = format!("{name} is a text, `{text}`: call forebay_info()");
                return Err(Failure::invalid(text));
            }
        };
        // SAFETY: the caller passes the place of a number; null was refused.
        unsafe { place.write(number) };
        Ok(0)
    })
}
