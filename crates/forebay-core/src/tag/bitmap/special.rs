//! Gets that may have more, or less, than others: reserved tags, and shallow depths.
//!
//! Counterparts in Linux: `breserved_tags`, `BLK_MQ_REQ_RESERVED`; `__sbitmap_queue_get_shallow`.

use super::word::{WORD_BITS, tag_of};
use super::{Tag, TagSet};
use crate::primitive::Ordering;

impl TagSet {
    /// Reserves the first `nr` tags for those who ask for reserved ones: for commands without which
    /// the others do not end, such as aborts.
    ///
    /// # Panics
    /// If they are all there are, or some are reserved already.
    pub fn with_reserved(mut self, nr: u32) -> TagSet {
        assert!(nr < self.depth(), "{nr} tags reserved of {}", self.depth());
        assert!(self.nr_reserved == 0, "tags are reserved once");
        self.nr_plain.fetch_sub(nr, Ordering::Relaxed);
        self.nr_reserved = nr;
        for (index, word) in self.words.iter().enumerate() {
            let bits = word.free.take(u32::MAX, super::word::below(nr, index));
            word.reserved.give(bits);
        }
        self
    }

    /// How many tags are reserved.
    pub fn nr_reserved(&self) -> u32 {
        self.nr_reserved
    }

    /// Gets a reserved tag, if one is found. It is put as any other. Who waits for one has waits of
    /// its own, of the depth [`nr_reserved`](TagSet::nr_reserved).
    pub fn try_get_reserved(&self) -> Option<Tag> {
        let nr_words = self.nr_reserved.div_ceil(WORD_BITS) as usize;
        self.words[..nr_words].iter().enumerate().find_map(|(index, word)| {
            let taken = word.reserved.take_one(u64::MAX);
            (taken != 0).then(|| tag_of(index, taken))
        })
    }

    /// Gets a tag, if one is found, of the `shallow` that the caller may use: of each word the same
    /// share, its lowest tags. So a kind of I/O leaves some tags to the others, without a count.
    ///
    /// Who waits reckons with [`depth_shallow`](TagSet::depth_shallow) (T1).
    #[inline]
    pub fn try_get_shallow(&self, shallow: u32, hint: &mut u32) -> Option<Tag> {
        self.try_get_of(hint, |index| self.share(shallow, index))
    }

    /// How many tags those can have that may use `shallow`: about so many, and at least one of each
    /// word.
    pub fn depth_shallow(&self, shallow: u32) -> u32 {
        (0..self.words.len()).map(|index| self.share(shallow, index).count_ones()).sum()
    }

    /// The tags of a word that `shallow` of the whole may use.
    fn share(&self, shallow: u32, index: usize) -> u64 {
        let usable = self.usable(index);
        let nr_word = u64::from(usable.count_ones());
        let nr = nr_word * u64::from(shallow) / u64::from(self.nr_plain());
        let nr = nr.clamp(u64::from(nr_word > 0), nr_word);
        let first = usable.trailing_zeros().min(WORD_BITS - 1);
        usable & (u64::MAX.checked_shr(WORD_BITS - nr as u32).unwrap_or(0) << first)
    }
}
