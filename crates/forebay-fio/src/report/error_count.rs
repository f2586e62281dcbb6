//! Errors in a report: the one that ended a job, and those that did not.

/// The error that ended a job, or one that did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobError {
    /// The error number.
    pub errno: i32,
    /// The message.
    pub message: String,
}

/// All errors of a job that continues after some of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorCount {
    total: u64,
    first: Option<JobError>,
}

impl ErrorCount {
    /// Counts an error. Errors after the first need no description.
    pub fn add(&mut self, error: Option<&JobError>) {
        self.total += 1;
        if self.first.is_none() {
            self.first = error.cloned();
        }
    }

    /// Returns the number of errors.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the first error.
    pub fn first(&self) -> Option<&JobError> {
        self.first.as_ref()
    }

    /// Returns the number of the first error; 0 if there is none.
    pub fn first_errno(&self) -> i32 {
        self.first.as_ref().map_or(0, |first| first.errno)
    }

    /// Adds the errors of a clone that ran at the same time.
    pub(super) fn merge(&mut self, other: Self) {
        self.total += other.total;
        self.first = self.first.take().or(other.first);
    }
}
