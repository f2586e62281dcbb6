//! The processor that handles the interrupts of a device: it completes one command at a time.
//!
//! Off in most scenarios: a command completes when the device is done. A world that measures may
//! have a device that is faster than the processor.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// A processor with a queue of done commands, by hardware context and tag.
#[derive(Debug)]
pub(crate) struct Completer {
    /// The time that each command takes, ns.
    pub(crate) command_ns: u64,
    queue: RefCell<VecDeque<(usize, usize)>>,
    is_busy: Cell<bool>,
}

impl Completer {
    /// Creates a processor that takes this time for each command.
    pub(crate) fn new(command_ns: u64) -> Completer {
        Completer { command_ns, queue: RefCell::default(), is_busy: Cell::new(false) }
    }

    /// Adds a command that the device has done.
    pub(crate) fn add(&self, hctx: usize, tag: usize) {
        self.queue.borrow_mut().push_back((hctx, tag));
    }

    /// Begins the next command, if the processor is idle and there is one.
    pub(crate) fn begin_next(&self) -> Option<(usize, usize)> {
        if self.is_busy.get() {
            return None;
        }
        let next = self.queue.borrow_mut().pop_front();
        self.is_busy.set(next.is_some());
        next
    }

    /// Records that the command is complete.
    pub(crate) fn end(&self) {
        self.is_busy.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_completed_one_at_a_time_in_their_order() {
        let completer = Completer::new(5);
        assert_eq!(completer.begin_next(), None);
        completer.add(0, 7);
        completer.add(1, 3);
        assert_eq!(completer.begin_next(), Some((0, 7)));
        assert_eq!(completer.begin_next(), None);
        completer.end();
        assert_eq!(completer.begin_next(), Some((1, 3)));
    }
}
