//! The wake-ups and events that turns owe to others, with a spare list of each thread: a turn that
//! wakes others does not allocate.

use crate::runtime::failures::Failures;
use crate::runtime::mailbox::Wake;
use crate::tag_pool::Woken;
use std::cell::Cell;

/// Initial capacity of a list of wake-ups, in threads and tasks.
const NR_WAKES_USUAL: usize = 32;

/// Wake-ups to be made, and events to be emitted, once the token is released.
#[derive(Default)]
pub(crate) struct Owed {
    /// Owners of bios that have ended, and threads that are to make a turn.
    pub(crate) wakes: Vec<Wake>,
    /// Disks for which tags are available now.
    pub(crate) disks: Woken,
    /// The list of failures that are to be emitted as events.
    pub(crate) failures: Option<Failures>,
}

impl Owed {
    /// Returns whether making the wake-ups runs foreign code: wakers, contexts of other disks,
    /// which may run some, or subscribers of events.
    #[inline(never)]
    pub(crate) fn runs_wakers(&self) -> bool {
        !self.disks.is_empty()
            || self.failures.is_some()
            || self.wakes.iter().any(|wake| matches!(wake, Wake::Task(_)))
    }
}

thread_local! {
    /// An empty list, kept for its allocation.
    static SPARE: Cell<Option<Box<Owed>>> = const { Cell::new(None) };
}

/// Returns an empty list of wake-ups, with the allocation of the last one.
pub(crate) fn take_spare() -> Box<Owed> {
    SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default()
}

/// Reserves room in the spare list of wake-ups. A thread calls this before its first turn.
pub(crate) fn reserve_spare() {
    let mut spare = take_spare();
    spare.wakes.reserve(NR_WAKES_USUAL);
    put_spare(spare);
}

/// Keeps the allocation of an empty list.
fn put_spare(list: Box<Owed>) {
    assert!(list.wakes.is_empty());
    let _ = SPARE.try_with(|spare| spare.set(Some(list)));
}

/// Wakes threads, then tasks: a waker may wait for a lock that one of the threads holds. If a waker
/// panics, the remaining ones do not run. Emits events last. Returns the disks that the caller has
/// to run, if there are some.
#[inline(never)]
pub(crate) fn wake_all(mut owed: Box<Owed>) -> Option<Woken> {
    owed.wakes.iter().for_each(Wake::fire_thread);
    owed.wakes.drain(..).for_each(Wake::fire_task);
    let (disks, failures) = (std::mem::take(&mut owed.disks), owed.failures.take());
    put_spare(owed);
    if let Some(failures) = failures {
        failures.emit();
    }
    (disks.capacity() > 0).then_some(disks)
}
