//! Disks of paths and descriptors, with options by name.

use crate::error::{of_descriptor, of_open};
use forebay::foreign::duplicate;
use forebay::{Disk, DiskOptions, OpenError};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyString};
use std::ffi::OsStr;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Returns the options of keyword arguments: keys of specs, and `driver`.
fn options_of(given: Option<&Bound<'_, PyDict>>) -> PyResult<DiskOptions> {
    let mut options = Disk::options();
    for (key, value) in given.into_iter().flat_map(|given| given.iter()) {
        let key: String = key.extract()?;
        let value = text_of(&key, &value)?;
        options = match &*key {
            "driver" => options.driver(&value),
            key => options.set(key, &value).map_err(|error| of_open(&OpenError::from(error)))?,
        };
    }
    Ok(options)
}

/// Returns the value of an option as a spec takes it.
pub(crate) fn text_of(key: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(switch) = value.cast::<PyBool>() {
        return Ok(if switch.is_true() { "on" } else { "off" }.to_owned());
    }
    if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyString>() {
        return Ok(value.str()?.to_string());
    }
    let text = format!("{key}: expected a bool, an int or a str, not {}", value.get_type().name()?);
    Err(PyTypeError::new_err(text))
}

pub(crate) fn open_path(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Disk> {
    let options = options_of(options)?;
    let path = match path.cast::<PyBytes>() {
        Ok(bytes) => PathBuf::from(OsStr::from_bytes(bytes.as_bytes())),
        Err(_) => path.extract()?,
    };
    py.detach(|| options.open_path(path)).map_err(|error| of_open(&error))
}

pub(crate) fn open_fd(
    py: Python<'_>,
    fd: RawFd,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Disk> {
    let options = options_of(options)?;
    let own = duplicate(fd).map_err(|error| of_descriptor(fd, &error))?;
    py.detach(|| options.open_fd(own)).map_err(|error| of_open(&error))
}
