//! What is wrong with a job file, and how it is shown: the place, the line, and a caret under the
//! word that is wrong.

use std::fmt::{self, Display};
use std::ops::Range;

use thiserror::Error;

use super::{BYTES_MAX, INCLUDES_MAX, LINE_BYTES_MAX};
use crate::options::UsageError;

/// A job file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct JobFileError {
    /// The file, as it was named.
    pub file: String,
    /// Where in it; `None` if the file as a whole is meant.
    pub place: Option<Place>,
    /// The `include` lines that lead there, the innermost first: file and line.
    pub included_from: Vec<(String, usize)>,
    /// What is wrong.
    pub problem: Problem,
}

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The number of the line, from 1 on.
    pub line: usize,
    /// The line.
    pub text: String,
    /// The bytes of it that are meant, at the borders of characters.
    pub range: Range<usize>,
}

/// What is wrong with a job file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// An option, or options that contradict each other.
    #[error("{}", .0.in_job_file())]
    Usage(UsageError),
    /// An option above the first section.
    #[error("this stands before the first section, such as [job1]")]
    NoSection,
    /// A section whose name does not end.
    #[error("a section begins with [ and ends with ], and nothing follows it")]
    OpenSection,
    /// An option and a value without `=` between them.
    #[error("an option and its value are joined by =: {name}={value}")]
    NoEquals {
        /// The option.
        name: String,
        /// What is meant for its value.
        value: String,
    },
    /// A section in a file that is included.
    #[error("an included file has no sections; its options belong to the section that includes it")]
    SectionInInclude,
    /// An `include` without a file.
    #[error("include needs the name of a file")]
    NoInclude,
    /// A file that includes itself, by way of others perhaps.
    #[error("{0} includes itself; take this line out")]
    Cycle(String),
    /// Too many files are included.
    #[error("more than {INCLUDES_MAX} files are included")]
    TooManyIncludes,
    /// A file that cannot be read.
    #[error("cannot be read: {0}")]
    Read(String),
    /// A line that is not text.
    #[error("this is not valid UTF-8")]
    NotUtf8,
    /// A line that is too long, as it is or when its variables are filled in.
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    LongLine,
    /// The files are too large.
    #[error("the job files are larger than {} MiB in all", BYTES_MAX >> 20)]
    TooLarge,
}

impl Place {
    /// The column where it begins: characters, from 1 on.
    pub fn column(&self) -> usize {
        self.text.get(..self.range.start).map_or(1, |before| before.chars().count() + 1)
    }
}

impl Display for JobFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, place, included_from, problem } = self;
        match place {
            None => write!(f, "{file}: {problem}")?,
            Some(place) => {
                write!(f, "{file}:{}:{}: {problem}", place.line, place.column())?;
                place.write_excerpt(f)?;
            }
        }
        for (file, line) in included_from {
            write!(f, "\n  included by {file}:{line}")?;
        }
        Ok(())
    }
}

/// Columns of a line that are shown.
const WIDTH: usize = 76;

/// Columns that are shown before the caret, if the line is too long.
const BEFORE: usize = 30;

impl Place {
    /// Two lines: the text, and a caret for each character of the range.
    fn write_excerpt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: Vec<char> = self.text.chars().map(visible).collect();
        let start = self.column() - 1;
        let range = self.text.get(self.range.clone()).unwrap_or("");
        let first = if text.len() <= WIDTH { 0 } else { start.saturating_sub(BEFORE) };
        let shown: String = text.iter().skip(first).take(WIDTH).collect();
        let carets = range.chars().count().clamp(1, (first + WIDTH).saturating_sub(start).max(1));
        let (number, blanks) = (self.line.to_string(), start - first);
        let gutter = number.len();
        let dots = |yes: bool| if yes { "..." } else { "" };
        let (left, right) = (dots(first > 0), dots(first + WIDTH < text.len()));
        write!(f, "\n  {number} | {left}{shown}{right}")?;
        let blanks = blanks + left.len();
        write!(f, "\n  {:gutter$} | {:blanks$}{}", "", "", "^".repeat(carets))
    }
}

/// Tabs and what a terminal obeys take one column.
fn visible(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}
