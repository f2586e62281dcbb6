//! The number of requests that a scheduler hands to the device (Q5), and how many of them may be
//! no reads (Q9).

use super::{Verdict, broken, rules};
use forebay_core::{BioFlags, Op, Policy, QueueLimits};

/// The most requests that a context may have at the driver.
#[derive(Debug)]
pub(crate) struct Depths {
    /// `None` without a scheduler.
    device_depth: Option<u32>,
    /// The most requests that are neither reads nor reserved. `nr_requests` may have been higher
    /// when they took their tags.
    writes_max: u32,
}

impl Depths {
    pub(crate) fn new(policy: &Policy, limits: &QueueLimits) -> Depths {
        let device_depth = (!policy.scheduler.is_none()).then(|| policy.device_depth_of(limits));
        Depths { device_depth, writes_max: policy.async_depth_of(policy.queue_depth) }
    }

    /// Records another scheduler. Returns its depth, or 0 without one.
    pub(crate) fn set(&mut self, policy: &Policy, limits: &QueueLimits) -> u32 {
        *self = Depths::new(policy, limits);
        self.device_depth.unwrap_or(0)
    }

    /// Returns whether the command of bios with these flags is one of those that do not get every
    /// tag (Q9).
    pub(crate) fn limits(&self, op: Op, flags: Option<BioFlags>) -> bool {
        let is_reserved = flags.is_some_and(|flags| flags.contains(BioFlags::RESERVED));
        self.device_depth.is_some() && op.is_write() && !is_reserved
    }

    /// Checks a command, while the driver of its context has `nr_live` others that are no flushes,
    /// and `nr_limited` that [`limits`](Self::limits) names.
    pub(crate) fn check(
        &self,
        op: Op,
        is_limited: bool,
        nr_live: impl FnOnce() -> u32,
        nr_limited: impl FnOnce() -> usize,
    ) -> Verdict {
        let Some(device_depth) = self.device_depth.filter(|_| op != Op::Flush) else {
            return Ok(());
        };
        let nr_live = nr_live();
        if nr_live >= device_depth {
            let what = format!("{nr_live} requests are at a device of depth {device_depth}");
            return broken(rules::Q5, what);
        }
        let (nr_limited, most) = (nr_limited(), self.writes_max as usize);
        if is_limited && nr_limited >= most {
            let what =
                format!("{nr_limited} others than reads are at the device, of {most} at most");
            return broken(rules::Q9, what);
        }
        Ok(())
    }
}
