//! The event heap: future events in virtual time. Events of the same time happen in the order in
//! which they were added. All simulated worlds of this crate use it.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A future event of the disk's world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A command of a hardware context completes, by the number of its tag.
    Done { hctx: usize, tag: usize },
    /// The processor that handles interrupts has completed a command.
    Completed { hctx: usize, tag: usize },
    /// A machine may have completed a command. `at_ns` identifies the event.
    Machine { at_ns: u64 },
    /// A task can run again: it has woken up, or its processor is free.
    Ready { task: usize },
    /// A task's sleep with this number ends.
    Timer { task: usize, sleep: u64 },
}

/// Future events of type `E`.
#[derive(Debug)]
pub(crate) struct EventHeap<E> {
    heap: BinaryHeap<Entry<E>>,
    nr_added: u64,
    /// The time of the next event, or [`NEVER`].
    next_ns: u64,
}

/// The time of the next event if there is none.
const NEVER: u64 = u64::MAX;

/// An event with its place in the order. The earliest one is the greatest, as the heap needs it.
#[derive(Debug)]
struct Entry<E> {
    /// The complement of the time, and below it of the number of the event.
    place: u128,
    event: E,
}

impl<E> Entry<E> {
    fn new(at_ns: u64, number: u64, event: E) -> Entry<E> {
        Entry { place: !(u128::from(at_ns) << 64 | u128::from(number)), event }
    }

    fn at_ns(&self) -> u64 {
        (!self.place >> 64) as u64
    }
}

impl<E> Default for EventHeap<E> {
    fn default() -> EventHeap<E> {
        EventHeap { heap: BinaryHeap::new(), nr_added: 0, next_ns: NEVER }
    }
}

impl<E> EventHeap<E> {
    pub(crate) fn add(&mut self, at_ns: u64, event: E) {
        self.nr_added += 1;
        self.next_ns = self.next_ns.min(at_ns);
        self.heap.push(Entry::new(at_ns, self.nr_added, event));
    }

    /// Returns whether an event is due at this time.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.next_ns <= now
    }

    /// Returns the time of the next event.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(Entry::at_ns)
    }

    /// Removes the next event, and returns it.
    pub(crate) fn pop(&mut self) -> Option<E> {
        let next = self.heap.pop()?;
        self.next_ns = self.next_at().unwrap_or(NEVER);
        Some(next.event)
    }

    /// Returns the next event, if it is due at this time.
    pub(crate) fn peek_due(&self, now: u64) -> Option<&E> {
        self.heap.peek().filter(|next| next.at_ns() <= now).map(|next| &next.event)
    }

    /// Removes all events.
    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.next_ns = NEVER;
    }
}

impl EventHeap<Event> {
    /// Returns whether the device will complete a command.
    pub(crate) fn is_device_at_work(&self) -> bool {
        let mut events = self.heap.iter().map(|entry| entry.event);
        events.any(|event| !matches!(event, Event::Ready { .. } | Event::Timer { .. }))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.place == other.place
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Entry<E>) -> Ordering {
        self.place.cmp(&other.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_time_keep_their_order() {
        let mut heap = EventHeap::default();
        let timer = |task| Event::Timer { task, sleep: 0 };
        heap.add(5, timer(9));
        heap.add(3, timer(2));
        heap.add(5, timer(1));
        heap.add(5, Event::Done { hctx: 0, tag: 0 });
        assert_eq!((heap.next_at(), heap.is_due(2), heap.is_due(3)), (Some(3), false, true));
        let order = std::iter::from_fn(|| heap.pop());
        let expected = [timer(2), timer(9), timer(1), Event::Done { hctx: 0, tag: 0 }];
        assert!(order.eq(expected));
        assert_eq!((heap.next_at(), heap.is_due(5)), (None, false));
        heap.add(4, timer(0));
        heap.clear();
        assert!(!heap.is_due(4));
    }
}
