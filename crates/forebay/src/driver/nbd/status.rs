//! Block-status queries: which parts of the export are holes or zeroes.
//!
//! They bypass the layer and use the connection of the shared context, because a server may not
//! allow another one. One thread queries at a time. It receives replies like any other user of the
//! connection. It leaves replies of requests to be reaped, and wakes the waiter for them. Other
//! threads treat the reply to its query in the same way.

use super::queue::{Role, Shared};
use crate::driver::socket::Socket;
use crate::extent::{ExtentKind, Extents};
use forebay_core::BlockStatus;
use forebay_nbd::wire::numbers::{STATE_HOLE, STATE_ZERO};
use std::os::fd::AsFd;
use std::sync::PoisonError;

/// The maximum length of one query, bytes. Servers accept it.
const LEN_MAX: u64 = 1 << 30;

/// The maximum of queries in one call. A server that reports little in each reply would otherwise
/// keep it busy forever. Extents not reported count as data.
const NR_QUESTIONS_MAX: u32 = 1000;

/// Queries until the whole range is known. Lengths are multiples of `unit`.
pub(super) fn ask(
    shared: &Shared,
    mut offset: u64,
    unit: u64,
    capacity: u64,
    extents: &mut Extents<'_>,
) -> Result<(), BlockStatus> {
    let _one_at_a_time = shared.asking.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..NR_QUESTIONS_MAX {
        if extents.left() == 0 {
            break;
        }
        // Whole blocks around the range; the part before `offset` is skipped.
        let start = offset - offset % unit;
        let end = (offset + extents.left()).next_multiple_of(unit).min(capacity);
        let len = (end - start).min(LEN_MAX);
        if len == 0 {
            return Ok(());
        }
        let mut skip = offset - start;
        let before = extents.left();
        ask_once(shared, start, len, &mut |len, state| {
            let here = len.saturating_sub(skip);
            skip -= len - here;
            let kind = match (state & STATE_ZERO != 0, state & STATE_HOLE != 0) {
                (true, true) => ExtentKind::Hole,
                (true, false) => ExtentKind::Zero,
                // A hole that does not read as zeroes may read as anything.
                (false, _) => ExtentKind::Data,
            };
            extents.push(here, kind);
        })?;
        match before - extents.left() {
            // No progress: the list of extents is full, or the reply was shorter than the skipped
            // part.
            0 => return Ok(()),
            got => offset += got,
        }
    }
    Ok(())
}

fn ask_once(
    shared: &Shared,
    start: u64,
    len: u64,
    found: &mut dyn FnMut(u64, u32),
) -> Result<(), BlockStatus> {
    let mut link = shared.lock();
    if link.is_lost() {
        return Err(BlockStatus::Offline);
    }
    link.begin_asking(start, len);
    let mut left = len;
    loop {
        link.send();
        link.receive(false);
        // Other threads may wait for replies that this thread received, or for data it could not
        // send.
        shared.wake_others(&link, Role::StatusQuery);
        if let Some(result) = link.query.take_result() {
            for &(len, state) in link.query.extents() {
                let len = len.min(left);
                left -= len;
                found(len, state);
            }
            return result;
        }
        let for_room = link.holds_back();
        drop(link);
        Socket::poll(Some((shared.fd.as_fd(), for_room)), Some(shared.answered.fd()), None);
        shared.answered.clear();
        link = shared.lock();
    }
}
