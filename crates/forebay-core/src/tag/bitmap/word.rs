//! One word of a set of tags: the only place where a tag changes hands.
//!
//! The argument for the orderings: a bit is set by the one that puts the tag, and cleared by the
//! one that gets it, both by a read-modify-write that returns what was there before. For each bit
//! these alternate, so exactly one thread sees the change from 1 to 0, and it owns the tag. A put
//! releases and a get acquires; whatever gets and puts of other bits come in between are
//! read-modify-writes as well, and carry the release on. So all that the last owner did with the
//! request's slot happens before anything the next one does. Loads only choose where to try; that
//! a *failed* try is no older than an announced wait is the business of
//! [`WaiterCount`](crate::WaiterCount).

use super::super::Tag;
use crate::primitive::{AtomicU64, Ordering};

/// Tags of one word.
pub(super) const WORD_BITS: u32 = u64::BITS;

/// Alone in its cache line: callers that spread over words must not meet in a line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Word {
    /// Those to be given out.
    pub(super) free: Bits,
    /// Nobody's, and not to be given out: at or above the depth.
    pub(super) parked: Bits,
}

/// Tags that nobody owns, and that may be taken from here and given to here.
#[derive(Debug)]
pub(super) struct Bits(AtomicU64);

impl Word {
    pub(super) fn new(free: u64) -> Word {
        let [free, parked] = [free, 0].map(|bits| Bits(AtomicU64::new(bits)));
        Word { free, parked }
    }
}

impl Bits {
    /// As [`take`](Bits::take), of one.
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

    /// Takes the lowest `nr` bits that are set, and allowed, or what there is.
    ///
    /// Clearing a bit that another thread has just cleared does nothing; the bits that were set
    /// before are ours. Acquire: pairs with the Release of `give`. The load is a guess, and
    /// what the write found there is a better one.
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

    /// Gives tags that the caller owns. Release: pairs with the Acquire of `take`.
    #[inline]
    pub(super) fn give(&self, bits: u64) {
        let before = self.0.fetch_or(bits, Ordering::Release);
        assert!(before & bits == 0, "tags {:#x} of a word were put twice", before & bits);
    }

    /// What there was a moment ago.
    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
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

/// The bits of word `index` whose tags are below `depth`.
#[inline]
pub(super) fn below(depth: u32, index: usize) -> u64 {
    let nr = depth.saturating_sub(index as u32 * WORD_BITS).min(WORD_BITS);
    u64::MAX.checked_shr(WORD_BITS - nr).unwrap_or(0)
}

/// The tags of some bits of a word, in order.
#[inline]
pub(super) fn tags(index: usize, bits: u64) -> impl Iterator<Item = Tag> {
    let rest = |bits: &u64| Some(bits & (bits - 1)).filter(|rest| *rest != 0);
    let bits = Some(bits).filter(|bits| *bits != 0);
    core::iter::successors(bits, rest).map(move |bits| tag_of(index, bits))
}

/// The tag of the lowest bit of a word that is set.
#[inline]
pub(super) fn tag_of(index: usize, bits: u64) -> Tag {
    Tag::from_index(index * WORD_BITS as usize + bits.trailing_zeros() as usize)
}
