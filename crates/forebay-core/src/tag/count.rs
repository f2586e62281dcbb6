//! How many wait for tags, to be read without the lock.

use crate::primitive::{AtomicU32, Ordering, fence};

/// How many wait, to be read without the lock.
///
/// T2: the waiter writes the count, passes a full barrier, and reads the tags; who frees writes the
/// tags, passes a full barrier, and reads the count. Of two full barriers (`fence(SeqCst)`) one is
/// first: if the waiter's, then the count is seen and the lock taken; if the freer's, then the tag
/// is seen. Both may see the other; neither can miss it. Acquire and release would not do: each
/// side reads a word that it has not written, and would be allowed to read it too early.
///
/// The count is written under the lock, by whoever changes the line: so one who has seen it, and
/// taken the lock, finds the waiter there, or woken.
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
    /// Nobody waits.
    pub fn new() -> WaiterCount {
        WaiterCount { count: AtomicU32::new(0) }
    }

    /// One more waits; it is in the line already. It tries once more to get its tags after this.
    ///
    /// Relaxed: the fence behind it is what pairs with the one of
    /// [`anybody_waits`](WaiterCount::anybody_waits).
    pub fn announce(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// One fewer waits; it is out of the line. Relaxed: a count that is seen too high for a moment
    /// costs its reader the lock, no more.
    ///
    /// # Panics
    /// If nobody waited.
    pub fn leave(&self) {
        let before = self.count.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a wait was left twice");
    }

    /// Whether somebody seems to wait: a hint, from which nothing follows.
    #[inline]
    pub fn seems_waited(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Whether somebody may wait: for one that has put tags before this, once for a whole batch.
    #[inline]
    pub fn anybody_waits(&self) -> bool {
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(blk_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_what_was_announced_and_not_left() {
        let count = WaiterCount::default();
        assert!(!count.anybody_waits());
        count.announce();
        count.announce();
        count.leave();
        assert!(count.anybody_waits());
        count.leave();
        assert!(!count.anybody_waits());
    }

    #[test]
    #[should_panic(expected = "left twice")]
    fn nobody_leaves_twice() {
        WaiterCount::new().leave();
    }
}
