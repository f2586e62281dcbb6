//! Offsets of sequential I/O: after the last I/O in the same direction, with a step between the
//! two.
//!
//! Source: fio's HOWTO, the number after the colon of `rw=`, and fio 3.33. I/O with a negative step
//! continues at the end of its zone, or of the region, when it passes the start. fio uses the end
//! of the region in both cases.

use super::super::Direction;

/// The last I/O in each direction, and the step to the next one. Offsets are bytes from the start
/// of the region.
#[derive(Debug, Clone)]
pub(super) struct Sequence {
    /// Bytes between the end of an I/O and the start of the next one.
    step: i64,
    /// Whether the first I/O is at the end of the region.
    begins_at_end: bool,
    /// Start and end of the last I/O, by direction. They are equal if none precedes the next one.
    last: [(u64, u64); 3],
}

impl Sequence {
    pub(super) fn new(step: i64, begins_at_end: bool) -> Self {
        Self { step, begins_at_end, last: [(0, 0); 3] }
    }

    /// Returns the bytes between the end of an I/O and the start of the next one.
    pub(super) fn step(&self) -> i64 {
        self.step
    }

    /// Returns the start of the last I/O.
    pub(super) fn start(&self, direction: Direction) -> u64 {
        self.last[direction.index()].0
    }

    /// Returns the end of the last I/O.
    pub(super) fn end(&self, direction: Direction) -> u64 {
        self.last[direction.index()].1
    }

    /// Records an I/O.
    pub(super) fn record(&mut self, direction: Direction, start: u64, end: u64) {
        self.last[direction.index()] = (start, end);
    }

    /// Moves the next I/O to `offset`, without a step.
    pub(super) fn move_to(&mut self, direction: Direction, offset: u64) {
        self.last[direction.index()] = (offset, offset);
    }

    /// Moves the next I/O in each direction to `offset`, without a step.
    pub(super) fn move_all_to(&mut self, offset: u64) {
        self.last = [(offset, offset); 3];
    }

    /// Returns whether the next I/O begins before the last one, or continues at the end because it
    /// has passed the start. An I/O that is longer than a negative step is followed by one that
    /// begins after it.
    pub(super) fn is_backward(&self, direction: Direction) -> bool {
        let (start, end) = self.last[direction.index()];
        end.checked_add_signed(self.step).is_none_or(|next| next < start) && self.step < 0
    }

    /// Returns the offset of the next I/O in a zone, or in the region: the start and the length.
    pub(super) fn next(&self, direction: Direction, (begin, range): (u64, u64)) -> u64 {
        let (start, end) = self.last[direction.index()];
        let last = (begin + range).saturating_add_signed(self.step.min(0)).max(begin);
        if end == start {
            // No I/O precedes it, so nothing is left out.
            return if self.begins_at_end && end == 0 { last } else { end };
        }
        match end.checked_add_signed(self.step) {
            Some(offset) if self.step >= 0 || offset >= begin => offset,
            _ if self.step < 0 => last,
            _ => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Direction = Direction::Read;

    #[test]
    fn only_io_shorter_than_a_negative_step_is_followed_by_backward_io() {
        let mut sequence = Sequence::new(-8, false);
        assert!(sequence.is_backward(READ), "none precedes it");
        for (offset, len, is_backward) in
            [(64, 4, true), (64, 8, false), (64, 12, false), (0, 4, true), (2, 2, true)]
        {
            sequence.record(READ, offset, offset + len);
            assert_eq!(sequence.is_backward(READ), is_backward, "{offset}+{len}");
        }
        for step in [0, 8] {
            let mut sequence = Sequence::new(step, false);
            sequence.record(READ, 64, 68);
            assert!(!sequence.is_backward(READ), "step {step}");
        }
    }

    #[test]
    fn negative_step_continues_at_the_end_of_its_zone() {
        let mut sequence = Sequence::new(-8, false);
        sequence.move_to(READ, 32);
        let zone = (32, 16);
        let mut starts = Vec::new();
        for _ in 0..5 {
            let next = sequence.next(READ, zone);
            starts.push(next);
            sequence.record(READ, next, next + 4);
        }
        assert_eq!(starts, [32, 40, 36, 32, 40]);
    }
}
