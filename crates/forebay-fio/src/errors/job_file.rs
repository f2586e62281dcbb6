//! Errors in job files. Each shows its place, the line, and carets under the wrong part of it.

use std::fmt::{self, Display};
use std::ops::Range;

use thiserror::Error;

use super::UsageError;

/// An error in a job file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct JobFileError {
    /// The file, as it was named.
    pub file: String,
    /// The place in it; `None` if the error is one of the whole file.
    pub place: Option<Place>,
    /// The `include` lines that lead there, the innermost first: file and line.
    pub included_from: Vec<(String, usize)>,
    /// The error.
    pub problem: Problem,
}

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The line number, from 1 on.
    pub line: usize,
    /// The line.
    pub text: String,
    /// The range of bytes in it, at character boundaries.
    pub range: Range<usize>,
}

/// The kind of an error in a job file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// An option, or options that contradict each other.
    #[error("{}", .0.in_job_file())]
    Usage(UsageError),
    /// An option above the first section.
    #[error("no section before this line: start with a section such as [job1]")]
    NoSection,
    /// A section header without its closing bracket, or with text after it.
    #[error("a section header starts with [ and ends with ], with nothing after it")]
    OpenSection,
    /// An option and a value without `=` between them.
    #[error("missing = between option and value: write {name}={value}")]
    NoEquals {
        /// The option.
        name: String,
        /// The text after it.
        value: String,
    },
    /// A section in a file that is included.
    #[error("section in an included file: its options belong to the section that includes it")]
    SectionInInclude,
    /// An `include` without a file.
    #[error("include needs a file name")]
    NoInclude,
    /// A file that includes itself, directly or through others.
    #[error("{0} includes itself: remove this line")]
    Cycle(String),
    /// Too many includes.
    #[error("more than {max} includes")]
    TooManyIncludes {
        /// The limit.
        max: usize,
    },
    /// A file that cannot be read.
    #[error("cannot read the file: {0}")]
    Read(String),
    /// A disk image or another file that is no text.
    #[error(
        "this is binary data and not a job file; to measure a disk image, use forebay bench \
         --filename={0}"
    )]
    Binary(String),
    /// A line that is not valid UTF-8.
    #[error("not valid UTF-8")]
    NotUtf8,
    /// A line that is too long, with or without its variables expanded.
    #[error("line longer than {max_bytes} bytes")]
    LongLine {
        /// The limit.
        max_bytes: usize,
    },
    /// Job files that are too large.
    #[error("job files larger than {} MiB in total", .max_bytes >> 20)]
    TooLarge {
        /// The limit.
        max_bytes: usize,
    },
    /// An option that the program does not support, and why ([`FilePlace::refuse`]).
    ///
    /// [`FilePlace::refuse`]: crate::origin::FilePlace::refuse
    #[error("{0}")]
    Refused(String),
}

impl Place {
    /// Returns the column where it begins: in characters, from 1 on.
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
    /// Writes two lines: the text, and a caret for each character of the range.
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

/// Returns what is printed for a character, so that each takes one column: tabs as blanks, control
/// characters as replacement characters.
fn visible(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}
