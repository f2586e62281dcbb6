//! Memory of Python objects through the buffer protocol.
//!
//! While an object is exported, its memory neither moves nor is freed: a `bytearray` refuses to be
//! resized, and a `memoryview` to be released. An export is requested as plain bytes, so the object
//! itself refuses it if its memory is not contiguous. All of this needs the GIL.
// Calls the buffer protocol of Python.
#![allow(unsafe_code)]

use forebay::foreign::{SEGMENT_MAX, cut};
use forebay::{Segment, Segments};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::mem::MaybeUninit;

/// Whether I/O writes to the memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The memory is the source of a write.
    Source,
    /// A read fills the memory.
    Target,
}

/// A place for one export at a time.
pub(crate) struct Export {
    /// On the heap, because an exporter may store addresses within it. Initialized while `is_held`.
    view: Box<MaybeUninit<ffi::Py_buffer>>,
    is_held: bool,
}

// SAFETY: the pointers of a view are those of an object of Python. The methods use them only with
// the GIL, which each of them takes as a parameter.
unsafe impl Send for Export {}
// SAFETY: as above; without `&mut` only addresses are read.
unsafe impl Sync for Export {}

impl Export {
    pub(crate) fn new() -> Export {
        Export { view: Box::new_uninit(), is_held: false }
    }

    /// Exports the memory of an object. Objects that are written in Python may run code here.
    ///
    /// # Errors
    /// `TypeError` if the object has no buffer, and `BufferError` if its memory is not contiguous,
    /// or is read-only and `access` is `Target`. Then nothing is held.
    #[inline]
    pub(crate) fn hold(&mut self, object: &Bound<'_, PyAny>, access: Access) -> PyResult<()> {
        assert!(!self.is_held, "an I/O in flight is not submitted again");
        let flags = match access {
            Access::Source => ffi::PyBUF_SIMPLE,
            Access::Target => ffi::PyBUF_WRITABLE,
        };
        let view = self.view.as_mut_ptr();
        // SAFETY: the object is alive, and `view` is a place for a view. The GIL is held.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view, flags) } != 0 {
            return Err(refused(object, access));
        }
        self.is_held = true;
        // SAFETY: the call has succeeded, so the view is initialized.
        let is_read_only = unsafe { (*view).readonly } != 0;
        if is_read_only && access == Access::Target {
            self.release(object.py());
            return Err(read_only(object));
        }
        Ok(())
    }

    /// Returns the address and the length in bytes of the memory. It is exposed.
    #[inline]
    pub(crate) fn memory(&self) -> (usize, usize) {
        assert!(self.is_held, "memory is used while it is exported");
        // SAFETY: the view is initialized while it is held.
        let view = unsafe { self.view.assume_init_ref() };
        (view.buf.expose_provenance(), usize::try_from(view.len).unwrap_or(0))
    }

    /// Ends the export, if there is one. Objects that are written in Python may run code here.
    #[inline]
    pub(crate) fn release(&mut self, _py: Python<'_>) {
        if std::mem::take(&mut self.is_held) {
            // SAFETY: the view was held, and is not any more. The GIL is held.
            unsafe { ffi::PyBuffer_Release(self.view.as_mut_ptr()) };
        }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        if self.is_held && Python::try_attach(|py| self.release(py)).is_none() {
            // The interpreter has ended. Its object leaks, and with it the place of the view.
            let place = std::mem::replace(&mut self.view, Box::new_uninit());
            std::mem::forget(place);
        }
    }
}

/// Returns the segments of `len` bytes at an exposed address.
#[inline]
pub(crate) fn segments_of(addr: usize, len: usize) -> Segments {
    match len {
        0 => Segments::None,
        1..=SEGMENT_MAX => Segments::One(Segment { addr, len: len as u32 }),
        _ => Segments::Many(cut(addr, len).collect()),
    }
}

/// Returns the exception of an export that failed, with the reason of the object as its cause.
#[cold]
fn refused(object: &Bound<'_, PyAny>, access: Access) -> PyErr {
    let py = object.py();
    let cause = PyErr::fetch(py);
    // SAFETY: the object is alive. The call has no other conditions.
    if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 0 {
        let name = class_of(object);
        let text = format!("an I/O needs an object with a buffer, such as bytearray, not {name}");
        return PyTypeError::new_err(text);
    }
    if !cause.is_instance_of::<PyBufferError>(py) {
        return cause;
    }
    // A request for a source fails for the same reasons, except that the object is read-only.
    let mut probe = Export::new();
    let is_read_only = access == Access::Target && probe.hold(object, Access::Source).is_ok();
    probe.release(py);
    let error = match is_read_only {
        true => read_only(object),
        false => PyBufferError::new_err(format!(
            "the memory of this {} is not one contiguous range, or is not available: {}",
            class_of(object),
            cause.value(py),
        )),
    };
    error.set_cause(py, Some(cause));
    error
}

#[cold]
fn read_only(object: &Bound<'_, PyAny>) -> PyErr {
    let name = class_of(object);
    PyBufferError::new_err(format!("a read needs a writable buffer, and this {name} is read-only"))
}

fn class_of(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().name();
    name.map_or_else(|_| "object".to_owned(), |name| name.to_string())
}
