//! fio's options: which there are, what they take, and what they set.
//!
//! Everything about an option that is supported stands in one row of [`OPTIONS`], and what becomes
//! of fio's other options in [`known`]: together they are one table of all names. This module looks
//! names up and applies values; what is refused, and in which words, is in [`error`].

pub mod error;
pub mod known;
mod nearest;
mod table;
mod values;

use std::fmt::Write;

use crate::arguments;
use crate::job::{Given, RunOptions};
use crate::units::{self, NumberError, Size};

pub use self::error::UsageError;
use self::known::{Foreign, Verdict};
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
    /// Concerns the run: 0 or 1, and the bare option means 1.
    RunFlag { set: fn(&mut RunOptions, bool) },
    /// Opens a job.
    JobName,
    /// Shows the help text.
    Help,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub enum Found {
    /// An option that is supported.
    Supported(&'static OptionSpec),
    /// An option of fio that changes nothing here, and why.
    Ignored(&'static Foreign, &'static str),
}

impl Found {
    /// Whether the value may be left out, and then is never taken from the next argument.
    pub fn is_flag(&self) -> bool {
        match self {
            Self::Supported(spec) => spec.is_flag(),
            Self::Ignored(foreign, _) => foreign.is_flag,
        }
    }

    /// What values are accepted, in words.
    pub fn accepted(&self) -> String {
        match self {
            Self::Supported(spec) => spec.kind.accepted(),
            Self::Ignored(..) => "what fio takes".to_owned(),
        }
    }
}

/// Finds an option by its name or an alias. A dash and an underscore are the same.
///
/// # Errors
///
/// [`UsageError::NotSupported`] if only fio has it, [`UsageError::UnknownOption`] if nobody does.
pub fn lookup(name: &str) -> Result<Found, UsageError> {
    if let Some(spec) = OPTIONS.iter().find(|spec| spec.names().any(|known| same_name(known, name)))
    {
        return Ok(Found::Supported(spec));
    }
    if let Some(foreign) = known::find(name) {
        return match foreign.verdict {
            Verdict::Ignored(why) => Ok(Found::Ignored(foreign, why)),
            Verdict::Refused(instead) => {
                Err(UsageError::NotSupported { name: name.to_owned(), instead })
            }
        };
    }
    let normal = name.trim_start_matches('-').replace('-', "_");
    let nearest = nearest(&normal, OPTIONS.iter().flat_map(OptionSpec::names));
    Err(UsageError::UnknownOption { name: name.to_owned(), nearest })
}

/// Whether two names are the same but for dashes and underscores.
fn same_name(a: &str, b: &str) -> bool {
    let normal = |byte: u8| if byte == b'-' { b'_' } else { byte };
    a.len() == b.len() && a.bytes().map(normal).eq(b.bytes().map(normal))
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
        matches!(self.kind, Kind::Flag { .. } | Kind::RunFlag { .. } | Kind::Help)
    }

    /// Whether it concerns the run, not a job.
    pub fn is_of_run(&self) -> bool {
        use Kind::{Help, RunChoice, RunFlag, RunParsed, RunText};
        let is_run = matches!(self.kind, RunChoice { .. } | RunText { .. } | RunFlag { .. });
        is_run || matches!(self.kind, RunParsed { .. } | Help)
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
        if value != self.default && arguments::is_by_text(self.name, value) {
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
            Kind::RunFlag { set } => set(run, units::parse_bool(value).map_err(number)?),
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
            Self::Flag { .. } | Self::RunFlag { .. } => "nothing, 0 or 1".to_owned(),
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

fn one_of<'a>(value: &'a str, words: &[&'static str]) -> Result<&'a str, String> {
    if words.contains(&value) {
        return Ok(value);
    }
    Err(match nearest(value, words.iter().copied()) {
        Some(word) => format!("it is none of the words; did you mean {word}?"),
        None => "it is none of the words".to_owned(),
    })
}

#[cfg(test)]
mod tests;
