//! Random blocks of several sizes that cover every byte once per pass.
//!
//! As in fio a block is drawn among all; if it was covered before, the next that was not takes its
//! place, and an I/O is cut off before what was covered. To find that next one quickly, each level
//! of bits says of 64 bits of the level below whether all of them are set.

use super::Workload;
use super::sizes::SizeRule;
use super::skew::Distribution;
use crate::random::Xoshiro256;

/// The blocks of a region, and which of them were covered.
#[derive(Debug, Clone)]
pub(super) struct Map {
    unit: u64,
    blocks: u64,
    levels: Vec<Vec<u64>>,
    nr_covered: u64,
    draws: Xoshiro256,
}

impl Map {
    /// Creates a map of `blocks` blocks of `unit` bytes.
    pub(super) fn new(unit: u64, blocks: u64, draws: Xoshiro256) -> Self {
        let mut levels = vec![vec![0; blocks.div_ceil(64) as usize]];
        while let Some(last) = levels.last().filter(|level| level.len() > 1) {
            levels.push(vec![0; last.len().div_ceil(64)]);
        }
        Self { unit, blocks, levels, nr_covered: 0, draws }
    }

    /// Marks all blocks as not covered, and uses only the first `blocks`, at least one. The map
    /// must have been created with as many.
    pub(super) fn restart(&mut self, blocks: u64) {
        debug_assert!(blocks.div_ceil(64) <= self.levels[0].len() as u64, "the map has the blocks");
        self.levels.iter_mut().for_each(|level| level.fill(0));
        (self.blocks, self.nr_covered) = (blocks, 0);
    }

    /// Returns the approximate memory of a map of so many blocks.
    pub(super) fn bytes(blocks: u64) -> u64 {
        let lowest = blocks.div_ceil(64) * 8;
        lowest + lowest / 63 + 64
    }

    /// Returns the next block that is not covered, and a length that covers no block twice.
    pub(super) fn draw(&mut self, rule: &SizeRule, sizes: &mut Xoshiro256) -> (u64, u32) {
        if self.nr_covered == self.blocks {
            self.restart(self.blocks);
        }
        let drawn = self.draws.below(self.blocks);
        // There is one, since not all are covered: if not behind the drawn one, before it.
        let first = self.next_free(drawn).or_else(|| self.next_free(0)).unwrap_or(drawn);
        let room = (self.blocks - first) * self.unit;
        let len = rule.draw(false, room, sizes).unwrap_or(self.unit as u32);
        let mut end = first;
        while end < first + u64::from(len).div_ceil(self.unit) && !self.is_covered(end) {
            self.cover(end);
            end += 1;
        }
        self.nr_covered += end - first;
        (first * self.unit, u64::from(len).min((end - first) * self.unit) as u32)
    }

    fn is_covered(&self, block: u64) -> bool {
        self.levels[0][(block / 64) as usize] >> (block % 64) & 1 == 1
    }

    fn cover(&mut self, block: u64) {
        let mut at = block;
        for level in &mut self.levels {
            let word = &mut level[(at / 64) as usize];
            *word |= 1 << (at % 64);
            if *word != u64::MAX {
                break;
            }
            at /= 64;
        }
    }

    /// Returns the first block from this one on that is not covered.
    fn next_free(&self, block: u64) -> Option<u64> {
        let (mut at, mut depth) = (block, 0);
        // Up, as long as nothing behind `at` is free below the same word.
        loop {
            let word = *self.levels.get(depth)?.get((at / 64) as usize)?;
            let free = !word & (u64::MAX << (at % 64));
            if free != 0 {
                at = at / 64 * 64 + u64::from(free.trailing_zeros());
                break;
            }
            at = at / 64 + 1;
            depth += 1;
        }
        // Down to the first free one below.
        while depth > 0 {
            depth -= 1;
            let free = !*self.levels[depth].get(at as usize)?;
            at = at * 64 + u64::from(free.trailing_zeros());
        }
        Some(at).filter(|&at| at < self.blocks)
    }
}

impl Workload {
    /// Returns whether the stream of a variety marks the blocks that it has covered.
    pub(super) fn has_map(&self) -> bool {
        let Some(variety) = &self.variety else { return false };
        self.pattern.random
            && !self.norandommap
            && !variety.unaligned
            && variety.distribution == Distribution::Random
            // As in fio, any use of it turns the map off.
            && variety.align == [None; 3]
    }

    /// Returns the bytes among which random offsets are drawn: those of a zone, or of the region.
    pub(super) fn random_len(&self) -> u64 {
        let zones = self.variety.as_ref().and_then(|variety| variety.zones);
        zones.map_or(self.region.len, |zones| zones.range.min(self.region.len))
    }

    /// Returns the memory that the stream takes for its map, bytes.
    pub fn map_bytes(&self) -> u64 {
        match self.has_map() {
            true => Map::bytes(self.random_len() / u64::from(self.bs)),
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_free_block_is_the_one_that_a_walk_finds() {
        for blocks in [1, 63, 64, 65, 4096, 4097, 10_000] {
            let mut map = Map::new(1, blocks, Xoshiro256::new(1, 0));
            let mut draws = Xoshiro256::new(2, 0);
            for _ in 0..blocks * 2 {
                let from = draws.below(blocks);
                let walked = (from..blocks).find(|&block| !map.is_covered(block));
                assert_eq!(map.next_free(from), walked, "{blocks} from {from}");
                map.cover(draws.below(blocks));
            }
            (0..blocks).for_each(|block| map.cover(block));
            assert_eq!(map.next_free(0), None);
        }
    }
}
