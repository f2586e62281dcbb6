//! Sizes of I/Os that are not all the same: `bs=read,write,trim`, `bsrange`, `bssplit`,
//! `bs_unaligned`.
//!
//! Source: fio's HOWTO, and what fio 3.33 does. Sizes of a range are multiples of its smallest,
//! each as often as any other; with `bs_unaligned` they are any number of bytes, and the largest,
//! into which fio folds the upper end, is drawn more often.

use crate::random::Xoshiro256;

/// The sizes of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SizeRule {
    /// One size.
    Fixed(u32),
    /// A range of sizes.
    Range {
        /// The smallest.
        min: u32,
        /// The largest.
        max: u32,
    },
    /// Sizes with their percentages; the last size has the remainder.
    Split(Vec<(u32, u8)>),
}

impl SizeRule {
    /// Returns the smallest size.
    pub fn min(&self) -> u32 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Range { min, .. } => *min,
            Self::Split(parts) => parts.iter().map(|part| part.0).min().unwrap_or(1),
        }
    }

    /// Returns the largest size.
    pub fn max(&self) -> u32 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Range { max, .. } => *max,
            Self::Split(parts) => parts.iter().map(|part| part.0).max().unwrap_or(1),
        }
    }

    /// Returns numbers of which every size is a multiple, unless sizes are unaligned.
    pub fn units(&self) -> Vec<u32> {
        match self {
            Self::Split(parts) => parts.iter().map(|part| part.0).collect(),
            Self::Range { min, max } => vec![*min, *max],
            Self::Fixed(bytes) => vec![*bytes],
        }
    }

    /// Draws the next size of at most `room` bytes; `None` if every size is larger.
    pub(super) fn draw(&self, unaligned: bool, room: u64, draws: &mut Xoshiro256) -> Option<u32> {
        /// Draws before the smallest is taken: near the end of the region large ones do not fit.
        const TRIES: u32 = 32;
        let min = self.min();
        if u64::from(min) > room {
            return None;
        }
        for _ in 0..TRIES {
            let len = self.draw_any(unaligned, draws);
            if u64::from(len) <= room {
                return Some(len);
            }
        }
        Some(min)
    }

    fn draw_any(&self, unaligned: bool, draws: &mut Xoshiro256) -> u32 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Range { min, max } => {
                let len = u64::from(*min) + draws.below(u64::from(*max));
                let len = if unaligned { len } else { len - len % u64::from(*min) };
                len.min((*max).into()) as u32
            }
            Self::Split(parts) => {
                let mut place = draws.below(100) as i32;
                let hit = parts.iter().find(|(_, percent)| {
                    place -= i32::from(*percent);
                    place < 0
                });
                hit.or(parts.last()).map_or(1, |part| part.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn counts(rule: &SizeRule, unaligned: bool, draws: u32) -> BTreeMap<u32, u32> {
        let mut rng = Xoshiro256::new(3, 0);
        let mut counts = BTreeMap::new();
        for _ in 0..draws {
            *counts.entry(rule.draw_any(unaligned, &mut rng)).or_default() += 1;
        }
        counts
    }

    #[test]
    fn a_range_has_every_multiple_of_its_smallest_equally_often() {
        let counts = counts(&SizeRule::Range { min: 4096, max: 16_384 }, false, 40_000);
        assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [4096, 8192, 12_288, 16_384]);
        assert!(counts.values().all(|n| (9_500..10_500).contains(n)), "{counts:?}");
    }

    #[test]
    fn the_largest_of_a_range_need_not_be_a_multiple() {
        let counts = counts(&SizeRule::Range { min: 4096, max: 10_000 }, false, 40_000);
        assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [4096, 8192, 10_000]);
    }

    #[test]
    fn an_unaligned_range_has_odd_sizes_inside_of_it() {
        let counts = counts(&SizeRule::Range { min: 1000, max: 3000 }, true, 10_000);
        assert!(counts.len() > 1000);
        assert!(counts.keys().all(|len| (1000..=3000).contains(len)));
        assert!(counts[&3000] > 3000, "the upper end is folded into the largest");
    }

    #[test]
    fn a_split_has_its_shares_and_the_last_gets_the_rest() {
        let counts =
            counts(&SizeRule::Split(vec![(512, 60), (4096, 0), (8192, 10)]), false, 10_000);
        assert!((5_800..6_200).contains(&counts[&512]), "{counts:?}");
        assert!(!counts.contains_key(&4096));
        assert_eq!(counts[&512] + counts[&8192], 10_000);
    }

    #[test]
    fn size_that_does_not_fit_is_drawn_again() {
        let mut rng = Xoshiro256::new(3, 0);
        let rule = SizeRule::Split(vec![(4096, 1), (65_536, 99)]);
        assert_eq!(rule.draw(false, 4095, &mut rng), None);
        assert!((0..100).all(|_| rule.draw(false, 65_535, &mut rng) == Some(4096)));
    }
}
