//! A list of tags in the order of their requests' first bytes.
//!
//! A vector with binary search. For the usual depths, up to a few hundred, a move of some of its
//! entries costs less than the links of a tree. Counterpart in Linux: `elv_rb_add`
//! (`block/elevator.c`), whose tree is red-black.
//!
//! Most searches end where the last one did: those for the neighbours of a request and for its own
//! place, or for requests that leave one after another. So the free entries of the vector are a gap
//! at the place of the last search, as in the buffer of a text editor. There, a search is a
//! comparison with each side, and an entry is added or removed without a move of others.

use crate::tag::Tag;
use alloc::vec::Vec;

/// Tags by start. Equal starts are in the order of their insertion.
#[derive(Clone, Debug, Default)]
pub(super) struct SortedTags {
    /// In order, apart from those in the gap, which mean nothing.
    entries: Vec<(u64, Tag)>,
    /// The first entry of the gap, and the first one after it.
    gap: usize,
    after: usize,
}

impl SortedTags {
    /// Moves the gap to before the first entry that starts at `start` or after it.
    #[inline]
    fn seek(&mut self, start: u64) {
        let is_before = |entry: Option<&(u64, Tag)>| entry.is_some_and(|entry| entry.0 < start);
        let follows = self.gap == 0 || is_before(self.entries.get(self.gap - 1));
        if !follows {
            self.seek_back(start);
        } else if is_before(self.entries.get(self.after)) {
            self.seek_on(start);
        }
    }

    #[inline(never)]
    fn seek_back(&mut self, start: u64) {
        let place = self.entries[..self.gap].partition_point(|entry| entry.0 < start);
        let nr = self.gap - place;
        self.entries.copy_within(place..self.gap, self.after - nr);
        (self.gap, self.after) = (place, self.after - nr);
    }

    #[inline(never)]
    fn seek_on(&mut self, start: u64) {
        let nr = self.entries[self.after..].partition_point(|entry| entry.0 < start);
        self.entries.copy_within(self.after..self.after + nr, self.gap);
        (self.gap, self.after) = (self.gap + nr, self.after + nr);
    }

    /// Makes the gap larger. The vector doubles, until it has room for the most tags that were in
    /// it at once.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let nr_new = self.entries.len().max(4);
        let unused = core::iter::repeat_n((0, Tag::from_index(0)), nr_new);
        self.entries.splice(self.gap..self.gap, unused);
        self.after += nr_new;
    }

    /// Adds a tag.
    #[inline(always)]
    pub(super) fn insert(&mut self, start: u64, tag: Tag) {
        self.seek(start);
        if self.start_after_gap() == start {
            self.pass_equal(start);
        }
        if self.gap == self.after {
            self.grow();
        }
        self.entries[self.gap] = (start, tag);
        self.gap += 1;
    }

    /// Moves the gap to after the entries that start at `start`.
    #[cold]
    #[inline(never)]
    fn pass_equal(&mut self, start: u64) {
        while let Some(equal) = self.entries.get(self.after).filter(|entry| entry.0 == start) {
            self.entries[self.gap] = *equal;
            (self.gap, self.after) = (self.gap + 1, self.after + 1);
        }
    }

    /// Removes a tag that was added with this start.
    #[inline]
    pub(super) fn remove(&mut self, start: u64, tag: Tag) {
        if self.entries.get(self.after).is_none_or(|entry| entry.1 != tag) {
            self.bring_to_gap(start, tag);
        }
        self.after += 1;
    }

    /// Moves the gap to before a tag. Others with the same start keep their order.
    #[inline(never)]
    fn bring_to_gap(&mut self, start: u64, tag: Tag) {
        self.seek(start);
        let rest = &mut self.entries[self.after..];
        let place = rest.iter().position(|entry| entry.1 == tag);
        let place = place.expect("a queued request is sorted by its start");
        rest[..=place].rotate_right(1);
    }

    /// Returns all tags with their starts, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Tag)> {
        let (before, rest) = (&self.entries[..self.gap], &self.entries[self.after..]);
        before.iter().chain(rest).copied()
    }

    /// Returns the first tag of all.
    pub(super) fn first(&self) -> Option<Tag> {
        self.iter().next().map(|entry| entry.1)
    }

    /// Returns the first tag that starts at `start` or after it.
    #[inline]
    pub(super) fn first_from(&mut self, start: u64) -> Option<Tag> {
        self.seek(start);
        self.entries.get(self.after).map(|entry| entry.1)
    }

    /// Returns the first start at the place of the last search or after it; `u64::MAX` if there is
    /// none.
    #[inline]
    pub(super) fn start_after_gap(&self) -> u64 {
        self.entries.get(self.after).map_or(u64::MAX, |entry| entry.0)
    }

    /// Returns the tags that start exactly at `start`.
    #[inline]
    pub(super) fn at(&mut self, start: u64) -> impl Iterator<Item = Tag> {
        self.seek(start);
        let entries = self.entries[self.after..].iter();
        entries.take_while(move |entry| entry.0 == start).map(|entry| entry.1)
    }

    /// Returns the tags with the greatest start below `start`.
    #[inline]
    pub(super) fn below(&mut self, start: u64) -> impl Iterator<Item = Tag> {
        self.seek(start);
        let before = &self.entries[..self.gap];
        let nearest = before.last().map(|entry| entry.0);
        before.iter().rev().take_while(move |entry| Some(entry.0) == nearest).map(|entry| entry.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares each operation with the same one on a list that is sorted anew.
    #[test]
    fn place_of_the_gap_never_changes_a_result() {
        let mut seed = 1_u64;
        let mut below = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % bound
        };
        let (mut sorted, mut naive) = (SortedTags::default(), Vec::<(u64, Tag)>::new());
        for _ in 0..20_000 {
            let start = below(40);
            let free = (0..32).map(Tag::from_index).find(|tag| naive.iter().all(|e| e.1 != *tag));
            match (below(8), free) {
                (0..3, Some(tag)) => {
                    sorted.insert(start, tag);
                    naive.push((start, tag));
                    naive.sort_by_key(|entry| entry.0);
                }
                (3, _) if !naive.is_empty() => {
                    let (start, tag) = naive.remove(below(naive.len() as u64) as usize);
                    sorted.remove(start, tag);
                }
                // The first one from a start leaves, and often the next one.
                (4, _) => {
                    for _ in 0..below(4) {
                        let first = naive.iter().position(|entry| entry.0 >= start);
                        let expected = first.map(|first| naive.remove(first));
                        assert_eq!(sorted.first_from(start), expected.map(|entry| entry.1));
                        if let Some((start, tag)) = expected {
                            sorted.remove(start, tag);
                        }
                    }
                }
                _ => {
                    let at = naive.iter().filter(|entry| entry.0 == start).map(|entry| entry.1);
                    assert!(sorted.at(start).eq(at));
                    let nearest = naive.iter().rfind(|entry| entry.0 < start);
                    let is_nearest = |entry: &&(u64, Tag)| Some(entry.0) == nearest.map(|e| e.0);
                    let before = naive.iter().rev().filter(is_nearest).map(|entry| entry.1);
                    assert!(sorted.below(start).eq(before));
                    assert!(sorted.iter().eq(naive.iter().copied()));
                    assert_eq!(sorted.first(), naive.first().map(|entry| entry.1));
                }
            }
        }
    }

    #[test]
    fn tags_are_found_by_start_and_equal_starts_keep_their_order() {
        let mut sorted = SortedTags::default();
        let tags = [0, 1, 2, 3, 4].map(Tag::from_index);
        for (start, tag) in [50, 10, 30, 30, 90].into_iter().zip(tags) {
            sorted.insert(start, tag);
        }
        assert_eq!(sorted.first_from(0), Some(tags[1]));
        assert_eq!(sorted.first_from(11), Some(tags[2]));
        assert_eq!(sorted.first_from(91), None);
        assert!(sorted.at(30).eq([tags[2], tags[3]]));
        assert!(sorted.at(31).next().is_none());
        assert!(sorted.below(50).eq([tags[3], tags[2]]));
        assert!(sorted.below(10).next().is_none());
        sorted.remove(30, tags[2]);
        assert!(sorted.at(30).eq([tags[3]]));
        sorted.insert(30, tags[2]);
        assert!(sorted.at(30).eq([tags[3], tags[2]]));
    }
}
