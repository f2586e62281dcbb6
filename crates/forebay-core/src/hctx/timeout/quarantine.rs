//! Bios that end before the driver is done with their request (H5), and the quarantine of their
//! memory.
//!
//! The slot of such a request stays in the table as [`SlotState::GivenUp`], so its tag is taken and
//! it counts as in flight. Its bios leave as after a failure. Each bio with memory carries a
//! [`MemoryHold`], and the quarantine keeps a second handle of it until the driver completes the
//! request. The owner of the bio puts the memory into the hold and drops its handle. The last
//! handle that is dropped frees the memory, so the two sides need no other synchronization.
//!
//! A bio that is split has one hold for all of its parts.

use super::Timeouts;
use crate::bio::{BioFlags, Op, Segments};
use crate::driver::Completed;
use crate::hctx::{HardwareContext, SlotState, Turn};
use crate::plant::plants;
use crate::request::{MemoryHold, NewMemoryHold, QueuedBio, Request, Splits};
use crate::status::BlockStatus;
use crate::tag::Tag;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Creates the holds of a context if [`HardwareContext::set_new_hold`] was not called.
pub(super) fn no_memory() -> MemoryHold {
    Arc::new(())
}

/// A request at the driver whose bios have ended.
#[derive(Debug)]
pub(super) struct GivenUp {
    tag: Tag,
    op: Op,
    flags: BioFlags,
    /// It may still change the device (H6).
    is_change: bool,
    /// The number of bytes, if it is a write that syncs a file (F8).
    sync_len: Option<u64>,
    /// The memory that the driver may use.
    holds: Vec<MemoryHold>,
}

impl Timeouts {
    fn take_overdue(&mut self, tag: Tag) {
        self.overdue.retain(|overdue| overdue.tag != tag);
    }
}

impl Turn<'_> {
    /// Ends the bios of a request that is given up (H5), if the submitters keep their memory valid.
    pub(super) fn give_up(&mut self, tag: Tag) {
        let HardwareContext {
            table,
            splits,
            timeouts,
            retries,
            flush,
            limits,
            nr_begun,
            elevator,
            ..
        } = &mut *self.hctx;
        let slot = &mut table[tag.index()];
        let Some(rq) = slot.rq.as_mut().filter(|rq| may_end_early(rq, splits)) else { return };
        // A thread that makes the I/O itself continues its call after the bio has ended.
        *nr_begun -= u32::from(slot.state == SlotState::Begun);
        slot.state = SlotState::GivenUp;
        timeouts.take_overdue(tag);
        let mut given_up = GivenUp {
            tag,
            op: rq.op,
            flags: rq.flags,
            is_change: false,
            sync_len: None,
            holds: Vec::new(),
        };
        if tag == flush.tag() {
            timeouts.given_up.push(given_up);
            return self.give_up_flush();
        }
        if let Some(elevator) = elevator {
            elevator.given_up(tag);
        }
        let mut rq = slot.rq.take().expect("checked above");
        // This happens before any bio ends, so a later bio of the same submitter finds the range.
        given_up.is_change = rq.op.is_write();
        if given_up.is_change {
            retries.quarantine(rq.ranges(splits));
            // Any part of its data may be missing from the device, even after a flush.
            rq.doubt(splits);
        }
        if rq.steps.is_native_fua() && limits.fua_is_sync {
            given_up.sync_len = Some(rq.window_len(splits));
            flush.sync_given_up();
        }
        given_up.holds = rq.hold_memory(splits, timeouts.new_hold);
        if plants!(DropHold) {
            given_up.holds.clear();
        }
        timeouts.given_up.push(given_up);
        self.hctx.counters.early_ends.add(rq.nr_bios.into());
        self.end_given_up(rq);
    }

    /// Handles the completion of a request that was given up: its result is dropped.
    #[cold]
    pub(in crate::hctx) fn complete_given_up(&mut self, nth: usize) {
        let &Completed { tag, result } = self.hctx.completions.get(nth);
        let HardwareContext { table, timeouts, retries, flush, .. } = &mut *self.hctx;
        let slot = &mut table[tag.index()];
        assert!(slot.state == SlotState::GivenUp, "a tag completes once, and only if it is issued");
        slot.state = SlotState::Idle;
        let place = timeouts.given_up.iter().position(|given_up| given_up.tag == tag);
        let given_up = timeouts.given_up.swap_remove(place.expect("it is listed"));
        if tag == flush.tag() {
            flush.give_back(slot.rq.take());
            self.note_late_sync(result.map(|_| 0), 0);
        } else {
            if given_up.is_change {
                retries.release();
            }
            self.hctx.put_tag(tag, given_up.flags);
            if let Some(len) = given_up.sync_len {
                self.hctx.flush.sync_is_back();
                self.note_late_sync(result, len);
            }
        }
        let HardwareContext { nr_in_flight, busy_since_ns, counters, .. } = &mut *self.hctx;
        *nr_in_flight -= 1;
        if *nr_in_flight == 0 {
            counters.busy_ns.add(self.now.saturating_sub(*busy_since_ns));
        }
    }
}

impl Turn<'_> {
    /// Records the failure of a flush, or of a write that syncs a file, that was given up. Writes
    /// that have ended since then may be lost, too.
    fn note_late_sync(&mut self, result: Result<u64, BlockStatus>, len: u64) {
        if result != Ok(len) {
            self.note_failure(result.err().unwrap_or(BlockStatus::Io));
            self.report_pending();
        }
    }
}

impl HardwareContext {
    /// Sets the function that creates the holds of memory in quarantine.
    pub fn set_new_hold(&mut self, new_hold: NewMemoryHold) {
        self.timeouts.new_hold = new_hold;
    }

    /// Returns whether the only requests left are at the driver, and all of their bios have ended
    /// (H5). If the driver never completes them, no turn will change that.
    pub fn has_only_given_up(&self) -> bool {
        let nr_given_up = self.timeouts.nr_given_up();
        nr_given_up > 0
            && self.nr_in_flight == nr_given_up
            && !self.has_waiting()
            && self.outside.is_empty()
            && !self.has_owned()
    }

    /// Returns the number of tags of requests that were given up and are at the driver.
    pub fn nr_given_up_tags(&self) -> u32 {
        self.given_up_data().count() as u32
    }

    /// Returns these tags, with the operation and the flags of each.
    pub(in crate::hctx) fn given_up_data(&self) -> impl Iterator<Item = (Tag, Op, BioFlags)> {
        let tag_of_flush = self.flush.tag();
        let given_up = self.timeouts.given_up.iter().filter(move |it| it.tag != tag_of_flush);
        given_up.map(|it| (it.tag, it.op, it.flags))
    }

    /// Gives the tags of requests that were given up back to the set, for its other users, and
    /// returns their number. No turn may follow: the context and its driver are leaked.
    pub fn put_given_up_tags(&mut self) -> u32 {
        let tag_of_flush = self.flush.tag();
        // The records stay: their holds keep the buffers.
        for given_up in &self.timeouts.given_up {
            if given_up.tag != tag_of_flush {
                self.tags.put(given_up.tag);
            }
        }
        self.tags.give_back()
    }

    /// Returns the number of bios whose memory is in quarantine (H5).
    pub fn nr_quarantined(&self) -> usize {
        self.timeouts.given_up.iter().map(|given_up| given_up.holds.len()).sum()
    }

    /// Returns whether a request whose bios have ended may still change the device (H6).
    pub fn may_change_late(&self) -> bool {
        self.timeouts.given_up.iter().any(|given_up| given_up.is_change)
    }
}

impl Request {
    /// Gives each bio with memory a hold, and returns a second handle of each.
    fn hold_memory(&mut self, splits: &mut Splits, new_hold: NewMemoryHold) -> Vec<MemoryHold> {
        let mut holds = Vec::new();
        let mut bio = Some(self.head_mut(splits));
        while let Some(queued) = bio {
            if !matches!(queued.bio.segments, Segments::None) {
                holds.push(Arc::clone(queued.hold.get_or_insert_with(new_hold)));
            }
            bio = queued.next.as_deref_mut();
        }
        holds
    }
}

/// Returns whether no bio of the request has borrowed memory.
fn may_end_early(rq: &Request, splits: &Splits) -> bool {
    let is_kept = |queued: &QueuedBio| {
        matches!(queued.bio.segments, Segments::None) || queued.bio.flags.contains(BioFlags::OWNED)
    };
    core::iter::successors(Some(rq.head(splits)), |bio| bio.next.as_deref()).all(is_kept)
}
