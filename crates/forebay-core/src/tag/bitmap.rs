//! The set of free tags: one bit each, in words that many threads take from and give to.
//!
//! Counterpart in Linux: `struct sbitmap`, with one difference. Linux clears lazily: a freed bit
//! goes to a second word, and an allocator that finds the first one full moves all of them over.
//! Between the two steps of the move the tags are in neither word, and another allocator finds
//! nothing and goes to sleep, though tags are free and no completion will come to wake it: it
//! took a lock to mend (T7). Here a tag has one bit in one word, so there is no move, and none of
//! it. What lazy clearing is for, few writes to a shared word, comes from batches instead: a
//! hardware context takes many at once, and keeps what is freed at hand (`TagCache`).
//!
//! The argument for the orderings: a bit is set by the one that puts the tag, and cleared by the
//! one that gets it, both by a read-modify-write that returns what was there before. For each bit
//! these alternate, so exactly one thread sees the change from 1 to 0, and it owns the tag. A put
//! releases and a get acquires; whatever gets and puts of other bits come in between are
//! read-modify-writes as well, and carry the release on. So all that the last owner did with the
//! request's slot happens before anything the next one does. Loads only choose where to try; that
//! a *failed* try is no older than an announced wait is the business of
//! [`WaiterCount`](crate::WaiterCount).

use alloc::boxed::Box;

use super::Tag;
use crate::policy::QUEUE_DEPTH_MAX;
use crate::primitive::{AtomicU64, Ordering};

/// Tags of one word.
const WORD_BITS: u32 = u64::BITS;
const NR_WORDS_MAX: usize = QUEUE_DEPTH_MAX.div_ceil(WORD_BITS) as usize;

/// The free tags of a set of a fixed depth, shared by threads.
///
/// Each caller keeps a `hint`, the number of the word it last got a tag from: at first anything,
/// best something that differs between callers, so that they spread over the words. Within a word
/// the lowest free tag comes first: few slots, often used, stay in the cache.
#[derive(Debug)]
pub struct TagSet {
    words: Box<[Word]>,
    depth: u32,
}

/// Alone in its cache line: callers that spread over words must not meet in a line.
#[derive(Debug)]
#[repr(align(64))]
struct Word {
    free: AtomicU64,
}

impl TagSet {
    /// A set of `depth` tags, all free.
    ///
    /// # Panics
    /// If `depth` is 0 or over [`QUEUE_DEPTH_MAX`](crate::QUEUE_DEPTH_MAX).
    pub fn new(depth: u32) -> TagSet {
        assert!(depth > 0 && depth <= QUEUE_DEPTH_MAX);
        let word = |index: u32| {
            let nr_bits = (depth - index * WORD_BITS).min(WORD_BITS);
            Word { free: AtomicU64::new(u64::MAX >> (WORD_BITS - nr_bits)) }
        };
        TagSet { words: (0..depth.div_ceil(WORD_BITS)).map(word).collect(), depth }
    }

    /// How many tags there are.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Gets a tag, if one is found.
    #[inline]
    pub fn try_get(&self, hint: &mut u32) -> Option<Tag> {
        for index in self.words_from(*hint) {
            let taken = self.words[index].take_one();
            if taken != 0 {
                *hint = index as u32;
                return Some(tag_of(index, taken));
            }
        }
        None
    }

    /// Gets up to `nr` tags, hands them to `out`, and returns how many: with one write for each
    /// word that it takes some from, if nobody interferes.
    #[inline]
    pub fn try_get_many(&self, nr: u32, hint: &mut u32, out: &mut impl FnMut(Tag)) -> u32 {
        let mut nr_left = nr;
        for index in self.words_from(*hint) {
            if nr_left == 0 {
                break;
            }
            let taken = self.words[index].take(nr_left);
            if taken != 0 {
                *hint = index as u32;
                nr_left -= taken.count_ones();
                tags(index, taken).for_each(&mut *out);
            }
        }
        nr - nr_left
    }

    /// Gets `nr` tags and hands them to `out`, or none.
    ///
    /// After a false, some tags may have been held for a moment and put back. Another caller may
    /// have missed them meanwhile; so the caller must look for waiters, as after a put (T2).
    pub fn try_get_all(&self, nr: u32, hint: &mut u32, out: &mut impl FnMut(Tag)) -> bool {
        if self.nr_free() < nr {
            return false;
        }
        let mut taken = [0; NR_WORDS_MAX];
        let mut nr_left = nr;
        for index in self.words_from(*hint) {
            taken[index] = self.words[index].take(nr_left);
            nr_left -= taken[index].count_ones();
            if nr_left == 0 {
                *hint = index as u32;
                break;
            }
        }
        let words = || taken[..self.words.len()].iter().copied().enumerate();
        if nr_left > 0 {
            words().filter(|(_, bits)| *bits != 0).for_each(|(index, bits)| self.give(index, bits));
            return false;
        }
        words().flat_map(|(index, bits)| tags(index, bits)).for_each(out);
        true
    }

    /// Gives a tag back. Then look for waiters (T2).
    ///
    /// # Panics
    /// If the tag was free, or is none of this set.
    #[inline]
    pub fn put(&self, tag: Tag) {
        let (index, bit) = self.place(tag);
        self.give(index, bit);
    }

    /// Gives tags back: with one write for each run of them that share a word. Then look for
    /// waiters (T2), once.
    ///
    /// # Panics
    /// If a tag was free, or is none of this set.
    pub fn put_many(&self, tags: impl Iterator<Item = Tag>) {
        let mut run = (0, 0);
        for tag in tags {
            let (index, bit) = self.place(tag);
            if index != run.0 {
                self.give(run.0, run.1);
                run = (index, 0);
            }
            assert!(run.1 & bit == 0, "tag {} was put twice", tag.index());
            run.1 |= bit;
        }
        self.give(run.0, run.1);
    }

    /// How many tags are free: exact if nobody else gets or puts any, else a number that may never
    /// have been true.
    pub fn nr_free(&self) -> u32 {
        self.words.iter().map(|word| word.free.load(Ordering::Relaxed).count_ones()).sum()
    }

    /// The numbers of all words, once each, from the one of the hint on.
    #[inline]
    fn words_from(&self, hint: u32) -> impl Iterator<Item = usize> + use<> {
        let nr_words = self.words.len();
        let first =
            if (hint as usize) < nr_words { hint as usize } else { hint as usize % nr_words };
        (first..nr_words).chain(0..first)
    }

    #[inline]
    fn place(&self, tag: Tag) -> (usize, u64) {
        let index = tag.index();
        assert!(index < self.depth as usize, "tag {index} is none of this set");
        (index / WORD_BITS as usize, 1 << (index % WORD_BITS as usize))
    }

    /// Release: pairs with the Acquire of `take`.
    #[inline]
    fn give(&self, index: usize, bits: u64) {
        if bits == 0 {
            return;
        }
        let before = self.words[index].free.fetch_or(bits, Ordering::Release);
        assert!(before & bits == 0, "tags {:#x} of word {index} were put twice", before & bits);
    }
}

impl Word {
    /// As [`take`](Word::take), of one.
    #[inline]
    fn take_one(&self) -> u64 {
        let mut free = self.free.load(Ordering::Relaxed);
        while free != 0 {
            let wanted = free & free.wrapping_neg();
            let before = self.free.fetch_and(!wanted, Ordering::Acquire);
            if before & wanted != 0 {
                return wanted;
            }
            free = before;
        }
        0
    }

    /// Takes the lowest `nr` free bits, or what there is.
    ///
    /// Clearing a bit that another thread has just cleared does nothing; the bits that were set
    /// before are ours. Acquire: pairs with the Release of `give`. The load is a guess, and
    /// what the write found there is a better one.
    #[inline]
    fn take(&self, nr: u32) -> u64 {
        let mut taken: u64 = 0;
        let mut free = self.free.load(Ordering::Relaxed);
        while free != 0 && taken.count_ones() < nr {
            let wanted = lowest(free, nr - taken.count_ones());
            let before = self.free.fetch_and(!wanted, Ordering::Acquire);
            taken |= before & wanted;
            free = before & !wanted;
        }
        taken
    }
}

/// The lowest `nr` bits that are set.
#[inline]
fn lowest(bits: u64, nr: u32) -> u64 {
    if nr >= bits.count_ones() {
        return bits;
    }
    let rest = (0..nr).fold(bits, |rest, _| rest & (rest - 1));
    bits ^ rest
}

/// The tags of some bits of a word, in order.
#[inline]
fn tags(index: usize, bits: u64) -> impl Iterator<Item = Tag> {
    let rest = |bits: &u64| Some(bits & (bits - 1)).filter(|rest| *rest != 0);
    let bits = Some(bits).filter(|bits| *bits != 0);
    core::iter::successors(bits, rest).map(move |bits| tag_of(index, bits))
}

/// The tag of the lowest bit of a word that is set.
#[inline]
fn tag_of(index: usize, bits: u64) -> Tag {
    Tag::from_index(index * WORD_BITS as usize + bits.trailing_zeros() as usize)
}

#[cfg(all(test, not(blk_loom)))]
mod tests;
