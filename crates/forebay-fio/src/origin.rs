//! Where the options of a job were given, for programs that refuse some of them.

use crate::errors::{JobFileError, Place, Problem};

/// An option of a job as it was given: for the job itself, or as a default for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The option, by the name in [`OPTIONS`](crate::options::OPTIONS).
    pub name: &'static str,
    /// Its value; `1` for a flag without one.
    pub value: String,
    /// Where it was given.
    pub source: Source,
}

/// Where an option was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// On the command line.
    CommandLine,
    /// In a job file, or in a file that one includes.
    File(FilePlace),
}

/// A part of a line of a job file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlace {
    /// The file, as it was named.
    pub file: String,
    /// The line, and the part of it.
    pub place: Place,
    /// The `include` lines that lead there, the innermost first: file and line.
    pub included_from: Vec<(String, usize)>,
}

impl Source {
    /// Returns what precedes a warning about the option: `--`, or `a.fio:3: `.
    pub(crate) fn prefix(&self) -> String {
        match self {
            Self::CommandLine => "--".to_owned(),
            Self::File(at) => format!("{}:{}: ", at.file, at.place.line),
        }
    }
}

impl FilePlace {
    /// Returns an error that shows this place and gives `reason`, for a program that does not
    /// support what is given there.
    pub fn refuse(&self, reason: String) -> JobFileError {
        let Self { file, place, included_from } = self.clone();
        let problem = Problem::Refused(reason);
        JobFileError { file, place: Some(place), included_from, problem }
    }
}
