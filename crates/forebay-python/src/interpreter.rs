//! Check that only one interpreter of a process uses the module.
//!
//! The classes are static values of pyo3, which belong to the interpreter that has made them. In
//! another one they would outlive it, or be freed while they are in use.
// Asks the interpreter for its number.
#![allow(unsafe_code)]

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicI64, Ordering};

/// Checks that no other interpreter of the process has imported the module.
///
/// # Errors
/// `ImportError` in a second interpreter, even after the first one has ended.
pub(crate) fn check_is_only(_py: Python<'_>) -> PyResult<()> {
    const NONE: i64 = -1;
    static FIRST: AtomicI64 = AtomicI64::new(NONE);
    // SAFETY: this thread is attached to an interpreter, as `_py` shows.
    let this = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    // Interpreters may have a GIL each, so the number is swapped in at once. It guards no other
    // memory.
    match FIRST.compare_exchange(NONE, this, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        Err(first) if first == this => Ok(()),
        Err(_) => Err(PyImportError::new_err(
            "forebay is in use by another interpreter of this process; import it in one \
             interpreter only, or use processes",
        )),
    }
}
