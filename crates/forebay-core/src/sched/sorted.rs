//! A list of tags in the order of their requests' first bytes.
//!
//! A vector with binary search. For the usual depths, up to a few hundred, a move of its tail costs
//! less than the links of a tree. Counterpart in Linux: `elv_rb_add` (`block/elevator.c`), whose
//! tree is red-black.

use crate::tag::Tag;
use alloc::vec::Vec;

/// Tags by start. Equal starts are in the order of their insertion.
#[derive(Clone, Debug, Default)]
pub(super) struct SortedTags(Vec<(u64, Tag)>);

impl SortedTags {
    fn place(&self, start: u64, tag: Tag) -> usize {
        let first = self.0.partition_point(|entry| entry.0 < start);
        let place = self.0[first..].iter().position(|entry| entry.1 == tag);
        first + place.expect("a queued request is sorted by its start")
    }

    /// Adds a tag.
    pub(super) fn insert(&mut self, start: u64, tag: Tag) {
        let place = self.0.partition_point(|entry| entry.0 <= start);
        self.0.insert(place, (start, tag));
    }

    /// Removes a tag that was added with this start.
    pub(super) fn remove(&mut self, start: u64, tag: Tag) {
        let place = self.place(start, tag);
        self.0.remove(place);
    }

    /// Returns all tags with their starts, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Tag)> {
        self.0.iter().copied()
    }

    /// Returns the first tag that starts at `start` or after it.
    pub(super) fn first_from(&self, start: u64) -> Option<Tag> {
        let place = self.0.partition_point(|entry| entry.0 < start);
        self.0.get(place).map(|entry| entry.1)
    }

    /// Returns the tags that start exactly at `start`.
    pub(super) fn at(&self, start: u64) -> impl Iterator<Item = Tag> {
        let place = self.0.partition_point(|entry| entry.0 < start);
        self.0[place..].iter().take_while(move |entry| entry.0 == start).map(|entry| entry.1)
    }

    /// Returns the tags with the greatest start below `start`.
    pub(super) fn below(&self, start: u64) -> impl Iterator<Item = Tag> {
        let place = self.0.partition_point(|entry| entry.0 < start);
        let before = &self.0[..place];
        let nearest = before.last().map(|entry| entry.0);
        before.iter().rev().take_while(move |entry| Some(entry.0) == nearest).map(|entry| entry.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
