//! How a run can fail, and the exit code that says so.

use std::process::ExitCode;

use forebay::OpenError;
use thiserror::Error;

/// Why the program ends with another code than 0.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// What was asked for makes no sense: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// It made sense, but did not work out: exit code 1.
    #[error("{0}")]
    Run(String),
    /// As one of the above, but everything has been said already.
    #[error("failed")]
    Told {
        /// Whether it is an error of usage.
        usage: bool,
    },
}

impl Failure {
    /// The failure of a disk that cannot be opened, with `context` before the message. A wrong spec
    /// is an error of usage; what the system said is not.
    pub(crate) fn open(context: &str, error: &OpenError) -> Self {
        let message = format!("{context}{error}");
        match error {
            OpenError::Spec(_) => Self::Usage(message),
            _ => Self::Run(message),
        }
    }

    /// What is still to be said.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Self::Told { .. } => None,
            failure => Some(failure.to_string()),
        }
    }

    /// 2 for errors of usage, 1 for all others.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) | Self::Told { usage: true } => ExitCode::from(2),
            Self::Run(_) | Self::Told { usage: false } => ExitCode::from(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_spec_is_an_error_of_usage_and_a_missing_file_is_not() {
        let open = |spec| forebay::Disk::open(spec).expect_err(spec);
        let failure = Failure::open("", &open("ram:many"));
        assert!(matches!(failure, Failure::Usage(_)), "{failure}");
        let failure = Failure::open("", &open("/nowhere/at/all"));
        assert!(matches!(failure, Failure::Run(_)), "{failure}");
    }
}
