//! Deferred calls: what a thread puts off until the end of a section, once each.
//!
//! Source: "block: add blk_io_plug_call() API", qemu-devel, 2023; `defer_call` in QEMU 8.2. A
//! driver is kicked once for a batch, wherever in the program the batch was made and whatever
//! queues it is for; and since the state is a thread's, without a lock. This is a plain value:
//! whoever has threads keeps one in each. Its rules:
//!
//! - D1 a call that is put off already is not put off again;
//! - D2 outside of a section a call is made at once (the runtime's part: it asks first);
//! - D3 calls are made in the order in which they were put off first;
//! - D4 the list is detached before any call of it is made, and then looked at again, so that a
//!   call may put off others;
//! - D5 who is about to wait makes the calls first (the runtime's part);
//! - D6 a batch is bounded (the runtime's part: by the number of tags);
//! - D7 a call whose object is gone is not made (the runtime's part: it holds the object).

use alloc::vec::Vec;

/// The deferred calls of a thread. `C` names a call: what is to be called, on what.
#[derive(Debug)]
pub struct Defer<C> {
    nesting: u32,
    calls: Vec<C>,
}

impl<C> Default for Defer<C> {
    fn default() -> Defer<C> {
        Defer::new()
    }
}

impl<C> Defer<C> {
    /// Outside of any section.
    pub const fn new() -> Defer<C> {
        Defer { nesting: 0, calls: Vec::new() }
    }

    /// A section begins, within another or not.
    pub fn begin(&mut self) {
        self.nesting += 1;
    }

    /// A section ends. True: it was the outermost; the calls are to be made now, list after list,
    /// until [`Defer::detach`] gives none (D4).
    ///
    /// # Panics
    /// If none had begun.
    pub fn end(&mut self) -> bool {
        assert!(self.nesting > 0, "a section ends that did not begin");
        self.nesting -= 1;
        self.nesting == 0
    }

    /// Whether a section is open.
    #[inline]
    pub fn is_nested(&self) -> bool {
        self.nesting > 0
    }

    /// How many sections are open, one within the other.
    #[inline]
    pub fn nesting(&self) -> u32 {
        self.nesting
    }

    /// Whether nothing is put off.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Puts a call off, whether a section is open or not; a second one is dropped (D1).
    pub fn put_off(&mut self, call: C)
    where
        C: PartialEq,
    {
        if !self.calls.contains(&call) {
            self.calls.push(call);
        }
    }

    /// Takes what was put off, oldest first; [`Defer::give_back`] takes the memory back.
    pub fn detach(&mut self) -> Vec<C> {
        core::mem::take(&mut self.calls)
    }

    /// Keeps the memory of a detached list, whose calls were made.
    pub fn give_back(&mut self, mut done: Vec<C>) {
        done.clear();
        if self.calls.is_empty() {
            self.calls = done;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_wait_for_the_end_of_the_outermost_section_once_each_and_in_order() {
        let mut defer = Defer::new();
        assert!(!defer.is_nested());
        defer.begin();
        defer.begin();
        for call in ['b', 'c', 'b'] {
            defer.put_off(call);
        }
        assert!(!defer.end() && defer.is_nested());
        defer.put_off('d');
        assert!(defer.end() && !defer.is_nested());
        assert_eq!(defer.detach(), ['b', 'c', 'd']);
        assert!(defer.is_empty());
    }

    #[test]
    fn a_call_may_open_sections_and_put_off_others() {
        let mut defer = Defer::new();
        defer.begin();
        defer.put_off(1);
        assert!(defer.end());
        let first = defer.detach();
        // While the first is made:
        defer.begin();
        defer.put_off(1);
        defer.put_off(2);
        assert!(defer.end());
        assert_eq!((first, defer.detach()), (Vec::from([1]), Vec::from([1, 2])));
        assert!(defer.detach().is_empty());
    }

    #[test]
    fn the_memory_of_a_list_is_kept() {
        let mut defer = Defer::new();
        defer.begin();
        defer.put_off(1);
        let list = defer.detach();
        let capacity = list.capacity();
        defer.give_back(list);
        assert_eq!(defer.detach().capacity(), capacity);
    }
}
