//! The scheduler of an open disk.

use super::Disk;
use crate::error::{SchedulerError, SpecError};
use crate::events;
use forebay_core::{BadKnob, Knob, Policy, SCHEDULER_KEYS, SchedulerPolicy, Scheduling};
use std::time::Duration;

/// Keys whose values are checked by themselves.
const DEPENDENT: [&str; 2] = ["scheduler", "device_depth"];

impl Disk {
    /// Returns the present scheduler, with its settings. It is the one that the disk was opened
    /// with, unless [`Disk::set_scheduler`] has changed it since.
    pub fn scheduling(&self) -> Scheduling {
        self.shared.scheduling()
    }

    /// Changes the scheduler, or its settings, while the disk is in use. The disk is frozen
    /// meanwhile ([`Disk::freeze`]): I/O that it has admitted ends first, and threads that submit
    /// more wait until the new scheduler is in place. I/O with [`nowait`](crate::Io::nowait) ends
    /// with [`BlockStatus::Again`](crate::BlockStatus::Again) meanwhile.
    ///
    /// [`SchedulerPolicy::Auto`] selects the default of the device. A setting that is not given has
    /// its default: begin with [`Disk::scheduling`] to keep the others. `nr_requests` keeps the
    /// user's value, from the spec or [`Disk::set_nr_requests`]. Otherwise it becomes the default
    /// with the new scheduler: twice `device_depth` and at least 64, or all tags without one.
    /// (Linux always sets it to the default.) [`Disk::info`] still returns the settings that the
    /// disk was opened with.
    ///
    /// The new scheduler exists before the freeze begins, so the change does not fail halfway.
    ///
    /// # Errors
    /// The disk keeps its scheduler. [`SchedulerError::Setting`] if a setting is out of its range,
    /// and [`SchedulerError::Contexts`] if the disk has several hardware contexts: neither freezes
    /// the disk. [`SchedulerError::Freeze`] if another hold keeps admitted I/O from the driver.
    ///
    /// Counterpart in Linux: a write to `/sys/block/X/queue/scheduler`.
    ///
    /// ```
    /// use forebay::{Disk, SchedulerPolicy};
    ///
    /// let disk = Disk::open("ram:1M?nr_hw_queues=1")?;
    /// let mq_deadline = disk.scheduling().scheduler(SchedulerPolicy::MqDeadline);
    /// disk.set_scheduler(mq_deadline.device_depth(Some(8)))?;
    /// assert_eq!(disk.scheduling().scheduler, SchedulerPolicy::MqDeadline);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_scheduler(&self, scheduling: Scheduling) -> Result<(), SchedulerError> {
        self.set_scheduler_within(scheduling, None)
    }

    /// Changes the scheduler as [`set_scheduler`](Disk::set_scheduler) does, but waits at most for
    /// `timeout` until admitted I/O has ended.
    ///
    /// # Errors
    /// Same as `set_scheduler`. Also [`FreezeError::TimedOut`](crate::FreezeError::TimedOut).
    pub fn set_scheduler_timeout(
        &self,
        scheduling: Scheduling,
        timeout: Duration,
    ) -> Result<(), SchedulerError> {
        self.set_scheduler_within(scheduling, Some(timeout))
    }

    fn set_scheduler_within(
        &self,
        scheduling: Scheduling,
        timeout: Option<Duration>,
    ) -> Result<(), SchedulerError> {
        let policy = self.check_scheduling(scheduling)?;
        if policy.scheduler.is_none() && self.scheduling().scheduler.is_none() {
            return Ok(());
        }
        let change = self.shared.new_scheduler(&policy);
        let frozen = self.freeze_within(timeout)?;
        self.shared.change_scheduler(change, policy.scheduling());
        // Runs a turn, which admits what has waited.
        drop(frozen);
        events::changed(&self.info().spec, "scheduler", &policy.scheduler.name());
        Ok(())
    }

    /// Returns the policy with a scheduler, whose defaults are filled in.
    fn check_scheduling(&self, scheduling: Scheduling) -> Result<Policy, SchedulerError> {
        let disk = || self.info().spec.clone();
        if self.shared.is_after_fork() {
            return Err(SchedulerError::Forked { disk: disk() });
        }
        let setting = |key: &str, value: String, expected: String| {
            let source =
                SpecError::BadValue { key: key.to_owned(), value, expected: expected.into() };
            SchedulerError::Setting { disk: disk(), source }
        };
        let number = |key, value: u32, min: u32, max: u32| match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(setting(key, value.to_string(), format!("a number from {min} to {max}"))),
        };
        let policy = self.shared.policy_with(scheduling);
        let policy = policy.with_default_scheduler(self.info().opened_with.scheduler);
        number("device_depth", policy.device_depth.unwrap_or(1), 1, policy.queue_depth)?;
        for key in SCHEDULER_KEYS.into_iter().filter(|key| !DEPENDENT.contains(key)) {
            let knob = Knob::named(key).expect("a key of the table");
            let value = knob.get(&policy);
            if !knob.set(&mut policy.clone(), &value) {
                return Err(setting(key, value, knob.values.expected()));
            }
        }
        if !policy.scheduler.is_none() && policy.nr_hw_queues != 1 {
            let (scheduler, nr_hw_queues) = (policy.scheduler.name(), policy.nr_hw_queues);
            return Err(SchedulerError::Contexts { disk: disk(), scheduler, nr_hw_queues });
        }
        let limits = &self.info().limits;
        let checked = policy.nr_requests(Some(policy.nr_requests_of(limits))).check();
        checked.map_err(|BadKnob { knob, value, expected }| setting(knob.key, value, expected))?;
        Ok(match policy.scheduler {
            SchedulerPolicy::None => policy,
            _ => policy.device_depth(Some(policy.device_depth_of(limits))),
        })
    }
}
