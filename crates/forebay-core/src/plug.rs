//! The plug: a list where the bios of a batch wait for neighbours.
//!
//! Counterpart in Linux: `struct blk_plug`. This is the list of one thread for one disk. A plugged
//! request has no tag and holds nothing that another thread's progress needs. Its rules:
//!
//! - I2 a list is detached as a whole before any of it is dispatched;
//! - I3 requests leave in the order in which they arrived;
//! - I6 the newest request is the only merge candidate, so the cost of a bio does not depend on the
//!   length of the list;
//! - the list is unplugged early, before another request is added, if it is full
//!   ([`PLUG_MAX_REQUESTS`]) or its newest request is large ([`PLUG_FLUSH_BYTES`]).

use crate::limits::QueueLimits;
use crate::merge::{self, MergeKind};
use crate::policy::MergePolicy;
use crate::request::Request;
use alloc::collections::VecDeque;

/// The maximum number of requests of one disk in a plug, as in Linux (`BLK_MAX_REQUEST_COUNT`).
pub const PLUG_MAX_REQUESTS: usize = 32;

/// If the newest request has this many bytes, the plug is unplugged before another is added, as in
/// Linux (`BLK_PLUG_FLUSH_SIZE`).
pub const PLUG_FLUSH_BYTES: u64 = 128 * 1024;

/// Why requests were unplugged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnplugCause {
    /// The outermost plug ended.
    Outermost,
    /// An inner plug ended, under `plug=per-level`.
    Level,
    /// The caller requested it.
    Explicit,
    /// The list reached a limit.
    Limit,
    /// The thread was about to wait.
    Wait,
}

impl UnplugCause {
    /// All causes, in the order of the counters.
    pub const ALL: [UnplugCause; 5] = [
        UnplugCause::Outermost,
        UnplugCause::Level,
        UnplugCause::Explicit,
        UnplugCause::Limit,
        UnplugCause::Wait,
    ];

    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            UnplugCause::Outermost => "outermost",
            UnplugCause::Level => "level",
            UnplugCause::Explicit => "explicit",
            UnplugCause::Limit => "limit",
            UnplugCause::Wait => "wait",
        }
    }
}

#[derive(Debug)]
pub(crate) struct PlugList {
    requests: VecDeque<Request>,
}

impl PlugList {
    pub(crate) fn new() -> PlugList {
        // The list is later swapped with its target, so it has the same capacity.
        PlugList { requests: VecDeque::with_capacity(PLUG_MAX_REQUESTS + 1) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Merges `new` with the newest request if both have the same level.
    #[inline]
    pub(crate) fn try_merge(
        &mut self,
        limits: &QueueLimits,
        new: Request,
    ) -> Result<MergeKind, Request> {
        match self.requests.back_mut() {
            Some(newest) if newest.level == new.level => merge::try_merge(limits, newest, new),
            _ => Err(new),
        }
    }

    /// Returns whether the list must be unplugged before another request is added.
    #[inline]
    pub(crate) fn is_due(&self, nomerges: MergePolicy) -> bool {
        let Some(newest) = self.requests.back() else {
            return false;
        };
        self.requests.len() >= PLUG_MAX_REQUESTS
            || nomerges != MergePolicy::Never && newest.len >= PLUG_FLUSH_BYTES
    }

    #[inline]
    pub(crate) fn push(&mut self, rq: Request) {
        assert!(self.requests.len() < PLUG_MAX_REQUESTS);
        self.requests.push_back(rq);
    }

    /// Moves the requests of `level` and above to `out`, sealed. Inner levels end first, so these
    /// are the newest requests.
    pub(crate) fn detach(&mut self, level: u32, out: &mut VecDeque<Request>, now: u64) {
        let first = match level {
            1 => 0,
            _ => self.requests.partition_point(|rq| rq.level < level),
        };
        for rq in self.requests.range_mut(first..) {
            rq.seal();
            rq.unplugged_ns = now;
        }
        if first == 0 && out.is_empty() {
            core::mem::swap(&mut self.requests, out);
        } else {
            out.extend(self.requests.drain(first..));
        }
    }
}
