//! The open queues of each thread.
//!
//! Only the thread of a queue can close it. So each thread keeps its open queues. It closes those
//! that another thread has collected at its next call, and all of them when it ends. At that time
//! it has no GIL, so it leaves the I/O that has ended to the next call of any thread.

use pyo3::Python;
use std::cell::{Cell, RefCell};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// A queue as its thread keeps it.
pub(crate) trait Kept: Send + Sync {
    /// Closes the queue if another thread has collected it. Called by its own thread. Returns
    /// whether it was collected.
    fn close_if_collected(&self, py: Python<'_>) -> bool;

    /// Waits for all I/O and closes the queue, without the GIL. Called by its own thread when that
    /// ends. Returns whether there is ended I/O, or `None` if a call uses the queue.
    fn close_at_end(&self) -> Option<bool>;

    /// Ends the I/O of a closed queue. Any thread may call it.
    fn end_all(&self, py: Python<'_>);
}

type Shared = Arc<dyn Kept>;

/// The number of times that another thread left work for [`tidy`].
static NR_LEFT: AtomicU64 = AtomicU64::new(0);

/// Queues whose thread has ended and closed them, with I/O that has ended.
static ENDED: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

/// Maximum number of attempts of an ending thread to lock the list. Other threads hold it only
/// briefly, but in a child of a fork, a thread of the parent may hold it forever.
const LOCK_TRIES: u32 = 1000;

/// The open queues of a thread. They are closed when it is dropped, at the end of the thread.
struct Own(RefCell<Vec<Shared>>);

thread_local! {
    /// Registered after the thread's state in the library, so it is dropped before that.
    static OWN: Own = const { Own(RefCell::new(Vec::new())) };
    /// The value of [`NR_LEFT`] at the last [`tidy`].
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

impl Drop for Own {
    fn drop(&mut self) {
        for queue in mem::take(&mut *self.0.borrow_mut()) {
            match (queue.close_at_end(), lock_ended()) {
                // Nothing is left in it that needs the GIL at once.
                (Some(false), _) => {}
                (Some(true), Some(mut ended)) => {
                    ended.push(queue);
                    drop(ended);
                    leave();
                }
                // It leaks with its buffers, because they may be in use.
                _ => mem::forget(queue),
            }
        }
    }
}

fn lock_ended() -> Option<MutexGuard<'static, Vec<Shared>>> {
    for _ in 0..LOCK_TRIES {
        match ENDED.try_lock() {
            Ok(ended) => return Some(ended),
            Err(TryLockError::Poisoned(ended)) => return Some(PoisonError::into_inner(ended)),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

/// Keeps a new queue of this thread.
pub(crate) fn keep(queue: Shared) {
    let kept = Arc::clone(&queue);
    if OWN.try_with(|own| own.0.borrow_mut().push(queue)).is_err() {
        // The thread is ending. No other thread may drop the queue, so it leaks.
        mem::forget(kept);
    }
}

/// Forgets a queue of this thread that is closed.
pub(crate) fn forget<T: Kept>(queue: &Arc<T>) {
    let address = Arc::as_ptr(queue).cast::<()>();
    let is_other = |kept: &Shared| Arc::as_ptr(kept).cast::<()>() != address;
    let _ = OWN.try_with(|own| own.0.borrow_mut().retain(is_other));
}

/// Records that there is work for [`tidy`].
pub(crate) fn leave() {
    // Release: pairs with the acquire in `tidy`.
    NR_LEFT.fetch_add(1, Ordering::Release);
}

/// Closes the queues of this thread that other threads have collected. Ends the I/O of threads that
/// have ended.
#[inline]
pub(crate) fn tidy(py: Python<'_>) {
    let nr_left = NR_LEFT.load(Ordering::Acquire);
    if SEEN.replace(nr_left) != nr_left {
        tidy_now(py);
    }
}

#[cold]
fn tidy_now(py: Python<'_>) {
    // Buffers that are released may run code of the program, so no list is borrowed meanwhile.
    let kept = OWN.try_with(|own| own.0.borrow().clone()).unwrap_or_default();
    let collected = kept.iter().filter(|queue| queue.close_if_collected(py));
    let addresses: Vec<_> = collected.map(|queue| Arc::as_ptr(queue).cast::<()>()).collect();
    let is_other = |queue: &Shared| !addresses.contains(&Arc::as_ptr(queue).cast::<()>());
    let _ = OWN.try_with(|own| own.0.borrow_mut().retain(is_other));
    let ended = lock_ended().map(|mut ended| mem::take(&mut *ended));
    for queue in ended.unwrap_or_default() {
        queue.end_all(py);
    }
}
