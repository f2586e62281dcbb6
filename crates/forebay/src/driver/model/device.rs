//! The device that a spec's target names: a preset, or the machine of a model file.

use crate::error::{OpenError, SpecError};
use crate::spec::Spec;
use forebay_model::machines;
use forebay_model::{ConfiguredMachine, ModelFile};
use std::io::ErrorKind;
use std::path::PathBuf;

/// The valid targets.
pub(super) const NAMES: &str = "one of hdd, ssd-sas, nvme, virtio-ram, sata, or a model file, \
                                which is a path with a / or the ending .model";

/// Returns the device with its constants and its size. `hdd` names a preset, `./hdd` and `my.model`
/// name files.
///
/// # Errors
/// The name is unknown, or the file cannot be read or is wrong.
pub(super) fn device(spec: &Spec) -> Result<ConfiguredMachine, OpenError> {
    let target = spec.target();
    if ModelFile::is_path(target) {
        return of_file(target);
    }
    let preset = machines::named(target).ok_or_else(|| SpecError::BadTarget {
        driver: spec.driver(),
        target: target.to_owned(),
        expected: NAMES,
    })?;
    Ok(ConfiguredMachine {
        preset,
        values: preset.defaults(),
        capacity_bytes: preset.capacity_bytes,
    })
}

fn of_file(target: &str) -> Result<ConfiguredMachine, OpenError> {
    let path = PathBuf::from(target);
    let text = std::fs::read_to_string(&path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => {
            let hint = "; a name with a / or the ending .model is a model file".to_owned();
            OpenError::NotFound { path: path.clone(), hint }
        }
        _ => OpenError::System { path: path.clone(), call: "read", source },
    })?;
    let machine = ModelFile::parse(&text).and_then(|file| {
        let family = file.family();
        file.machine()?.ok_or_else(|| {
            let names: Vec<_> = machines::ALL.iter().map(|preset| preset.name).collect();
            let names = names.join(", ");
            let name = family.value.as_str();
            family.error(match name {
                "fixed" | "flaky" => format!(
                    "family={name}: only forebay sim has this family; calibrate with \
                     --family=nvme, or another of: {names}"
                ),
                _ => format!("family={name}: expected one of {names}"),
            })
        })
    });
    machine.map_err(|error| OpenError::ModelFile { path, why: error.to_string() })
}
