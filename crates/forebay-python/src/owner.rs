//! Owners of I/O on a disk, with limits, weights and latency goals.

use crate::error::{of_setting, os_error};
use crate::open::text_of;
use forebay::{BioQueue, LIMIT_KEYS, Limits, OWNER_COUNTERS, OwnerError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Mutex, PoisonError};

/// An owner of I/O on a disk: a tenant, a connection, a job. `Disk.owner` and `Owner.child` return
/// it. Any number of threads may use it at once. It keeps the disk open.
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Owner {
    /// `None` once it is removed.
    owner: Mutex<Option<forebay::Owner>>,
}

#[cold]
fn failed(error: &OwnerError) -> PyErr {
    os_error(error.errno(), error.to_string())
}

/// Returns the owner that a call has found or added.
pub(crate) fn open(added: Result<forebay::Owner, OwnerError>) -> PyResult<Owner> {
    added.map(Owner::new).map_err(|error| failed(&error))
}

impl Owner {
    pub(crate) fn new(owner: forebay::Owner) -> Owner {
        Owner { owner: Mutex::new(Some(owner)) }
    }

    /// Calls a function with the owner. The lock is held only briefly, and never while code of the
    /// program runs.
    fn with<T>(&self, call: impl FnOnce(&forebay::Owner) -> T) -> PyResult<T> {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        owner.as_ref().map(call).ok_or_else(|| PyValueError::new_err("the owner was removed"))
    }

    /// Calls a function that takes locks of the disk, without the GIL.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&forebay::Owner) -> Result<T, OwnerError> + Send,
    ) -> PyResult<T> {
        let owner = self.with(forebay::Owner::clone)?;
        // The clone may be the last one. Dropping it then waits for I/O, so that happens here.
        py.detach(move || call(&owner)).map_err(|error| failed(&error))
    }

    /// Returns the number for I/O on a queue.
    ///
    /// # Errors
    /// `ValueError` if the owner was removed, or is of another disk.
    pub(crate) fn number_on(&self, queue: &BioQueue) -> PyResult<u32> {
        let number = |owner: &forebay::Owner| {
            queue.accepts_owner(owner).then(|| owner.origin().owner()).ok_or_else(|| {
                let text = format!("the owner {} is of another disk than the queue", owner.name());
                PyValueError::new_err(text)
            })
        };
        self.with(number)?
    }

    fn end(&self, py: Python<'_>) {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(move || drop(owner));
    }
}

#[pymethods]
impl Owner {
    /// The name.
    #[getter]
    fn name(&self) -> PyResult<String> {
        self.with(|owner| owner.name().to_owned())
    }

    /// Returns the owner with this name below this one. Adds it if there is none. Its I/O counts
    /// against the limits of both, and the children of an owner divide its share.
    fn child(&self, py: Python<'_>, name: &str) -> PyResult<Owner> {
        self.change(py, |owner| owner.child(name)).map(Owner::new)
    }

    /// Sets all limits: `iops`, `bps`, `read_iops`, `read_bps`, `write_iops`, `write_bps` (I/Os or
    /// bytes per second), each of these with `_burst`, and `latency_target_us`, a latency goal.
    /// Values are numbers, or texts such as "10m". 0 is no limit. Limits that are not given are
    /// removed.
    #[pyo3(signature = (**limits))]
    fn set_limits(&self, py: Python<'_>, limits: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let mut all = Limits::default();
        for (key, value) in limits.into_iter().flat_map(|limits| limits.iter()) {
            let key: String = key.extract()?;
            let set = all.set_key(&key, &text_of(&key, &value)?);
            set.map_err(|bad| of_setting(&bad))?;
        }
        self.change(py, move |owner| owner.set_limits(&all))
    }

    /// Returns the limits that are set as a dict. The default of a burst is a number.
    fn limits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (limits, dict) = (self.with(forebay::Owner::limits)?, PyDict::new(py));
        for limit in &LIMIT_KEYS {
            if let Some(number) = limit.number(&limits) {
                dict.set_item(limit.key, number)?;
            }
        }
        Ok(dict)
    }

    /// The weight, 1 to 10000: the share of the owner among its siblings, while each has I/O that
    /// waits for a tag. To set it, the disk needs one hardware context (`nr_hw_queues=1`).
    #[getter]
    fn weight(&self) -> PyResult<u32> {
        self.with(forebay::Owner::weight)
    }

    #[setter]
    fn set_weight(&self, py: Python<'_>, weight: u32) -> PyResult<()> {
        self.change(py, move |owner| owner.set_weight(weight))
    }

    /// Returns the counters of the owner's I/O as a dict, without that of its children. `depth` is
    /// `None` unless another owner misses its latency goal.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, dict) = (self.with(forebay::Owner::stats)?, PyDict::new(py));
        for counter in &OWNER_COUNTERS {
            dict.set_item(counter.name, counter.of(&stats))?;
        }
        Ok(dict)
    }

    /// Removes the owner from its disk. I/O that waits for its limits goes on without any. The
    /// owner cannot be used afterwards.
    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, |owner| owner.clone().remove())?;
        self.end(py);
        Ok(())
    }

    fn __repr__(&self) -> String {
        let text = self.with(|owner| format!("<forebay.Owner {}>", owner.name()));
        text.unwrap_or_else(|_| "<forebay.Owner removed>".to_owned())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // It may be the last handle of the disk: dropping that waits for I/O in flight.
        Python::try_attach(|py| self.end(py));
    }
}
