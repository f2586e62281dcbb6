//! Spare list of wake-ups of each thread, so that a turn that wakes others does not allocate.

use crate::runtime::mailbox::Wake;
use std::cell::RefCell;

/// Initial capacity of a list of wake-ups, in threads and tasks.
const NR_WAKES_USUAL: usize = 32;

thread_local! {
    /// An empty list, kept for its allocation.
    static SPARE: RefCell<Vec<Wake>> = const { RefCell::new(Vec::new()) };
}

/// Returns an empty list of wake-ups, with the allocation of the last one.
pub(crate) fn take_spare() -> Vec<Wake> {
    SPARE.try_with(RefCell::take).unwrap_or_default()
}

/// Reserves room in the spare list of wake-ups. A thread calls this before its first turn.
pub(crate) fn reserve_spare() {
    let _ = SPARE.try_with(|spare| spare.borrow_mut().reserve(NR_WAKES_USUAL));
}

/// Keeps the allocation of an empty list.
pub(crate) fn put_spare(list: Vec<Wake>) {
    assert!(list.is_empty());
    let _ = SPARE.try_with(|spare| spare.replace(list));
}
