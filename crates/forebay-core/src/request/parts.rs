//! Bios that are split into several requests.

use crate::request::QueuedBio;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Split bios, kept until the last of their requests is done. Each has a part in the request table
/// or is being cut, so there are at most as many as tags, plus one. A bio may also wait in the
/// queue of a thread without tags, one per thread.
#[derive(Debug)]
pub(crate) struct Splits {
    slots: Vec<Option<Split>>,
    free: Vec<u32>,
    /// Spare boxes for parts.
    spare: Vec<Box<QueuedBio>>,
}

#[derive(Debug)]
struct Split {
    bio: Box<QueuedBio>,
    /// The number of requests that still cover a part of the bio.
    nr_parts: u32,
}

impl Splits {
    pub(crate) fn new(depth: u32) -> Splits {
        Splits {
            slots: (0..=depth).map(|_| None).collect(),
            free: (0..=depth).rev().collect(),
            spare: Vec::new(),
        }
    }

    /// Returns a box for a part.
    pub(crate) fn new_part(&mut self) -> Box<QueuedBio> {
        self.spare.pop().unwrap_or_else(|| QueuedBio::new(0, 0))
    }

    /// Stores a bio that is being cut, with one part so far. Returns its index.
    pub(crate) fn insert(&mut self, bio: Box<QueuedBio>) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[at as usize] = Some(Split { bio, nr_parts: 1 });
        at
    }

    fn of(&mut self, at: u32) -> &mut Split {
        self.slots[at as usize].as_mut().expect("a bio that was cut stays until its last part")
    }

    #[inline]
    pub(crate) fn bio(&self, at: u32) -> &QueuedBio {
        let split = self.slots[at as usize].as_ref();
        &split.expect("a bio that was cut stays until its last part").bio
    }

    pub(crate) fn bio_mut(&mut self, at: u32) -> &mut QueuedBio {
        &mut self.of(at).bio
    }

    /// Returns all stored bios.
    pub(crate) fn bios_mut(&mut self) -> impl Iterator<Item = &mut QueuedBio> {
        self.slots.iter_mut().flatten().map(|split| &mut *split.bio)
    }

    /// Counts another request that covers a part of the bio.
    pub(crate) fn add_part(&mut self, at: u32) {
        self.of(at).nr_parts += 1;
    }

    /// Ends the part in this box. Returns the bio with its last part.
    pub(crate) fn end_part(&mut self, at: u32, part: Box<QueuedBio>) -> Option<Box<QueuedBio>> {
        self.spare.push(part);
        let split = self.of(at);
        split.nr_parts -= 1;
        if split.nr_parts > 0 {
            return None;
        }
        self.free.push(at);
        self.slots[at as usize].take().map(|split| split.bio)
    }

    /// Returns the number of stored bios and of their parts.
    pub(crate) fn count(&self) -> (u32, u32) {
        let parts = self.slots.iter().flatten().map(|split| split.nr_parts);
        (self.slots.iter().flatten().count() as u32, parts.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bios_than_tags_may_be_cut() {
        let mut splits = Splits::new(1);
        let places: Vec<u32> =
            (0..5).map(|number| splits.insert(QueuedBio::new(0, number))).collect();
        for (place, number) in places.into_iter().zip(0..) {
            assert_eq!(splits.bio(place).number(), number);
            let part = splits.new_part();
            assert_eq!(splits.end_part(place, part).map(|bio| bio.number()), Some(number));
        }
    }

    #[test]
    fn a_cut_bio_comes_back_with_its_last_part() {
        let mut splits = Splits::new(1);
        let at = splits.insert(QueuedBio::new(0, 7));
        splits.add_part(at);
        assert_eq!(splits.count(), (1, 2));
        let parts = [splits.new_part(), splits.new_part()];
        let ends = parts.map(|part| splits.end_part(at, part).map(|bio| bio.number()));
        assert_eq!(ends, [None, Some(7)]);
        assert_eq!(splits.count(), (0, 0));
    }
}
