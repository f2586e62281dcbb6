//! The number of requests that a scheduler hands to the device (Q5).

use super::{Verdict, broken, rules};
use forebay_core::{Policy, QueueLimits};

/// The most requests that a context may have at the driver.
#[derive(Debug)]
pub(crate) struct Depths {
    /// `None` without a scheduler.
    device_depth: Option<u32>,
}

impl Depths {
    pub(crate) fn new(policy: &Policy, limits: &QueueLimits) -> Depths {
        let device_depth = (!policy.scheduler.is_none()).then(|| policy.device_depth_of(limits));
        Depths { device_depth }
    }

    /// Records another scheduler. Returns its depth, or 0 without one.
    pub(crate) fn set(&mut self, policy: &Policy, limits: &QueueLimits) -> u32 {
        *self = Depths::new(policy, limits);
        self.device_depth.unwrap_or(0)
    }

    /// Checks a command that is no flush, while the driver of its context has `nr_live` others that
    /// are none.
    pub(crate) fn check(&self, nr_live: impl FnOnce() -> u32) -> Verdict {
        let Some(device_depth) = self.device_depth else { return Ok(()) };
        let nr_live = nr_live();
        if nr_live >= device_depth {
            let what = format!("{nr_live} requests are at a device of depth {device_depth}");
            return broken(rules::Q5, what);
        }
        Ok(())
    }
}
