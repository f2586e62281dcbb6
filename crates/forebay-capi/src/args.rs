//! Checks of arguments: places for results, and texts.
// Reads texts of the caller.
#![allow(unsafe_code)]

use crate::error::Failure;
use std::ffi::{CStr, c_char};

/// Returns the place for a result, if it is one.
pub(crate) fn place_of<T>(result: *mut T) -> Result<*mut T, Failure> {
    match result.is_null() {
        true => Err(Failure::invalid("the pointer for the result is NULL")),
        false => place_or_null(result),
    }
}

/// Returns the place for a result that the caller may not want: then it is null.
pub(crate) fn place_or_null<T>(result: *mut T) -> Result<*mut T, Failure> {
    match result.is_aligned() {
        true => Ok(result),
        false => Err(Failure::invalid("the pointer for the result is misaligned")),
    }
}

/// Returns the bytes of a C string of the caller.
///
/// # Safety
/// `text` is null or a C string that stays as it is while the result is used.
pub(crate) unsafe fn bytes_of<'a>(text: *const c_char, name: &str) -> Result<&'a [u8], Failure> {
    if text.is_null() {
        return Err(Failure::invalid(format!("the {name} is NULL")));
    }
    // SAFETY: it is a C string.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Returns a C string of the caller as UTF-8.
///
/// # Safety
/// As for [`bytes_of`].
pub(crate) unsafe fn text_of<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller keeps the conditions.
    let bytes = unsafe { bytes_of(text, name) }?;
    str::from_utf8(bytes).map_err(|_| {
        let text = String::from_utf8_lossy(bytes);
        Failure::invalid(format!("the {name} is not UTF-8: {text}"))
    })
}
