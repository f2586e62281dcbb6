//! Counters of a disk as a dict, from the library's table of counters.

use forebay::{COUNTERS, DiskStats, MergeKind, Op, UnplugCause};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns the counters of a disk: those of the table, those of the driver, and those of each kind
/// of merge, unplug and operation. C programs use the same names.
pub(crate) fn stats<'py>(py: Python<'py>, stats: &DiskStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for counter in COUNTERS {
        dict.set_item(counter.name, counter.of(&stats.queue))?;
    }
    dict.set_item("nr_syscalls", stats.nr_syscalls)?;
    dict.set_item("skipped_runs", stats.skipped_runs)?;
    dict.set_item("tag_rescues", stats.tag_rescues)?;
    for kind in MergeKind::ALL {
        dict.set_item(format!("merges_{}", kind.name()), stats.queue.merges(kind))?;
    }
    for cause in UnplugCause::ALL {
        dict.set_item(format!("unplugs_{}", cause.name()), stats.queue.unplugs(cause))?;
    }
    for op in Op::ALL {
        let (counters, name) = (stats.queue.op(op), op.name());
        dict.set_item(format!("{name}_bios"), counters.bios)?;
        dict.set_item(format!("{name}_merges"), counters.merges)?;
        dict.set_item(format!("{name}_requests"), counters.requests)?;
        dict.set_item(format!("{name}_bytes"), counters.bytes)?;
        dict.set_item(format!("{name}_ticks_ns"), counters.ticks_ns)?;
    }
    Ok(dict)
}

/// Returns the meanings of the counters of the table, by their names.
pub(crate) fn meanings(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for counter in COUNTERS {
        dict.set_item(counter.name, counter.help)?;
    }
    Ok(dict)
}
