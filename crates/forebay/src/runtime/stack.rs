//! Lock-free stack of boxed bios: many threads push, one at a time takes all.
//!
//! It carries bios between threads: into a hardware context (its inbox), and back to their
//! submitters (a mailbox). Bios are linked through a field of their own, so nothing is allocated.
//!
//! There is no single pop, and so no ABA problem: a push compares the top only with the bio that it
//! has just linked to, and a take removes everything. Source: R. K. Treiber, "Systems Programming:
//! Coping with Parallelism", IBM RJ 5118, 1986.
// It turns boxes into pointers and back.
#![allow(unsafe_code)]

use crate::sys::primitive::{AtomicPtr, Ordering, guess};
use forebay_core::QueuedBio;
use std::ptr;

/// A stack of bios.
#[derive(Debug)]
pub(crate) struct BioStack {
    /// The newest bio, linked to the one before it. The stack owns the bios that it points to.
    top: AtomicPtr<QueuedBio>,
}

impl BioStack {
    pub(crate) fn new() -> BioStack {
        BioStack { top: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns whether the stack is empty. Acquire: if this misses a push, the pusher's later
    /// signal (the run word or the mailbox word) reports it.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.top.load(Ordering::Acquire).is_null()
    }

    /// Pushes all bios in one exchange, in order.
    #[inline]
    pub(crate) fn push_all(&self, bios: impl Iterator<Item = Box<QueuedBio>>) {
        let (mut oldest, mut newest) = (ptr::null_mut::<QueuedBio>(), ptr::null_mut());
        for mut bio in bios {
            *bio.link_mut() = newest;
            newest = Box::into_raw(bio);
            if oldest.is_null() {
                oldest = newest;
            }
        }
        if newest.is_null() {
            return;
        }
        let mut top = guess!(self.top, ptr::without_provenance_mut(1));
        loop {
            // SAFETY: made from a box above, and not shared until the exchange succeeds.
            unsafe { *(*oldest).link_mut() = top };
            // Release: the thread that takes the bios sees their contents. A failure only returns
            // the new top to link to, which is not dereferenced here.
            let swap = (Ordering::Release, Ordering::Relaxed);
            match self.top.compare_exchange_weak(top, newest, swap.0, swap.1) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes all bios, oldest first.
    #[inline]
    pub(crate) fn take_all(&self) -> BioList {
        // Acquire: pairs with the release of each push (every exchange in between is part of the
        // release sequence of the earlier ones).
        let mut newer = self.top.swap(ptr::null_mut(), Ordering::Acquire);
        let mut older = ptr::null_mut();
        while !newer.is_null() {
            // SAFETY: the swap took the whole list: every bio in it came from a box, and now
            // belongs to this call.
            let next = unsafe { std::mem::replace((*newer).link_mut(), older) };
            older = newer;
            newer = next;
        }
        BioList { next: older }
    }
}

impl Drop for BioStack {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

/// Bios that were taken off a stack, oldest first.
#[derive(Debug)]
pub(crate) struct BioList {
    next: *mut QueuedBio,
}

impl Iterator for BioList {
    type Item = Box<QueuedBio>;

    #[inline]
    fn next(&mut self) -> Option<Box<QueuedBio>> {
        if self.next.is_null() {
            return None;
        }
        // SAFETY: it came from a box, and the list owns it.
        let mut bio = unsafe { Box::from_raw(self.next) };
        self.next = std::mem::replace(bio.link_mut(), ptr::null_mut());
        Some(bio)
    }
}

impl Drop for BioList {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_taken_in_the_order_of_the_pushes() {
        let stack = BioStack::new();
        let bio = |number| QueuedBio::new(0, number);
        assert!(stack.is_empty() && stack.take_all().next().is_none());
        stack.push_all([bio(0)].into_iter());
        stack.push_all((1..4).map(bio));
        stack.push_all(std::iter::empty());
        stack.push_all((4..6).map(bio));
        assert!(stack.take_all().map(|bio| bio.number()).eq(0..6));
        assert!(stack.is_empty());
    }

    #[test]
    fn bios_of_many_threads_arrive_once_and_in_each_threads_order() {
        const THREADS: u32 = 3;
        const EACH: u32 = if cfg!(miri) { 40 } else { 20_000 };
        let stack = BioStack::new();
        let mut next = [0; THREADS as usize];
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let stack = &stack;
                scope.spawn(move || {
                    for n in (0..EACH).step_by(2) {
                        let pair = [n, n + 1].into_iter();
                        stack.push_all(pair.map(|n| QueuedBio::new(thread.into(), n)));
                    }
                });
            }
            while next.iter().sum::<u32>() < THREADS * EACH {
                for bio in stack.take_all() {
                    let expected = &mut next[bio.owner() as usize];
                    assert_eq!(bio.number(), *expected);
                    *expected += 1;
                }
            }
        });
    }
}

#[cfg(test)]
mod models;
