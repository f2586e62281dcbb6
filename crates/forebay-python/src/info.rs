//! Properties of a disk as a dict, by the names that C programs and specs use.

use forebay::{Disk, FeatureState, KNOBS};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns the properties of a disk, its features, and its settings by their keys in specs.
pub(crate) fn info<'py>(py: Python<'py>, disk: &Disk) -> PyResult<Bound<'py, PyDict>> {
    let (info, limits, dict) = (disk.info(), disk.limits(), PyDict::new(py));
    dict.set_item("spec", &info.spec)?;
    dict.set_item("driver", info.driver)?;
    dict.set_item("notice", info.notice.as_deref())?;
    dict.set_item("failed", disk.is_failed())?;
    dict.set_item("failure", disk.failure())?;
    dict.set_item("capacity", disk.capacity_bytes())?;
    dict.set_item("read_only", limits.read_only)?;
    dict.set_item("logical_block_size", limits.logical_block_size)?;
    dict.set_item("physical_block_size", limits.physical_block_size)?;
    dict.set_item("io_min", limits.io_min)?;
    dict.set_item("io_opt", limits.io_opt)?;
    dict.set_item("memory_alignment", u64::from(limits.dma_alignment) + 1)?;
    dict.set_item("max_transfer", u64::from(limits.max_sectors) * 512)?;
    dict.set_item("discard_granularity", limits.discard_granularity)?;
    dict.set_item("write_zeroes", limits.max_write_zeroes_sectors > 0)?;
    dict.set_item("volatile_cache", limits.volatile_cache)?;
    let features = PyDict::new(py);
    for feature in &info.features {
        let (is_present, text) = match &feature.state {
            FeatureState::Present(how) => (true, how),
            FeatureState::Missing(why) => (false, why),
        };
        features.set_item(feature.name, (is_present, text))?;
    }
    dict.set_item("features", features)?;
    let settings = PyDict::new(py);
    for knob in &KNOBS {
        let text = knob.get(&info.policy);
        match text.parse::<u64>() {
            Ok(number) => settings.set_item(knob.key, number)?,
            Err(_) => settings.set_item(knob.key, text)?,
        }
    }
    dict.set_item("settings", settings)?;
    Ok(dict)
}
