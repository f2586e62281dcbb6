//! The sequence numbers of the records of one ring.

use crate::record::{Kind, Notify, Record};
use std::collections::VecDeque;

/// The numbers of the records of one ring.
#[derive(Debug, Default)]
pub(super) struct SequenceNumbers {
    /// The number of the last record that is in its place.
    last: Option<u32>,
    /// The numbers of the notify records after it. `blkparse -d` writes one (the name of a process,
    /// the time of the day) as soon as it reads it, and sorts all other records by time. So a
    /// notify record may come before records with lower numbers.
    notify_numbers: VecDeque<u32>,
}

/// Returns whether a record may come before records with lower numbers.
pub(super) fn may_come_early(record: &Record) -> bool {
    matches!(record.kind, Kind::Notify(Notify::Process | Notify::Timestamp))
}

impl SequenceNumbers {
    /// Takes the next record. Returns how many records are missing before it.
    pub(super) fn take(&mut self, record: &Record) -> u32 {
        if may_come_early(record) {
            self.notify_numbers.push_back(record.sequence);
            return 0;
        }
        self.take_in_place(record.sequence)
    }

    fn take_in_place(&mut self, number: u32) -> u32 {
        // The numbers wrap.
        let nr_between = |earlier: u32| number.wrapping_sub(earlier).wrapping_sub(1);
        let is_before = |other: &u32| nr_between(*other) < u32::MAX / 2;
        // A file of several traces begins again.
        let last = self.last.replace(number).filter(is_before);
        let first_notify = self.notify_numbers.front().copied().filter(is_before);
        let Some(last) = last.or(first_notify.map(|number| number.wrapping_sub(1))) else {
            return 0;
        };
        let mut nr_notify = 0;
        while self.notify_numbers.front().is_some_and(is_before) {
            self.notify_numbers.pop_front();
            nr_notify += 1;
        }
        nr_between(last).saturating_sub(nr_notify)
    }
}

#[cfg(test)]
mod tests {
    use super::SequenceNumbers;

    #[test]
    fn notify_records_before_their_place_are_not_missing() {
        // The records of two rings, as blkparse -d merges them: the notify records 1, 2, 6 and 7
        // first.
        let mut numbers = SequenceNumbers { last: None, notify_numbers: [1, 2, 6, 7].into() };
        let nr_missing = [3, 4, 5, 8, 10].map(|number| numbers.take_in_place(number));
        assert_eq!(nr_missing, [0, 0, 0, 0, 1]);
        // Another trace, of which records are missing after its notify records.
        numbers.notify_numbers.extend([1, 2]);
        assert_eq!([5, 6].map(|number| numbers.take_in_place(number)), [2, 0]);
        let mut numbers =
            SequenceNumbers { last: Some(u32::MAX - 1), notify_numbers: [u32::MAX, 1].into() };
        assert_eq!([0, 4].map(|number| numbers.take_in_place(number)), [0, 2]);
    }
}
