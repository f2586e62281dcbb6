//! The event heap: future events in virtual time. Events of the same time happen in the order in
//! which they were added.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A command of a hardware context completes, by the number of its tag.
    Done { hctx: usize, tag: usize },
    /// A machine may have completed a command. `at_ns` identifies the event.
    Machine { at_ns: u64 },
    /// A task's sleep with this number ends.
    Timer { task: usize, sleep: u64 },
}

#[derive(Debug, Default)]
pub(crate) struct EventHeap {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    nr_added: u64,
}

impl EventHeap {
    pub(crate) fn add(&mut self, at_ns: u64, event: Event) {
        self.nr_added += 1;
        self.heap.push(Reverse((at_ns, self.nr_added, event)));
    }

    /// Returns the time of the next event.
    #[inline]
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.heap.pop().map(|Reverse((_, _, event))| event)
    }

    /// Returns whether the device will complete a command.
    pub(crate) fn is_device_at_work(&self) -> bool {
        self.heap
            .iter()
            .any(|Reverse((.., event))| matches!(event, Event::Done { .. } | Event::Machine { .. }))
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
        assert_eq!(heap.next_at(), Some(3));
        let order = std::iter::from_fn(|| heap.pop());
        let expected = [timer(2), timer(9), timer(1), Event::Done { hctx: 0, tag: 0 }];
        assert!(order.eq(expected));
    }
}
