//! Errors that do not end a job: `continue_on_error`, `ignore_error`, `error_dump`, `fill_device`.
//!
//! Source: fio's HOWTO and fio 3.33. fio has three kinds of errors. Without a list, a job continues
//! after EIO and EILSEQ only. A list of `ignore_error` replaces these two for its kind, and needs
//! no `continue_on_error`.

use crate::errno;
use crate::generator::Direction;

/// The words of `continue_on_error`, each with its kinds: read, write, verify.
const WORDS: [(&str, [bool; 3]); 8] = [
    ("none", [false; 3]),
    ("read", [true, false, false]),
    ("write", [false, true, false]),
    ("io", [true, true, false]),
    ("verify", [false, false, true]),
    ("all", [true; 3]),
    ("0", [false; 3]),
    ("1", [true; 3]),
];

/// The errors after which a job continues if it has no list.
const WITHOUT_LIST: [i32; 2] = [errno::IO, errno::ILLEGAL_SEQUENCE];

/// The kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorKind {
    Read,
    /// Also of trims and flushes.
    Write,
    Verify,
}

impl ErrorKind {
    fn new(direction: Direction, number: i32) -> Self {
        match direction {
            _ if number == errno::ILLEGAL_SEQUENCE => Self::Verify,
            Direction::Read => Self::Read,
            Direction::Write | Direction::Trim => Self::Write,
        }
    }
}

/// The rules for errors that do not end a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OnError {
    /// `continue_on_error`, by kind.
    continues: [bool; 3],
    /// `ignore_error`, by kind.
    ignored: [Vec<i32>; 3],
    /// `error_dump`: whether each error is printed when it occurs.
    pub dump: bool,
    /// `fill_device`: whether the end of the space ends the job without an error.
    pub fill_device: bool,
}

impl OnError {
    /// Returns whether the job continues after errors of some kind, and counts them in its report.
    pub fn counts(&self) -> bool {
        self.continues != [false; 3] || self.ignored.iter().any(|list| !list.is_empty())
    }

    /// Returns whether the job continues after error `number` of an I/O in this direction. A flush
    /// counts as a write.
    pub fn continues_after(&self, direction: Direction, number: i32) -> bool {
        let kind = ErrorKind::new(direction, number) as usize;
        match self.ignored[kind].as_slice() {
            [] => self.continues[kind] && WITHOUT_LIST.contains(&number),
            list => list.contains(&number),
        }
    }

    /// Returns the errors of `ignore_error`.
    pub fn ignored(&self) -> impl Iterator<Item = i32> + '_ {
        self.ignored.iter().flatten().copied()
    }

    /// Returns whether error `number` means that the device or file system is full, and the job
    /// fills it.
    pub fn is_full(&self, direction: Direction, number: i32) -> bool {
        let is_end = matches!(number, errno::NO_SPACE | errno::QUOTA);
        self.fill_device && direction != Direction::Read && is_end
    }

    /// Sets `continue_on_error` to one of its words.
    pub(crate) fn set_continues(&mut self, word: &str) {
        let found = WORDS.iter().find(|(known, _)| *known == word);
        self.continues = found.map_or([false; 3], |&(_, kinds)| kinds);
    }

    /// Sets `ignore_error`: the errors of reads, of writes and of verification.
    pub(crate) fn set_ignored(&mut self, ignored: [Vec<i32>; 3]) {
        self.ignored = ignored;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Direction::{Read, Trim, Write};

    fn rules(word: &str) -> OnError {
        let mut rules = OnError::default();
        rules.set_continues(word);
        rules
    }

    #[test]
    fn without_a_list_two_errors_of_the_kinds_do_not_end_a_job() {
        let continued = |word| {
            let rules = rules(word);
            [(Read, 5), (Write, 5), (Trim, 5), (Read, 84), (Write, 84), (Read, 28), (Write, 28)]
                .map(|(direction, number)| rules.continues_after(direction, number))
        };
        let [no, yes] = [false, true];
        assert_eq!(continued("none"), [no; 7]);
        assert_eq!(continued("0"), [no; 7]);
        assert_eq!(continued("read"), [yes, no, no, no, no, no, no]);
        assert_eq!(continued("write"), [no, yes, yes, no, no, no, no]);
        assert_eq!(continued("io"), [yes, yes, yes, no, no, no, no]);
        assert_eq!(continued("verify"), [no, no, no, yes, yes, no, no]);
        assert_eq!(continued("all"), [yes, yes, yes, yes, yes, no, no]);
        assert_eq!(continued("1"), continued("all"));
    }

    #[test]
    fn lists_replace_the_errors_of_their_kind() {
        let mut rules = rules("read");
        rules.set_ignored([vec![], vec![28, 122], vec![]]);
        assert!(rules.counts() && rules.continues_after(Read, 5));
        assert!(rules.continues_after(Write, 28) && rules.continues_after(Trim, 122));
        assert!(!rules.continues_after(Write, 5) && !rules.continues_after(Read, 28));
        assert!(!OnError::default().counts());
    }

    #[test]
    fn only_a_job_that_fills_its_device_ends_when_it_is_full() {
        let rules = OnError { fill_device: true, ..OnError::default() };
        assert!(rules.is_full(Write, 28) && rules.is_full(Write, 122));
        assert!(!rules.is_full(Read, 28) && !rules.is_full(Write, 5));
        assert!(!OnError::default().is_full(Write, 28));
    }
}
