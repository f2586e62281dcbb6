//! The set of free tags: one bit each, in words that many threads take from and give to.
//!
//! Counterpart in Linux: `struct sbitmap`, with one difference. Linux clears lazily: a freed bit
//! goes to a second word, and an allocator that finds the first word full moves all of them over.
//! Between the two steps of the move the tags are in neither word. Another allocator then finds
//! none and goes to sleep, although tags are free and no completion will come to wake it. The fix
//! was a lock (T7). Here a tag has one bit in one word, so there is no move and no such gap. The
//! purpose of lazy clearing, few writes to a shared word, is met by batches instead: a hardware
//! context takes many tags at once, and keeps freed tags for itself (`TagCache`).
//!
//! `bitmap/word.rs` justifies the memory orderings, and `bitmap/resize.rs` those of a changing
//! depth.

mod resize;
mod word;

use alloc::boxed::Box;

use self::word::{WORD_BITS, Word, below, tag_of, tags};
use super::Tag;
use crate::plant::plants;
use crate::primitive::{AtomicU32, Ordering};
use crate::tag::QUEUE_DEPTH_MAX;

const NR_WORDS_MAX: usize = QUEUE_DEPTH_MAX.div_ceil(WORD_BITS) as usize;

/// The free tags of a set, shared by threads.
///
/// Each caller keeps a `hint`: the index of the word from which it last got a tag. Any first value
/// works; values that differ spread the callers over the words. Within a word the lowest free tag
/// is taken first, so that a few slots are reused and stay in the cache.
#[derive(Debug)]
pub struct TagSet {
    words: Box<[Word]>,
    /// Always accessed with Relaxed: see `bitmap/resize.rs`.
    depth: AtomicU32,
    depth_max: u32,
}

impl TagSet {
    /// Creates a set of `depth` tags, all free. It may be [resized](TagSet::resize) up to `depth`.
    ///
    /// # Panics
    /// Panics if `depth` is 0 or more than [`QUEUE_DEPTH_MAX`](crate::QUEUE_DEPTH_MAX).
    pub fn new(depth: u32) -> TagSet {
        assert!(depth > 0 && depth <= QUEUE_DEPTH_MAX);
        let word = |index: u32| Word::new(below(depth, index as usize));
        let words = (0..depth.div_ceil(WORD_BITS)).map(word).collect();
        TagSet { words, depth: AtomicU32::new(depth), depth_max: depth }
    }

    /// Returns the number of tags.
    #[inline]
    pub fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Returns the largest depth that the set can have. All its tags are below this number.
    pub fn depth_max(&self) -> u32 {
        self.depth_max
    }

    /// Gets a tag, if it finds a free one.
    #[inline]
    pub fn try_get(&self, hint: &mut u32) -> Option<Tag> {
        for index in self.words_from(*hint) {
            let taken = self.words[index].free.take_one();
            if taken == 0 {
                continue;
            }
            let tag = tag_of(index, taken);
            if self.is_low(tag.index() as u32) || self.park(index, taken) != 0 {
                *hint = index as u32;
                return Some(tag);
            }
        }
        None
    }

    /// Returns those of the given tags of a word that are below the depth, and parks the others.
    /// The caller has just taken all of them.
    #[inline]
    fn keep(&self, index: usize, taken: u64) -> u64 {
        if self.is_low(highest(index, taken)) { taken } else { self.park(index, taken) }
    }

    /// Gets up to `nr` tags, passes them to `out`, and returns their number. Writes each word that
    /// it takes tags from once, if no other thread interferes.
    #[inline]
    pub fn try_get_many(&self, nr: u32, hint: &mut u32, out: &mut impl FnMut(Tag)) -> u32 {
        let mut nr_left = nr;
        for index in self.words_from(*hint) {
            if nr_left == 0 {
                break;
            }
            let mut taken = self.words[index].free.take(nr_left, u64::MAX);
            if taken != 0 {
                taken = self.keep(index, taken);
                *hint = index as u32;
                nr_left -= taken.count_ones();
                tags(index, taken).for_each(&mut *out);
            }
        }
        nr - nr_left
    }

    /// Gets `nr` tags and passes them to `out`, or gets none.
    ///
    /// # Errors
    /// Returns an error if fewer tags were free: the number of tags that were held for a moment and
    /// put back, mostly 0. Another caller may have missed these tags meanwhile. So if the number is
    /// not 0, the caller checks for waiters as after a put of that many tags (T2).
    pub fn try_get_exact(
        &self,
        nr: u32,
        hint: &mut u32,
        out: &mut impl FnMut(Tag),
    ) -> Result<(), u32> {
        if self.nr_free() < nr.saturating_add(plants!(HideLastTag).into()) {
            return Err(0);
        }
        let mut taken = [0; NR_WORDS_MAX];
        let mut nr_left = nr;
        for index in self.words_from(*hint) {
            taken[index] = self.words[index].free.take(nr_left, u64::MAX);
            if taken[index] != 0 {
                taken[index] = self.keep(index, taken[index]);
            }
            nr_left -= taken[index].count_ones();
            if nr_left == 0 {
                *hint = index as u32;
                break;
            }
        }
        let words = || taken[..self.words.len()].iter().copied().enumerate();
        if nr_left > 0 {
            words().for_each(|(index, bits)| self.give(index, bits));
            return Err(nr - nr_left);
        }
        words().flat_map(|(index, bits)| tags(index, bits)).for_each(out);
        Ok(())
    }

    /// Puts a tag. The caller then checks for waiters (T2).
    ///
    /// # Panics
    /// Panics if the tag was free, or is not one of this set.
    #[inline]
    pub fn put(&self, tag: Tag) {
        let (index, bit) = place(tag);
        if self.is_low(tag.index() as u32) {
            self.words[index].free.give(bit);
        } else {
            self.put_high(tag);
        }
    }

    /// Puts tags, with one write for consecutive tags that share a word. The caller then checks for
    /// waiters once (T2).
    ///
    /// # Panics
    /// Panics if a tag was free, or is not one of this set.
    pub fn put_many(&self, tags: impl Iterator<Item = Tag>) {
        let mut at = (0, 0);
        for tag in tags {
            assert!(
                tag.index() < self.depth_max as usize,
                "tag {} is none of this set",
                tag.index()
            );
            let (index, bit) = place(tag);
            if index != at.0 {
                self.put_bits(at.0, at.1);
                at = (index, 0);
            }
            assert!(at.1 & bit == 0, "tag {} was put twice", tag.index());
            at.1 |= bit;
        }
        self.put_bits(at.0, at.1);
    }

    /// Puts tags of one word.
    #[inline]
    fn put_bits(&self, index: usize, bits: u64) {
        if bits == 0 {
            return;
        }
        if self.is_low(highest(index, bits)) {
            self.words[index].free.give(bits);
        } else {
            tags(index, bits).for_each(|tag| self.put(tag));
        }
    }

    /// Returns the number of free tags. It is exact if no other thread gets or puts tags at the
    /// same time. Otherwise it may be a number that was never true.
    pub fn nr_free(&self) -> u32 {
        let free = |(index, word): (usize, &Word)| word.free.get() & below(self.depth(), index);
        self.words.iter().enumerate().map(free).map(u64::count_ones).sum()
    }

    /// Returns the number of tags below the depth that are in use, as exact as
    /// [`nr_free`](TagSet::nr_free). For [`TagWaits::wake`](crate::TagWaits::wake).
    pub fn nr_busy(&self) -> u32 {
        self.depth().saturating_sub(self.nr_free())
    }

    /// Returns the numbers of all words, once each, starting with the word of the hint.
    #[inline]
    fn words_from(&self, hint: u32) -> impl Iterator<Item = usize> + use<> {
        let nr_words = self.words.len();
        let first =
            if (hint as usize) < nr_words { hint as usize } else { hint as usize % nr_words };
        // Not a chain of two ranges: that takes a tenth more instructions to get a tag.
        let wrapped = move |index| if index < nr_words { index } else { index - nr_words };
        (first..first + nr_words).map(wrapped)
    }

    /// Returns whether a tag is below the depth. Then it belongs to the set, and a put makes it
    /// free.
    #[inline]
    fn is_low(&self, tag: u32) -> bool {
        tag < self.depth()
    }

    /// Puts a tag that is too high.
    #[cold]
    fn put_high(&self, tag: Tag) {
        assert!(tag.index() < self.depth_max as usize, "tag {} is none of this set", tag.index());
        let (index, bit) = place(tag);
        self.give(index, self.park(index, bit));
    }

    /// Makes tags free. The next thread that gets a tag that is too high parks it.
    #[inline]
    fn give(&self, index: usize, bits: u64) {
        if bits != 0 {
            self.words[index].free.give(bits);
        }
    }
}

#[inline]
fn place(tag: Tag) -> (usize, u64) {
    let index = tag.index();
    (index / WORD_BITS as usize, 1 << (index % WORD_BITS as usize))
}

/// Returns the number of the highest tag among some bits of a word; at least one bit is set.
#[inline]
fn highest(index: usize, bits: u64) -> u32 {
    (index as u32 + 1) * WORD_BITS - 1 - bits.leading_zeros()
}

#[cfg(all(test, not(blk_loom)))]
mod tests;
