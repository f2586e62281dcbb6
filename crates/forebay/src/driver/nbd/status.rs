//! What is asked of a server beside the layer: which parts of the export are holes or zeroes.
//!
//! It goes over the connection of the shared context, since a server may allow no other. One thread
//! asks at a time. It receives replies like any other that uses the connection, and what it finds
//! of requests it leaves to be reaped, and tells who waits; so do others with what it waits for.

use super::queue::{By, Shared};
use super::socket::Socket;
use crate::extent::{ExtentKind, Extents};
use forebay_core::BlockStatus;
use forebay_nbd::wire::numbers::{STATE_HOLE, STATE_ZERO};
use std::os::fd::AsFd;
use std::sync::PoisonError;

/// The most bytes that are asked about at once: what servers bear.
const LEN_MAX: u64 = 1 << 30;

/// A question, and the answer so far.
#[derive(Debug, Default)]
pub(super) struct Asked {
    is_open: bool,
    /// Lengths, bytes, and `STATE_*`. Limited: what is beyond is asked for again.
    extents: Vec<(u64, u32)>,
    result: Option<Result<(), BlockStatus>>,
}

/// How many extents of an answer are kept.
const NR_EXTENTS_MAX: usize = 4096;

/// How many questions one call asks at most. A server that says little in each answer would keep
/// it busy for ever; what is not told is data.
const NR_QUESTIONS_MAX: u32 = 1000;

impl Asked {
    pub(super) fn begin(&mut self) {
        self.is_open = true;
        self.extents.clear();
        self.result = None;
    }

    pub(super) fn extent(&mut self, len: u64, state: u32) {
        if self.extents.len() < NR_EXTENTS_MAX {
            self.extents.push((len, state));
        }
    }

    pub(super) fn end(&mut self, result: Result<(), BlockStatus>) {
        if std::mem::take(&mut self.is_open) {
            self.result = Some(result);
        }
    }

    #[cfg(test)]
    pub(super) fn result(&self) -> Option<Result<(), BlockStatus>> {
        self.result
    }

    /// Whether somebody is to be told of an answer.
    pub(super) fn has_answer(&self) -> bool {
        self.result.is_some()
    }
}

/// Asks until all is known that is wanted. `len_unit` is what lengths are multiples of.
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
        // Whole blocks around what is wanted; what is before it is skipped.
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
            // The extents may be as many as there may be, or shorter than what was skipped.
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
    told: &mut dyn FnMut(u64, u32),
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
        // Others wait for what this thread has received, or left to be sent.
        shared.tell(&link, By::Asker);
        if let Some(result) = link.asked.result.take() {
            for &(len, state) in &link.asked.extents {
                let len = len.min(left);
                left -= len;
                told(len, state);
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
