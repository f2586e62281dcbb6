//! Settings that can change while a disk is in use, by key.

use super::Knob;
use crate::policy::Policy;
use crate::scheduling::Scheduling;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt;

/// The keys of [`Scheduling`].
pub const SCHEDULER_KEYS: [&str; 15] = [
    "scheduler",
    "device_depth",
    "fifo_batch",
    "read_expire",
    "write_expire",
    "writes_starved",
    "front_merges",
    "prio_aging_expire",
    "read_lat_nsec",
    "write_lat_nsec",
    "slice_idle_us",
    "max_budget",
    "timeout_sync",
    "fifo_expire_sync",
    "fifo_expire_async",
];

/// The keys of the measure of weights: [`WeightBy`](crate::WeightBy) and
/// [`CostModel`](crate::CostModel).
pub const WEIGHT_KEYS: [&str; 5] =
    ["weight_by", "cost_read_io_ns", "cost_read_byte_ps", "cost_write_io_ns", "cost_write_byte_ps"];

/// A setting that cannot change while a disk is in use, or a bad value of one that can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSetting {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// The keys or values that are allowed.
    pub expected: String,
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: expected {}", self.key, self.value, self.expected)
    }
}

impl core::error::Error for BadSetting {}

impl Policy {
    /// Sets the setting with this key, if it is one of `keys`. [`Policy::check`] checks settings
    /// against each other.
    ///
    /// # Errors
    /// Returns an error, and changes nothing, if it is another key, or if the value is bad for it.
    pub fn set_key_in(&mut self, keys: &[&str], key: &str, value: &str) -> Result<(), BadSetting> {
        let expected = match Knob::named(key).filter(|_| keys.contains(&key)) {
            Some(knob) if knob.set(self, value) => return Ok(()),
            Some(knob) => knob.values.expected(),
            None => format!("one of the keys {}", keys.join(", ")),
        };
        Err(BadSetting { key: key.to_owned(), value: value.to_owned(), expected })
    }
}

impl Scheduling {
    /// Sets the setting with this key: one of [`SCHEDULER_KEYS`].
    ///
    /// # Errors
    /// Returns an error, and changes nothing, if it is another key, or if the value is bad for it.
    pub fn set_key(&mut self, key: &str, value: &str) -> Result<(), BadSetting> {
        let mut policy = Policy::default().with_scheduling(*self);
        policy.set_key_in(&SCHEDULER_KEYS, key, value)?;
        *self = policy.scheduling();
        Ok(())
    }

    /// Returns the value of the setting with this key, as [`set_key`](Scheduling::set_key) takes
    /// it. `None` if it is not one of [`SCHEDULER_KEYS`].
    pub fn get_key(&self, key: &str) -> Option<String> {
        let knob = Knob::named(key).filter(|_| SCHEDULER_KEYS.contains(&key))?;
        Some(knob.get(&Policy::default().with_scheduling(*self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::KNOBS;
    use crate::scheduling::SchedulerPolicy;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    #[test]
    fn keys_of_a_scheduler_are_those_that_change_its_settings() {
        let changes = |knob: &&Knob| {
            let usual = Policy::default();
            ["1", "3", "off", "kyber"].iter().any(|value| {
                let mut policy = usual;
                knob.set(&mut policy, value) && policy.scheduling() != usual.scheduling()
            })
        };
        let keys: Vec<_> = KNOBS.iter().filter(changes).map(|knob| knob.key).collect();
        assert_eq!(keys, SCHEDULER_KEYS);
    }

    #[test]
    fn keys_of_weights_are_those_that_change_their_measure() {
        let changes = |knob: &&Knob| {
            let usual = Policy::default();
            ["1", "ios"].iter().any(|value| {
                let mut policy = usual;
                let is_set = knob.set(&mut policy, value);
                is_set && (policy.weight_by, policy.cost) != (usual.weight_by, usual.cost)
            })
        };
        let keys: Vec<_> = KNOBS.iter().filter(changes).map(|knob| knob.key).collect();
        assert_eq!(keys, WEIGHT_KEYS);
    }

    #[test]
    fn a_scheduler_has_its_keys_and_no_others() {
        let mut scheduling = Scheduling::default();
        assert_eq!(scheduling.set_key("scheduler", "mq-deadline"), Ok(()));
        assert_eq!(scheduling.set_key("fifo_batch", "4"), Ok(()));
        assert_eq!(scheduling.scheduler, SchedulerPolicy::MqDeadline);
        assert_eq!(scheduling.mq_deadline.fifo_batch, 4);
        assert_eq!(scheduling.get_key("fifo_batch").as_deref(), Some("4"));
        assert_eq!(scheduling.get_key("queue_depth"), None);
        let before = scheduling;
        for (key, value, why) in [
            ("scheduler", "cfq", "scheduler=cfq: expected auto, none, mq-deadline, kyber or bfq"),
            ("queue_depth", "4", "queue_depth=4: expected one of the keys scheduler, device_depth"),
        ] {
            let text = scheduling.set_key(key, value).expect_err(key).to_string();
            assert!(text.starts_with(why), "{text}");
        }
        assert_eq!(scheduling, before);
    }
}
