//! The software queue: it checks, plugs and merges the bios of one thread for one disk.
//!
//! Counterpart in Linux: `struct blk_mq_ctx`, with the part of `struct blk_plug` that belongs to
//! one disk.

use crate::bio::BioFlags;
use crate::limits::QueueLimits;
use crate::plug::{PlugList, UnplugCause};
use crate::policy::{MergePolicy, PlugPolicy, Policy};
use crate::queued::{ChainSegments, QueuedBio};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::split;
use crate::stats::PlugCounters;
use crate::usual::Usual;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::collections::vec_deque::Drain;
use alloc::sync::Arc;

/// The plug of one thread for one disk, and the outgoing requests that have left the plug and not
/// yet reached a hardware context.
#[derive(Debug)]
pub struct SoftwareQueue {
    limits: QueueLimits,
    usual: Usual,
    policy: Policy,
    plug: PlugList,
    outgoing: VecDeque<Request>,
    /// Whether a bio in the queue is marked NOWAIT.
    has_nowait: bool,
    counters: Arc<PlugCounters>,
}

impl SoftwareQueue {
    /// Creates an empty queue.
    ///
    /// # Panics
    /// Panics if `limits` contradict themselves.
    pub fn new(limits: QueueLimits, policy: Policy, counters: Arc<PlugCounters>) -> SoftwareQueue {
        assert!(limits.validate().is_ok(), "limits are checked at open");
        let plug = PlugList::new();
        let outgoing = VecDeque::with_capacity(policy.queue_depth as usize);
        SoftwareQueue {
            limits,
            usual: Usual::of(&limits),
            policy,
            plug,
            outgoing,
            has_nowait: false,
            counters,
        }
    }

    /// Returns whether any bio waits in the plug.
    pub fn is_plugged(&self) -> bool {
        !self.plug.is_empty()
    }

    /// Queues a bio. It then waits in the plug, merged or not, or is outgoing. If the plug was
    /// full, older requests become outgoing.
    ///
    /// `level` is the plug level of the caller, starting at 1, or 0 if no plug is open. `now` is a
    /// time in nanoseconds of any monotonic clock.
    ///
    /// # Errors
    /// Returns the reason and the bio if the bio is refused.
    #[inline]
    pub fn queue_bio(
        &mut self,
        mut queued: Box<QueuedBio>,
        level: u32,
        now: u64,
    ) -> Result<(), (Refusal, Box<QueuedBio>)> {
        queued.queued_ns = now;
        queued.rq.unplugged_ns = now;
        let is_plugged = level > 0 && self.policy.plug != PlugPolicy::None;
        // Levels matter under `per-level` only; elsewhere every level is 1.
        let level = if self.policy.plug == PlugPolicy::PerLevel { level } else { 1 };
        let rq = match self.usual.is(&queued.bio) {
            true => Request::of_usual(queued, level),
            false => self.check(queued, level)?,
        };
        match is_plugged {
            true => self.plug_request(rq, now),
            false => self.outgoing.push_back(rq),
        }
        Ok(())
    }

    /// Checks a bio against the full rules and converts it to a request.
    #[inline(never)]
    fn check(
        &mut self,
        queued: Box<QueuedBio>,
        level: u32,
    ) -> Result<Request, (Refusal, Box<QueuedBio>)> {
        let bio = &queued.bio;
        if let Err(refusal) = self.limits.check(bio) {
            return Err((refusal, queued));
        }
        let segments = ChainSegments::new(&queued, 0, bio.len);
        let front = split::front(&self.limits, bio.op, bio.start, bio.len, segments);
        if front.len == 0 && bio.len > 0 {
            let max_segments = self.limits.max_segments;
            return Err((Refusal::Unsplittable { max_segments }, queued));
        }
        self.has_nowait |= bio.flags.contains(BioFlags::NOWAIT);
        Ok(Request::of_bio(queued, front, &self.limits, level))
    }

    /// Merges a request into the plug, or appends it.
    #[inline]
    fn plug_request(&mut self, mut rq: Request, now: u64) {
        if self.policy.nomerges != MergePolicy::Never {
            let op = rq.op;
            match self.plug.try_merge(&self.limits, rq) {
                Ok(kind) => return self.counters.count_merge(op, kind),
                Err(unmerged) => rq = unmerged,
            }
        }
        if self.plug.is_due(self.policy.nomerges) {
            self.unplug(UnplugCause::Limit, 1, now);
        }
        self.plug.push(rq);
    }

    /// Moves the plug's requests of `level` and above to the outgoing list. Level 1 moves all of
    /// them.
    pub fn unplug(&mut self, cause: UnplugCause, level: u32, now: u64) {
        let before = self.outgoing.len();
        self.plug.detach(level, &mut self.outgoing, now);
        if self.outgoing.len() > before {
            self.counters.count_unplug(cause);
        }
    }

    /// Returns whether requests are outgoing. If so, their hardware context needs a turn.
    #[inline]
    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns the number of outgoing requests.
    #[inline]
    pub fn nr_outgoing(&self) -> usize {
        self.outgoing.len()
    }

    /// Drains the outgoing requests, oldest first.
    #[inline]
    pub fn outgoing(&mut self) -> Drain<'_, Request> {
        self.has_nowait &= self.is_plugged();
        self.outgoing.drain(..)
    }

    /// Returns whether a bio in the queue is marked NOWAIT.
    #[inline]
    pub(crate) fn has_nowait(&self) -> bool {
        self.has_nowait
    }

    /// Swaps the outgoing requests with an empty list.
    #[inline]
    pub(crate) fn swap_outgoing(&mut self, empty: &mut VecDeque<Request>) {
        assert!(empty.is_empty());
        core::mem::swap(&mut self.outgoing, empty);
    }
}
