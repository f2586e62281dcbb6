//! Time limits of requests at the driver (`io_timeout_ms`).
//!
//! A request that is at the driver for longer than the limit is *overdue*. Counterpart in Linux:
//! `blk_mq_timeout_work`, and the `timeout` callback of `struct blk_mq_ops`.
//!
//! - H1 an overdue request is counted once, and its driver is asked to cancel it;
//! - H2 it keeps its tag and its memory until the driver completes it, whether or not the driver
//!   can cancel it. If the memory is borrowed, its bios do not end earlier;
//! - H3 if it has not completed after a grace period, which begins with H1, it is *given up*, and
//!   the device is marked as gone: requests that are not at the driver end with `Offline`, even
//!   those that wait for a tag;
//! - H4 if an overdue request fails before that, its bios end with `Timeout`. It is not known
//!   whether a write has changed the device. If the request succeeds after all, its bios succeed;
//! - H5 the bios of a request that is given up end with `Timeout` at once, if they have no memory
//!   or the submitter keeps it valid for longer than the bio ([`BioFlags::OWNED`]). The result that
//!   the driver returns later is dropped ([`quarantine`]);
//! - H6 such a request may still change the device. Until the driver completes it, overlapping
//!   bios are not issued, and end with `Offline` (`crate::retry`). A merged request is taken apart,
//!   and its other bios are issued. Writes of the one that was given up count as lost;
//! - H7 after a revive, the device may still have a request that was given up. If requests then
//!   wait, and none is issued for the limit and the grace period together, the device is marked as
//!   gone again ([`stalled`]).
//!
//! Bios end after the grace period and not at the limit. A driver that cancels a request in time
//! returns the request's own result and memory, and the device stays usable. A bio of H5 ends at
//! the latest when its last request has been at the driver for the limit and the grace period, if a
//! turn is made at that time (W7).
//!
//! The time of the next check is a lower bound: the request for which it was set may have completed
//! since. So an I/O costs one comparison, and a check that finds nothing happens once per limit.
//!
//! [`BioFlags::OWNED`]: crate::BioFlags::OWNED

mod late;
mod quarantine;
mod stalled;

pub use late::{LateRequest, LateRequests, LateStage};

use crate::driver::Driver;
use crate::hctx::turned::NO_DEADLINE;
use crate::hctx::{SlotState, Turn};
use crate::plant::plants;
use crate::policy::Policy;
use crate::request::NewMemoryHold;
use crate::status::BlockStatus;
use crate::tag::Tag;
use alloc::sync::Arc;
use alloc::vec::Vec;
use quarantine::GivenUp;

/// The time limits of one hardware context.
#[derive(Debug)]
pub(super) struct Timeouts {
    limit_ns: u64,
    grace_ns: u64,
    /// The time of the next check.
    next_ns: u64,
    /// When the device is marked as gone because of requests that wait (H7).
    stalled_ns: u64,
    overdue: Vec<Overdue>,
    /// Requests at the driver whose bios have ended (H5). They are not overdue any more.
    given_up: Vec<GivenUp>,
    /// Creates the holds of their memory.
    new_hold: NewMemoryHold,
    /// Receives overdue requests.
    late: Option<Arc<dyn LateRequests>>,
}

/// An overdue request.
#[derive(Clone, Copy, Debug)]
struct Overdue {
    tag: Tag,
    /// When the driver was asked to cancel it.
    asked_ns: u64,
    /// The device was marked as gone because of it. Once the device is declared to work again, this
    /// request is no reason any more.
    is_given_up: bool,
}

impl Timeouts {
    /// Creates the limits of a context with `depth` tags.
    pub(super) fn new(policy: &Policy, depth: u32) -> Timeouts {
        let room = if policy.io_timeout_ns == 0 { 0 } else { depth as usize + 1 };
        Timeouts {
            limit_ns: policy.io_timeout_ns,
            grace_ns: policy.io_timeout_grace_ns,
            next_ns: NO_DEADLINE,
            overdue: Vec::with_capacity(room),
            stalled_ns: NO_DEADLINE,
            given_up: Vec::new(),
            new_hold: quarantine::no_memory,
            late: None,
        }
    }

    /// Records that a request is issued.
    #[inline]
    pub(super) fn issued(&mut self, now: u64) {
        if self.limit_ns != 0 {
            self.next_ns = self.next_ns.min(now.saturating_add(self.limit_ns));
        }
    }

    /// Returns the time of the next check.
    #[inline]
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Returns whether a request at the driver is overdue.
    #[inline]
    pub(super) fn has_overdue(&self) -> bool {
        !self.overdue.is_empty()
    }

    /// Returns whether a request that was given up is at the driver.
    #[inline]
    fn has_stuck(&self) -> bool {
        !self.given_up.is_empty() || self.overdue.iter().any(|overdue| overdue.is_given_up)
    }

    /// Returns the number of requests at the driver whose bios have ended (H5).
    #[inline]
    pub(super) fn nr_given_up(&self) -> u32 {
        self.given_up.len() as u32
    }

    /// Returns the result of a request for its bios (H4).
    #[inline]
    pub(super) fn completed(
        &mut self,
        tag: Tag,
        result: Result<u64, BlockStatus>,
    ) -> Result<u64, BlockStatus> {
        if self.overdue.is_empty() { result } else { self.overdue_completed(tag, result) }
    }

    #[cold]
    fn overdue_completed(
        &mut self,
        tag: Tag,
        result: Result<u64, BlockStatus>,
    ) -> Result<u64, BlockStatus> {
        match self.overdue.iter().position(|overdue| overdue.tag == tag) {
            None => result,
            Some(place) => {
                self.overdue.swap_remove(place);
                if plants!(KeepStatus) {
                    return result;
                }
                result.map_err(|_| BlockStatus::Timeout)
            }
        }
    }
}

impl Turn<'_> {
    /// Cancels overdue requests (H1), and gives up those whose grace period is over (H3, H5), if a
    /// check is due.
    #[inline]
    pub(super) fn check_timeouts<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        nr_ended_before: usize,
    ) {
        if self.now >= self.hctx.timeouts.next_ns && !plants!(SkipTimeout) {
            self.expire(driver, nr_ended_before);
        }
    }

    #[cold]
    fn expire<D: Driver + ?Sized>(&mut self, driver: &mut D, nr_ended_before: usize) {
        self.end_stalled(nr_ended_before);
        let (now, hctx) = (self.now, &mut *self.hctx);
        let Timeouts { limit_ns, grace_ns, next_ns, stalled_ns, overdue, late, .. } =
            &mut hctx.timeouts;
        *next_ns = *stalled_ns;
        let mut lost = Vec::new();
        for (at, slot) in hctx.table.iter().enumerate() {
            let (SlotState::Issued | SlotState::Begun, Some(rq)) = (slot.state, &slot.rq) else {
                continue;
            };
            let tag = Tag::from_index(at);
            let overdue_ns = rq.issued_ns.saturating_add(*limit_ns);
            if now < overdue_ns {
                *next_ns = overdue_ns.min(*next_ns);
                continue;
            }
            let place = overdue.iter().position(|overdue| overdue.tag == tag);
            let place = place.unwrap_or_else(|| {
                hctx.counters.timeouts.add(1);
                let stage = match driver.cancel(tag) {
                    true => LateStage::Cancelled,
                    false => LateStage::Awaited,
                };
                late::note(late.as_ref(), rq, stage);
                overdue.push(Overdue { tag, asked_ns: now, is_given_up: false });
                overdue.len() - 1
            });
            // The grace period begins now, even if this check is late, so the driver gets all of
            // it.
            let lost_ns = overdue[place].asked_ns.saturating_add(*grace_ns);
            if now < lost_ns && !plants!(EndBeforeGrace) {
                *next_ns = lost_ns.min(*next_ns);
            } else if !core::mem::replace(&mut overdue[place].is_given_up, true)
                && !plants!(KeepDevice)
            {
                lost.push(tag);
                if hctx.device.give_up() {
                    late::note(late.as_ref(), rq, LateStage::GivenUp);
                }
            }
        }
        if lost.is_empty() {
            return;
        }
        // Their tags may never come back.
        hctx.awake_all();
        for tag in lost {
            self.give_up(tag);
        }
    }
}
