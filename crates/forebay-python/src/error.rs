//! Failures as exceptions: `OSError` with errno and text, or the exception of a misuse.

use forebay::{BlockStatus, IoError, OpenError};
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};

/// Returns an `OSError`. Python creates the subclass for the errno, such as `FileNotFoundError`.
#[cold]
pub(crate) fn os_error(errno: i32, text: impl Into<String>) -> PyErr {
    PyOSError::new_err((errno, text.into()))
}

#[cold]
pub(crate) fn of_io(error: impl Into<IoError>) -> PyErr {
    let error = error.into();
    os_error(error.errno(), error.to_string())
}

#[cold]
pub(crate) fn of_status(status: BlockStatus) -> PyErr {
    of_io(IoError::from(status))
}

#[cold]
pub(crate) fn of_open(error: &OpenError) -> PyErr {
    os_error(error.errno(), error.to_string())
}

/// Returns the exception of a setting with a bad value.
#[cold]
pub(crate) fn of_setting(error: &impl std::error::Error) -> PyErr {
    os_error(libc::EINVAL, error.to_string())
}

/// Returns the exception of a failed system call.
#[cold]
pub(crate) fn of_system(error: &std::io::Error) -> PyErr {
    os_error(forebay::errno_of(error), error.to_string())
}

/// Returns the exception of a descriptor that cannot be duplicated.
#[cold]
pub(crate) fn of_descriptor(fd: std::os::fd::RawFd, error: &std::io::Error) -> PyErr {
    let text = format!("cannot duplicate the descriptor {fd}: {error}");
    os_error(forebay::errno_of(error), text)
}

/// Returns the exception of a use after `close()`, as a file object raises it.
#[cold]
pub(crate) fn closed(object: &str) -> PyErr {
    PyValueError::new_err(format!("the {object} is closed"))
}

/// Returns the exception of a call that the state of an object does not allow.
#[cold]
pub(crate) fn misuse(text: &'static str) -> PyErr {
    PyRuntimeError::new_err(text)
}
