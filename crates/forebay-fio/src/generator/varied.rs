//! The stream of I/Os for options that [`Generator`](super::Generator) does not support: blocks of
//! several sizes, distributions, gaps between sequential I/Os.
//!
//! Source: fio's HOWTO and what fio 3.33 does. With a random map and several sizes, fio marks
//! blocks of the smallest size, and an I/O that would run into a marked one is cut off before it;
//! so every byte is visited once per pass here too.

use super::directions::Directions;
use super::map::Map;
use super::sizes::SizeRule;
use super::skew::{Distribution, Skew};
use super::{Direction, Op, Stream, Workload};
use crate::random::Xoshiro256;

/// Properties of a workload beyond blocks of one size, by direction where they can differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Variety {
    /// Bytes per I/O.
    pub sizes: [SizeRule; 3],
    /// `bs_unaligned`: whether sizes of a range may be any number of bytes.
    pub unaligned: bool,
    /// `blockalign`: alignment of random offsets; `None`: the smallest size.
    pub align: [Option<u32>; 3],
    /// `random_distribution`.
    pub distribution: Distribution,
    /// `percentage_random`: percentage of the I/Os of a random pattern that are random.
    pub percentage_random: [u8; 3],
    /// The number after the colon of `rw=`: bytes that sequential I/O skips, or I/Os of a random
    /// pattern between two seeks.
    pub step: i64,
    /// `rw_sequencer=identical`: whether the I/Os between two seeks have the same offset. As in fio
    /// 3.33 it has no effect on sequential patterns.
    pub identical: bool,
    /// `number_ios`: I/Os after which the stream ends.
    pub number_ios: Option<u64>,
}

/// The stream of I/Os of a [`Workload`] with a [`Variety`].
#[derive(Debug, Clone)]
pub struct Varied {
    region: super::Region,
    random: bool,
    variety: Variety,
    left_bytes: u64,
    left_ios: u64,
    directions: Directions,
    /// Draws of sizes, and of whatever else is neither an offset nor a direction.
    draws: Xoshiro256,
    spread: Spread,
    /// Bytes from the region's begin: where the last I/O began, and ended, by direction.
    last: [(u64, u64); 3],
    /// I/Os before the next seek.
    before_seek: i64,
}

/// How random offsets are found.
#[derive(Debug, Clone)]
enum Spread {
    Map(Map),
    /// One for each alignment.
    Drawn(Box<[Skew; 3]>),
}

impl Varied {
    /// Returns the stream of `workload`.
    ///
    /// # Panics
    ///
    /// If the workload has no [`Variety`], or the region does not hold the smallest block.
    pub fn new(workload: &Workload) -> Self {
        /// Keeps the draws of sizes apart from those of offsets and directions.
        const DRAWS_KEY: u64 = 0x7369_7a65_7300_0001;
        let variety = workload.variety.as_deref().expect("a variety").clone();
        let keys = Xoshiro256::new(workload.seed, workload.stream.wrapping_mul(2));
        let align = std::array::from_fn(|at| {
            u64::from(variety.align[at].unwrap_or_else(|| variety.sizes[at].min()))
        });
        let unit = u64::from(workload.bs);
        assert!(workload.region.len >= unit, "the region holds at least one block");
        let spread = match workload.has_map() {
            true => Spread::Map(Map::new(unit, workload.region.len / unit, keys)),
            false => Spread::Drawn(Box::new(align.map(|align: u64| {
                let blocks = (workload.region.len / align).max(1);
                Skew::new(&variety.distribution, blocks, align, keys.clone())
            }))),
        };
        Self {
            region: workload.region,
            random: workload.pattern.random,
            left_bytes: workload.io_size.unwrap_or(u64::MAX),
            left_ios: variety.number_ios.unwrap_or(u64::MAX),
            directions: Directions::new(workload),
            draws: Xoshiro256::new(workload.seed ^ DRAWS_KEY, workload.stream),
            spread,
            last: [(0, 0); 3],
            before_seek: 0,
            variety,
        }
    }

    /// Returns the offset of the I/O in the region, and its length.
    fn place(&mut self, direction: Direction) -> (u64, u32) {
        let at = direction.index();
        let percent = self.variety.percentage_random[at];
        let seeks = self.random && (percent >= 100 || self.draws.below(100) < percent.into());
        let repeats = if self.random { self.variety.step.max(1) } else { 1 };
        let goes_on = self.before_seek > 0;
        self.before_seek = if goes_on { self.before_seek - 1 } else { repeats - 1 };
        if goes_on && self.variety.identical {
            let offset = self.last[at].0;
            return (offset, self.draw_len(direction, offset).unwrap_or(self.smallest(at)));
        }
        if !seeks || (goes_on && self.random) {
            return self.sequential(direction);
        }
        let (rule, unaligned) = (&self.variety.sizes[at], self.variety.unaligned);
        match &mut self.spread {
            Spread::Map(map) => map.draw(rule, &mut self.draws),
            Spread::Drawn(skews) => {
                let align = self.variety.align[at].unwrap_or_else(|| rule.min());
                let offset = skews[at].draw() * u64::from(align);
                let room = self.region.len.saturating_sub(offset);
                match rule.draw(unaligned, room, &mut self.draws) {
                    Some(len) => (offset, len),
                    // The last block is shorter than the smallest I/O: it goes before it.
                    None => (
                        self.region.len.saturating_sub(self.smallest(at).into()),
                        self.smallest(at),
                    ),
                }
            }
        }
    }

    fn sequential(&mut self, direction: Direction) -> (u64, u32) {
        let (start, end) = self.last[direction.index()];
        let skip = if self.random { 0 } else { self.variety.step };
        // Nothing is left out before the first.
        let offset = if end == start { end } else { end.saturating_add_signed(skip) };
        match self.draw_len(direction, offset) {
            Some(len) => (offset, len),
            None => (0, self.draw_len(direction, 0).unwrap_or(self.smallest(direction.index()))),
        }
    }

    fn draw_len(&mut self, direction: Direction, offset: u64) -> Option<u32> {
        let room = self.region.len.saturating_sub(offset);
        let rule = &self.variety.sizes[direction.index()];
        rule.draw(self.variety.unaligned, room, &mut self.draws)
    }

    fn smallest(&self, at: usize) -> u32 {
        self.variety.sizes[at].min()
    }
}

impl Iterator for Varied {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        let direction = self.direction()?;
        self.next_as(direction)
    }
}

impl Stream for Varied {
    fn direction(&mut self) -> Option<Direction> {
        (self.left_bytes > 0 && self.left_ios > 0).then(|| self.directions.draw())
    }

    fn next_as(&mut self, direction: Direction) -> Option<Op> {
        if self.left_bytes == 0 || self.left_ios == 0 {
            return None;
        }
        let (offset, len) = self.place(direction);
        self.last[direction.index()] = (offset, offset + u64::from(len));
        self.left_ios -= 1;
        self.left_bytes = self.left_bytes.saturating_sub(len.into());
        Some(Op { direction, file: 0, offset: self.region.offset + offset, len })
    }
}

impl Workload {
    /// Returns whether the stream of a variety marks the blocks that it has covered.
    fn has_map(&self) -> bool {
        let Some(variety) = &self.variety else { return false };
        self.pattern.random
            && !self.norandommap
            && !variety.unaligned
            && variety.distribution == Distribution::Random
            // As in fio, any use of it turns the map off.
            && variety.align == [None; 3]
    }

    /// Returns the memory that the stream takes for its map, bytes.
    pub fn map_bytes(&self) -> u64 {
        match self.has_map() {
            true => Map::bytes(self.region.len / u64::from(self.bs)),
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests;
