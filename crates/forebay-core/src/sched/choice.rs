//! The choice of the scheduler and of its depths, where the user has made none.

use crate::emulation::Emulation;
use crate::limits::QueueLimits;
use crate::policy::Policy;
use crate::scheduling::SchedulerPolicy;
use crate::tag::QUEUE_DEPTH_MAX;

/// The most requests that a scheduler hands to a rotational device by default: the queue depth of
/// SATA (NCQ).
const DEVICE_DEPTH_ROTATIONAL: u32 = 32;

/// The least tags of a context with a scheduler by default, so that there is something to sort
/// where the device takes one request at a time. Linux has twice the depth of such a device, 2.
const NR_REQUESTS_SCHEDULED: u32 = 64;

impl SchedulerPolicy {
    /// Returns the default for a device without a scheduler below: `mq-deadline` if it is
    /// rotational.
    pub const fn default_of(limits: &QueueLimits) -> SchedulerPolicy {
        match limits.rotational {
            true => SchedulerPolicy::MqDeadline,
            false => SchedulerPolicy::None,
        }
    }
}

impl Policy {
    /// Replaces [`SchedulerPolicy::Auto`] by `default`, or by none where the default does not fit:
    /// a scheduler orders the requests of one hardware context, and experiments with the behaviour
    /// of earlier systems need the order of arrival.
    #[must_use]
    pub fn with_default_scheduler(self, default: SchedulerPolicy) -> Policy {
        let fits = self.nr_hw_queues == 1 && self.emulation == Emulation::default();
        match self.scheduler {
            SchedulerPolicy::Auto if fits && !default.is_none() => self.scheduler(default),
            SchedulerPolicy::Auto => self.scheduler(SchedulerPolicy::None),
            _ => self,
        }
    }

    /// Returns how many requests a scheduler hands to the device at once.
    pub fn device_depth_of(&self, limits: &QueueLimits) -> u32 {
        let usual = match limits.rotational {
            true => DEVICE_DEPTH_ROTATIONAL,
            // Some tags are left for requests that wait in the scheduler.
            false => self.queue_depth.div_ceil(2),
        };
        self.device_depth.unwrap_or(usual).clamp(1, self.queue_depth)
    }

    /// Returns how many tags may be in use initially. By default all; with a scheduler twice as
    /// many as there may be requests at the device, as in Linux, but at least 64.
    pub fn nr_requests_of(&self, limits: &QueueLimits) -> u32 {
        let usual = match self.scheduler.is_none() {
            true => self.queue_depth,
            false => self.device_depth_of(limits).saturating_mul(2).max(NR_REQUESTS_SCHEDULED),
        };
        self.nr_requests.unwrap_or(usual).clamp(1, self.queue_depth)
    }

    /// Returns how many of `nr_requests` tags requests that are not reads may have, with a
    /// scheduler; by default three quarters, as in Linux. Without a scheduler, returns how many
    /// background I/O may have; by default all.
    pub fn async_depth_of(&self, nr_requests: u32) -> u32 {
        match self.async_depth {
            QUEUE_DEPTH_MAX if self.scheduler.is_none() => nr_requests,
            QUEUE_DEPTH_MAX => (nr_requests - nr_requests.div_ceil(4)).max(1),
            depth => depth.clamp(1, nr_requests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::WakePolicy;

    #[test]
    fn default_scheduler_depends_on_the_device_and_the_contexts() {
        let rotational = QueueLimits::default().rotational(true);
        let default = SchedulerPolicy::default_of(&rotational);
        let of = |policy: Policy| policy.with_default_scheduler(default).scheduler;
        let policy = Policy::default();
        assert_eq!(of(policy), SchedulerPolicy::MqDeadline);
        assert_eq!(of(policy.nr_hw_queues(2)), SchedulerPolicy::None);
        let batch = Emulation::default().wake(WakePolicy::Batch);
        assert_eq!(of(policy.emulation(batch)), SchedulerPolicy::None);
        assert_eq!(of(policy.scheduler(SchedulerPolicy::None)), SchedulerPolicy::None);
        let flat = SchedulerPolicy::default_of(&QueueLimits::default());
        assert_eq!(policy.with_default_scheduler(flat).scheduler, SchedulerPolicy::None);
    }

    #[test]
    fn depths_follow_from_the_scheduler_the_device_and_the_tags() {
        let (flat, rotational) = (QueueLimits::default(), QueueLimits::default().rotational(true));
        let plain = Policy::default();
        let scheduled = plain.scheduler(SchedulerPolicy::MqDeadline);
        assert_eq!((plain.nr_requests_of(&flat), plain.nr_requests_of(&rotational)), (256, 256));
        let depths = |policy: Policy, limits| {
            (policy.device_depth_of(limits), policy.nr_requests_of(limits))
        };
        assert_eq!(depths(scheduled, &rotational), (32, 64));
        assert_eq!(depths(scheduled, &flat), (128, 256));
        assert_eq!(depths(scheduled.queue_depth(1), &flat), (1, 1));
        assert_eq!(depths(scheduled.device_depth(Some(1)), &flat), (1, 64));
        let few = scheduled.queue_depth(9).device_depth(Some(1));
        assert_eq!(depths(few, &rotational), (1, 9));
        assert_eq!(depths(scheduled.nr_requests(Some(9)), &rotational), (32, 9));
    }

    #[test]
    fn requests_other_than_reads_have_three_quarters_of_the_tags_of_a_scheduler() {
        let plain = Policy::default();
        let scheduled = plain.scheduler(SchedulerPolicy::Kyber);
        let of = |policy: Policy| [1, 2, 3, 4, 64].map(|nr| policy.async_depth_of(nr));
        assert_eq!(of(plain), [1, 2, 3, 4, 64]);
        assert_eq!(of(scheduled), [1, 1, 2, 3, 48]);
        assert_eq!(of(scheduled.async_depth(3)), [1, 2, 3, 3, 3]);
    }
}
