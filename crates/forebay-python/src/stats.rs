//! Counters of a disk as a dict, from the library's table of counters.

use forebay::{DiskStats, disk_counters};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns the counters of a disk by name.
pub(crate) fn stats<'py>(py: Python<'py>, stats: &DiskStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in stats.counters() {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// Returns the meanings of the counters, by their names.
pub(crate) fn meanings(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for counter in disk_counters() {
        dict.set_item(&*counter.name, counter.help)?;
    }
    Ok(dict)
}
