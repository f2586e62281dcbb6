//! Count of tag waiters that threads read without the lock.

use crate::plant::plants;
use crate::primitive::{AtomicU32, Ordering, fence};

/// The number of waiters. Threads that free tags read it without the lock.
///
/// T2: a waiter writes the count, passes a full barrier (`fence(SeqCst)`), and reads the tags. A
/// freeing thread writes the tags, passes a full barrier, and reads the count. One of the two
/// barriers is first. If it is the waiter's, the freeing thread sees the count and takes the lock.
/// If it is the freeing thread's, the waiter sees the tag. Both may see the other, and at least one
/// does. Acquire and release are not enough: each side reads a word that it has not written, and
/// could read it too early.
///
/// The count is written under the lock, by the thread that changes the wait queue. So a thread that
/// has seen the count and then takes the lock finds the waiter in the queue, or already woken.
#[derive(Debug)]
pub struct WaiterCount {
    count: AtomicU32,
}

impl Default for WaiterCount {
    fn default() -> WaiterCount {
        WaiterCount::new()
    }
}

impl WaiterCount {
    /// Creates a count of 0.
    pub fn new() -> WaiterCount {
        WaiterCount { count: AtomicU32::new(0) }
    }

    /// Adds a waiter that is already in the wait queue. It must try again to get its tags after
    /// this.
    ///
    /// Relaxed: the fence after it pairs with the fence of
    /// [`any_thread_waits`](WaiterCount::any_thread_waits).
    pub fn announce(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Removes a waiter that has left the wait queue. Relaxed: a count that is too high for a
    /// moment only costs its reader the lock.
    ///
    /// # Panics
    /// Panics if the count is 0.
    pub fn leave(&self) {
        let before = self.count.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a wait was left twice");
    }

    /// Returns whether there seem to be waiters. A hint only, without any ordering.
    #[inline]
    pub fn seems_waited(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns whether there may be waiters. Called after tags were put, once for a whole batch.
    #[inline]
    pub fn any_thread_waits(&self) -> bool {
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) != 0 && !plants!(MissWaiters)
    }
}

#[cfg(all(test, not(blk_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_of_announced_arrivals_that_have_not_left() {
        let count = WaiterCount::default();
        assert!(!count.any_thread_waits() && !count.seems_waited());
        count.announce();
        assert!(count.seems_waited());
        count.announce();
        count.leave();
        assert!(count.any_thread_waits());
        count.leave();
        assert!(!count.any_thread_waits() && !count.seems_waited());
    }

    #[test]
    #[should_panic(expected = "left twice")]
    fn no_waiter_leaves_twice() {
        WaiterCount::new().leave();
    }
}
