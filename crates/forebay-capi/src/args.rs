//! Checks of arguments: places for results, texts, and options.
// Reads texts and arrays of the caller, and writes texts for it.
#![allow(unsafe_code)]

use crate::error::Failure;
use std::ffi::{CStr, c_char, c_int};

/// A key of a spec, and its value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_option {
    /// The key, such as "direct".
    pub key: *const c_char,
    /// The value, such as "on".
    pub value: *const c_char,
}

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

/// Returns the options of the caller as pairs of a key and a value.
///
/// # Safety
/// `options` is null, or points to `nr` options with C strings or null, which stay as they are
/// while the result is used.
pub(crate) unsafe fn pairs_of<'a>(
    options: *const forebay_option,
    nr: u32,
) -> Result<Vec<(&'a str, &'a str)>, Failure> {
    if nr > 0 && (options.is_null() || !options.is_aligned()) {
        return Err(Failure::invalid("the array of options is NULL or misaligned"));
    }
    let pair = |nth| {
        // SAFETY: the caller keeps the conditions.
        unsafe {
            let option = options.add(nth).read();
            let key = text_of(option.key, "key of an option")?;
            Ok((key, text_of(option.value, "value of an option")?))
        }
    };
    (0..nr as usize).map(pair).collect()
}

/// Stores a text with a zero byte at its end in `size` bytes of the caller. A longer text is
/// truncated. Returns the length of the whole text.
///
/// # Safety
/// `buf` is null, or leads to `size` bytes of the caller's own.
pub(crate) unsafe fn store_text(
    text: &str,
    buf: *mut c_char,
    size: usize,
) -> Result<c_int, Failure> {
    if size > 0 {
        let (place, nr) = (place_of(buf)?.cast::<u8>(), text.len().min(size - 1));
        // SAFETY: the caller passes `size` bytes of its own, of which these are the first.
        unsafe {
            place.copy_from_nonoverlapping(text.as_ptr(), nr);
            place.add(nr).write(0);
        }
    }
    Ok(c_int::try_from(text.len()).unwrap_or(c_int::MAX))
}
