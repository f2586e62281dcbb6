//! One word of a tag set: the only place where the ownership of a tag changes.
//!
//! The argument for the memory orderings: the thread that puts a tag sets its bit, and the thread
//! that gets the tag clears it. Both use a read-modify-write that returns the previous word. The
//! changes of a bit alternate, so exactly one thread sees its change from 1 to 0, and that thread
//! owns the tag. A put releases and a get acquires. Gets and puts of other bits in between are
//! read-modify-writes as well, so they continue the release sequence. So everything that the last
//! owner did with the request's slot happens before anything that the next owner does. Loads only
//! choose where to try. A *failed* try must also be no older than an announced wait;
//! [`WaiterCount`](crate::WaiterCount) ensures that.

use super::super::Tag;
use crate::primitive::{AtomicU64, Ordering};

/// The number of tags in a word.
pub(super) const WORD_BITS: u32 = u64::BITS;

/// Aligned to a cache line of its own: callers that use different words must not share a line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Word {
    /// Tags that may be given out.
    pub(super) free: Bits,
    /// Tags without an owner at or above the depth. They are not given out.
    pub(super) parked: Bits,
}

/// A set of tags without an owner. Threads take tags from it and give tags to it.
#[derive(Debug)]
pub(super) struct Bits(AtomicU64);

impl Word {
    pub(super) fn new(free: u64) -> Word {
        let [free, parked] = [free, 0].map(|bits| Bits(AtomicU64::new(bits)));
        Word { free, parked }
    }
}

impl Bits {
    /// Takes one bit, as [`take`](Bits::take) does.
    #[inline]
    pub(super) fn take_one(&self) -> u64 {
        let mut free = self.get();
        while free != 0 {
            let wanted = free & free.wrapping_neg();
            // Acquire: as in `take`.
            let before = self.0.fetch_and(!wanted, Ordering::Acquire);
            if before & wanted != 0 {
                return wanted;
            }
            free = before;
        }
        0
    }

    /// Takes the lowest `nr` bits that are set and allowed, or as many as there are.
    ///
    /// Clearing a bit that another thread has just cleared does nothing; the caller owns the bits
    /// that were set before. Acquire: pairs with the Release of `give`. The load is only a guess,
    /// and the result of the write is a better one.
    #[inline]
    pub(super) fn take(&self, nr: u32, allowed: u64) -> u64 {
        let mut taken: u64 = 0;
        let mut free = self.get() & allowed;
        while free != 0 && taken.count_ones() < nr {
            let wanted = lowest(free, nr - taken.count_ones());
            let before = self.0.fetch_and(!wanted, Ordering::Acquire);
            taken |= before & wanted;
            free = before & !wanted & allowed;
        }
        taken
    }

    /// Adds tags that the caller owns. Release: pairs with the Acquire of `take`.
    #[inline]
    pub(super) fn give(&self, bits: u64) {
        let before = self.0.fetch_or(bits, Ordering::Release);
        assert!(before & bits == 0, "tags {:#x} of a word were put twice", before & bits);
    }

    /// Returns the bits as of a moment ago.
    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns the lowest `nr` bits that are set.
#[inline]
fn lowest(bits: u64, nr: u32) -> u64 {
    if nr >= bits.count_ones() {
        return bits;
    }
    let rest = (0..nr).fold(bits, |rest, _| rest & (rest - 1));
    bits ^ rest
}

/// Returns the bits of word `index` whose tags are below `depth`.
#[inline]
pub(super) fn below(depth: u32, index: usize) -> u64 {
    let nr = depth.saturating_sub(index as u32 * WORD_BITS).min(WORD_BITS);
    u64::MAX.checked_shr(WORD_BITS - nr).unwrap_or(0)
}

/// Returns the tags of some bits of a word, in order.
#[inline]
pub(super) fn tags(index: usize, bits: u64) -> impl Iterator<Item = Tag> {
    let rest = |bits: &u64| Some(bits & (bits - 1)).filter(|rest| *rest != 0);
    let bits = Some(bits).filter(|bits| *bits != 0);
    core::iter::successors(bits, rest).map(move |bits| tag_of(index, bits))
}

/// Returns the tag of the lowest bit of a word that is set.
#[inline]
pub(super) fn tag_of(index: usize, bits: u64) -> Tag {
    Tag::from_index(index * WORD_BITS as usize + bits.trailing_zeros() as usize)
}
