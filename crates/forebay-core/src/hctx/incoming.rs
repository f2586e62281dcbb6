//! Fast path of dispatch: requests that were admitted since the last turn, if no other waits.
//!
//! The full rules ([`crate::hctx::dispatch`]) check before each request whether a flush, a retry, a
//! policy or an older request goes first. Here nearly all of these checks are made once for all new
//! requests. The first request that is not simply issued ends this path, and the full rules
//! continue.

use crate::bio::Op;
use crate::driver::{Driver, Issue, IssuedRequest};
use crate::hctx::{Gates, HardwareContext, SlotState, Turn};
use crate::policy::KickPolicy;
use crate::request::{QueuedBio, Request};
use crate::tag::Tag;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The outcome of the fast path.
pub(super) enum Incoming {
    /// All requests were issued.
    Issued,
    /// Requests may wait that the full rules can issue.
    Waiting,
    /// The driver is busy.
    Busy,
}

impl Turn<'_> {
    /// Issues the incoming requests if nothing goes before them and each is one command for all of
    /// its data. Those that find no tag, or that come after a request that was not issued, join the
    /// backlog in their order.
    pub(super) fn issue_incoming<D: Driver + ?Sized>(&mut self, driver: &mut D) -> Incoming {
        let hctx = &mut *self.hctx;
        if hctx.incoming.is_empty() {
            return Incoming::Waiting;
        }
        if !hctx.are_incoming_first() || hctx.has_special || !self.gates.dispatch {
            hctx.keep_incoming();
            return Incoming::Waiting;
        }
        let (outcome, nr_issued) = hctx.issue_plain(driver, self.now, self.gates, self.ended);
        if !matches!(outcome, Incoming::Issued) {
            self.has_issued |= nr_issued > 0;
        }
        outcome
    }

    /// Handles a request that the driver has not accepted.
    #[cold]
    fn refused(&mut self, tag: Tag, rq: Request, answer: Issue) -> Incoming {
        match self.not_queued(tag, rq, answer) {
            true => Incoming::Busy,
            false => Incoming::Waiting,
        }
    }
}

impl HardwareContext {
    /// Issues incoming requests that no other request precedes. Each is one command for all of its
    /// data, and there is at least one. Also returns how many were issued.
    #[inline(always)]
    pub(super) fn issue_plain<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        gates: Gates,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> (Incoming, u32) {
        if self.nr_in_flight == 0 {
            (self.busy_since_ns, self.bios_per_request_max) = (now, 1);
        }
        if self.incoming.len() > 1 {
            return self.issue_several(driver, now, gates, ended);
        }
        let Some(rq) = self.incoming.pop() else { return (Incoming::Issued, 0) };
        match self.issue_one(driver, rq, now, gates, ended) {
            Ok(state) => {
                self.note_incoming(now, 1, (state == SlotState::Begun).into());
                (Incoming::Issued, 1)
            }
            Err(outcome) => {
                self.keep_incoming();
                (outcome, 0)
            }
        }
    }

    // A loop of its own needs fewer registers.
    #[inline(never)]
    fn issue_several<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        gates: Gates,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> (Incoming, u32) {
        // The oldest is taken from the end.
        self.incoming.reverse();
        let (mut outcome, mut nr_issued, mut nr_begun) = (Incoming::Issued, 0_u32, 0_u32);
        while let Some(rq) = self.incoming.pop() {
            match self.issue_one(driver, rq, now, gates, ended) {
                Ok(state) => nr_begun += u32::from(state == SlotState::Begun),
                Err(refused) => {
                    outcome = refused;
                    break;
                }
            }
            nr_issued += 1;
        }
        self.note_incoming(now, nr_issued, nr_begun);
        if !matches!(outcome, Incoming::Issued) {
            self.incoming.reverse();
            self.keep_incoming();
        }
        (outcome, nr_issued)
    }

    /// Issues a request. Returns the state of its tag, or why it was not issued. A request that was
    /// not issued has ended, waits for the driver, or is incoming again.
    #[inline(always)]
    fn issue_one<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        mut rq: Request,
        now: u64,
        gates: Gates,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> Result<SlotState, Incoming> {
        // A flush has no data.
        let is_write = rq.op != Op::Read;
        if is_write {
            self.retries.writes().count_write(self.count_at);
        }
        // A1: the full rules decide whether a retry holds the request back.
        let tag = if self.retries.any() { None } else { self.tags.get(0) };
        let Some(tag) = tag else {
            self.put_back(rq, is_write);
            return Err(Incoming::Waiting);
        };
        let slot = &mut self.table[tag.index()];
        assert!(slot.state == SlotState::Idle, "no tag is live twice");
        (rq.tagged_ns, rq.issued_ns) = (now, now);
        if self.policy.iostats {
            self.counters.tag.record_span(rq.unplugged_ns, now);
        }
        // For `may_retry`: see `Turn::issue`.
        if is_write && (rq.nr_bios > 1 || !self.limits.exact_counts) {
            rq.issued_after = self.retries.moment(self.count_at, &self.writes);
        }
        let answer = driver.queue_rq(&IssuedRequest::of_plain(&rq, tag), self.incoming.is_empty());
        if is_write {
            self.retries.writes().write_is_out(self.count_at);
            if answer.is_accepted() {
                let ranges = rq.ranges(&self.splits);
                ranges.for_each(|(start, len)| self.writes.push(start, len, tag));
            }
        }
        let Some(state) = SlotState::of_accepted(answer) else {
            return Err(self.turn_at(now, gates, ended).refused(tag, rq, answer));
        };
        rq.was_issued = true;
        if rq.nr_bios > self.bios_per_request_max {
            self.bios_per_request_max = rq.nr_bios;
        }
        slot.state = state;
        let before = slot.rq.replace(rq);
        // Also spares the common case a call that drops it.
        assert!(before.is_none(), "an idle tag has no request");
        Ok(state)
    }

    /// Returns whether nothing goes before the incoming requests.
    #[inline(always)]
    fn are_incoming_first(&self) -> bool {
        self.backlog.is_empty()
            && self.dispatch.is_empty()
            && !self.flush.wants_a_look()
            && self.admission.is_none()
            && self.policy.kick != KickPolicy::PerRequest
            && !self.device.is_failed()
    }

    /// Counts incoming requests that were issued. The I/O of `nr_begun` of them is made by threads.
    #[inline(always)]
    fn note_incoming(&mut self, now: u64, nr_issued: u32, nr_begun: u32) {
        self.timeouts.issued(now);
        self.nr_in_flight += nr_issued;
        self.nr_begun += nr_begun;
        self.nr_uncommitted += nr_issued - nr_begun;
        self.counters.issued.add(nr_issued.into());
        if self.policy.iostats {
            // No time passes between the tag and the issue.
            self.counters.queue.record_zeros(nr_issued.into());
        }
    }

    /// Takes a request back that is not issued now.
    #[cold]
    fn put_back(&mut self, rq: Request, is_write: bool) {
        if is_write {
            self.retries.writes().write_is_out(self.count_at);
        }
        self.incoming.push(rq);
    }
}
