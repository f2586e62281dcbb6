//! Deferred calls: each is made once, at the end of a thread's section.
//!
//! Source: "block: add blk_io_plug_call() API", qemu-devel, 2023; `defer_call` in QEMU 8.2. A
//! driver is kicked once per batch, whichever code made the batch and whichever queues it uses. The
//! state belongs to one thread, so there is no lock. This type is a plain value; a program with
//! threads keeps one per thread. Its rules:
//!
//! - D1 a call that is already deferred is not deferred again;
//! - D2 outside of a section a call is made at once (the runtime's part: it checks first);
//! - D3 calls are made in the order in which they were first deferred;
//! - D4 the list is detached before any of its calls is made, and then checked again, so that a
//!   call may defer others;
//! - D5 a thread makes its deferred calls before it waits (the runtime's part);
//! - D6 a batch is bounded (the runtime's part: by the number of tags);
//! - D7 a call whose object is gone is not made (the runtime's part: it holds the object).

use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// The deferred calls of a thread. A value of `C` names a call: the function and its object.
#[derive(Debug)]
pub struct Defer<C> {
    nesting: Cell<u32>,
    calls: RefCell<Vec<C>>,
    /// The number of calls, which the end of each section checks.
    nr_calls: Cell<usize>,
}

impl<C> Default for Defer<C> {
    fn default() -> Defer<C> {
        Defer::new()
    }
}

impl<C> Defer<C> {
    /// Creates the state outside of any section.
    pub const fn new() -> Defer<C> {
        Defer { nesting: Cell::new(0), calls: RefCell::new(Vec::new()), nr_calls: Cell::new(0) }
    }

    /// Begins a section, possibly inside another.
    #[inline]
    pub fn begin(&self) {
        self.nesting.set(self.nesting.get() + 1);
    }

    /// Ends a section. Returns whether it was the outermost. The deferred calls are then made, list
    /// after list, until [`Defer::detach`] returns an empty one (D4).
    ///
    /// # Panics
    /// Panics if no section is open.
    #[inline]
    pub fn end(&self) -> bool {
        let nesting = self.nesting.get();
        assert!(nesting > 0, "a section ends that did not begin");
        self.nesting.set(nesting - 1);
        nesting == 1
    }

    /// Returns whether a section is open.
    #[inline]
    pub fn is_nested(&self) -> bool {
        self.nesting.get() > 0
    }

    /// Returns the number of nested sections.
    #[inline]
    pub fn nesting(&self) -> u32 {
        self.nesting.get()
    }

    /// Returns whether no call is deferred.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.nr_calls.get() == 0
    }

    /// Defers a call, whether a section is open or not. A duplicate is dropped (D1).
    pub fn put_off(&self, call: C)
    where
        C: PartialEq,
    {
        let mut calls = self.calls.borrow_mut();
        if !calls.contains(&call) {
            calls.push(call);
        }
        self.nr_calls.set(calls.len());
    }

    /// Takes the deferred calls, oldest first. [`Defer::give_back`] returns the memory.
    pub fn detach(&self) -> Vec<C> {
        self.nr_calls.set(0);
        self.calls.take()
    }

    /// Reuses the memory of a detached list whose calls were made.
    pub fn give_back(&self, mut done: Vec<C>) {
        done.clear();
        let mut calls = self.calls.borrow_mut();
        if calls.is_empty() {
            *calls = done;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_wait_for_the_end_of_the_outermost_section_once_each_and_in_order() {
        let defer = Defer::new();
        assert!(!defer.is_nested());
        defer.begin();
        defer.begin();
        assert!(defer.nesting() == 2 && defer.is_empty());
        for call in ['b', 'c', 'b'] {
            defer.put_off(call);
        }
        assert!(!defer.end() && defer.is_nested() && !defer.is_empty());
        defer.put_off('d');
        assert!(defer.end() && !defer.is_nested());
        assert_eq!(defer.detach(), ['b', 'c', 'd']);
        assert!(defer.is_empty());
    }

    #[test]
    fn a_call_may_open_sections_and_put_off_others() {
        let defer = Defer::new();
        defer.begin();
        defer.put_off(1);
        assert!(defer.end());
        let first = defer.detach();
        // While the first call is made:
        defer.begin();
        defer.put_off(1);
        defer.put_off(2);
        assert!(defer.end());
        assert_eq!((first, defer.detach()), (Vec::from([1]), Vec::from([1, 2])));
        assert!(defer.detach().is_empty());
    }

    #[test]
    fn the_memory_of_a_list_is_kept() {
        let defer = Defer::new();
        defer.begin();
        defer.put_off(1);
        let list = defer.detach();
        let capacity = list.capacity();
        defer.give_back(list);
        assert_eq!(defer.detach().capacity(), capacity);
    }
}
