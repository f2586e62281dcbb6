//! Model of acknowledged durability: the oracle of the scripts.
//!
//! Each write has a value of its own, so the storage shows which writes reached it. The model keeps
//! the versions of each page, in the order of their writes, and checks two rules:
//!
//! - Coverage: a flush that succeeds on a disk covers every write that completed before the flush
//!   was submitted, on any disk of the file. Each page then stores its last covered version, or a
//!   later one. So a flush must fail if write-back of a covered write failed. Exempt are the writes
//!   of a loss that was acknowledged: the loss was reported before.
//! - Reasons: a flush fails only if there is a loss that was not acknowledged, or a failed
//!   write-back that an open file has still to report. Each open file reports it once, and the file
//!   that the disks share for checks reports it once more.
//!
//! A FUA write counts as a flush that covers itself. A version that is not covered may be stored or
//! not.

use crate::scripts::{PAGE, Storage};
use forebay::{Buf, Disk, LostWrites};
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum State {
    /// Not completed, failed, or part of an acknowledged loss: no flush covers it.
    Unsure,
    /// Completed with this durable point.
    Completed(u64),
    /// Covered by a flush.
    Durable,
}

#[derive(Debug)]
struct Version {
    value: u64,
    state: State,
}

/// The versions of all pages.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// The number of a page, and its versions in the order of their writes.
    pages: Vec<(u64, Vec<Version>)>,
    last_value: u64,
    acknowledged: Vec<LostWrites>,
    nr_covered: u64,
    nr_lost: u64,
}

/// Returns a page of this value, aligned for every disk.
pub(crate) fn content(value: u64) -> Buf {
    let mut page = Buf::new(PAGE);
    page.chunks_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    page
}

impl Pages {
    /// Adds a version of a page, before its write is submitted. Returns its value.
    pub(crate) fn begin(&mut self, page: u64) -> u64 {
        self.last_value += 1;
        let version = Version { value: self.last_value, state: State::Unsure };
        match self.pages.iter_mut().find(|(number, _)| *number == page) {
            Some((_, versions)) => versions.push(version),
            None => {
                let zeroes = Version { value: 0, state: State::Durable };
                self.pages.push((page, vec![zeroes, version]));
            }
        }
        self.last_value
    }

    /// Records that a write succeeded.
    pub(crate) fn end(&mut self, page: u64, value: u64, state: State) {
        let is_lost = |point: u64| self.acknowledged.iter().any(|lost| is_in(lost, point));
        let state = match state {
            State::Completed(point) if is_lost(point) => State::Unsure,
            state => state,
        };
        let mut versions = self.pages.iter_mut().filter(|(number, _)| *number == page);
        let (_, versions) = versions.next().expect("the write began");
        let version = versions.iter_mut().find(|version| version.value == value);
        version.expect("the write began").state = state;
    }

    fn versions(&mut self) -> impl Iterator<Item = &mut Version> {
        self.pages.iter_mut().flat_map(|(_, versions)| versions)
    }

    /// Returns the durable points of all completed writes that no flush covers yet.
    pub(crate) fn points(&mut self) -> Vec<u64> {
        let point = |version: &mut Version| match version.state {
            State::Completed(point) => Some(point),
            _ => None,
        };
        self.versions().filter_map(point).collect()
    }

    /// Returns the newest of these points, or 0.
    pub(crate) fn newest_point(&mut self) -> u64 {
        self.points().into_iter().max().unwrap_or(0)
    }

    /// Records that a loss was acknowledged.
    pub(crate) fn acknowledge(&mut self, lost: LostWrites, disk: &Disk, storage: &dyn Storage) {
        self.acknowledged.push(lost);
        for (page, versions) in &mut self.pages {
            let last = versions.last().map_or(0, |version| version.value);
            for version in versions {
                let State::Completed(point) = version.state else { continue };
                if is_in(&lost, point) {
                    version.state = State::Unsure;
                    let is_gone = version.value == last && !storage.stores(disk, *page, last);
                    self.nr_lost += u64::from(is_gone);
                }
            }
        }
    }

    /// Records that the last disk was closed. The next one begins with durable points of its own.
    pub(crate) fn forget_points(&mut self) {
        self.acknowledged.clear();
        let is_completed = |version: &&mut Version| matches!(version.state, State::Completed(_));
        self.versions().filter(is_completed).for_each(|version| version.state = State::Unsure);
    }

    /// Records that everything up to a point is durable, as a disk claims, and checks its coverage.
    ///
    /// # Errors
    /// The page that does not store its last covered version, nor a later one.
    pub(crate) fn cover(
        &mut self,
        up_to: u64,
        disk: &Disk,
        storage: &dyn Storage,
    ) -> Result<(), String> {
        let is_covered = |version: &&mut Version| match version.state {
            State::Completed(point) => point <= up_to,
            State::Unsure | State::Durable => false,
        };
        let mut nr_covered = 0;
        for version in self.versions().filter(is_covered) {
            version.state = State::Durable;
            nr_covered += 1;
        }
        self.nr_covered += nr_covered;
        self.check(disk, storage)
    }

    /// Checks that every page stores its last covered version, or a later one.
    ///
    /// # Errors
    /// The page that does not.
    pub(crate) fn check(&mut self, disk: &Disk, storage: &dyn Storage) -> Result<(), String> {
        for (page, versions) in &mut self.pages {
            let last = versions.iter().rposition(|version| version.state == State::Durable);
            versions.drain(..last.unwrap_or(0));
            // The newest version is the likely one.
            let is_stored = |version: &Version| storage.stores(disk, *page, version.value);
            if !versions.iter().rev().any(is_stored) {
                return Err(format!("page {page} stores none of {versions:?}"));
            }
        }
        Ok(())
    }

    /// Returns how many writes flushes covered, and how many writes of acknowledged losses are not
    /// on the storage.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.nr_covered, self.nr_lost)
    }
}

fn is_in(lost: &LostWrites, point: u64) -> bool {
    lost.after < point && point <= lost.up_to
}

/// The reasons that flushes have to fail.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    nr_write_backs: u64,
    /// Failed flushes since the last failed write-back, by thread and disk.
    reports: HashMap<(u64, usize), u32>,
}

/// The circumstances of a failed flush.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The numbers of the thread and the disk; `None` if other threads were at work too.
    pub(crate) by: Option<(u64, usize)>,
    /// A loss was known before and not acknowledged.
    pub(crate) had_loss: bool,
}

impl Reasons {
    /// Records write-backs that have failed, or may have.
    pub(crate) fn write_backs_failed(&mut self, nr: u64) {
        self.nr_write_backs += nr;
        if nr > 0 {
            self.reports.clear();
        }
    }

    /// Checks that a flush may have failed.
    ///
    /// # Errors
    /// The flush has no reason left to fail.
    pub(crate) fn check(&mut self, failure: &Failure) -> Result<(), String> {
        /// The thread's own open file reports an error, and so does the one for checks.
        const NR_REPORTS: u32 = 2;
        if failure.had_loss {
            return Ok(());
        }
        if self.nr_write_backs == 0 {
            return Err(String::from("no reason: a flush failed, and no write-back did"));
        }
        let Some(by) = failure.by else { return Ok(()) };
        let nr = self.reports.entry(by).or_default();
        *nr += 1;
        match *nr > NR_REPORTS {
            true => Err(format!(
                "no reason: flush {nr} of {by:?} failed since the last failed write-back"
            )),
            false => Ok(()),
        }
    }
}
