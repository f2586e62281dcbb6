//! Extents of a disk: which ranges hold data.
// Exports a function to C.
#![allow(unsafe_code)]

use crate::disk::{OpenDisk, forebay_disk};
use crate::error::{Failure, guard};
use crate::handle;
use forebay::ExtentKind;
use std::ffi::c_int;

/// The content of a range.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum forebay_extent_kind {
    /// Data, or unknown content.
    Data = 0,
    /// Reads as zeroes, with space allocated on the device.
    Zero = 1,
    /// Reads as zeroes. A write may have to allocate space first.
    Hole = 2,
}

/// A range of a disk with one kind of content.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_extent {
    /// The length in bytes. Never 0.
    pub len: u64,
    /// One of enum forebay_extent_kind.
    pub kind: u32,
    /// Always 0. Reserved for a later version.
    pub reserved: u32,
}

/// Stores which parts of len bytes at offset hold data: at most max extents, in order and without
/// gaps. The extents cover the range up to the end of the disk, or less if there are more than max.
/// May wait for the device.
///
/// Returns the number of extents, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_block_status(
    disk: *mut forebay_disk,
    offset: u64,
    len: u64,
    extents: *mut forebay_extent,
    max: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle.
        let disk = unsafe { handle::get::<OpenDisk>(disk) }?;
        let max = max.min(c_int::MAX as u32);
        if max == 0 || extents.is_null() || !extents.is_aligned() {
            return Err(Failure::invalid("the array of extents is NULL, misaligned or empty"));
        }
        let mut found = Vec::new();
        disk.disk.block_status(offset, len, max as usize, &mut found)?;
        for (nth, extent) in found.iter().enumerate() {
            let kind = match extent.kind {
                ExtentKind::Data => forebay_extent_kind::Data,
                ExtentKind::Zero => forebay_extent_kind::Zero,
                ExtentKind::Hole => forebay_extent_kind::Hole,
            };
            let stored = forebay_extent { len: extent.len, kind: kind as u32, reserved: 0 };
            // SAFETY: the caller passes room for `max` extents, and there are no more.
            unsafe { extents.add(nth).write(stored) };
        }
        Ok(found.len() as c_int)
    })
}
