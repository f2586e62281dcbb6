//! A sparse array over the blocks of a device.

use std::collections::BTreeMap;

/// Values of blocks below this number are in one plain list. Random scenarios use only such blocks,
/// and each of their events accesses several of them.
const NR_FIRST: u64 = 1024;

/// Blocks of one page.
const PAGE: usize = 16;

/// Pages below this number are in a list of pages.
const NR_NEAR: u64 = 4096;

type Page<T> = Box<[T; PAGE]>;

/// One value for each block; the default value until one is set.
#[derive(Debug)]
pub(crate) struct Sparse<T> {
    /// The first values, up to the last page that was ever used.
    first: Vec<T>,
    /// The next pages, up to the last one that was ever used.
    near: Vec<Option<Page<T>>>,
    /// All others, by their numbers.
    far: BTreeMap<u64, Page<T>>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Sparse<T> {
        Sparse { first: Vec::new(), near: Vec::new(), far: BTreeMap::new() }
    }
}

impl<T: Default> Sparse<T> {
    /// Returns whether only the first `nr` blocks were ever used.
    pub(crate) fn is_within(&self, nr: u64) -> bool {
        let nr_used = match self.near.len() {
            0 => self.first.len(),
            nr_pages => nr_pages * PAGE,
        };
        self.far.is_empty() && nr_used as u64 <= nr
    }

    #[inline]
    pub(crate) fn at(&self, block: u64) -> Option<&T> {
        if block < self.first.len() as u64 {
            return Some(&self.first[block as usize]);
        }
        self.at_page(block)
    }

    #[inline(never)]
    fn at_page(&self, block: u64) -> Option<&T> {
        let (page, at) = place(block);
        let page = match page < NR_NEAR {
            true => self.near.get(page as usize)?.as_ref(),
            false => self.far.get(&page),
        };
        page.map(|page| &page[at])
    }

    /// Returns all values of pages that were ever used.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut T> {
        let pages = self.near.iter_mut().flatten().chain(self.far.values_mut());
        self.first.iter_mut().chain(pages.flat_map(|page| page.iter_mut()))
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, block: u64) -> &mut T {
        if block < self.first.len() as u64 {
            return &mut self.first[block as usize];
        }
        self.at_page_mut(block)
    }

    #[inline(never)]
    fn at_page_mut(&mut self, block: u64) -> &mut T {
        let (page, at) = place(block);
        if block < NR_FIRST {
            self.first.resize_with((page as usize + 1) * PAGE, T::default);
            return &mut self.first[block as usize];
        }
        let page = match page < NR_NEAR {
            true => {
                let page = page as usize;
                if self.near.len() <= page {
                    self.near.resize_with(page + 1, || None);
                }
                self.near[page].get_or_insert_with(new_page)
            }
            false => self.far.entry(page).or_insert_with(new_page),
        };
        &mut page[at]
    }
}

/// Returns the number of a block's page, and the place in it.
#[inline]
fn place(block: u64) -> (u64, usize) {
    (block / PAGE as u64, (block % PAGE as u64) as usize)
}

#[cold]
fn new_page<T: Default>() -> Page<T> {
    Box::new(std::array::from_fn(|_| T::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_its_own_value_on_either_side_of_the_border() {
        let (first, border) = (NR_FIRST, NR_NEAR * PAGE as u64);
        let blocks = [0, 1, first - 1, first, border - 1, border, border + 1, u64::MAX];
        let mut sparse = Sparse::default();
        for block in blocks {
            assert_eq!(sparse.at(block).copied().unwrap_or(0), 0);
            *sparse.at_mut(block) = block ^ 7;
        }
        assert!(blocks.iter().all(|&block| sparse.at(block) == Some(&(block ^ 7))));
        assert_eq!(sparse.at(border - 2), Some(&0), "its page was used");
        assert_eq!(sparse.at(border / 2), None, "its page was not used");
        let set: Vec<_> = sparse.all().filter(|value| **value != 0).map(|value| *value).collect();
        assert_eq!(set, blocks.map(|block| block ^ 7).to_vec());
    }

    #[test]
    fn used_blocks_are_counted_in_whole_pages() {
        let mut sparse = Sparse::<u64>::default();
        assert!(sparse.is_within(0));
        for (block, nr) in [(0, 16), (31, 32), (NR_FIRST - 1, NR_FIRST), (NR_FIRST, NR_FIRST + 16)]
        {
            sparse.at_mut(block);
            assert!(sparse.is_within(nr) && !sparse.is_within(nr - 1), "{block}");
        }
        sparse.at_mut(u64::MAX);
        assert!(!sparse.is_within(u64::MAX));
    }
}
