//! Exports of files that a client of the control socket has opened.
//!
//! Such an export is the same as one that the server opens by its path, except that the server does
//! not open the file.

use crate::config::ExportOptions;
use crate::error::ServeError;
use crate::export::{Export, HW_QUEUES, chooses_hw_queues, spec};
use forebay::{Disk, OpenError};
use forebay_nbd::export::ExportInfo;
use std::fs::File;
use std::os::fd::OwnedFd;

/// Opens the disk of an export on descriptors of its file, of which it uses at most `nr`. The file
/// of a single one is opened again: it may be a duplicate of a descriptor that the client uses.
pub(crate) fn open(
    options: &ExportOptions,
    nr_hw_queues: Option<u32>,
    mut descriptors: Vec<OwnedFd>,
    nr: usize,
) -> Result<(Export, ExportInfo), ServeError> {
    let failed = |source| ServeError::Open { spec: options.written(), source };
    let mut spec = spec(options)?;
    if let Some(nr) = nr_hw_queues.filter(|_| !chooses_hw_queues(&spec)) {
        spec.set(HW_QUEUES, &nr.to_string());
    }
    descriptors.truncate(nr);
    let files: Vec<File> = descriptors.into_iter().map(File::from).collect();
    // NBD servers export an empty file, with the size 0.
    let facts = files[0].metadata().ok();
    let is_empty = facts.is_some_and(|facts| facts.is_file() && facts.len() == 0);
    if is_empty {
        spec.set("capacity", "growing");
    }
    let mut disk = Disk::options();
    if spec.driver() != "file" {
        disk = disk.driver(spec.driver());
    }
    for (key, value) in spec.keys() {
        disk = disk.set(key, value).map_err(|error| failed(OpenError::Spec(error)))?;
    }
    let mut descriptors: Vec<OwnedFd> = files.into_iter().map(OwnedFd::from).collect();
    let opened = match descriptors.len() {
        1 => disk.open_fd(descriptors.remove(0)),
        _ => disk.open_fds(descriptors),
    };
    let disk = opened.map_err(|error| match error {
        OpenError::NoPermission { .. } => ServeError::FewFiles { spec: options.written(), nr },
        error => failed(error),
    })?;
    let size_bytes = match is_empty {
        true => Some(0),
        false => disk.capacity_bytes(),
    };
    let size_bytes = size_bytes.ok_or_else(|| ServeError::Grows { spec: options.written() })?;
    Export::of(options, (disk, size_bytes))
}
