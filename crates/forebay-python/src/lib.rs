//! Forebay for Python: the native module `forebay._forebay` of the package `forebay`.
//!
//! The rules for all classes:
//!
//! - The module needs the GIL. A free-threaded build of Python enables it on import.
//! - A wait for I/O releases the GIL ([`detach`]).
//! - A queue is used by the thread that opened it. Other threads get `RuntimeError` ([`owned`]).
//! - A buffer is exported from the submission of its I/O until its completion is reaped. So its
//!   memory neither moves nor disappears while a device uses it ([`export`]).
//! - A queue that is closed or collected waits for its I/O. If another thread collects it, its own
//!   thread closes it, at its next call or when it ends ([`threads`]).
//! - Memory of buffers is passed on by address. No reference to it is made, because Python code may
//!   change it at any time.
//! - One interpreter of a process may use the module ([`interpreter`]).
//! - I/O that fails raises `OSError` with an errno and a text ([`error`]).
mod blocking;
mod commit;
mod detach;
mod disk;
mod error;
mod export;
mod info;
mod interpreter;
mod io;
mod open;
mod owned;
mod owner;
mod plug;
mod queue;
mod scheduling;
mod stats;
mod threads;
mod vectored;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
mod _forebay {
    #[pymodule_export]
    use crate::commit::GroupCommit;
    #[pymodule_export]
    use crate::disk::Disk;
    #[pymodule_export]
    use crate::io::Io;
    #[pymodule_export]
    use crate::owner::Owner;
    #[pymodule_export]
    use crate::plug::Plug;
    #[pymodule_export]
    use crate::queue::Queue;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::interpreter::check_is_only(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    /// Returns a context manager. While it is open, I/O that this thread submits on any disk waits,
    /// so that neighbours merge. It is issued when the outermost plug ends, a limit is reached, or
    /// the thread waits for I/O.
    #[pyfunction]
    fn plug() -> Plug {
        Plug::new()
    }

    /// Returns a dict with the meaning of each counter of the layer, by its name in `Disk.stats()`.
    #[pyfunction]
    fn counters(py: Python<'_>) -> PyResult<Bound<'_, pyo3::types::PyDict>> {
        crate::stats::meanings(py)
    }
}
