//! The gaps of a file with the records of several rings, which `blkparse -d` has merged.
//!
//! A gap begins with the last record of a ring before the missing ones, but shows only at the next
//! record of that ring. Records of other rings may come in between. So such a file is scanned once
//! before it is read further.

use super::numbers::{SequenceNumbers, may_come_early};
use super::raw::RawFile;
use crate::record::Kind;
use std::collections::HashMap;

/// The gaps of a merged file, in bytes from its beginning.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// Sorted by their beginnings, apart from each other. A gap lasts from the record at the first
    /// offset, and ends before the record at the second one.
    gaps: Vec<(u64, u64)>,
    /// The index of the first gap that ends after the last position.
    next: usize,
}

/// A ring, as the scan proceeds.
#[derive(Debug, Default)]
struct Ring {
    numbers: SequenceNumbers,
    /// The offset of the last record that is in its place.
    last: Option<u64>,
    /// The beginning of a gap whose next stage has not come yet.
    gap: Option<u64>,
}

impl Gaps {
    /// Scans a file from its beginning. The part after a failure has no gaps: the reader of the
    /// same file fails there too.
    pub(super) fn scan(mut file: RawFile) -> Gaps {
        let mut rings: HashMap<(u32, u32), Ring> = HashMap::new();
        let mut gaps = Vec::new();
        while let Ok(Some((offset, entry))) = file.next() {
            let record = &entry.record;
            let ring = rings.entry((record.device, record.cpu)).or_default();
            let before = *ring.last.get_or_insert(offset);
            if ring.numbers.take(record) > 0 {
                ring.gap.get_or_insert(before);
            }
            if !may_come_early(record) {
                ring.last = Some(offset);
            }
            if let Kind::Stage(_) = record.kind
                && let Some(begin) = ring.gap.take()
            {
                gaps.push((begin, offset));
            }
        }
        // A gap that no stage follows ends with the last record of its ring.
        gaps.extend(rings.into_values().filter_map(|ring| ring.gap.zip(ring.last)));
        Gaps { gaps: joined(gaps), next: 0 }
    }

    /// Returns whether the record at an offset is within a gap. Offsets do not decrease from call
    /// to call.
    pub(super) fn has(&mut self, offset: u64) -> bool {
        while self.gaps.get(self.next).is_some_and(|&(_, end)| end <= offset) {
            self.next += 1;
        }
        self.gaps.get(self.next).is_some_and(|&(begin, _)| begin <= offset)
    }
}

/// Returns the gaps sorted, with those joined that overlap or touch.
fn joined(mut gaps: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    gaps.sort_unstable();
    gaps.dedup_by(|gap, earlier| {
        let touches = gap.0 <= earlier.1;
        if touches {
            earlier.1 = earlier.1.max(gap.1);
        }
        touches
    });
    gaps
}

#[cfg(test)]
mod tests {
    use super::{Gaps, joined};

    #[test]
    fn overlapping_gaps_are_one() {
        assert_eq!(
            joined(vec![(30, 40), (0, 10), (5, 7), (10, 12), (50, 60)]),
            [(0, 12), (30, 40), (50, 60)]
        );
    }

    #[test]
    fn gap_includes_its_first_offset_and_excludes_its_end() {
        let mut gaps = Gaps { gaps: vec![(10, 20), (30, 40)], next: 0 };
        let offsets = [0, 10, 19, 20, 29, 35, 40, 50];
        let expected = [false, true, true, false, false, true, false, false];
        assert_eq!(offsets.map(|offset| gaps.has(offset)), expected);
    }
}
