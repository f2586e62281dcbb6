//! Lists of the segments of blocking calls, without an allocation for each call.
//!
//! The layer needs a list of the segments. Each thread keeps the list of its last call, with room
//! for [`SPARE_MAX`] segments at most, and fills it again.
// Blocking calls pass the addresses of borrowed memory to drivers.
#![allow(unsafe_code)]

use crate::error::IoError;
use crate::io::segments_of;
use crate::runtime::shared::Shared;
use forebay_core::{Bio, Segment, Segments};
use std::cell::Cell;
use std::sync::Arc;

/// The maximum number of segments for which a thread keeps memory: as many as a system call accepts
/// (`IOV_MAX`).
const SPARE_MAX: usize = 1024;

thread_local! {
    /// The list of the last call of this thread.
    static SPARE: Cell<Vec<Segment>> = const { Cell::new(Vec::new()) };
}

/// Runs a bio, and keeps its list for the next call of the thread.
///
/// # Safety
/// Same as [`Disk::run_raw`](crate::Disk::run_raw).
pub(crate) unsafe fn run_with_list(shared: &Arc<Shared>, bio: Bio) -> Result<u64, IoError> {
    let mut segments = Segments::None;
    // SAFETY: the caller's obligations are passed on.
    let result = unsafe { shared.run_and_return_list(bio, Some(&mut segments)) }?;
    if let Segments::Many(list) = segments {
        keep(list);
    }
    Ok(result?)
}

/// Returns the segments of pieces of memory, each an address and a length, and their total length.
pub(crate) fn list(parts: impl Iterator<Item = (usize, usize)>) -> (Segments, u64) {
    let mut list = SPARE.try_with(Cell::take).unwrap_or_default();
    let mut total = 0_u64;
    for (addr, len) in parts {
        // A length beyond the address space is out of range for every disk.
        total = total.saturating_add(len as u64);
        match segments_of(addr, len) {
            Segments::None => {}
            Segments::One(segment) => list.push(segment),
            Segments::Many(segments) => list.extend(segments),
        }
    }
    let segments = match list[..] {
        [] => Segments::None,
        [segment] => Segments::One(segment),
        _ => return (Segments::Many(list), total),
    };
    keep(list);
    (segments, total)
}

/// Keeps a list for the next call of this thread, if it is not too long.
fn keep(mut list: Vec<Segment>) {
    list.clear();
    if list.capacity() <= SPARE_MAX {
        // At the end of a thread the list is freed.
        let _ = SPARE.try_with(|spare| spare.set(list));
    }
}
