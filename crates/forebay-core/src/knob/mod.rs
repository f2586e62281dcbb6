//! Table of a [`Policy`]'s settings, by key.
//!
//! Disk specs, job files, options and reports name a setting by its key, and give its value as
//! text. [`KNOBS`] is the only list of the keys and of their values.

mod changeable;
mod table;
mod values;

pub use changeable::{BadSetting, SCHEDULER_KEYS, WEIGHT_KEYS};
pub use table::KNOBS;
pub use values::{DefaultValue, Values, parse_switch};

use crate::limits::QueueLimits;
use crate::policy::{IO_TIMEOUT_GRACE_NS, Policy};
use crate::tag::QUEUE_DEPTH_MAX;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};

const NS_PER_US: u64 = 1_000;
const NS_PER_MS: u64 = 1_000_000;

/// A setting of a [`Policy`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Knob {
    /// The key in specs and job files.
    pub key: &'static str,
    /// The values.
    pub values: Values,
    /// A description in a few words.
    pub help: &'static str,
    /// The condition under which it has an effect. Empty if it always has one.
    pub when: &'static str,
    /// The default, if it depends on the disk or on other settings.
    depends: Option<&'static str>,
    applies: fn(&Policy, &QueueLimits) -> bool,
    get: fn(&Policy) -> Value,
    set: fn(&mut Policy, u64),
}

/// The value of a setting in a policy.
enum Value {
    Word(&'static str),
    Number(u64),
}

impl Knob {
    const fn new(
        key: &'static str,
        values: Values,
        help: &'static str,
        get: fn(&Policy) -> Value,
        set: fn(&mut Policy, u64),
    ) -> Knob {
        Knob { key, values, help, when: "", depends: None, applies: |_, _| true, get, set }
    }

    /// Adds the condition under which the setting has an effect.
    const fn when(self, when: &'static str, applies: fn(&Policy, &QueueLimits) -> bool) -> Knob {
        Knob { when, applies, ..self }
    }

    /// Marks the default as one that depends on the disk or on other settings.
    const fn depends(self, on: &'static str) -> Knob {
        Knob { depends: Some(on), ..self }
    }

    /// Returns the setting with this key.
    pub fn named(key: &str) -> Option<&'static Knob> {
        KNOBS.iter().find(|knob| knob.key == key)
    }

    /// Sets the value. Returns whether it is one of [`values`](Knob::values); if not, the policy is
    /// unchanged. [`Policy::check`] checks settings against each other.
    #[must_use]
    pub fn set(&self, policy: &mut Policy, value: &str) -> bool {
        let number = self.values.number(value);
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

    /// Returns the default.
    pub fn default_value(&self) -> DefaultValue {
        match self.depends {
            Some(description) => DefaultValue::Depends(description),
            None => DefaultValue::Fixed(self.get(&Policy::default())),
        }
    }

    /// Returns whether the setting has an effect on a queue with this policy and these limits.
    pub fn applies(&self, policy: &Policy, limits: &QueueLimits) -> bool {
        (self.applies)(policy, limits)
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
        let depth = self.queue_depth;
        // The default may be less with a scheduler, but the limits of the disk are not known here.
        let nr_requests = self.nr_requests.unwrap_or(depth);
        let bad = |key, value: u64, expected: String| {
            let knob = Knob::named(key).expect("the table has it");
            Err(BadKnob { knob, value: value.to_string(), expected })
        };
        let up_to_depth = || format!("a number from 1 to queue_depth, which is {depth}");
        if nr_requests > depth {
            return bad("nr_requests", nr_requests.into(), up_to_depth());
        }
        if let Some(device_depth) = self.device_depth.filter(|device_depth| *device_depth > depth) {
            return bad("device_depth", device_depth.into(), up_to_depth());
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
            let expected = "io_timeout_ms above 0 beside it, which sets the time limit".to_owned();
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
mod tests;
