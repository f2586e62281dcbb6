//! Changes of a disk in use: its scheduler, and the measure of weights.

use crate::error::{of_setting, os_error};
use crate::open::text_of;
use crate::queue::limit_of;
use forebay::{Disk, Knob, Policy, SCHEDULER_KEYS, WEIGHT_KEYS};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns a policy with the settings of a program, which have these keys.
fn with_settings(
    mut policy: Policy,
    keys: &[&str],
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Policy> {
    for (key, value) in settings.into_iter().flat_map(|settings| settings.iter()) {
        let key: String = key.extract()?;
        let set = policy.set_key_in(keys, &key, &text_of(&key, &value)?);
        set.map_err(|bad| of_setting(&bad))?;
    }
    Ok(policy)
}

/// Returns the settings of a policy with these keys. Numbers are `int`.
fn settings_of<'py>(
    py: Python<'py>,
    keys: &[&str],
    policy: &Policy,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for knob in keys.iter().filter_map(|key| Knob::named(key)) {
        let text = knob.get(policy);
        match (text.as_str(), text.parse::<u64>()) {
            (_, Ok(number)) => dict.set_item(knob.key, number)?,
            (word, Err(_)) => dict.set_item(knob.key, word)?,
        }
    }
    Ok(dict)
}

pub(crate) fn scheduler<'py>(py: Python<'py>, disk: &Disk) -> PyResult<Bound<'py, PyDict>> {
    let policy = Policy::default().with_scheduling(disk.scheduling());
    settings_of(py, &SCHEDULER_KEYS, &policy)
}

pub(crate) fn set_scheduler(
    py: Python<'_>,
    disk: Disk,
    timeout: Option<f64>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let timeout = timeout.map(limit_of).transpose()?;
    let policy = Policy::default().with_scheduling(disk.scheduling());
    let scheduling = with_settings(policy, &SCHEDULER_KEYS, settings)?.scheduling();
    let changed = py.detach(move || match timeout {
        Some(timeout) => disk.set_scheduler_timeout(scheduling, timeout),
        None => disk.set_scheduler(scheduling),
    });
    changed.map_err(|error| os_error(error.errno(), error.to_string()))
}

fn measure_of(disk: &Disk) -> Policy {
    let (by, cost) = disk.weight_by();
    Policy::default().weight_by(by).cost(cost)
}

pub(crate) fn weight_by<'py>(py: Python<'py>, disk: &Disk) -> PyResult<Bound<'py, PyDict>> {
    settings_of(py, &WEIGHT_KEYS, &measure_of(disk))
}

pub(crate) fn set_weight_by(
    py: Python<'_>,
    disk: Disk,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let measure = with_settings(measure_of(&disk), &WEIGHT_KEYS, settings)?;
    py.detach(move || disk.set_weight_by(measure.weight_by, measure.cost));
    Ok(())
}
