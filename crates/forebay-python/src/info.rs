//! Properties of a disk as a dict, from the library's table of properties.

use forebay::{Disk, FeatureState, Property, PropertyGroup, PropertyValue};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns the properties of a disk, its features, and its settings by their keys in specs.
pub(crate) fn info<'py>(py: Python<'py>, disk: &Disk) -> PyResult<Bound<'py, PyDict>> {
    let (dict, features, settings) = (PyDict::new(py), PyDict::new(py), PyDict::new(py));
    for Property { name, group, value, .. } in disk.properties() {
        let dict = if group == PropertyGroup::Setting { &settings } else { &dict };
        match value {
            PropertyValue::Flag(is_set) => dict.set_item(name, is_set)?,
            PropertyValue::Number(number) => dict.set_item(name, number)?,
            PropertyValue::Text(text) => dict.set_item(name, text)?,
            _ => dict.set_item(name, py.None())?,
        }
    }
    for feature in &disk.info().features {
        let (is_present, text) = match &feature.state {
            FeatureState::Present(how) => (true, how),
            FeatureState::Missing(why) => (false, why),
        };
        features.set_item(feature.name, (is_present, text))?;
    }
    dict.set_item("features", features)?;
    dict.set_item("settings", settings)?;
    Ok(dict)
}
