//! Counters of a disk by name, from the library's table of counters.
// Exports functions to C.
#![allow(unsafe_code)]

use crate::args::{place_of, text_of};
use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle;
use forebay::{DiskCounter, disk_counters};
use std::ffi::{CString, c_char, c_int};
use std::sync::LazyLock;

/// The texts of a counter for C.
struct Texts {
    name: CString,
    help: CString,
}

/// The texts of the library's counters, in their order.
static TEXTS: LazyLock<Vec<Texts>> = LazyLock::new(|| {
    let text = |text: &str| CString::new(text).expect("names have no zero bytes");
    let texts = |it: &DiskCounter| Texts { name: text(&it.name), help: text(it.help) };
    disk_counters().iter().map(texts).collect()
});

/// Returns the number of counters. Counters are numbered from 0.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_stats_count() -> u32 {
    u32::try_from(guard(|| Ok(disk_counters().len() as i64))).unwrap_or(0)
}

fn text_at(index: u32, get: fn(&Texts) -> &CString) -> *const c_char {
    let mut text = std::ptr::null();
    guard(|| {
        let counter = TEXTS.get(index as usize).ok_or_else(|| {
            Failure::invalid(format!("there is no counter {index}: there are {}", TEXTS.len()))
        })?;
        text = get(counter).as_ptr();
        Ok(0)
    });
    text
}

/// Returns the name of a counter, such as "issued", or NULL if there is no such number. Names that
/// end in _ns are nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_stats_name(index: u32) -> *const c_char {
    text_at(index, |counter| &counter.name)
}

/// Returns the meaning of a counter as a sentence, or NULL if there is no such number.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_stats_help(index: u32) -> *const c_char {
    text_at(index, |counter| &counter.help)
}

/// Stores the counter with a name in *value. Counters count since the disk was opened.
///
/// Returns 0, or a negative errno: -ENOENT if there is no such counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_stats_get(
    disk: *mut forebay_disk,
    name: *const c_char,
    value: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle, and a C string or null.
        let (disk, name) = unsafe { (handle::get::<OpenDisk>(disk)?, text_of(name, "name")?) };
        let place = place_of(value)?;
        let counter = disk_counters().iter().find(|counter| counter.name == name);
        let counter = counter.ok_or_else(|| {
            let text = format!("no counter is named `{name}`; forebay_stats_name() lists them");
            Failure::new(libc::ENOENT, text)
        })?;
        // SAFETY: the caller passes the place of a number; null was refused.
        unsafe { place.write(counter.of(&disk.disk.stats())) };
        Ok(0)
    })
}

/// Stores the first nr counters in an array, in the order of their numbers.
///
/// Returns how many were stored, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_stats_read(
    disk: *mut forebay_disk,
    values: *mut u64,
    nr: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle.
        let disk = unsafe { handle::get::<OpenDisk>(disk) }?;
        let place = place_of(values)?;
        let stats = disk.disk.stats();
        let stored = disk_counters().iter().take(nr as usize).enumerate().map(|(at, counter)| {
            // SAFETY: the caller passes an array of `nr` numbers.
            unsafe { place.add(at).write(counter.of(&stats)) };
        });
        Ok(stored.count() as c_int)
    })
}
