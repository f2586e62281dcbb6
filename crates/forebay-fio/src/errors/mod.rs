//! Errors of a command line and its job files, collected so that one run reports all of them.

mod job_file;
mod usage;

use std::fmt::{self, Display};

use thiserror::Error;

pub use self::job_file::{JobFileError, Place, Problem};
pub(crate) use self::usage::Short;
pub use self::usage::UsageError;

/// How many errors are reported. Reading stops there, which bounds the time and the memory that a
/// hostile file can cost.
pub const ERRORS_MAX: usize = 20;

/// One error of a command line or of a job file that it names.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommandError {
    /// An argument.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// A job file.
    #[error(transparent)]
    JobFile(#[from] Box<JobFileError>),
}

impl From<JobFileError> for CommandError {
    fn from(error: JobFileError) -> Self {
        Self::JobFile(Box::new(error))
    }
}

/// All errors of a command line and its job files, in the order in which they were found. There is
/// at least one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct CommandErrors {
    list: Vec<CommandError>,
}

impl CommandErrors {
    /// Returns the errors.
    pub fn list(&self) -> &[CommandError] {
        &self.list
    }

    /// Returns whether reading stopped at [`ERRORS_MAX`] errors, so that there may be more.
    pub fn is_cut(&self) -> bool {
        self.list.len() >= ERRORS_MAX
    }
}

impl<E: Into<CommandError>> From<E> for CommandErrors {
    fn from(error: E) -> Self {
        Self { list: vec![error.into()] }
    }
}

impl Display for CommandErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.list.iter().enumerate() {
            let end = if at + 1 < self.list.len() { "\n" } else { "" };
            write!(f, "{error}{end}")?;
        }
        if self.is_cut() { write!(f, "\n{CUT}") } else { Ok(()) }
    }
}

/// The last line of a list that is cut.
pub const CUT: &str = "too many errors: the rest was not checked";

/// Errors as they are found.
#[derive(Debug, Default)]
pub(crate) struct Collected(Vec<CommandError>);

impl Collected {
    /// Adds an error, unless there are enough.
    pub(crate) fn add(&mut self, error: impl Into<CommandError>) {
        if !self.is_full() {
            self.0.push(error.into());
        }
    }

    /// Returns whether nothing more needs to be read.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= ERRORS_MAX
    }

    /// Returns the errors, or `Ok` if there is none.
    pub(crate) fn check(&mut self) -> Result<(), CommandErrors> {
        match std::mem::take(&mut self.0) {
            list if list.is_empty() => Ok(()),
            list => Err(CommandErrors { list }),
        }
    }
}
