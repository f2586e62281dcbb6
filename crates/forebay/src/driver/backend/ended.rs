//! Requests that a back end ends inside of `submit`, on the thread that called it.
//!
//! That thread holds the driver, so such an end needs neither a lock nor a wake-up: the driver
//! takes the boxes when `submit` returns.

use super::body::Body;
use super::stack::Stack;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr;

/// The innermost `submit` that this thread is inside of.
struct Inside {
    /// Identifies its queue. Null if there is none.
    queue: Cell<*const ()>,
    /// The queue's requests that have ended. Empty outside of `submit`.
    ended: Cell<Stack>,
}

thread_local! {
    /// Has no destructor: with one, each access would check whether it has run.
    static INSIDE: ManuallyDrop<Inside> = const {
        ManuallyDrop::new(Inside { queue: Cell::new(ptr::null()), ended: Cell::new(Stack::EMPTY) })
    };
}

thread_local! {
    /// Whether this thread was unwinding already when it called the innermost `submit`.
    static UNWINDS: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread was unwinding already when it called the innermost `submit`. Then
/// its panic is not that of the back end.
pub(super) fn began_unwinding() -> bool {
    UNWINDS.get()
}

/// Adds the box of a request of `queue` that has ended, if this thread is inside of the `submit` of
/// that queue. Otherwise returns it.
#[inline]
pub(super) fn push(queue: *const (), body: Box<Body>) -> Result<(), Box<Body>> {
    INSIDE.with(|inside| {
        if inside.queue.get() != queue {
            return Err(body);
        }
        let mut ended = inside.ended.take();
        ended.push(body);
        inside.ended.set(ended);
        Ok(())
    })
}

/// Runs `submit`, and adds the boxes of requests of `queue` that it ends on this thread to `ended`.
/// `submit` does not unwind. It may use other disks with back ends.
#[inline]
pub(super) fn collect(queue: *const (), ended: &mut Stack, submit: impl FnOnce()) {
    let swap = |queue, ended: &mut Stack| {
        INSIDE.with(|inside| {
            *ended = inside.ended.replace(std::mem::take(ended));
            inside.queue.replace(queue)
        })
    };
    let mut outer = std::mem::take(ended);
    let outer_queue = swap(queue, &mut outer);
    // A destructor of the user may end a plug.
    let outer_unwinds = std::thread::panicking().then(|| UNWINDS.replace(true));
    submit();
    if let Some(outer) = outer_unwinds {
        UNWINDS.set(outer);
    }
    // `outer` has the requests of the outer `submit`, and gets those of this one in exchange.
    swap(outer_queue, &mut outer);
    *ended = outer;
}
