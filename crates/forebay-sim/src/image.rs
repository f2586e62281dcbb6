//! Crash images: the values that each block may hold after a crash.
//!
//! Every write gives its block a *version*. A crash keeps any subset of the writes that are not
//! durable, so it may leave in a block any version that is not *superseded*. A version is
//! superseded if its write had ended before a durable write of the block began. Blocks are
//! independent of each other, so these sets, one for each block, describe all states that a crash
//! can leave. None has to be tried.
//!
//! The same rules hold for two views of when a write begins and ends and of which writes are
//! durable: that of a device with a volatile cache, which sees commands, and that of a user of the
//! layer, who sees bios. The values that the device may leave must be among those that the user
//! expects (`check/durable.rs`).

use crate::few::Few;
use crate::sparse::Sparse;
use std::collections::VecDeque;

/// Later than any time of a run.
const NEVER: u64 = u64::MAX >> TIME_SHIFT;

/// The value of a block that was never written.
pub(crate) const INITIAL: u64 = 0;

#[derive(Clone, Copy, Debug, Default)]
struct Version {
    value: u64,
    began: u64,
    end: End,
}

/// The end of a write: three flags, and above them the time at which its data was final at the
/// latest. That is its end, or the time when a later write replaced it.
#[derive(Clone, Copy, Debug, Default)]
struct End(u64);

/// The write is under way.
const UNDER_WAY: u64 = 1;
/// It was under way when the whole cache or its block was lost: no flush makes it durable.
const LOST: u64 = 2;
/// It was under way when the write-back of its block failed.
const STRUCK: u64 = 4;
const TIME_SHIFT: u32 = 3;

impl End {
    const OF_NEW: End = End(NEVER << TIME_SHIFT | UNDER_WAY);

    #[inline]
    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    #[inline]
    fn time(self) -> u64 {
        self.0 >> TIME_SHIFT
    }

    /// Records that the data is final at this time, unless it was before.
    #[inline]
    fn is_by(&mut self, now: u64) {
        let flags = self.0 & ((1 << TIME_SHIFT) - 1);
        self.0 = self.time().min(now) << TIME_SHIFT | flags;
    }
}

impl Version {
    fn is_under_way(&self) -> bool {
        self.end.has(UNDER_WAY)
    }
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It may or may not have been done, and no flush will change that: it failed, or is a discard.
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

/// The cached writes of a block.
#[derive(Clone, Copy, Debug, Default)]
struct CachedOf {
    /// The number of those that a flush makes durable.
    nr: u32,
    /// The writes that had ended at this time are lost.
    lost_at: u64,
}

/// The versions of one block. Without a volatile cache there are two while a write is under way.
type Versions = Few<Version, 2>;

/// The versions of all blocks. Every write must have a unique value.
#[derive(Debug, Default)]
pub(crate) struct Image {
    blocks: Sparse<Versions>,
    /// In the order of their ends. Those that their block has lost are skipped.
    cached: VecDeque<Cached>,
    /// The cached writes of each block. `None` until a single block may lose its data.
    by_block: Option<Sparse<CachedOf>>,
    /// Scratch space for `settle_all`: blocks that become durable, and when their writes began.
    settling: Vec<(u64, u64)>,
    clock: u64,
}

impl Image {
    #[inline]
    fn of(&mut self, block: u64) -> &mut Versions {
        let versions = self.blocks.at_mut(block);
        if versions.is_empty() {
            versions.push(Version { value: INITIAL, began: 0, end: End(0) });
        }
        versions
    }

    /// Restores the initial state, and keeps the allocated memory.
    pub(crate) fn reset(&mut self) {
        self.blocks.all().for_each(Versions::clear);
        self.cached.clear();
        self.by_block = None;
        self.clock = 0;
    }

    /// Returns whether only the first `nr` blocks were ever used.
    pub(crate) fn is_within(&self, nr: u64) -> bool {
        self.blocks.is_within(nr)
    }

    /// Returns how many blocks were written, and how many of them may hold several values.
    pub(crate) fn count_blocks(&mut self) -> (u64, u64) {
        let is_written =
            |versions: &&mut Versions| versions.iter().any(|version| version.value != INITIAL);
        let written = self.blocks.all().filter(is_written);
        written
            .fold((0, 0), |(nr, unsure), versions| (nr + 1, unsure + u64::from(versions.len() > 1)))
    }

    /// Returns a time for [`Image::settle`], after the end of every write that has ended.
    pub(crate) fn mark(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Records that a write begins.
    pub(crate) fn begin(&mut self, block: u64, value: u64) {
        let began = self.mark();
        self.of(block).push(Version { value, began, end: End::OF_NEW });
    }

    /// Records that the data of all writes under way to a block is in the cache, where the next
    /// write replaces it. Those that are done later are still older than that write.
    pub(crate) fn replace(&mut self, block: u64) {
        let now = self.mark();
        for version in self.of(block).iter_mut().filter(|version| version.is_under_way()) {
            version.end.is_by(now);
        }
    }

    /// Removes a write that has begun, because it was refused.
    pub(crate) fn forget(&mut self, block: u64, value: u64) {
        self.of(block).retain(|version| version.value != value || !version.is_under_way());
    }

    /// Records that a write ends.
    pub(crate) fn end(&mut self, block: u64, value: u64, outcome: Outcome) {
        let ended = self.mark();
        let versions = self.blocks.at_mut(block);
        let is_own = |other: &&mut Version| other.value == value && other.is_under_way();
        let own = versions.iter_mut().rev().find(is_own);
        let own = own.expect("a write that ends is under way");
        own.end.is_by(ended);
        own.end.0 &= !UNDER_WAY;
        let (began, is_lost) = (own.began, own.end.has(LOST));
        match outcome {
            Outcome::Unsure => {}
            Outcome::Cached(_) if is_lost => {}
            Outcome::Cached(point) => self.push_cached(Cached { block, began, ended, point }),
            Outcome::Durable => supersede(versions, began),
        }
    }

    fn push_cached(&mut self, cached: Cached) {
        if let Some(by_block) = &mut self.by_block {
            by_block.at_mut(cached.block).nr += 1;
        }
        self.cached.push_back(cached);
    }

    /// Makes durable the writes that have ended before this time. Returns how many these are, and
    /// adds their blocks to `settled`.
    pub(crate) fn settle(&mut self, before: u64, settled: &mut Vec<u64>) -> usize {
        let Image { cached, by_block, settling, .. } = self;
        while let Some(first) = cached.front()
            && first.ended < before
        {
            if take_off(by_block, first) {
                settling.push((first.block, first.began));
            }
            cached.pop_front();
        }
        self.settle_all(settled)
    }

    /// Makes durable the writes that have ended and have a durable point up to this one. Returns
    /// the same.
    pub(crate) fn settle_up_to(&mut self, point: u64, settled: &mut Vec<u64>) -> usize {
        let Image { cached, by_block, settling, .. } = self;
        cached.retain(|cached| {
            let is_durable = cached.point <= point;
            if is_durable && take_off(by_block, cached) {
                settling.push((cached.block, cached.began));
            }
            !is_durable
        });
        self.settle_all(settled)
    }

    /// Makes the writes in `settling` durable. For each block, only the newest of them matters.
    fn settle_all(&mut self, settled: &mut Vec<u64>) -> usize {
        let mut settling = std::mem::take(&mut self.settling);
        let nr = settling.len();
        settling.sort_unstable();
        for (nth, &(block, began)) in settling.iter().enumerate() {
            if settling.get(nth + 1).is_none_or(|next| next.0 != block) {
                supersede(self.blocks.at_mut(block), began);
                settled.push(block);
            }
        }
        settling.clear();
        self.settling = settling;
        nr
    }

    /// Records that no flush makes durable the cached writes with points after `after` and up to
    /// `up_to`.
    pub(crate) fn lose(&mut self, after: u64, up_to: u64) {
        let Image { cached, by_block, .. } = self;
        cached.retain(|cached| {
            let is_kept = cached.point <= after || cached.point > up_to;
            if !is_kept {
                take_off(by_block, cached);
            }
            is_kept
        });
    }

    /// Does the same for all cached writes and for all writes under way, whose data may be in the
    /// cache already.
    pub(crate) fn lose_all(&mut self) {
        if let Some(by_block) = &mut self.by_block {
            self.cached.iter().for_each(|cached| by_block.at_mut(cached.block).nr = 0);
        }
        self.cached.clear();
        for version in self
            .blocks
            .all()
            .flat_map(|versions| versions.iter_mut())
            .filter(|version| version.is_under_way())
        {
            version.end.0 |= LOST;
        }
    }

    /// Undoes the loss of a write that was done: a flush from now on makes it durable.
    pub(crate) fn regain(&mut self, block: u64, value: u64) {
        let ended = self.mark();
        let own = self.of(block).iter().rev().find(|version| version.value == value);
        let began = own.expect("a crash may leave it").began;
        self.push_cached(Cached { block, began, ended, point: 0 });
    }

    /// Records that the write-back of a block has failed: no flush makes durable the data written
    /// there. That includes writes under way, whose data may be in the cache already.
    pub(crate) fn lose_block(&mut self, block: u64) {
        let lost_at = self.clock;
        *self.by_block().at_mut(block) = CachedOf { nr: 0, lost_at };
        for version in self.of(block).iter_mut().filter(|version| version.is_under_way()) {
            version.end.0 |= LOST | STRUCK;
        }
    }

    /// Returns whether a write of this value is under way and was lost by a failed write-back.
    pub(crate) fn is_struck(&self, block: u64, value: u64) -> bool {
        let versions = self.blocks.at(block).map_or(&[][..], |versions| &versions[..]);
        let is_it = |version: &Version| version.value == value && version.is_under_way();
        versions.iter().any(|version| is_it(version) && version.end.has(STRUCK))
    }

    /// Returns whether something was written to a block that the next flush would make durable.
    pub(crate) fn is_dirty(&mut self, block: u64) -> bool {
        let is_cached = self.by_block().at(block).is_some_and(|cached| cached.nr > 0);
        let versions = self.blocks.at(block).map_or(&[][..], |versions| &versions[..]);
        let is_under_way = |version: &Version| version.is_under_way() && !version.end.has(LOST);
        is_cached || versions.iter().any(is_under_way)
    }

    /// Returns the cached writes of each block, counted if they are needed for the first time.
    fn by_block(&mut self) -> &mut Sparse<CachedOf> {
        self.by_block.get_or_insert_with(|| {
            let mut by_block = Sparse::<CachedOf>::default();
            self.cached.iter().for_each(|cached| by_block.at_mut(cached.block).nr += 1);
            by_block
        })
    }

    /// Returns the values that a block may hold after a crash.
    pub(crate) fn values(&self, block: u64) -> impl DoubleEndedIterator<Item = u64> {
        let versions = self.blocks.at(block).map_or(&[][..], |versions| &versions[..]);
        let initial = versions.is_empty().then_some(INITIAL);
        versions.iter().map(|version| version.value).chain(initial)
    }

    /// Returns how many values a block may hold after a crash.
    pub(crate) fn nr_values(&self, block: u64) -> usize {
        self.blocks.at(block).map_or(1, |versions| versions.len().max(1))
    }

    #[inline]
    pub(crate) fn may_hold(&self, block: u64, value: u64) -> bool {
        self.values(block).rev().any(|other| other == value)
    }
}

/// Removes the versions that a durable write, begun at that time, supersedes.
fn supersede(versions: &mut Versions, began: u64) {
    versions.retain(|version| version.end.time() >= began);
}

/// Removes a cached write from those of its block. Returns false if the block has lost it.
fn take_off(by_block: &mut Option<Sparse<CachedOf>>, cached: &Cached) -> bool {
    let Some(by_block) = by_block else { return true };
    let of_block = by_block.at_mut(cached.block);
    let is_there = cached.ended > of_block.lost_at;
    of_block.nr -= u32::from(is_there);
    is_there
}

#[cfg(test)]
mod tests;
