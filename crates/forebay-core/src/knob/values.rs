//! Values of a setting: the texts that it takes, and its default.

use crate::size::parse_size;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt;

/// The values that a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Any text that is not empty.
    Name,
}

/// The value of a setting that the user does not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// The same value on every disk.
    Fixed(String),
    /// A description, because the value depends on the disk or on other settings.
    Depends(&'static str),
}

impl fmt::Display for DefaultValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DefaultValue::Fixed(value) => f.write_str(value),
            DefaultValue::Depends(description) => f.write_str(description),
        }
    }
}

impl Values {
    /// Returns the number of a value: the index of a word, 1 or 0 for a switch, or the number
    /// itself. `None` if the value is not one of these, and for names.
    pub fn number(&self, value: &str) -> Option<u64> {
        match *self {
            Values::Words(words) => {
                words.iter().position(|word| *word == value).map(|place| place as u64)
            }
            Values::Switch => parse_switch(value).map(u64::from),
            Values::Number { min, max, .. } => {
                parse_size(value).filter(|number| (min..=max).contains(number))
            }
            Values::Name => None,
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
            Values::Name => "a name".to_owned(),
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
