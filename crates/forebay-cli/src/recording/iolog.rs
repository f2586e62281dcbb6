//! Iologs of fio.

use std::path::Path;

use forebay_fio::iolog::Recording;

use crate::failure::Failure;

/// Reads an iolog of fio.
///
/// # Errors
///
/// The file cannot be read, or a line is wrong.
pub(crate) fn read_iolog(path: &Path) -> Result<Recording, Failure> {
    let text = std::fs::read(path)
        .map_err(|error| Failure::Run(format!("cannot read the log: {error}")))?;
    let text = String::from_utf8(text)
        .map_err(|_| Failure::Run("the log is neither text nor a file of blktrace".to_owned()))?;
    Recording::parse(&text).map_err(|error| Failure::Run(error.to_string()))
}
