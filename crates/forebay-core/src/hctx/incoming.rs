//! Fast path of dispatch: requests that were admitted since the last turn, if no other waits.
//!
//! The full rules ([`crate::hctx::dispatch`]) check before each request whether a flush, a retry, a
//! policy or an older request goes first. Here nearly all of these checks are made once for all new
//! requests. The first request that is not simply issued ends this path, and the full rules
//! continue.

use crate::bio::Op;
use crate::driver::{Driver, Issue, IssuedRequest};
use crate::hctx::{HardwareContext, SlotState, Turn};
use crate::policy::KickPolicy;
use crate::request::Request;
use crate::tag::Tag;

/// The outcome of the fast path.
pub(super) enum Incoming {
    /// All requests were issued.
    Issued,
    /// Requests wait that the full rules may be able to issue.
    Waiting,
    /// The driver is busy.
    Busy,
}

impl Turn<'_> {
    /// Issues the incoming requests if nothing goes before them and each is one command for all of
    /// its data. Those that are not issued join the backlog.
    #[inline]
    pub(super) fn issue_incoming<D: Driver + ?Sized>(&mut self, driver: &mut D) -> Incoming {
        let hctx = &mut *self.hctx;
        let is_first = hctx.backlog.is_empty()
            && hctx.dispatch.is_empty()
            && !hctx.flush.wants_a_look()
            && hctx.admission.is_none()
            && hctx.policy.kick != KickPolicy::PerRequest
            && !hctx.device.is_failed();
        let is_plain = is_first && !hctx.has_special;
        let outcome = if is_plain { self.issue_plain(driver) } else { Incoming::Waiting };
        if !matches!(outcome, Incoming::Issued) {
            self.hctx.keep_incoming();
        }
        outcome
    }

    /// Issues plain requests. Those that find no tag, or that come after a request that was not
    /// issued, stay in their order.
    #[inline(always)]
    fn issue_plain<D: Driver + ?Sized>(&mut self, driver: &mut D) -> Incoming {
        let (now, hctx) = (self.now, &mut *self.hctx);
        let iostats = hctx.policy.iostats;
        // The oldest is taken from the end.
        if hctx.incoming.len() > 1 {
            hctx.incoming.reverse();
        }
        if hctx.nr_in_flight == 0 {
            (hctx.busy_since_ns, hctx.bios_per_request_max) = (now, 1);
        }
        let (mut outcome, mut nr_issued, mut nr_begun) = (Incoming::Issued, 0_u32, 0_u32);
        while let Some(mut rq) = hctx.incoming.pop() {
            // A flush has no data.
            let is_write = rq.op != Op::Read;
            if is_write {
                hctx.retries.writes().count_write(hctx.count_at);
            }
            // A1: the full rules decide whether a retry holds the request back.
            let tag = if hctx.retries.any() { None } else { hctx.tags.get(0) };
            let Some(tag) = tag else {
                hctx.put_back(rq, is_write);
                outcome = Incoming::Waiting;
                break;
            };
            let slot = &mut hctx.table[tag.index()];
            assert!(slot.state == SlotState::Idle, "no tag is live twice");
            (rq.tagged_ns, rq.issued_ns) = (now, now);
            if iostats {
                hctx.counters.tag.record_span(rq.unplugged_ns, now);
            }
            // For `may_retry`: see `Turn::issue`.
            if is_write && (rq.nr_bios > 1 || !hctx.limits.exact_counts) {
                rq.issued_after = hctx.retries.moment(hctx.count_at, &hctx.writes);
            }
            let answer =
                driver.queue_rq(&IssuedRequest::of_plain(&rq, tag), hctx.incoming.is_empty());
            if is_write {
                hctx.retries.writes().write_is_out(hctx.count_at);
                if answer.is_accepted() {
                    let ranges = rq.ranges(&hctx.splits);
                    ranges.for_each(|(start, len)| hctx.writes.push(start, len, tag));
                }
            }
            let state = match answer {
                Issue::Queued => SlotState::Issued,
                Issue::Begun => {
                    nr_begun += 1;
                    SlotState::Begun
                }
                Issue::Busy | Issue::Failed(_) => {
                    outcome = self.refused(tag, rq, answer);
                    break;
                }
            };
            rq.was_issued = true;
            if rq.nr_bios > hctx.bios_per_request_max {
                hctx.bios_per_request_max = rq.nr_bios;
            }
            (slot.state, slot.rq) = (state, Some(rq));
            nr_issued += 1;
        }
        let hctx = &mut *self.hctx;
        hctx.timeouts.issued(now);
        hctx.nr_in_flight += nr_issued;
        hctx.nr_begun += nr_begun;
        hctx.nr_uncommitted += nr_issued - nr_begun;
        hctx.counters.issued.add(nr_issued.into());
        if iostats {
            // No time passes between the tag and the issue.
            hctx.counters.queue.record_zeros(nr_issued.into());
        }
        if !matches!(outcome, Incoming::Issued) {
            self.has_issued |= nr_issued > 0;
            self.hctx.incoming.reverse();
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
    /// Takes a request back that is not issued now.
    #[cold]
    fn put_back(&mut self, rq: Request, is_write: bool) {
        if is_write {
            self.retries.writes().write_is_out(self.count_at);
        }
        self.incoming.push(rq);
    }
}
