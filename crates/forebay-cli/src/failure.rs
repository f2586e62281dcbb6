//! Failures of a run, and their exit codes.

use std::process::ExitCode;

use forebay::OpenError;
use thiserror::Error;

/// Why the program exits with a code other than 0.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// Wrong usage: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// A failed run: exit code 1.
    #[error("{0}")]
    Run(String),
    /// Several errors, a message each.
    #[error("{}", messages.join("\n"))]
    Several {
        /// The messages.
        messages: Vec<String>,
        /// Whether the usage is wrong.
        usage: bool,
    },
    /// A failure whose message has been printed.
    #[error("failed")]
    Told {
        /// Whether the usage is wrong.
        usage: bool,
    },
}

impl Failure {
    /// Returns the failure with `context` before its message.
    pub(crate) fn with_context(self, context: &str) -> Self {
        match self {
            Self::Usage(message) => Self::Usage(format!("{context}{message}")),
            Self::Run(message) => Self::Run(format!("{context}{message}")),
            other => other,
        }
    }

    /// Returns the failure of a disk that cannot be opened, with `context` before the message. A
    /// wrong spec is wrong usage; an error of the system is not.
    pub(crate) fn open(context: &str, error: &OpenError) -> Self {
        let message = format!("{context}{error}");
        match error {
            OpenError::Spec(_) => Self::Usage(message),
            _ => Self::Run(message),
        }
    }

    /// Returns the lines to print on standard error.
    pub(crate) fn text(&self) -> String {
        let line = |message: &String| format!("forebay: {message}\n");
        match self {
            Self::Told { .. } => String::new(),
            Self::Usage(message) | Self::Run(message) => line(message),
            Self::Several { messages, .. } => messages.iter().map(line).collect(),
        }
    }

    /// Returns 2 for wrong usage, else 1.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) | Self::Several { usage: true, .. } | Self::Told { usage: true } => {
                ExitCode::from(2)
            }
            Self::Run(_) | Self::Several { usage: false, .. } | Self::Told { usage: false } => {
                ExitCode::from(1)
            }
        }
    }

    /// Returns the failure with these messages of wrong usage before its own.
    pub(crate) fn after(self, mut first: Vec<String>) -> Self {
        if first.is_empty() {
            return self;
        }
        first.extend(match self {
            Self::Usage(message) | Self::Run(message) => vec![message],
            Self::Several { messages, .. } => messages,
            Self::Told { .. } => Vec::new(),
        });
        Self::Several { messages: first, usage: true }
    }

    /// Returns the same failure, after its message has been printed.
    pub(crate) fn printed(self) -> Self {
        let is_usage = |failure: &Self| {
            matches!(
                failure,
                Self::Usage(_) | Self::Several { usage: true, .. } | Self::Told { usage: true }
            )
        };
        Self::Told { usage: is_usage(&self) }
    }

    /// Returns the same failure as one of the run, not of the usage.
    pub(crate) fn of_run(self) -> Self {
        match self {
            Self::Usage(message) => Self::Run(message),
            Self::Several { messages, .. } => Self::Several { messages, usage: false },
            failure => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_spec_is_wrong_usage_and_a_missing_file_is_not() {
        let open = |spec| forebay::Disk::open(spec).expect_err(spec);
        let failure = Failure::open("", &open("ram:many"));
        assert!(matches!(failure, Failure::Usage(_)), "{failure}");
        let failure = Failure::open("", &open("/nowhere/at/all"));
        assert!(matches!(failure, Failure::Run(_)), "{failure}");
    }

    #[test]
    fn each_message_begins_with_the_name_of_the_program() {
        let messages = vec!["a".to_owned(), "b".to_owned()];
        let failure = Failure::Several { messages, usage: true };
        assert_eq!(failure.text(), "forebay: a\nforebay: b\n");
        assert_eq!(Failure::Told { usage: true }.text(), "");
    }
}
