//! Options of opening a file, from the keys of a spec.

use crate::error::SpecError;
use crate::keys::Keys;
use crate::settings::Settings;

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) direct: bool,
    pub(super) growing: bool,
    pub(super) read_only: bool,
    /// The key `fua`, if set: each durable write is one call with its own sync (`RWF_DSYNC`).
    pub(super) fua: Option<bool>,
}

impl Options {
    /// Takes the options.
    ///
    /// # Errors
    /// A key has a value that it does not take.
    pub(super) fn take(keys: &mut Keys, settings: &Settings) -> Result<Options, SpecError> {
        let growing = keys.take("capacity", "fixed or growing", |value| match value {
            "fixed" => Some(false),
            "growing" => Some(true),
            _ => None,
        })?;
        Ok(Options {
            direct: keys.take_switch("direct")?.unwrap_or(false),
            growing: growing.unwrap_or(false),
            read_only: settings.read_only(),
            fua: settings.fua(),
        })
    }
}
