//! The software queue: it checks, plugs and merges the bios of one thread for one disk.
//!
//! Counterpart in Linux: `struct blk_mq_ctx`, with the part of `struct blk_plug` that belongs to
//! one disk.

use crate::bio::BioFlags;
use crate::limits::QueueLimits;
use crate::limits::fast_path::FastPath;
use crate::limits::refusal::Refusal;
use crate::plug::{PlugList, UnplugCause};
use crate::policy::{MergePolicy, PlugPolicy, Policy};
use crate::request::{ChainSegments, QueuedBio, Request};
use crate::split;
use crate::stats::PlugCounters;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::{Drain, Vec};

/// The plug of one thread for one disk, and the outgoing requests that have left the plug and not
/// yet reached a hardware context.
#[derive(Debug)]
pub struct SoftwareQueue {
    limits: QueueLimits,
    fast_path: FastPath,
    /// The highest plug level that matters: all under `plug=per-level`, one under other policies
    /// that plug.
    level_max: u32,
    nomerges: MergePolicy,
    /// Flags that have no effect on this disk and are removed, because they would prevent merges.
    ignored: BioFlags,
    list: PlugList,
    /// Whether a request in the queue is marked NOWAIT, or is not a single command for all of its
    /// data.
    has_special: bool,
    counters: Arc<PlugCounters>,
}

impl SoftwareQueue {
    /// Creates an empty queue.
    ///
    /// # Panics
    /// Panics if `limits` contradict themselves.
    pub fn new(limits: QueueLimits, policy: Policy, counters: Arc<PlugCounters>) -> SoftwareQueue {
        assert!(limits.validate().is_ok(), "limits are checked at open");
        SoftwareQueue {
            limits,
            fast_path: FastPath::of(&limits),
            level_max: match policy.plug {
                PlugPolicy::None => 0,
                PlugPolicy::PerLevel => u32::MAX,
                PlugPolicy::Outermost => 1,
            },
            nomerges: policy.nomerges,
            ignored: match policy.io_timeout_ns {
                0 => BioFlags::OWNED,
                _ => BioFlags::NONE,
            },
            list: PlugList::new(policy.queue_depth),
            has_special: false,
            counters,
        }
    }

    /// Returns whether any bio waits in the plug.
    #[inline]
    pub fn is_plugged(&self) -> bool {
        self.list.nr_plugged() > 0
    }

    /// Queues a bio. It then waits in the plug, merged or not, or is outgoing. If the plug was
    /// full, older requests become outgoing.
    ///
    /// `level` is the plug level of the caller, starting at 1, or 0 if no plug is open. `now` is a
    /// time in nanoseconds of any monotonic clock.
    ///
    /// # Errors
    /// Returns the reason and the bio if the bio is refused.
    // Always inlined: otherwise the result is returned through memory.
    #[inline(always)]
    pub fn queue_bio(
        &mut self,
        mut queued: Box<QueuedBio>,
        level: u32,
        now: u64,
    ) -> Result<(), (Refusal, Box<QueuedBio>)> {
        queued.queued_ns = now;
        let level = level.min(self.level_max);
        let mut rq = match self.fast_path.accepts(&queued.bio) {
            true => {
                queued.bio.flags = queued.bio.flags.without(self.ignored);
                Request::of_plain(queued, level)
            }
            false => self.check(queued, level)?,
        };
        match level {
            0 => {
                rq.unplugged_ns = now;
                self.list.push_outgoing(rq);
            }
            _ => self.plug_request(rq, now),
        }
        Ok(())
    }

    /// Checks a bio against the full rules and converts it to a request.
    #[inline(never)]
    fn check(
        &mut self,
        mut queued: Box<QueuedBio>,
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
        // A bio that is refused keeps all of its flags.
        queued.bio.flags = queued.bio.flags.without(self.ignored);
        let rq = Request::of_bio(queued, front, &self.limits, level);
        self.has_special |= rq.is_nowait() || !rq.is_whole_data();
        Ok(rq)
    }

    /// Merges a request into the plug, or appends it.
    #[inline]
    fn plug_request(&mut self, rq: Request, now: u64) {
        let op = rq.op;
        match self.list.try_merge(&self.limits, self.nomerges, rq) {
            Ok(kind) => self.counters.count_merge(op, kind),
            Err((rq, is_due)) => {
                if is_due {
                    self.unplug(UnplugCause::Limit, 1, now);
                }
                self.list.push(rq);
            }
        }
    }

    /// Makes the plug's requests of `level` and above outgoing. Level 1 means all of them.
    #[inline]
    pub fn unplug(&mut self, cause: UnplugCause, level: u32, now: u64) {
        if self.list.detach(level, now) {
            self.counters.count_unplug(cause);
        }
    }

    /// Returns whether requests are outgoing. If so, their hardware context needs a turn.
    #[inline]
    pub fn has_outgoing(&self) -> bool {
        self.list.nr_outgoing() > 0
    }

    /// Returns the number of outgoing requests.
    #[inline]
    pub fn nr_outgoing(&self) -> usize {
        self.list.nr_outgoing()
    }

    /// Drains the outgoing requests, oldest first.
    #[inline]
    pub fn outgoing(&mut self) -> Drain<'_, Request> {
        self.has_special &= self.is_plugged();
        self.list.outgoing()
    }

    /// Returns whether an outgoing request may be marked NOWAIT, or need more than one command.
    #[inline]
    pub(crate) fn has_special(&self) -> bool {
        self.has_special
    }

    /// Moves the outgoing requests to an empty list. None is special.
    #[inline(always)]
    pub(crate) fn move_outgoing(&mut self, empty: &mut Vec<Request>) {
        self.list.move_outgoing(empty);
    }
}
