//! A list of tags in the order of their requests' first bytes.
//!
//! A vector with binary search. For the usual depths, up to a few hundred, a move of its tail costs
//! less than the links of a tree. Counterpart in Linux: `elv_rb_add` (`block/elevator.c`), whose
//! tree is red-black.
//!
//! Most searches end where the last one did: the neighbours of a request and its own place, or
//! requests that leave one after another. So each search begins with the place of the last.

use crate::tag::Tag;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Tags by start. Equal starts are in the order of their insertion.
#[derive(Debug, Default)]
pub(super) struct SortedTags {
    entries: Vec<(u64, Tag)>,
    /// The place that the last search has found. Only a guess: entries may have moved since. An
    /// atomic, so that the list stays `Sync`; any order will do for a guess.
    guess: AtomicUsize,
}

impl Clone for SortedTags {
    fn clone(&self) -> SortedTags {
        SortedTags { entries: self.entries.clone(), guess: AtomicUsize::new(0) }
    }
}

impl SortedTags {
    /// Returns the place of the first entry that starts at `start` or after it.
    #[inline]
    fn place_from(&self, start: u64) -> usize {
        let guess = self.guess.load(Ordering::Relaxed);
        let is_before = |entry: Option<&(u64, Tag)>| entry.is_some_and(|entry| entry.0 < start);
        let last = guess.wrapping_sub(1);
        let follows = guess == 0 || is_before(self.entries.get(last));
        if follows && guess <= self.entries.len() && !is_before(self.entries.get(guess)) {
            return guess;
        }
        self.search(start)
    }

    #[inline(never)]
    fn search(&self, start: u64) -> usize {
        let place = self.entries.partition_point(|entry| entry.0 < start);
        self.guess.store(place, Ordering::Relaxed);
        place
    }

    /// Adds a tag.
    pub(super) fn insert(&mut self, start: u64, tag: Tag) {
        let first = self.place_from(start);
        let nr_equal = self.entries[first..].partition_point(|entry| entry.0 == start);
        self.entries.insert(first + nr_equal, (start, tag));
    }

    /// Removes a tag that was added with this start.
    pub(super) fn remove(&mut self, start: u64, tag: Tag) {
        let first = self.place_from(start);
        let place = self.entries[first..].iter().position(|entry| entry.1 == tag);
        let place = first + place.expect("a queued request is sorted by its start");
        self.entries.remove(place);
    }

    /// Returns all tags with their starts, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Tag)> {
        self.entries.iter().copied()
    }

    /// Returns the first tag that starts at `start` or after it.
    #[inline]
    pub(super) fn first_from(&self, start: u64) -> Option<Tag> {
        self.entries.get(self.place_from(start)).map(|entry| entry.1)
    }

    /// Returns the tags that start exactly at `start`.
    #[inline]
    pub(super) fn at(&self, start: u64) -> impl Iterator<Item = Tag> {
        let entries = self.entries[self.place_from(start)..].iter();
        entries.take_while(move |entry| entry.0 == start).map(|entry| entry.1)
    }

    /// Returns the tags with the greatest start below `start`.
    #[inline]
    pub(super) fn below(&self, start: u64) -> impl Iterator<Item = Tag> {
        let before = &self.entries[..self.place_from(start)];
        let nearest = before.last().map(|entry| entry.0);
        before.iter().rev().take_while(move |entry| Some(entry.0) == nearest).map(|entry| entry.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares each operation with the same one on a list that is sorted anew.
    #[test]
    fn guesses_never_change_a_result() {
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
