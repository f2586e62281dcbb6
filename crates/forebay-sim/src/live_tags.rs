//! Set of tags, as bits: those of the commands at a driver.
//!
//! A driver has up to a thousand rows, of which few are in use. The checkers of time limits visit
//! those after each turn.

/// A set of numbers below a limit.
#[derive(Debug)]
pub(crate) struct LiveTags {
    words: Vec<u64>,
}

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

impl LiveTags {
    /// Returns an empty set of numbers below `limit`.
    pub(crate) fn new(limit: usize) -> LiveTags {
        LiveTags { words: vec![0; limit.div_ceil(BITS)] }
    }

    #[inline]
    pub(crate) fn contains(&self, tag: usize) -> bool {
        self.words[tag / BITS] >> (tag % BITS) & 1 == 1
    }

    #[inline]
    pub(crate) fn insert(&mut self, tag: usize) {
        self.words[tag / BITS] |= 1 << (tag % BITS);
    }

    /// Removes a tag. Returns whether it was in the set.
    #[inline]
    pub(crate) fn remove(&mut self, tag: usize) -> bool {
        let is_live = self.contains(tag);
        self.words[tag / BITS] &= !(1 << (tag % BITS));
        is_live
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Returns the tags in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                // The lowest bit is cleared.
                left &= left.checked_sub(1)?;
                Some(at * BITS + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_in_order_and_leave_once() {
        let mut live = LiveTags::new(130);
        assert!(live.is_empty());
        for tag in [129, 0, 64, 63, 5] {
            live.insert(tag);
        }
        assert_eq!(live.iter().collect::<Vec<_>>(), [0, 5, 63, 64, 129]);
        assert!(live.remove(64) && !live.remove(64) && !live.contains(64));
        assert!(live.contains(63) && !live.is_empty());
        live.clear();
        assert_eq!(live.iter().count(), 0);
    }
}
