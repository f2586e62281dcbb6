//! The data of writes without verification: duplicates, compressible data, and scrambled buffers.
//!
//! Source: fio's HOWTO, and files that fio 3.33 has written.
//!
//! - The new data of a clone are numbered parts, each as long as the smallest write of its job. A
//!   write takes one part after another.
//! - A write is a duplicate as a whole, in `dedupe_percentage` of all writes. With
//!   `dedupe_mode=repeat` it begins with the first part of the last new write. With `working_set`
//!   it begins with one of the first new parts: those that `dedupe_working_set_percentage` of
//!   `size` holds. With `dedupe_global` all clones with that option divide one such set evenly.
//! - A duplicate that is longer than the write that it repeats goes on with the parts behind it.
//!   The next new write repeats these, so the share of duplicates does not depend on the lengths.
//! - In each `buffer_compress_chunk`, the first bytes are random, and `buffer_compress_percentage`
//!   are zeros, or the `buffer_pattern`, which starts again in each chunk.
//! - Both make new data for each write. Without them, `scramble_buffers` changes a few bytes in
//!   each sector of a buffer that is written again.

use crate::random::Xoshiro256;
use crate::verify::pattern::Pattern;

/// The options of the data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataOptions {
    /// `buffer_compress_percentage`.
    pub compress: Option<u8>,
    /// `buffer_compress_chunk`; 0: the smallest write; `None`: 512.
    pub chunk: Option<u32>,
    /// `dedupe_percentage`.
    pub dedupe: u8,
    /// `dedupe_mode=working_set`.
    pub has_working_set: bool,
    /// `dedupe_working_set_percentage`; `None`: 5.
    pub working_set: Option<u8>,
    /// `dedupe_global`.
    pub is_global: bool,
    /// `scramble_buffers=0`.
    pub is_unscrambled: bool,
}

impl DataOptions {
    /// Returns whether they determine the data of each write.
    pub fn is_given(&self) -> bool {
        self.compress.is_some_and(|percent| percent > 0) || self.dedupe > 0
    }

    /// Returns whether they leave buffers as they are. As in fio, a compressibility of 0 does.
    pub fn keeps_buffers(&self) -> bool {
        self.is_unscrambled || self.compress.is_some()
    }

    /// Returns whether duplicates come from a set of blocks that clones share.
    pub fn shares_set(&self) -> bool {
        self.dedupe > 0 && self.has_working_set && self.is_global
    }

    /// Returns warnings about options that have no effect, in a job that verifies or not.
    pub(crate) fn warnings(&self, verify: bool) -> Vec<String> {
        let (dedupes, has_set) = (self.dedupe > 0, self.has_working_set);
        let without =
            |name: &str, needed: &str| format!("--{name} has no effect without --{needed}");
        let options = [
            ("buffer_compress_percentage", self.compress.is_some(), None),
            ("dedupe_percentage", dedupes, None),
            (
                "buffer_compress_chunk",
                self.chunk.is_some(),
                self.compress.is_none().then_some("buffer_compress_percentage"),
            ),
            ("dedupe_mode", has_set, (!dedupes).then_some("dedupe_percentage")),
            (
                "dedupe_working_set_percentage",
                self.working_set.is_some(),
                (!dedupes || !has_set).then_some("dedupe_mode=working_set"),
            ),
            (
                "dedupe_global",
                self.is_global,
                (!dedupes || !has_set).then_some("dedupe_mode=working_set"),
            ),
        ];
        let given = options.into_iter().filter(|&(_, is_given, _)| is_given);
        let warning = |(name, _, needed): (&str, bool, Option<&str>)| match needed {
            Some(needed) => Some(without(name, needed)),
            None if verify => {
                Some(format!("--{name} has no effect: --verify determines the data of the blocks"))
            }
            None => None,
        };
        given.filter_map(warning).collect()
    }
}

/// The new data of a clone, of which others may have duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The seed of its data.
    pub seed: u64,
    /// The number of the clone among all clones.
    pub stream: u64,
    /// How many of its first new parts are in the working set; not 0.
    pub nr_parts: u64,
}

/// The data of the writes of a clone.
#[derive(Debug, Clone)]
pub struct Contents {
    own: Member,
    /// The working set; empty with `dedupe_mode=repeat`.
    set: Vec<Member>,
    /// Percentage of duplicates.
    dedupe: u64,
    /// Bytes of a part: those of the smallest write.
    part: usize,
    /// Bytes of a chunk.
    chunk: usize,
    /// Percentage of each chunk that is random.
    random: usize,
    /// The other bytes of a chunk.
    fixed: Vec<u8>,
    draws: Xoshiro256,
    /// The number of the first part of the last new write.
    last: u64,
    /// The number of the next new part.
    next: u64,
}

impl Contents {
    /// Returns the data of a clone whose smallest write has `min_write` bytes.
    pub fn new(
        options: &DataOptions,
        pattern: Option<&Pattern>,
        min_write: u32,
        own: Member,
        set: Vec<Member>,
    ) -> Self {
        /// Keeps the draws of duplicates apart from the data.
        const DRAWS_KEY: u64 = 0x6465_6475_7065_0001;
        /// fio's default of `buffer_compress_chunk`.
        const CHUNK: u32 = 512;
        let chunk = match options.chunk.unwrap_or(CHUNK) {
            0 => min_write,
            chunk => chunk.min(min_write),
        } as usize;
        let mut fixed = vec![0; chunk];
        if let Some(pattern) = pattern {
            pattern.fill(&mut fixed, 0);
        }
        Self {
            own,
            set,
            dedupe: options.dedupe.into(),
            part: min_write.max(1) as usize,
            chunk,
            random: 100 - usize::from(options.compress.unwrap_or(0)),
            fixed,
            draws: Xoshiro256::new(own.seed ^ DRAWS_KEY, own.stream),
            last: 0,
            next: 0,
        }
    }

    /// Generates the data of the next write.
    pub fn fill(&mut self, block: &mut [u8]) {
        let parts = block.chunks_mut(self.part);
        let (member, first) = self.choose(parts.len() as u64);
        for (number, part) in (first..).zip(parts) {
            // A clone has fewer than 2^40 parts.
            let mut data = Xoshiro256::new(member.seed, member.stream << 40 | number);
            for chunk in part.chunks_mut(self.chunk) {
                let nr_random = chunk.len() * self.random / 100;
                let (random, fixed) = chunk.split_at_mut(nr_random);
                data.fill(random);
                fixed.copy_from_slice(&self.fixed[..fixed.len()]);
            }
        }
    }

    /// Chooses the data of a write of `nr_parts`: those of a clone, from the part with this number.
    fn choose(&mut self, nr_parts: u64) -> (Member, u64) {
        let is_duplicate = self.dedupe > 0 && self.draws.below(100) < self.dedupe;
        if is_duplicate && !self.set.is_empty() {
            let member = self.set[self.draws.below(self.set.len() as u64) as usize];
            return (member, self.draws.below(member.nr_parts));
        }
        if !is_duplicate || self.next == 0 {
            self.last = self.next;
            self.next += nr_parts;
        }
        (self.own, self.last)
    }
}

/// Changes each sector of 512 bytes of a buffer that is written again, so that no block is written
/// twice: at `offset`, as write number `number`.
pub fn scramble(block: &mut [u8], offset: u64, number: u64) {
    const SECTOR: usize = 512;
    /// A sector has eight cache lines; the change is in one of them.
    const LINE: usize = 64;
    let line = (number ^ (offset / SECTOR as u64)) as usize % (SECTOR / LINE) * LINE;
    let offsets = (offset..).step_by(SECTOR);
    for (sector, offset) in block.chunks_exact_mut(SECTOR).zip(offsets) {
        sector[line..line + 8].copy_from_slice(&offset.to_le_bytes());
        sector[line + 8..line + 16].copy_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
