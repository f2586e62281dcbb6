//! Group commit for a file of the program.

use crate::error::{of_descriptor, os_error};
use forebay::foreign::duplicate;
use forebay::{CommitError, CommitPoint, SyncKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::fs::File;
use std::os::fd::RawFd;

/// Threads that write to a file share its syncs: one thread syncs, and those that arrive meanwhile
/// share the next sync. Any number of threads may use it at once. Waits release the GIL.
///
/// `sync` is "data" (fdatasync) or "all" (fsync). The descriptor is duplicated. All syncs of the
/// file must go through this object, because the kernel reports an error once.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct GroupCommit {
    commit: forebay::GroupCommit<File>,
}

fn failed(error: &CommitError) -> PyErr {
    os_error(error.errno(), error.to_string())
}

#[pymethods]
impl GroupCommit {
    #[new]
    #[pyo3(signature = (fd, *, sync="data"))]
    fn new(fd: RawFd, sync: &str) -> PyResult<GroupCommit> {
        let kind = match sync {
            "data" => SyncKind::Data,
            "all" => SyncKind::All,
            other => {
                let text = format!("sync={other:?}: expected \"data\" or \"all\"");
                return Err(PyValueError::new_err(text));
            }
        };
        let own = duplicate(fd).map_err(|error| of_descriptor(fd, &error))?;
        Ok(GroupCommit { commit: forebay::GroupCommit::with_kind(File::from(own), kind) })
    }

    /// Returns a point for `commit`. Take it before the write.
    fn point(&self) -> u64 {
        self.commit.point().to_bits()
    }

    /// Waits until a sync that began after this call has succeeded. With a point, it fails if, and
    /// only if, a loss concerns writes after that point. Without one, it fails after any loss until
    /// `acknowledge_loss`.
    #[pyo3(signature = (since=None))]
    fn commit(&self, py: Python<'_>, since: Option<u64>) -> PyResult<()> {
        let commit = &self.commit;
        py.detach(move || match since {
            Some(point) => commit.commit_since(CommitPoint::from_bits(point)),
            None => commit.commit(),
        })
        .map_err(|error| failed(&error))
    }

    /// Acknowledges that writes were lost. Returns whether any were.
    fn acknowledge_loss(&self) -> bool {
        self.commit.acknowledge_loss().is_some()
    }

    /// Returns the numbers of commits, syncs and failed syncs.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, dict) = (self.commit.stats(), PyDict::new(py));
        dict.set_item("commits", stats.commits)?;
        dict.set_item("syncs", stats.syncs)?;
        dict.set_item("losses", stats.losses)?;
        Ok(dict)
    }
}
