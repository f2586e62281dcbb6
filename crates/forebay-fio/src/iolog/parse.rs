//! From the text of an iolog to its steps.

use std::collections::HashMap;

use thiserror::Error;

use super::{Act, Recording, Step};
use crate::errors::Short;
use crate::generator::Direction;

/// A log that cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct LogError {
    /// The number of the line, from 1 on.
    pub line: usize,
    /// The reason.
    pub problem: Problem,
}

/// The reason why a line is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The first line is not that of an iolog.
    #[error(
        "expected 'fio version 2 iolog' or 'fio version 3 iolog'; for a trace, give a file of \
         blktrace or the directory of a trace"
    )]
    Header,
    /// Another version.
    #[error("version '{0}' of the iolog is not known; expected 2 or 3")]
    Version(String),
    /// The line has too few or too many words.
    #[error("expected {expected}, found '{found}'")]
    Words {
        /// The form of a line.
        expected: &'static str,
        /// The line.
        found: String,
    },
    /// A number is wrong.
    #[error("{meaning} '{found}' is not a number from 0 to {max}")]
    Number {
        /// Its meaning.
        meaning: &'static str,
        /// The word.
        found: String,
        /// The largest number.
        max: u64,
    },
    /// An action of another name.
    #[error(
        "action '{0}' is not known; expected add, open, close, read, write, trim, sync, datasync, \
         or wait in version 2"
    )]
    Action(String),
    /// An I/O without length.
    #[error("{0} of 0 bytes; remove the line")]
    Empty(&'static str),
    /// An I/O beyond the largest offset.
    #[error("the I/O ends beyond the largest offset, 2^63 - 1")]
    PastEnd,
    /// Too many files.
    #[error("the log names more than {0} files; split it into several logs")]
    Files(usize),
}

const FORM_2: &str = "'file action' or 'file action offset length'";
const FORM_3: &str = "'time file action' or 'time file action offset length'";

/// The number of a file has 16 bits in an I/O.
const FILES_MAX: usize = u16::MAX as usize;

impl Recording {
    /// Parses the text of a log.
    ///
    /// # Errors
    ///
    /// [`LogError`] for the first wrong line.
    pub fn parse(text: &str) -> Result<Self, LogError> {
        let mut lines = text.lines().enumerate();
        let at = |line: usize| move |problem| LogError { line: line + 1, problem };
        let header = lines.next().map_or("", |(_, line)| line);
        let mut log = Log::new(version(header).map_err(at(0))?);
        for (number, line) in lines {
            if !line.trim().is_empty() {
                log.add(line).map_err(at(number))?;
            }
        }
        Ok(Self::new(log.files, log.steps))
    }
}

fn version(header: &str) -> Result<u8, Problem> {
    let words: Vec<_> = header.split_whitespace().collect();
    match words[..] {
        ["fio", "version", "2", "iolog"] => Ok(2),
        ["fio", "version", "3", "iolog"] => Ok(3),
        ["fio", "version", other, "iolog"] => Err(Problem::Version(short(other))),
        _ => Err(Problem::Header),
    }
}

/// A log whose lines are being read.
#[derive(Debug)]
struct Log {
    has_times: bool,
    files: Vec<String>,
    numbers: HashMap<String, u16>,
    steps: Vec<Step>,
    /// The time of the first line, us, from which all times count.
    first_us: Option<u64>,
    /// The time of the next step, ns.
    due_ns: u64,
}

impl Log {
    fn new(version: u8) -> Self {
        Self {
            has_times: version == 3,
            files: Vec::new(),
            numbers: HashMap::new(),
            steps: Vec::new(),
            first_us: None,
            due_ns: 0,
        }
    }

    fn add(&mut self, line: &str) -> Result<(), Problem> {
        let mut words = line.split_whitespace();
        let form = if self.has_times { FORM_3 } else { FORM_2 };
        let wrong = || Problem::Words { expected: form, found: short(line.trim()) };
        if self.has_times {
            let us = number("the time", words.next().ok_or_else(wrong)?, u64::MAX / 1000)?;
            let first_us = *self.first_us.get_or_insert(us);
            self.due_ns = self.due_ns.max(us.saturating_sub(first_us) * 1000);
        }
        let (Some(name), Some(action)) = (words.next(), words.next()) else {
            return Err(wrong());
        };
        let operands: Vec<_> = words.collect();
        let act = match (action, &operands[..]) {
            ("add" | "open" | "close", []) => return self.file(name).map(drop),
            ("wait", [ms, ..]) if !self.has_times && operands.len() <= 2 => {
                let ms = number("the time", ms, u64::MAX / 1_000_000)?;
                self.due_ns = self.due_ns.max(ms * 1_000_000);
                return Ok(());
            }
            ("read", [_, _]) => Act::Io(Direction::Read),
            ("write", [_, _]) => Act::Io(Direction::Write),
            ("trim", [_, _]) => Act::Io(Direction::Trim),
            ("sync", [_, _]) => Act::Sync,
            ("datasync", [_, _]) => Act::Datasync,
            ("add" | "open" | "close" | "read" | "write" | "trim" | "sync" | "datasync", _) => {
                return Err(wrong());
            }
            ("wait", _) if !self.has_times => return Err(wrong()),
            _ => return Err(Problem::Action(short(action))),
        };
        let offset = number("the offset", operands[0], i64::MAX as u64)?;
        let len = number("the length", operands[1], u32::MAX.into())? as u32;
        let step = Step { due_ns: self.due_ns, offset, len, file: self.file(name)?, act };
        self.steps.push(match act {
            // fio writes the range of the last write; a sync is for the whole file.
            Act::Sync | Act::Datasync => Step { offset: 0, len: 0, ..step },
            Act::Io(direction) if len == 0 => return Err(Problem::Empty(direction.word())),
            Act::Io(_) if offset + u64::from(len) > i64::MAX as u64 => {
                return Err(Problem::PastEnd);
            }
            Act::Io(_) => step,
        });
        Ok(())
    }

    /// Returns the number of a file.
    fn file(&mut self, name: &str) -> Result<u16, Problem> {
        if let Some(&number) = self.numbers.get(name) {
            return Ok(number);
        }
        if self.files.len() == FILES_MAX {
            return Err(Problem::Files(FILES_MAX));
        }
        let number = self.files.len() as u16;
        self.files.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        Ok(number)
    }
}

fn number(meaning: &'static str, word: &str, max: u64) -> Result<u64, Problem> {
    let number = word.parse().ok().filter(|&number| number <= max);
    number.ok_or_else(|| Problem::Number { meaning, found: short(word), max })
}

fn short(text: &str) -> String {
    Short(text).to_string()
}
