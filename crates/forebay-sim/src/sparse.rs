//! A sparse array over the blocks of a device.

use std::collections::BTreeMap;

/// Blocks of one page.
const PAGE: u64 = 16;

/// One value for each block; the default value until one is set.
#[derive(Debug, Default)]
pub(crate) struct Sparse<T> {
    pages: BTreeMap<u64, Box<[T]>>,
}

impl<T: Clone + Default> Sparse<T> {
    pub(crate) fn at(&self, block: u64) -> Option<&T> {
        self.pages.get(&(block / PAGE)).map(|page| &page[(block % PAGE) as usize])
    }

    /// Returns all values of pages that were ever used.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.values_mut().flat_map(|page| page.iter_mut())
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, block: u64) -> &mut T {
        let new_page = || vec![T::default(); PAGE as usize].into();
        let page = self.pages.entry(block / PAGE).or_insert_with(new_page);
        &mut page[(block % PAGE) as usize]
    }
}
