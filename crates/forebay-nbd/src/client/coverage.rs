//! Received ranges of a read.
//!
//! Chunks may arrive in any order, and must neither overlap nor leave gaps. Servers send them
//! roughly in order, so that usually a single number is enough.

use alloc::vec::Vec;

/// Most ranges with gaps between them. Only a hostile server leaves more.
const NR_MAX: usize = 1024;

/// Received parts of a range that begins at 0.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// Everything before this offset was received.
    front: u64,
    /// Received ranges `from..to` beyond it, in order, with gaps between them.
    others: Vec<(u64, u64)>,
}

/// Reason why a range is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misplaced {
    /// A part of it was received before.
    Twice,
    /// There are too many gaps.
    Scattered,
}

impl Coverage {
    /// Forgets all ranges; keeps the memory.
    pub(super) fn clear(&mut self) {
        self.front = 0;
        self.others.clear();
    }

    /// Returns whether the first `len` bytes were received.
    pub(super) fn is_whole(&self, len: u64) -> bool {
        self.front >= len
    }

    /// Adds the received range `from..to`, which is not empty.
    pub(super) fn add(&mut self, from: u64, to: u64) -> Result<(), Misplaced> {
        if from < self.front {
            return Err(Misplaced::Twice);
        }
        let at = self.others.partition_point(|other| other.0 < from);
        let before = at.checked_sub(1).and_then(|at| self.others.get(at)).copied();
        let after = self.others.get(at).copied();
        if before.is_some_and(|(_, end)| end > from) || after.is_some_and(|(start, _)| start < to) {
            return Err(Misplaced::Twice);
        }
        if from == self.front {
            self.front = to;
            // Merge the range that begins where this one ends.
            if let Some((_, end)) = after.filter(|&(start, _)| start == to) {
                self.front = end;
                self.others.remove(at);
            }
            return Ok(());
        }
        let joins_after = after.is_some_and(|(start, _)| start == to);
        if before.is_some_and(|(_, end)| end == from) {
            let end = if joins_after { after.map_or(to, |(_, end)| end) } else { to };
            if joins_after {
                self.others.remove(at);
            }
            if let Some(before) = at.checked_sub(1).and_then(|at| self.others.get_mut(at)) {
                before.1 = end;
            }
        } else if let Some(after) = self.others.get_mut(at).filter(|_| joins_after) {
            after.0 = from;
        } else if self.others.len() == NR_MAX {
            return Err(Misplaced::Scattered);
        } else {
            self.others.insert(at, (from, to));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_are_taken_once_each_as_a_naive_set_has_it() {
        let mut seed = 9u64;
        let mut below = |bound: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % bound
        };
        for _ in 0..2000 {
            let mut naive = [false; 40];
            let mut coverage = Coverage::default();
            coverage.clear();
            for _ in 0..60 {
                let from = below(40);
                let to = from + 1 + below(40 - from).min(6);
                let part = &mut naive[from as usize..to as usize];
                let is_new = part.iter().all(|there| !there);
                assert_eq!(coverage.add(from, to).is_ok(), is_new);
                if is_new {
                    part.fill(true);
                }
                let front = naive.iter().take_while(|there| **there).count() as u64;
                assert!(coverage.is_whole(front) && !coverage.is_whole(front + 1));
                assert!(coverage.others.windows(2).all(|pair| pair[0].1 < pair[1].0));
                assert!(coverage.others.first().is_none_or(|first| first.0 > coverage.front));
            }
        }
    }

    #[test]
    fn gaps_are_limited() {
        let mut coverage = Coverage::default();
        for nth in 0..NR_MAX as u64 {
            assert_eq!(coverage.add(nth * 2 + 1, nth * 2 + 2), Ok(()));
        }
        assert_eq!(coverage.add(1 << 40, (1 << 40) + 1), Err(Misplaced::Scattered));
        assert_eq!(coverage.add(0, 1), Ok(()), "a range that closes a gap is accepted");
        coverage.clear();
        assert!(!coverage.is_whole(1));
    }
}
