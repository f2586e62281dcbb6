//! Calls without the GIL, so that other threads of the program run meanwhile.
// Passes values of one thread through an interface that asks for `Send`.
#![allow(unsafe_code)]

use pyo3::Python;

/// Lets a value through the bound of [`Python::detach`], which calls its closure on this thread.
struct SameThread<T>(T);

// SAFETY: made and used in `without_gil` only, whose closure runs on the thread that has made it.
unsafe impl<T> Send for SameThread<T> {}

impl<T> SameThread<T> {
    fn into_inner(self) -> T {
        self.0
    }
}

/// Calls a function without the GIL, on this thread, and takes the GIL again.
///
/// # Safety
/// The function uses no object of Python and no value that another thread with the GIL may change.
#[inline]
pub(crate) unsafe fn without_gil<T>(py: Python<'_>, call: impl FnOnce() -> T) -> T {
    let call = SameThread(call);
    py.detach(move || SameThread(call.into_inner()())).into_inner()
}
