//! Plugs of a thread, as a context manager.
// Unplugs without the GIL.
#![allow(unsafe_code)]

use crate::detach::without_gil;
use crate::error::misuse;
use forebay::PlugGuard;
use forebay::foreign::thread_number;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::RefCell;
use std::mem::ManuallyDrop;

thread_local! {
    /// The open plugs of this thread. The list is never dropped, so that a thread that ends with
    /// an open plug runs no destructor of it after those of the library.
    static OPEN: ManuallyDrop<RefCell<Vec<PlugGuard>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

// Otherwise each thread would leak its list.
const _: () = assert!(size_of::<PlugGuard>() == 0, "the list of plugs has no memory");

/// A context manager that holds back the I/O of its thread: see `plug()`.
#[pyclass(module = "forebay")]
pub(crate) struct Plug {
    /// The number of the thread that has entered it.
    entered_by: Option<u64>,
}

impl Plug {
    pub(crate) fn new() -> Plug {
        Plug { entered_by: None }
    }
}

#[pymethods]
impl Plug {
    fn __enter__(mut slf: PyRefMut<'_, Self>) -> PyResult<PyRefMut<'_, Self>> {
        if slf.entered_by.is_some() {
            return Err(misuse("the plug is open already; call plug() for each `with`"));
        }
        OPEN.with(|open| open.borrow_mut().push(forebay::plug()));
        slf.entered_by = Some(thread_number());
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&mut self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        if self.entered_by != Some(thread_number()) {
            return Err(misuse("the plug is not open on this thread"));
        }
        self.entered_by = None;
        end(py);
        Ok(false)
    }

    /// Issues everything that this thread has plugged, and keeps the plug open.
    fn unplug(&self, py: Python<'_>) -> PyResult<()> {
        if self.entered_by != Some(thread_number()) {
            return Err(misuse("the plug is not open on this thread"));
        }
        // SAFETY: a plug has no object of Python, and belongs to this thread.
        unsafe {
            without_gil(py, || {
                OPEN.with(|open| {
                    if let Some(plug) = open.borrow().last() {
                        plug.unplug();
                    }
                });
            });
        }
        Ok(())
    }
}

/// Ends the innermost plug of this thread. All plugs of a thread are alike, so it need not be the
/// one that was entered last.
fn end(py: Python<'_>) {
    let plug = OPEN.with(|open| open.borrow_mut().pop());
    // SAFETY: a plug has no object of Python, and belongs to this thread.
    unsafe { without_gil(py, || drop(plug)) };
}

impl Drop for Plug {
    fn drop(&mut self) {
        // A generator that was abandoned inside a plug, for example. On another thread the plug
        // stays open: that thread issues its I/O when it waits.
        if self.entered_by == Some(thread_number()) {
            Python::try_attach(end);
        }
    }
}
