//! A set of block numbers, as a bitmap with summaries: the first block of a sparse set is found
//! without a scan.

/// Bits of a word.
const BITS: u64 = 64;

/// A set of the numbers below a limit.
#[derive(Debug)]
pub(super) struct BlockSet {
    /// The first level has a bit for each number; each further one has a bit for each word of the
    /// level below that is not 0. The last level is one word.
    levels: Vec<Vec<u64>>,
}

impl BlockSet {
    /// Returns the empty set of numbers below `limit`.
    pub(super) fn new(limit: u64) -> Self {
        Self { levels: words(limit).map(|nr| vec![0; nr as usize]).collect() }
    }

    /// Returns the memory of a set of numbers below `limit`.
    pub(super) fn bytes(limit: u64) -> u64 {
        words(limit).sum::<u64>() * (BITS / 8)
    }

    /// Adds a number.
    pub(super) fn insert(&mut self, mut nr: u64) {
        for level in &mut self.levels {
            level[(nr / BITS) as usize] |= 1 << (nr % BITS);
            nr /= BITS;
        }
    }

    /// Removes a number.
    pub(super) fn remove(&mut self, mut nr: u64) {
        for level in &mut self.levels {
            let word = &mut level[(nr / BITS) as usize];
            *word &= !(1 << (nr % BITS));
            if *word != 0 {
                return;
            }
            nr /= BITS;
        }
    }

    /// Removes all numbers.
    pub(super) fn clear(&mut self) {
        self.levels.iter_mut().for_each(|level| level.fill(0));
    }

    /// Returns whether the set is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.levels.last().is_none_or(|top| top[0] == 0)
    }

    /// Returns the numbers in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let mut next = self.first_from(0);
        std::iter::from_fn(move || {
            let nr = next?;
            next = self.first_from(nr + 1);
            Some(nr)
        })
    }

    /// Returns the first number that is `nr` or greater.
    fn first_from(&self, mut nr: u64) -> Option<u64> {
        for (height, level) in self.levels.iter().enumerate() {
            let rest = level.get((nr / BITS) as usize)? >> (nr % BITS);
            if rest != 0 {
                let found = nr + u64::from(rest.trailing_zeros());
                // The first bit of each word below it.
                let below = self.levels[..height].iter().rev();
                return Some(below.fold(found, |at, level| {
                    at * BITS + u64::from(level[at as usize].trailing_zeros())
                }));
            }
            nr = nr / BITS + 1;
        }
        None
    }
}

/// Returns the number of words of each level.
fn words(limit: u64) -> impl Iterator<Item = u64> {
    let above = |&nr: &u64| (nr > 1).then(|| nr.div_ceil(BITS));
    std::iter::successors(Some(limit.div_ceil(BITS).max(1)), above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use forebay_fio::random::Xoshiro256;

    #[test]
    fn set_is_that_of_the_standard_library() {
        for limit in [1, 64, 65, 4096, 4097, 300_000] {
            let mut draws = Xoshiro256::new(limit, 0);
            let (mut set, mut expected) = (BlockSet::new(limit), BTreeSet::new());
            for _ in 0..500 {
                let nr = draws.draw() % limit;
                if draws.draw().is_multiple_of(3) {
                    set.remove(nr);
                    expected.remove(&nr);
                } else {
                    set.insert(nr);
                    expected.insert(nr);
                }
                assert_eq!(set.is_empty(), expected.is_empty());
            }
            set.insert(limit - 1);
            expected.insert(limit - 1);
            assert!(set.iter().eq(expected), "{limit}");
            set.clear();
            assert!(set.is_empty() && set.iter().next().is_none(), "{limit}");
        }
    }

    #[test]
    fn memory_is_that_of_all_levels() {
        for limit in [1, 64, 65, 4096, 4097, 300_000] {
            let levels = BlockSet::new(limit).levels;
            let bytes: usize = levels.iter().map(|level| level.len() * 8).sum();
            assert_eq!(BlockSet::bytes(limit), bytes as u64);
            assert_eq!(levels.last().map(Vec::len), Some(1));
        }
    }
}
