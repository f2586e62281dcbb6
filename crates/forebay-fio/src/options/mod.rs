//! fio's options: which there are, what they take, and what they set.
//!
//! Everything about an option stands in one row of [`table::OPTIONS`]. This module looks rows up
//! and applies values; the words for refusals are here too, because a refusal should say what would
//! do.

mod known;
mod nearest;
mod table;
mod values;

use std::fmt::Write;

use thiserror::Error;

use crate::arguments;
use crate::job::{Given, RunOptions};
use crate::units::{self, NumberError, Size};

pub use self::nearest::nearest;
pub use self::table::OPTIONS;

/// One option: a row of the table.
#[derive(Debug)]
pub struct OptionSpec {
    /// The name that reports use, without dashes.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// What it takes and sets.
    pub kind: Kind,
    /// The value if it is not given, for the help text; empty if there is none.
    pub default: &'static str,
    /// What it does, in a few words.
    pub help: &'static str,
}

/// What an option takes, and where its value goes.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum Kind {
    /// A count within limits.
    Int { min: u64, max: u64, set: fn(&mut Given, u64) },
    /// Bytes within limits.
    Bytes { min: u64, max: u64, set: fn(&mut Given, u64) },
    /// Bytes or a percentage.
    Size { set: fn(&mut Given, Size) },
    /// A time, in seconds by default.
    Time { set: fn(&mut Given, std::time::Duration) },
    /// 0 or 1, and the value is needed.
    Bool { set: fn(&mut Given, bool) },
    /// 0 or 1, and the bare option means 1.
    Flag { set: fn(&mut Given, bool) },
    /// One of these words.
    Choice { words: &'static [&'static str], set: fn(&mut Given, &str) },
    /// Any text.
    Text { set: fn(&mut Given, &str) },
    /// A text with a form of its own.
    Parsed { accepts: &'static str, set: fn(&mut Given, &str) -> Result<(), String> },
    /// An option of the layer itself: the text is passed on as it is.
    Policy { accepts: &'static str },
    /// Concerns the run: one of these words.
    RunChoice { words: &'static [&'static str], set: fn(&mut RunOptions, &str) },
    /// Concerns the run: a text with a form of its own.
    RunParsed { accepts: &'static str, set: fn(&mut RunOptions, &str) -> Result<(), String> },
    /// Concerns the run: any text.
    RunText { set: fn(&mut RunOptions, &str) },
    /// Opens a job.
    JobName,
    /// Shows the help text.
    Help,
}

/// What is wrong with a command line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UsageError {
    /// No such option, in fio or here.
    #[error("unknown option --{name}{}", did_you_mean(.nearest))]
    UnknownOption {
        /// As given, without dashes.
        name: String,
        /// The known option whose name is most like it.
        nearest: Option<&'static str>,
    },
    /// An option of fio that is not supported.
    #[error("--{name}: fio knows it, forebay bench does not support it yet")]
    NotSupported {
        /// As given, without dashes.
        name: String,
    },
    /// A value that the option does not take.
    #[error("--{name}={value}: {reason}; accepted: {accepted}")]
    BadValue {
        /// The option as given, without dashes.
        name: String,
        /// The value as given.
        value: String,
        /// What is wrong with it.
        reason: String,
        /// What the option takes.
        accepted: String,
    },
    /// The value is missing.
    #[error("--{name} needs a value; accepted: {accepted}")]
    MissingValue {
        /// The option as given, without dashes.
        name: String,
        /// What the option takes.
        accepted: String,
    },
    /// Something that is not an option.
    #[error(
        "'{argument}' is not an option; options begin with --, and job files are not supported yet"
    )]
    NotAnOption {
        /// As given.
        argument: String,
    },
    /// An argument that is not text.
    #[error("'{argument}' is not valid UTF-8")]
    NotUtf8 {
        /// As given, with replacement characters.
        argument: String,
    },
    /// Options that contradict each other.
    #[error("{0}")]
    Conflict(String),
}

/// Finds an option by its name or an alias. A dash and an underscore are the same.
///
/// # Errors
///
/// [`UsageError::NotSupported`] if only fio has it, [`UsageError::UnknownOption`] if nobody does.
pub fn lookup(name: &str) -> Result<&'static OptionSpec, UsageError> {
    let normal = name.replace('-', "_");
    let is_it = |known: &str| known.replace('-', "_") == normal;
    if let Some(spec) = OPTIONS.iter().find(|spec| spec.names().any(is_it)) {
        return Ok(spec);
    }
    let name = name.to_owned();
    if known::KNOWN_TO_FIO.iter().any(|known| is_it(known)) {
        return Err(UsageError::NotSupported { name });
    }
    let nearest = nearest(&normal, OPTIONS.iter().flat_map(OptionSpec::names));
    Err(UsageError::UnknownOption { name, nearest })
}

/// The options and what they take, one per line.
pub fn help() -> String {
    let mut text = String::new();
    for spec in OPTIONS {
        let names = spec.names().collect::<Vec<_>>().join(", ");
        // Writing into a String does not fail.
        let _ = write!(text, "  --{names}\n      {}", spec.help);
        match spec.kind {
            Kind::Help => {}
            _ => drop(write!(text, "; takes {}", spec.kind.accepted())),
        }
        match spec.default {
            "" => text.push('\n'),
            default => drop(writeln!(text, " [{default}]")),
        }
    }
    text
}

impl OptionSpec {
    /// Whether the value may be left out, and then is never taken from the next argument.
    pub fn is_flag(&self) -> bool {
        matches!(self.kind, Kind::Flag { .. } | Kind::Help)
    }

    /// The name and the aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Sets the option to `value`. `used` is the name that the user wrote.
    ///
    /// # Errors
    ///
    /// [`UsageError::BadValue`] if the option does not take the value.
    pub fn apply(
        &self,
        used: &str,
        value: &str,
        given: &mut Given,
        run: &mut RunOptions,
    ) -> Result<(), UsageError> {
        self.set(value, given, run).map_err(|reason| UsageError::BadValue {
            name: used.to_owned(),
            value: value.to_owned(),
            reason,
            accepted: self.kind.accepted(),
        })
    }

    fn set(&self, value: &str, given: &mut Given, run: &mut RunOptions) -> Result<(), String> {
        let number = |error: NumberError| error.to_string();
        given.texts.retain(|(name, _)| *name != self.name);
        if arguments::is_by_text(self.name, value) {
            given.texts.push((self.name, value.to_owned()));
        }
        match self.kind {
            Kind::Int { min, max, set } | Kind::Bytes { min, max, set } => {
                set(given, within(units::parse_bytes(value).map_err(number)?, min, max)?);
            }
            Kind::Size { set } => set(given, units::parse_size(value).map_err(number)?),
            Kind::Time { set } => set(given, units::parse_time(value).map_err(number)?),
            Kind::Bool { set } | Kind::Flag { set } => {
                set(given, units::parse_bool(value).map_err(number)?);
            }
            Kind::Choice { words, set } => set(given, one_of(value, words)?),
            Kind::RunParsed { set, .. } => set(run, value)?,
            Kind::RunChoice { words, set } => set(run, one_of(value, words)?),
            Kind::Text { .. } | Kind::RunText { .. } if value.is_empty() => {
                return Err("it is empty".to_owned());
            }
            Kind::Parsed { set, .. } => set(given, value)?,
            Kind::Text { set } => set(given, value),
            Kind::RunText { set } => set(run, value),
            Kind::Policy { .. } => {
                given.policies.retain(|(name, _)| *name != self.name);
                given.policies.push((self.name, value.to_owned()));
            }
            Kind::JobName | Kind::Help => {}
        }
        Ok(())
    }
}

impl Kind {
    /// What values are accepted, in words.
    pub fn accepted(&self) -> String {
        match self {
            Self::Int { min, max, .. } => format!("a number from {min} to {max}"),
            Self::Bytes { .. } => {
                "one size such as 4096, 4k, 1m or 1g (k = 1024, ki = 1000)".to_owned()
            }
            Self::Size { .. } => "a size such as 4096, 4k, 1m or 1g, or 1% to 100%".to_owned(),
            Self::Time { .. } => "a time such as 10, 10s, 500ms, 5m or 1h".to_owned(),
            Self::Bool { .. } => "0 or 1".to_owned(),
            Self::Flag { .. } => "nothing, 0 or 1".to_owned(),
            Self::Choice { words, .. } | Self::RunChoice { words, .. } => words.join(", "),
            Self::Text { .. } | Self::RunText { .. } | Self::JobName => "a text".to_owned(),
            Self::Policy { accepts }
            | Self::Parsed { accepts, .. }
            | Self::RunParsed { accepts, .. } => (*accepts).to_owned(),
            Self::Help => "nothing".to_owned(),
        }
    }
}

fn within(number: u64, min: u64, max: u64) -> Result<u64, String> {
    if number < min {
        Err(format!("it is below {min}"))
    } else if number > max {
        Err(format!("it is above {max}"))
    } else {
        Ok(number)
    }
}

fn one_of<'a>(value: &'a str, words: &[&str]) -> Result<&'a str, String> {
    if words.contains(&value) { Ok(value) } else { Err("it is none of the words".to_owned()) }
}

fn did_you_mean(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(
        || "; see forebay bench --help".to_owned(),
        |name| format!("; did you mean --{name}?"),
    )
}

#[cfg(test)]
mod tests;
