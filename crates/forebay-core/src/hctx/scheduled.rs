//! Requests between their tag and the device, in a context with a scheduler.
//!
//! A request takes its tag by the same rules as without a scheduler. Then it is queued in the
//! [`Elevator`](crate::sched::Elevator), which chooses the next one whenever the device has room.
//! Before it takes a tag, it merges with a queued request if it can, and the grown request with its
//! own neighbours. So bios merge that come from different threads, or from different plugs.
//!
//! - Q4 a queued request has a tag, and its row of the table says `Queued`. Exactly these requests
//!   are in the scheduler.
//! - Q5 at most `device_depth` requests that the scheduler has handed out have tags at once. A
//!   request that a busy driver refused, or that has another step to take, counts among them, and
//!   goes before all that are queued.
//! - Q6 requests merge only if all rules of [`crate::merge`] hold. A part of a bio, a retry, and a
//!   request that flushes never merge.
//! - Q7 every queued request is issued or ended: a completion or the scheduler's deadline brings
//!   the next turn; and if the device is gone, no limit holds any back (H3).
//! - Q8 the scheduler changes (`scheduler_change.rs`) only while the context has no admitted
//!   request, apart from those that were given up (H5). These keep their room at the device.
//! - Q9 requests that are neither reads nor reserved have at most `async_depth` tags, by default
//!   three quarters of those that may be in use. So a read finds a tag, even where writes would
//!   fill the queue. Such requests leave the backlog while they wait (`admission/classes.rs`), and
//!   hold up no read.
//!
//! Counterpart in Linux: `block/blk-mq-sched.c`; of Q9, `dd_limit_depth` (`block/mq-deadline.c`)
//! and `bfq_limit_depth`.

use crate::bio::BioFlags;
use crate::hctx::dispatch::{Next, note_wait};
use crate::hctx::turned::NO_DEADLINE;
use crate::hctx::{HardwareContext, Slot, SlotState, Turn};
use crate::merge;
use crate::origin::Class;
use crate::policy::MergePolicy;
use crate::request::Request;
use crate::sched::{Neighbours, Position};
use crate::tag::Tag;
use crate::trace::{TraceEvent, TraceRecord};

impl HardwareContext {
    /// Returns the number of requests in the scheduler.
    #[inline]
    pub(super) fn nr_scheduled(&self) -> usize {
        self.elevator.as_ref().map_or(0, |elevator| elevator.nr_queued())
    }

    /// Returns whether the scheduler holds back all requests that could be issued, until its
    /// deadline.
    #[inline]
    pub(super) fn waits_for_scheduler(&self) -> bool {
        let next_at_ns = self.elevator.as_ref().map_or(NO_DEADLINE, |it| it.next_at_ns());
        next_at_ns != NO_DEADLINE
            && self.dispatch.is_empty()
            && self.held.is_empty()
            && !self.flush.is_pending()
    }

    /// Returns the request of a queued tag.
    fn queued_mut(&mut self, tag: Tag) -> &mut Request {
        let slot = &mut self.table[tag.index()];
        assert!(slot.state == SlotState::Queued, "the scheduler has requests that are queued");
        slot.rq.as_mut().expect("a queued tag has a request")
    }

    /// Merges the oldest request of the backlog, which has no tag, with a queued one. Returns
    /// whether it did.
    #[inline(always)]
    pub(super) fn merge_oldest(&mut self, now: u64) -> bool {
        let Some(rq) = self.backlog.front() else { return false };
        if rq.nomerge || !rq.is_whole_data() || self.policy.nomerges != MergePolicy::All {
            return false;
        }
        let Some(elevator) = self.elevator.as_deref_mut() else { return false };
        let found = elevator.neighbours(None, rq);
        if found == Neighbours::default() {
            return false;
        }
        [found.before, found.after, found.discard]
            .into_iter()
            .flatten()
            .any(|tag| self.merge_oldest_into(tag, now))
    }

    /// Merges the oldest request of the backlog with that of a queued tag, if the limits allow it.
    #[inline(never)]
    fn merge_oldest_into(&mut self, tag: Tag, now: u64) -> bool {
        let (nr_waited, limits) = (self.nr_waited, self.limits);
        let Some(mut rq) = self.pop_backlog() else { return false };
        let (op, nr_bios, waited_ns) = (rq.op, rq.nr_bios, rq.waited_ns(now));
        let record = self.trace_of_merge(&rq, now);
        // A new NOWAIT request is in front of requests that have waited.
        if nr_waited > 0 && !rq.is_nowait() {
            self.count_owners_wait(&rq, waited_ns);
            note_wait(&mut rq, &mut self.splits, waited_ns);
        }
        match merge::try_join(&limits, self.queued_mut(tag), rq) {
            Ok(kind) => {
                self.counters.merges.count(op, kind, nr_bios);
                if let Some(record) = record {
                    self.trace.merge(record, kind);
                }
                self.note_growth(tag, now);
                true
            }
            Err(rq) => {
                self.backlog.push_front(rq);
                self.nr_waited = nr_waited;
                false
            }
        }
    }

    /// Returns the record of a merge of `rq`, if the context is traced.
    fn trace_of_merge(&self, rq: &Request, now: u64) -> Option<TraceRecord> {
        let is_on = self.trace.is_on();
        is_on.then(|| TraceRecord::of(TraceEvent::BackMerge, rq, rq.len, now))
    }

    /// Records that the request of a queued tag has grown, and merges it with those that it now
    /// touches.
    fn note_growth(&mut self, tag: Tag, now: u64) {
        let Some(elevator) = self.elevator.as_deref_mut() else { return };
        let rq = self.table[tag.index()].rq.as_ref().expect("a queued tag has a request");
        elevator.grown(tag, rq);
        let found = elevator.neighbours(Some(tag), rq);
        if let Some(after) = found.after {
            self.absorb(tag, after, now);
        } else if let Some(before) = found.before {
            self.absorb(before, tag, now);
        }
    }

    /// Merges the request of `tag` into that of `into`, its predecessor on the device.
    fn absorb(&mut self, into: Tag, tag: Tag, now: u64) {
        let slot = &mut self.table[tag.index()];
        let Some(rq) = slot.rq.take() else { return };
        let limits = self.limits;
        let (op, flags, nr_bios) = (rq.op, rq.flags, rq.nr_bios);
        let record = self.trace_of_merge(&rq, now);
        match merge::try_join(&limits, self.queued_mut(into), rq) {
            Err(rq) => self.table[tag.index()].rq = Some(rq),
            Ok(kind) => {
                self.table[tag.index()].state = SlotState::Idle;
                self.counters.merges.count(op, kind, nr_bios);
                if let Some(record) = record {
                    self.trace.merge(record, kind);
                }
                let grown = self.table[into.index()].rq.as_ref();
                if let (Some(elevator), Some(grown)) = (self.elevator.as_deref_mut(), grown) {
                    elevator.absorbed(into, tag);
                    elevator.grown(into, grown);
                }
                self.put_tag(tag, flags);
            }
        }
    }

    /// Queues a request that has a tag.
    #[inline(always)]
    pub(super) fn queue(&mut self, tag: Tag, rq: Request, now: u64) {
        self.trace.request(TraceEvent::Insert, &rq, now);
        let at = self.position_of(&rq);
        let Some(elevator) = self.elevator.as_deref_mut() else { return };
        elevator.insert(tag, &rq, at);
        self.table[tag.index()] = Slot { state: SlotState::Queued, rq: Some(rq) };
    }

    /// Returns whether the scheduler, in which no request is queued, hands this one out at once.
    #[inline]
    pub(super) fn passes_scheduler(&mut self, tag: Tag, rq: &Request) -> bool {
        let is_at_tail = self.position_of(rq) == Position::Tail;
        let Some(elevator) = self.elevator.as_deref_mut() else { return false };
        is_at_tail && elevator.pass(tag, rq)
    }

    /// Returns where a request is queued.
    #[inline]
    fn position_of(&self, rq: &Request) -> Position {
        // A request whose flush is done has waited already. Without a cache there was no flush.
        let has_flushed = self.limits.volatile_cache && rq.flags.contains(BioFlags::PREFLUSH);
        match has_flushed {
            true => Position::Head,
            false => Position::Tail,
        }
    }

    /// Returns the request to issue next that is queued.
    #[inline]
    pub(super) fn next_queued(&mut self, is_gone: bool) -> Option<(Tag, Request)> {
        let tag = self.elevator.as_mut()?.next(is_gone)?;
        let slot = &mut self.table[tag.index()];
        assert!(slot.state == SlotState::Queued, "the scheduler has requests that are queued");
        slot.state = SlotState::Idle;
        let mut rq = slot.rq.take().expect("a queued tag has a request");
        rq.seal();
        Some((tag, rq))
    }

    /// Returns whether the device gets no more queued requests for now.
    #[inline]
    pub(super) fn is_last_queued(&self) -> bool {
        self.elevator
            .as_ref()
            .is_none_or(|elevator| elevator.nr_queued() == 0 || !elevator.has_room())
    }
}

impl Turn<'_> {
    /// Queues all requests that can get a tag. Returns [`Next::NoData`] if the next one has no
    /// data to issue now.
    fn queue_waiting(&mut self) -> Next {
        while self.stock_backlog() {
            if self.hctx.merge_oldest(self.now) || self.hold_write() {
                continue;
            }
            match self.next_tagged() {
                Next::Data(tag, rq) => self.hctx.queue(tag, rq, self.now),
                Next::NoData => return Next::NoData,
                Next::Again => {}
                Next::None => break,
            }
        }
        Next::None
    }

    /// Returns whether a queued request goes before a flush that is to be issued (F9): those that
    /// wait for the flush are of `class` at most, the oldest since `since_ns`.
    #[cold]
    pub(super) fn passes_flush(&mut self, class: Class, since_ns: u64) -> bool {
        self.queue_waiting();
        let elevator = self.hctx.elevator.as_deref();
        elevator.is_some_and(|elevator| elevator.passes_flush(class, since_ns))
    }

    /// Returns the next request to issue, in a context with a scheduler. First queues all requests
    /// that can get a tag, so that the scheduler chooses among them.
    #[inline(never)]
    pub(super) fn next_scheduled(&mut self) -> Next {
        if let Next::NoData = self.queue_waiting() {
            return Next::NoData;
        }
        let is_gone = self.hctx.device.is_failed();
        match self.hctx.next_queued(is_gone) {
            Some((tag, rq)) => {
                self.hctx.count_owners_scheduler_wait(&rq, self.now);
                Next::Data(tag, rq)
            }
            None => Next::None,
        }
    }
}
