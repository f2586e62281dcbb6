//! The write-back errors of a file, as Linux reports them to its open file descriptions.
//!
//! The page cache writes data back long after the write has ended. If that fails, the kernel marks
//! the pages clean all the same: no later sync writes them again, and their data is gone after a
//! crash (or when the pages are reclaimed). It can only report the failure to a later sync. Each
//! inode has one [`ErrSeq`], and each open file description one [`ErrCursor`] (a `dup` shares it):
//!
//! - A sync through a description fails if an error was set since its last sync or its open.
//!   [`ErrSeq::check_and_advance`] returns the error once, and marks it as seen.
//! - A description that is opened while the last error is *not* seen reports that error as well.
//!   One that is opened later never does: [`ErrSeq::sample`].
//!
//! So the success of a sync proves nothing for data that was written before its description was
//! opened, and nothing while another sync through the same description holds the error.
//!
//! Source: `errseq_t` in `lib/errseq.c` and `file_check_and_advance_wb_err` in `mm/filemap.c` of
//! Linux 4.13 and later. The kernel packs the word into 32 bits; its counter wraps after 2^19
//! errors, which this one does not. Its lost races of `cmpxchg` are the orders in which callers
//! with `&mut` come.

use forebay_core::BlockStatus;

/// The error word of an inode: the last error, whether a description has reported it, and how many
/// errors were set after a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrSeq {
    error: Option<BlockStatus>,
    is_seen: bool,
    nr: u64,
}

/// The state of the error word that an open file description has reported: `file->f_wb_err`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrCursor(ErrSeq);

impl ErrSeq {
    /// Returns the word of an inode without errors.
    pub const fn new() -> ErrSeq {
        ErrSeq { error: None, is_seen: false, nr: 0 }
    }

    /// Records that a write-back has failed (`errseq_set`).
    pub fn set(&mut self, error: BlockStatus) {
        // Errors that no description has reported yet are one error to all of them.
        let nr = self.nr + u64::from(self.is_seen);
        *self = ErrSeq { error: Some(error), is_seen: false, nr };
    }

    /// Returns the cursor of a description that is opened now (`errseq_sample`).
    pub fn sample(&self) -> ErrCursor {
        ErrCursor(if self.is_seen { *self } else { ErrSeq::new() })
    }

    /// Returns whether a sync through this description would fail (`errseq_check`).
    pub fn differs(&self, cursor: ErrCursor) -> bool {
        *self != cursor.0
    }

    /// Returns whether the last error was not reported by any description.
    pub fn is_unseen(&self) -> bool {
        self.error.is_some() && !self.is_seen
    }

    /// Ends a sync through a description (`errseq_check_and_advance`).
    ///
    /// # Errors
    /// The last error, if the description has not reported it.
    pub fn check_and_advance(&mut self, cursor: &mut ErrCursor) -> Result<(), BlockStatus> {
        if !self.differs(*cursor) {
            return Ok(());
        }
        self.is_seen = true;
        cursor.0 = *self;
        self.error.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use BlockStatus::{Io, NoSpace};
    use alloc::vec::Vec;

    #[test]
    fn each_description_that_was_open_reports_an_error_once() {
        let mut word = ErrSeq::new();
        let (mut one, mut other) = (word.sample(), word.sample());
        assert_eq!(word.check_and_advance(&mut one), Ok(()));
        word.set(Io);
        assert!(word.differs(one) && word.is_unseen());
        assert_eq!(word.check_and_advance(&mut one), Err(Io));
        assert_eq!(word.check_and_advance(&mut one), Ok(()));
        assert_eq!(word.check_and_advance(&mut other), Err(Io));
        assert_eq!(word.check_and_advance(&mut other), Ok(()));
        word.set(Io);
        assert_eq!(word.check_and_advance(&mut one), Err(Io), "another error of the same kind");
    }

    #[test]
    fn description_that_is_opened_late_reports_an_error_only_if_it_was_not_seen() {
        let mut word = ErrSeq::new();
        word.set(NoSpace);
        let (mut one, mut other) = (word.sample(), word.sample());
        assert_eq!(word.check_and_advance(&mut one), Err(NoSpace));
        assert!(!word.is_unseen());
        assert_eq!(word.check_and_advance(&mut word.sample()), Ok(()), "it was seen by then");
        assert_eq!(word.check_and_advance(&mut other), Err(NoSpace), "it was not seen then");
    }

    #[test]
    fn description_reports_the_last_of_several_errors() {
        let mut word = ErrSeq::new();
        let mut one = word.sample();
        word.set(Io);
        word.set(NoSpace);
        assert_eq!(word.check_and_advance(&mut one), Err(NoSpace));
        assert_eq!(word.check_and_advance(&mut one), Ok(()));
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Error(BlockStatus),
        Open(usize),
        Sync(usize),
    }

    /// How many descriptions histories have, each opened anew by `Open`.
    const NR: usize = 3;

    impl Event {
        const ALL: [Event; 2 + 2 * NR] = [
            Event::Error(Io),
            Event::Error(NoSpace),
            Event::Open(0),
            Event::Open(1),
            Event::Open(2),
            Event::Sync(0),
            Event::Sync(1),
            Event::Sync(2),
        ];
    }

    /// Returns the report of the sync at the end of a history, given which earlier events reported
    /// an error. All descriptions are open from the start.
    fn expected(history: &[Event], has_reported: &[bool], one: usize) -> Option<BlockStatus> {
        let is_its =
            |event: &Event| matches!(*event, Event::Open(of) | Event::Sync(of) if of == one);
        let own = history.iter().rposition(is_its);
        let error = history.iter().rposition(|event| matches!(event, Event::Error(_)))?;
        let is_inherited = |own: usize| {
            let is_seen = has_reported[error..own].contains(&true);
            matches!(history[own], Event::Open(_)) && !is_seen
        };
        let is_due = own.is_none_or(|own| error > own || is_inherited(own));
        let Event::Error(error) = history[error] else { unreachable!("it is one") };
        is_due.then_some(error)
    }

    /// Runs a history, and compares each sync with the oracle.
    fn check(history: &[Event]) {
        let mut word = ErrSeq::new();
        let mut cursors = [word.sample(); NR];
        let mut has_reported = Vec::new();
        for (nth, event) in history.iter().enumerate() {
            let mut reports = false;
            match *event {
                Event::Error(error) => word.set(error),
                Event::Open(one) => cursors[one] = word.sample(),
                Event::Sync(one) => {
                    let reported = word.check_and_advance(&mut cursors[one]).err();
                    let expected = expected(&history[..nth], &has_reported, one);
                    assert_eq!(reported, expected, "event {nth} of {history:?}");
                    reports = reported.is_some();
                }
            }
            has_reported.push(reports);
        }
    }

    fn check_all(history: &mut Vec<Event>, length: usize) {
        if history.len() == length {
            return check(history);
        }
        for event in Event::ALL {
            history.push(event);
            check_all(history, length);
            history.pop();
        }
    }

    #[test]
    fn every_short_history_reports_the_expected_results() {
        check_all(&mut Vec::new(), 6);
    }

    #[test]
    fn random_long_histories_report_the_expected_results() {
        for seed in 0..2000 {
            let mut random = Random::new(seed, 0);
            let history: Vec<_> = (0..60).map(|_| random.pick(&Event::ALL)).collect();
            check(&history);
        }
    }
}
