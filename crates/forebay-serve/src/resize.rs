//! Resize of the exports: a reload reads their sizes again, and growth reaches the clients.
//!
//! The steps for an export that has grown, so that no client gets a size that a later step refuses:
//!
//! 1. The server checks the new size against the export. If the check fails, nothing changes.
//! 2. The disk accepts I/O up to the new end ([`Disk::grow`](forebay::Disk::grow)).
//! 3. The thread of each ring accepts requests up to it, and answers.
//! 4. New NBD clients get the new size, and the requests of all NBD clients are checked against it.
//! 5. The configuration space of each device has it, and the front end is notified.
//!
//! An export never shrinks while the server runs. A client has the size from when it connected, or
//! its virtual machine from when it read the configuration space. It may have data behind the new
//! end, or requests for it in flight. NBD cannot announce a smaller size, and a guest cannot refuse
//! one. If a file was truncated all the same, reads behind its end fail, and writes make it longer.

use crate::device::unseen_end;
use crate::error::ServeError;
use crate::export::Export;
use crate::shared::Shared;
use forebay::now_ns;
use forebay_vhost_user::Notified;
use std::fmt;
use std::sync::Arc;

/// Size of an export, compared with the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Same,
    Grown { from: u64, to: u64 },
}

/// Reads the sizes of the exports again, or of the one with the index `only`, and writes what has
/// changed to the log.
///
/// # Errors
/// Returns the first error. That export keeps its former size, and the others are still resized.
pub(crate) fn reread(shared: &Shared, only: Option<usize>) -> Result<(), ServeError> {
    let turn = shared.sizes.begin();
    let (mut failed, mut has_grown) = (None, false);
    let mut exports = shared.exports.offered();
    exports.retain(|(export, _)| only.is_none_or(|only| only == *export));
    for (export, opened) in &exports {
        let (export, name) = (*export, &opened.name);
        let log = |text: &dyn fmt::Display| {
            shared.log.line(now_ns(), format_args!("export {name:?}: {text}"));
        };
        let warn = |text: &dyn fmt::Display| {
            shared.log.warn(now_ns(), format_args!("export {name:?}: {text}"));
        };
        let found = reread_one(shared, export, opened);
        let has_new_size = matches!(found, Ok(Found::Grown { .. }));
        match found {
            Ok(Found::Same) => {}
            Ok(Found::Grown { from, to }) => {
                log(&format_args!("grown from {from} to {to} bytes"));
                if let Some(line) = unseen_end(to).filter(|_| has_device(shared, export)) {
                    warn(&line);
                }
            }
            Err(error) => {
                warn(&error);
                failed = failed.or(Some(error));
            }
        }
        has_grown |= has_new_size;
        // Also if nothing has changed: the front end may have missed an earlier change. QEMU
        // ignores messages until its guest has started the device, and keeps a size over a restart
        // of the server. A failure is logged only if there is a new size.
        notify(shared, export, &|text| {
            if has_new_size {
                warn(text);
            }
        });
    }
    drop(turn);
    if let Some(error) = failed {
        return Err(error);
    }
    if !has_grown {
        shared.log.line(now_ns(), "no export has changed its size");
    }
    Ok(())
}

/// Returns whether an export has a device.
fn has_device(shared: &Shared, export: usize) -> bool {
    !shared.devices.of_export(export).is_empty()
}

/// Performs steps 1 to 4 for an export.
fn reread_one(shared: &Shared, export: usize, opened: &Export) -> Result<Found, ServeError> {
    let Export { disk, spec, .. } = opened;
    let refused = |why: String| ServeError::Resize { spec: spec.clone(), why };
    let read = disk.reread_size();
    let read = read.map_err(|error| refused(format!("cannot read the size again: {error}")))?;
    let mut infos = shared.sizes.infos().to_vec();
    let info = &mut infos[export];
    let from = info.size_bytes;
    let Some(to) = read.filter(|to| *to != from) else { return Ok(Found::Same) };
    if to < from {
        return Err(refused(format!(
            "refused to shrink from {from} to {to} bytes: clients may use the bytes behind the new \
             end: restore the former size, or restart the server to serve the new one"
        )));
    }
    let devices = shared.devices.of_export(export);
    let blocks = devices.iter().map(|device| device.block_bytes).chain([info.block_size.min]);
    let block = blocks.max().expect("at least one");
    let why_not =
        |why: String| refused(format!("refused to grow from {from} to {to} bytes: {why}"));
    if !to.is_multiple_of(block.into()) {
        return Err(why_not(format!(
            "the new size is not a multiple of the block size {block}: extend the disk to whole \
             blocks"
        )));
    }
    info.size_bytes = to;
    info.check().map_err(|why| why_not(why.to_owned()))?;
    disk.grow(to).map_err(|error| why_not(error.to_string()))?;
    let resized = shared.sizes.resize_rings(export, to);
    resized.map_err(|why| why_not(why.to_owned()))?;
    shared.sizes.set(Arc::from(infos));
    Ok(Found::Grown { from, to })
}

/// Performs step 5 for an export.
fn notify(shared: &Shared, export: usize, log: &dyn Fn(&dyn fmt::Display)) {
    let size_bytes = shared.sizes.infos()[export].size_bytes;
    for device in shared.devices.of_export(export) {
        let why = match device.config.resize(size_bytes) {
            Notified::Sent | Notified::NoFrontEnd => continue,
            Notified::NoChannel => "it has not set up a backend channel (BACKEND_REQ)",
            Notified::Closed => "it has closed the backend channel",
        };
        log(&format_args!(
            "cannot notify the front end of the size {size_bytes}: {why}: connect it again to use \
             a new size"
        ));
    }
}
