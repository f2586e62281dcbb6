//! Table of a [`Policy`]'s settings, by key.
//!
//! Disk specs, job files, options and reports name a setting by its key, and give its value as
//! text. [`KNOBS`] is the only list of the keys and of their values.

use crate::policy::{
    FlushPolicy, IO_TIMEOUT_GRACE_NS, KickPolicy, MergePolicy, PlugPolicy, Policy, RunQueuePolicy,
    TagNeed,
};
use crate::size::parse_size;
use crate::tag::{QUEUE_DEPTH_MAX, WakePolicy};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};

/// The largest number of hardware contexts.
const NR_HW_QUEUES_MAX: u32 = 1024;

/// A setting of a [`Policy`].
#[derive(Debug)]
pub struct Knob {
    /// The key in specs and job files.
    pub key: &'static str,
    /// The values.
    pub values: Values,
    get: fn(&Policy) -> Value,
    set: fn(&mut Policy, u64),
}

/// The value of a setting in a policy.
enum Value {
    Word(&'static str),
    Number(u64),
}

/// The values that a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// One of these words.
    Words(&'static [&'static str]),
    /// `on` or `off`.
    Switch,
    /// A whole number in this range. `what` describes the range if another setting narrows it, or
    /// if the unit needs naming. If it is empty, the description is "a number from min to max".
    Number {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
        /// A description of the range.
        what: &'static str,
    },
}

/// Returns the words of a policy, in the order of its `ALL`.
macro_rules! words {
    ($policy:ty) => {
        Values::Words(
            &const {
                let mut words = [""; <$policy>::ALL.len()];
                let mut at = 0;
                while at < words.len() {
                    words[at] = <$policy>::ALL[at].name();
                    at += 1;
                }
                words
            },
        )
    };
}

/// A setting that is one of a policy's words. It is set by the index of the word.
macro_rules! choice {
    ($key:literal, $field:ident: $policy:ty) => {
        Knob {
            key: $key,
            values: words!($policy),
            get: |policy| Value::Word(policy.$field.name()),
            set: |policy, index| policy.$field = <$policy>::ALL[index as usize],
        }
    };
}

/// A setting that is a number.
macro_rules! number {
    ($key:literal, $field:ident, $min:expr, $max:expr) => {
        Knob {
            key: $key,
            values: Values::Number { min: $min, max: $max as u64, what: "" },
            get: |policy| Value::Number(policy.$field.into()),
            set: |policy, number| policy.$field = number as u32,
        }
    };
}

/// A setting that is a switch.
macro_rules! switch {
    ($key:literal, $field:ident) => {
        Knob {
            key: $key,
            values: Values::Switch,
            get: |policy| Value::Word(if policy.$field { "on" } else { "off" }),
            set: |policy, number| policy.$field = number != 0,
        }
    };
}

const UP_TO_QUEUE_DEPTH: &str = "a number from 1 to queue_depth";
const BELOW_NR_REQUESTS: &str = "a number below nr_requests (default: queue_depth)";
const MS: &str = "a number of milliseconds from 0 to 3600000";
const NS_PER_MS: u64 = 1_000_000;

/// All settings of a policy, in the order of reports.
pub static KNOBS: [Knob; 18] = [
    choice!("plug", plug: PlugPolicy),
    choice!("nomerges", nomerges: MergePolicy),
    choice!("kick", kick: KickPolicy),
    choice!("run_queue", run_queue: RunQueuePolicy),
    choice!("wake", wake: WakePolicy),
    choice!("tag_need", tag_need: TagNeed),
    number!("queue_depth", queue_depth, 1, QUEUE_DEPTH_MAX),
    Knob {
        key: "nr_requests",
        values: Values::Number { min: 1, max: QUEUE_DEPTH_MAX as u64, what: UP_TO_QUEUE_DEPTH },
        get: |policy| Value::Number(policy.nr_requests.unwrap_or(policy.queue_depth).into()),
        set: |policy, number| policy.nr_requests = Some(number as u32),
    },
    Knob {
        key: "reserved_tags",
        values: Values::Number { min: 0, max: QUEUE_DEPTH_MAX as u64, what: BELOW_NR_REQUESTS },
        get: |policy| Value::Number(policy.nr_reserved.into()),
        set: |policy, number| policy.nr_reserved = number as u32,
    },
    Knob {
        key: "async_depth",
        values: Values::Number { min: 1, max: QUEUE_DEPTH_MAX as u64, what: UP_TO_QUEUE_DEPTH },
        get: |policy| Value::Number(policy.async_depth.min(policy.queue_depth).into()),
        set: |policy, number| policy.async_depth = number as u32,
    },
    number!("nr_hw_queues", nr_hw_queues, 1, NR_HW_QUEUES_MAX),
    number!("nr_bios", nr_bios, 1, 1 << 20),
    choice!("flush", flush: FlushPolicy),
    Knob {
        key: "flush_pending_ms",
        values: Values::Number { min: 0, max: 3_600_000, what: MS },
        get: |policy| Value::Number(policy.flush_pending_ns / NS_PER_MS),
        set: |policy, number| policy.flush_pending_ns = number * NS_PER_MS,
    },
    Knob {
        key: "io_timeout_ms",
        values: Values::Number { min: 0, max: 3_600_000, what: MS },
        get: |policy| Value::Number(policy.io_timeout_ns / NS_PER_MS),
        set: |policy, number| policy.io_timeout_ns = number * NS_PER_MS,
    },
    Knob {
        key: "io_timeout_grace_ms",
        values: Values::Number { min: 0, max: 3_600_000, what: MS },
        get: |policy| Value::Number(policy.io_timeout_grace_ns / NS_PER_MS),
        set: |policy, number| policy.io_timeout_grace_ns = number * NS_PER_MS,
    },
    switch!("elide", elide),
    switch!("iostats", iostats),
];

impl Knob {
    /// Returns the setting with this key.
    pub fn named(key: &str) -> Option<&'static Knob> {
        KNOBS.iter().find(|knob| knob.key == key)
    }

    /// Sets the value. Returns whether it is one of [`values`](Knob::values); if not, the policy is
    /// unchanged. [`Policy::check`] checks settings against each other.
    #[must_use]
    pub fn set(&self, policy: &mut Policy, value: &str) -> bool {
        let number = self.values.parse(value);
        if let Some(number) = number {
            (self.set)(policy, number);
        }
        number.is_some()
    }

    /// Returns the value in a policy, as [`set`](Knob::set) takes it.
    pub fn get(&self, policy: &Policy) -> String {
        match (self.get)(policy) {
            Value::Word(word) => word.to_owned(),
            Value::Number(number) => number.to_string(),
        }
    }
}

impl Values {
    /// Returns the number that `set` stores for this value.
    fn parse(&self, value: &str) -> Option<u64> {
        match *self {
            Values::Words(words) => {
                words.iter().position(|word| *word == value).map(|place| place as u64)
            }
            Values::Switch => parse_switch(value).map(u64::from),
            Values::Number { min, max, .. } => {
                parse_size(value).filter(|number| (min..=max).contains(number))
            }
        }
    }

    /// Returns a description of the values, such as `hold, requeue or tail`.
    pub fn expected(&self) -> String {
        match *self {
            Values::Words(words) => match words {
                [] => String::new(),
                [word] => (*word).to_owned(),
                [words @ .., last] => format!("{} or {last}", words.join(", ")),
            },
            Values::Switch => "on or off".to_owned(),
            Values::Number { min, max, what: "" } => format!("a number from {min} to {max}"),
            Values::Number { what, .. } => what.to_owned(),
        }
    }
}

/// Parses the value of a switch: `on`, `1`, `yes` or `true`; `off`, `0`, `no` or `false`.
pub fn parse_switch(value: &str) -> Option<bool> {
    match value {
        "on" | "1" | "yes" | "true" => Some(true),
        "off" | "0" | "no" | "false" => Some(false),
        _ => None,
    }
}

/// A setting whose value conflicts with another setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadKnob {
    /// The setting.
    pub knob: &'static Knob,
    /// The value.
    pub value: String,
    /// The values that the other settings allow.
    pub expected: String,
}

impl Policy {
    /// Checks that the policy does not give out more tags than exist.
    ///
    /// # Errors
    /// Returns the setting that requires more tags than exist.
    pub fn check(&self) -> Result<(), BadKnob> {
        let (depth, nr_requests) = (self.queue_depth, self.nr_requests.unwrap_or(self.queue_depth));
        let bad = |key, value: u64, expected: String| {
            let knob = Knob::named(key).expect("the table has it");
            Err(BadKnob { knob, value: value.to_string(), expected })
        };
        let up_to_depth = || format!("a number from 1 to queue_depth, which is {depth}");
        if nr_requests > depth {
            return bad("nr_requests", nr_requests.into(), up_to_depth());
        }
        // Without the key, the depth is unlimited.
        if self.async_depth != QUEUE_DEPTH_MAX && self.async_depth > depth {
            return bad("async_depth", self.async_depth.into(), up_to_depth());
        }
        if self.nr_reserved >= nr_requests {
            let expected = format!("a number below nr_requests, which is {nr_requests}");
            return bad("reserved_tags", self.nr_reserved.into(), expected);
        }
        if self.io_timeout_ns == 0 && self.io_timeout_grace_ns != IO_TIMEOUT_GRACE_NS {
            let expected = "no value without io_timeout_ms, which sets the time limit".to_owned();
            return bad("io_timeout_grace_ms", self.io_timeout_grace_ns / NS_PER_MS, expected);
        }
        Ok(())
    }
}

impl PartialEq for Knob {
    fn eq(&self, other: &Knob) -> bool {
        self.key == other.key
    }
}

impl Eq for Knob {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn each_setting_takes_the_values_that_it_gives() {
        for knob in &KNOBS {
            let mut policy = Policy::default();
            let default = knob.get(&policy);
            assert!(knob.set(&mut policy, &default), "{}={default}", knob.key);
            assert_eq!(knob.get(&policy), default, "{}", knob.key);
            let values: Vec<String> = match knob.values {
                Values::Words(words) => words.iter().map(|word| (*word).to_owned()).collect(),
                Values::Switch => ["on", "off"].map(str::to_owned).into(),
                Values::Number { min, max, .. } => [min, max].map(|n| n.to_string()).into(),
            };
            for value in values {
                let mut policy = Policy { queue_depth: QUEUE_DEPTH_MAX, ..Policy::default() };
                assert!(knob.set(&mut policy, &value), "{}={value}", knob.key);
                assert_eq!(knob.get(&policy), value, "{}", knob.key);
            }
        }
    }

    #[test]
    fn value_that_a_setting_does_not_take_changes_nothing() {
        for knob in &KNOBS {
            let mut policy = Policy::default();
            for value in ["", "nonsense", "-1", "99999999"] {
                assert!(!knob.set(&mut policy, value), "{}={value}", knob.key);
            }
            assert_eq!(policy, Policy::default(), "{}", knob.key);
        }
    }

    #[test]
    fn values_are_described() {
        let expected = |key| Knob::named(key).expect("it is there").values.expected();
        assert_eq!(expected("flush"), "hold, requeue or tail");
        assert_eq!(expected("nomerges"), "0, 1 or 2");
        assert_eq!(expected("queue_depth"), "a number from 1 to 10240");
        assert_eq!(expected("elide"), "on or off");
        assert!(Knob::named("nonsense").is_none());
    }

    #[test]
    fn policy_that_gives_out_more_tags_than_exist_is_bad() {
        let few = Policy { queue_depth: 4, ..Policy::default() };
        assert_eq!(few.check(), Ok(()));
        let key = |policy: Policy| policy.check().expect_err("too many").knob.key;
        assert_eq!(key(Policy { nr_requests: Some(5), ..few }), "nr_requests");
        assert_eq!(key(Policy { async_depth: 5, ..few }), "async_depth");
        assert_eq!(key(Policy { nr_reserved: 4, ..few }), "reserved_tags");
        assert_eq!(key(Policy { nr_requests: Some(2), nr_reserved: 2, ..few }), "reserved_tags");
    }
}
