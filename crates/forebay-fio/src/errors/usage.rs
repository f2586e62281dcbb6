//! Errors of options. Each names the option, the reason and what to do.

use std::fmt::{self, Display};

use thiserror::Error;

/// An error in a command line, or in a line of a job file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UsageError {
    /// An option that neither fio nor this program has.
    UnknownOption {
        /// As given, without dashes.
        name: String,
        /// The most similar known option.
        nearest: Option<&'static str>,
    },
    /// An option of fio that is not supported.
    NotSupported {
        /// As given, without dashes.
        name: String,
        /// The advice.
        instead: &'static str,
    },
    /// A value that the option does not take.
    BadValue {
        /// The option as given, without dashes.
        name: String,
        /// The value as given.
        value: String,
        /// The reason.
        reason: String,
        /// The accepted values.
        accepted: String,
    },
    /// A missing value.
    MissingValue {
        /// The option as given, without dashes.
        name: String,
        /// The accepted values.
        accepted: String,
    },
    /// An option of the whole run in a job file.
    RunOption {
        /// The option as given.
        name: String,
    },
    /// An argument that is not an option.
    NotAnOption {
        /// As given.
        argument: String,
    },
    /// An argument that is not valid UTF-8.
    NotUtf8 {
        /// As given, with replacement characters.
        argument: String,
    },
    /// No job to run.
    NoJob,
    /// More jobs than fio allows.
    TooManyJobs {
        /// fio's limit.
        max: usize,
    },
    /// Options that contradict each other.
    Conflict(String),
}

impl Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "--")
    }
}

impl UsageError {
    /// Returns the message for a job file, where options have no dashes.
    pub fn in_job_file(&self) -> impl Display + '_ {
        InJobFile(self)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, dashes: &str) -> fmt::Result {
        match self {
            Self::UnknownOption { name, nearest: Some(nearest) } => {
                write!(f, "unknown option {dashes}{name}; did you mean {dashes}{nearest}?")
            }
            Self::UnknownOption { name, nearest: None } => {
                write!(f, "unknown option {dashes}{name}; see forebay bench --help")
            }
            Self::NotSupported { name, instead } => {
                write!(f, "{dashes}{name}: forebay does not support this fio option; {instead}")
            }
            Self::BadValue { name, value, reason, accepted } => {
                let value = Short(value);
                write!(f, "{dashes}{name}={value}: {reason} (accepted: {accepted})")
            }
            Self::MissingValue { name, accepted } => {
                write!(f, "{dashes}{name} needs a value (accepted: {accepted})")
            }
            Self::RunOption { name } => {
                write!(f, "{name} applies to the whole run; give --{name} on the command line")
            }
            Self::NotAnOption { argument } => {
                write!(f, "'{argument}' is not an option; options begin with --")
            }
            Self::NotUtf8 { argument } => write!(f, "'{argument}' is not valid UTF-8"),
            Self::NoJob => f.write_str(
                "no job to run; a job begins with --name=job1, or in a job file with a line such \
                 as [job1]",
            ),
            Self::TooManyJobs { max } => write!(f, "more than {max} jobs"),
            Self::Conflict(message) => f.write_str(message),
        }
    }
}

struct InJobFile<'a>(&'a UsageError);

impl Display for InJobFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, "")
    }
}

/// A text of any length, of which only the beginning is printed.
pub(crate) struct Short<'a>(pub(crate) &'a str);

impl Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHARS_MAX: usize = 60;
        match self.0.char_indices().nth(CHARS_MAX) {
            None => f.write_str(self.0),
            Some((end, _)) => write!(f, "{}...", &self.0[..end]),
        }
    }
}
