//! What each block may hold after a crash.
//!
//! Every write gives its block a *version*. A crash keeps any subset of what is not durable, so it
//! may leave in a block any version that is not *superseded*: one whose write had ended before a
//! write began which is durable. Blocks do not depend on each other, so these sets, one for each
//! block, are all the states that a crash can leave; none has to be tried.
//!
//! The same rules hold for two parties, each with its own view of when a write begins and ends and
//! of what is durable: a device with a volatile cache, which sees commands, and a user of the
//! layer, who sees bios. What the device may leave must be among what the user was left to expect
//! (`check/durable.rs`).

use crate::sparse::Sparse;
use std::collections::VecDeque;

const NEVER: u64 = u64::MAX;

/// What a block holds that was never written.
pub(crate) const INITIAL: u64 = 0;

#[derive(Clone, Copy, Debug)]
struct Version {
    value: u64,
    began: u64,
    ended: u64,
    /// It was under way when all was lost, or its block was: no flush makes it durable.
    is_lost: bool,
    /// It was under way when the write-back of its block failed.
    is_struck: bool,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It may have been done or not, and no flush will change that: it failed, or is a discard.
    Unsure,
    /// It was done, and is durable after a flush. The number is its durable point.
    Cached(u64),
    /// It is durable.
    Durable,
}

/// A write that was done, and is not durable yet.
#[derive(Clone, Copy, Debug)]
struct Cached {
    block: u64,
    began: u64,
    ended: u64,
    point: u64,
}

/// The versions of all blocks. Every write must have a value of its own.
#[derive(Debug, Default)]
pub(crate) struct Image {
    blocks: Sparse<Vec<Version>>,
    /// In the order of their ends.
    cached: VecDeque<Cached>,
    /// Those that are made durable, for a moment: blocks, and when the write began.
    settling: Vec<(u64, u64)>,
    clock: u64,
}

impl Image {
    fn of(&mut self, block: u64) -> &mut Vec<Version> {
        let versions = self.blocks.at_mut(block);
        if versions.is_empty() {
            versions.push(Version {
                value: INITIAL,
                began: 0,
                ended: 0,
                is_lost: false,
                is_struck: false,
            });
        }
        versions
    }

    /// As it was at first, in the same memory.
    pub(crate) fn reset(&mut self) {
        self.blocks.all().for_each(Vec::clear);
        self.cached.clear();
        self.clock = 0;
    }

    /// A moment, for [`Image::settle`]: after all that has ended.
    pub(crate) fn mark(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A write begins.
    pub(crate) fn begin(&mut self, block: u64, value: u64) {
        let began = self.mark();
        self.of(block).push(Version {
            value,
            began,
            ended: NEVER,
            is_lost: false,
            is_struck: false,
        });
    }

    /// A write that began never was there.
    pub(crate) fn forget(&mut self, block: u64, value: u64) {
        self.of(block).retain(|version| version.value != value || version.ended != NEVER);
    }

    /// A write ends.
    pub(crate) fn end(&mut self, block: u64, value: u64, outcome: Outcome) {
        let ended = self.mark();
        let versions = self.of(block);
        let is_own = |other: &&mut Version| other.value == value && other.ended == NEVER;
        let own = versions.iter_mut().rev().find(is_own);
        let own = own.expect("a write that ends is under way");
        own.ended = ended;
        let (began, is_lost) = (own.began, own.is_lost);
        match outcome {
            Outcome::Unsure => {}
            Outcome::Cached(_) if is_lost => {}
            Outcome::Cached(point) => {
                self.cached.push_back(Cached { block, began, ended, point });
            }
            Outcome::Durable => self.supersede(block, began),
        }
    }

    /// A write is durable that began then.
    fn supersede(&mut self, block: u64, began: u64) {
        self.of(block).retain(|version| version.ended >= began);
    }

    /// What has ended before this moment is durable. How many writes these are; their blocks are
    /// in `settled`.
    pub(crate) fn settle(&mut self, before: u64, settled: &mut Vec<u64>) -> usize {
        while let Some(cached) = self.cached.pop_front_if(|cached| cached.ended < before) {
            self.settling.push((cached.block, cached.began));
        }
        self.settle_all(settled)
    }

    /// What has ended and has a durable point up to this one is durable. The same.
    pub(crate) fn settle_up_to(&mut self, point: u64, settled: &mut Vec<u64>) -> usize {
        self.cached.retain(|cached| {
            let is_durable = cached.point <= point;
            if is_durable {
                self.settling.push((cached.block, cached.began));
            }
            !is_durable
        });
        self.settle_all(settled)
    }

    /// Of each block, only the newest of those that are durable now matters.
    fn settle_all(&mut self, settled: &mut Vec<u64>) -> usize {
        let mut settling = std::mem::take(&mut self.settling);
        let nr = settling.len();
        settling.sort_unstable();
        for (nth, &(block, began)) in settling.iter().enumerate() {
            if settling.get(nth + 1).is_none_or(|next| next.0 != block) {
                self.supersede(block, began);
                settled.push(block);
            }
        }
        settling.clear();
        self.settling = settling;
        nr
    }

    /// What is not durable now, and has a durable point after the first and up to the second, no
    /// flush makes durable.
    pub(crate) fn lose(&mut self, after: u64, up_to: u64) {
        self.cached.retain(|cached| cached.point <= after || cached.point > up_to);
    }

    /// The same of everything; also of what is under way, which may be in the cache already.
    pub(crate) fn lose_all(&mut self) {
        self.cached.clear();
        for version in self.blocks.all().flatten().filter(|version| version.ended == NEVER) {
            version.is_lost = true;
        }
    }

    /// The write-back of a block has failed: no flush makes durable what was written there. That
    /// includes writes that are under way, whose data may be in the cache already.
    pub(crate) fn lose_block(&mut self, block: u64) {
        self.cached.retain(|cached| cached.block != block);
        for version in self.of(block).iter_mut().filter(|version| version.ended == NEVER) {
            (version.is_lost, version.is_struck) = (true, true);
        }
    }

    /// Returns whether a write of this value is under way and was lost by a failed write-back.
    pub(crate) fn is_struck(&self, block: u64, value: u64) -> bool {
        let versions = self.blocks.at(block).map_or(&[][..], Vec::as_slice);
        let is_it = |version: &Version| version.value == value && version.ended == NEVER;
        versions.iter().any(|version| is_it(version) && version.is_struck)
    }

    /// Returns whether something was written to a block that the next flush would make durable.
    pub(crate) fn is_dirty(&self, block: u64) -> bool {
        let versions = self.blocks.at(block).map_or(&[][..], Vec::as_slice);
        let is_under_way = |version: &Version| version.ended == NEVER && !version.is_lost;
        self.cached.iter().any(|cached| cached.block == block) || versions.iter().any(is_under_way)
    }

    /// What a block may hold after a crash.
    pub(crate) fn values(&self, block: u64) -> impl DoubleEndedIterator<Item = u64> {
        let versions = self.blocks.at(block).map_or(&[][..], Vec::as_slice);
        let initial = versions.is_empty().then_some(INITIAL);
        versions.iter().map(|version| version.value).chain(initial)
    }

    pub(crate) fn may_hold(&self, block: u64, value: u64) -> bool {
        self.values(block).rev().any(|other| other == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes 1 and then 2, done one after the other.
    fn two() -> Image {
        let mut image = Image::default();
        for value in [1, 2] {
            image.begin(0, value);
            image.end(0, value, Outcome::Cached(value));
        }
        image
    }

    fn values(image: &Image) -> Vec<u64> {
        image.values(0).collect()
    }

    #[test]
    fn until_a_flush_a_block_may_hold_anything_that_was_written() {
        assert_eq!(values(&Image::default()), [0]);
        assert_eq!(values(&two()), [0, 1, 2]);
    }

    #[test]
    fn a_flush_leaves_the_last_that_ended_before_it_and_what_came_later() {
        let mut image = two();
        let mark = image.mark();
        image.begin(0, 3);
        image.end(0, 3, Outcome::Cached(3));
        let mut settled = Vec::new();
        image.settle(mark, &mut settled);
        assert_eq!((values(&image), settled), (vec![2, 3], vec![0]));
    }

    #[test]
    fn of_two_writes_at_once_either_may_be_last() {
        let mut image = Image::default();
        image.begin(0, 1);
        image.begin(0, 2);
        image.end(0, 2, Outcome::Durable);
        image.end(0, 1, Outcome::Cached(0));
        assert_eq!(values(&image), [1, 2]);
        let mark = image.mark();
        image.settle(mark, &mut Vec::new());
        assert_eq!(values(&image), [1, 2]);
    }

    #[test]
    fn what_failed_may_be_there_and_pushes_nothing_out() {
        let mut image = two();
        image.begin(0, 3);
        image.end(0, 3, Outcome::Unsure);
        let mark = image.mark();
        image.settle(mark, &mut Vec::new());
        assert_eq!(values(&image), [2, 3]);
        image.begin(0, 4);
        assert_eq!(values(&image), [2, 3, 4], "what is under way may be there");
        image.end(0, 4, Outcome::Durable);
        assert_eq!(values(&image), [4]);
    }

    #[test]
    fn a_point_covers_what_is_not_after_it_and_what_is_lost_stays_so() {
        let mut image = two();
        image.settle_up_to(1, &mut Vec::new());
        assert_eq!(values(&image), [1, 2]);
        let mut image = two();
        image.lose(1, 2);
        let mark = image.mark();
        image.settle(mark, &mut Vec::new());
        assert_eq!(values(&image), [1, 2]);
        let mut image = two();
        image.lose_all();
        let mark = image.mark();
        image.settle(mark, &mut Vec::new());
        assert_eq!(values(&image), [0, 1, 2]);
    }

    #[test]
    fn failed_write_back_loses_one_block_and_what_is_under_way_to_it() {
        let mut image = two();
        image.begin(0, 3);
        image.begin(1, 4);
        assert!(image.is_dirty(0) && image.is_dirty(1) && !image.is_dirty(2));
        image.lose_block(0);
        assert!(!image.is_dirty(0) && image.is_struck(0, 3) && !image.is_struck(1, 4));
        image.end(0, 3, Outcome::Cached(3));
        image.end(1, 4, Outcome::Cached(4));
        assert!(!image.is_dirty(0) && !image.is_struck(0, 3));
        let mark = image.mark();
        image.settle(mark, &mut Vec::new());
        assert_eq!(values(&image), [0, 1, 2, 3]);
        assert_eq!(image.values(1).collect::<Vec<_>>(), [4]);
    }
}
