//! The bios of a request: a chain of boxes in the order of the device's bytes, or a part of one.

use crate::queued::QueuedBio;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Which bios a request covers.
#[derive(Debug)]
pub(crate) enum Bios {
    /// Whole bios, which are the request's own.
    Chain(Chain),
    /// A part of a bio that was cut: an index into [`Splits`].
    Part(u32),
}

/// One bio or more. What joins at the end is kept apart, newest first, until the chain is sealed,
/// so that a bio joins at either end at once.
#[derive(Debug)]
pub(crate) struct Chain {
    first: Box<QueuedBio>,
    joined_back: Option<Box<QueuedBio>>,
}

impl Chain {
    #[inline]
    pub(crate) fn of(first: Box<QueuedBio>) -> Chain {
        Chain { first, joined_back: None }
    }

    #[inline]
    pub(crate) fn first(&self) -> &QueuedBio {
        &self.first
    }

    /// The last bio.
    pub(crate) fn last(&self) -> &QueuedBio {
        let mut last = match &self.joined_back {
            Some(newest) => return newest,
            None => &self.first,
        };
        while let Some(next) = &last.next {
            last = next;
        }
        last
    }

    #[inline]
    pub(crate) fn push_back(&mut self, mut bio: Box<QueuedBio>) {
        assert!(bio.next.is_none());
        bio.next = self.joined_back.take();
        self.joined_back = Some(bio);
    }

    #[inline]
    pub(crate) fn push_front(&mut self, bio: Box<QueuedBio>) {
        assert!(bio.next.is_none());
        let second = core::mem::replace(&mut self.first, bio);
        self.first.next = Some(second);
    }

    /// All bios as one list, in order. Nothing joins after this.
    #[inline]
    pub(crate) fn seal(&mut self) {
        let mut newest = self.joined_back.take();
        let mut tail = None;
        while let Some(mut bio) = newest {
            newest = bio.next.take();
            bio.next = tail;
            tail = Some(bio);
        }
        if tail.is_some() {
            let mut last = &mut *self.first;
            while let Some(ref mut next) = last.next {
                last = next;
            }
            last.next = tail;
        }
    }

    /// The only bio, or the list of all of a sealed chain.
    #[inline]
    pub(crate) fn into_first(self) -> Box<QueuedBio> {
        assert!(self.joined_back.is_none(), "a chain is sealed first");
        self.first
    }

    /// Takes the first of several bios off a sealed chain.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Box<QueuedBio> {
        assert!(self.joined_back.is_none(), "a chain is sealed first");
        let second = self.first.next.take().expect("a request of several bios is a chain");
        core::mem::replace(&mut self.first, second)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueuedBio> {
        core::iter::successors(Some(&*self.first), |bio| bio.next.as_deref())
    }

    pub(crate) fn first_mut(&mut self) -> &mut QueuedBio {
        &mut self.first
    }
}

/// Bios that were cut into several requests, until the last of these is done. Each has a part in
/// the request table or is being cut, so there are at most as many as tags, and one.
#[derive(Debug)]
pub(crate) struct Splits {
    slots: Vec<Option<Split>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Split {
    bio: Box<QueuedBio>,
    /// How many requests still cover a part of it.
    nr_parts: u32,
}

impl Splits {
    pub(crate) fn new(depth: u32) -> Splits {
        Splits { slots: (0..=depth).map(|_| None).collect(), free: (0..=depth).rev().collect() }
    }

    /// Keeps a bio that is being cut, as one part so far.
    pub(crate) fn insert(&mut self, bio: Box<QueuedBio>) -> u32 {
        let at = self.free.pop().expect("no more bios are cut than there are tags, and one");
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

    /// One more request covers a part of it.
    pub(crate) fn add_part(&mut self, at: u32) {
        self.of(at).nr_parts += 1;
    }

    /// One of its parts is done. Gives the bio back with the last of them.
    pub(crate) fn end_part(&mut self, at: u32) -> Option<Box<QueuedBio>> {
        let split = self.of(at);
        split.nr_parts -= 1;
        if split.nr_parts > 0 {
            return None;
        }
        self.free.push(at);
        self.slots[at as usize].take().map(|split| split.bio)
    }

    /// How many bios are kept, and how many parts they have.
    pub(crate) fn count(&self) -> (u32, u32) {
        let parts = self.slots.iter().flatten().map(|split| split.nr_parts);
        (self.slots.iter().flatten().count() as u32, parts.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_chain_is_in_order_whichever_way_it_grew() {
        let bio = |number| QueuedBio::new(0, number);
        let mut chain = Chain::of(bio(3));
        chain.push_back(bio(4));
        chain.push_front(bio(2));
        chain.push_back(bio(5));
        chain.push_front(bio(1));
        assert_eq!((chain.first().number(), chain.last().number()), (1, 5));
        chain.seal();
        assert!(chain.iter().map(QueuedBio::number).eq(1..=5));
        assert_eq!(chain.last().number(), 5);
        for number in 1..5 {
            assert_eq!(chain.pop_front().number(), number);
        }
        assert_eq!(chain.into_first().number(), 5);
    }

    #[test]
    fn a_cut_bio_comes_back_with_its_last_part() {
        let mut splits = Splits::new(1);
        let at = splits.insert(QueuedBio::new(0, 7));
        splits.add_part(at);
        assert_eq!(splits.count(), (1, 2));
        assert!(splits.end_part(at).is_none());
        assert_eq!(splits.end_part(at).expect("the last part").number(), 7);
        assert_eq!(splits.count(), (0, 0));
    }
}
