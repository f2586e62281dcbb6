//! Requests that a back end ends inside `submit`, on the thread that called it.
//!
//! That thread holds the driver, so such an end needs neither a lock nor a wake-up: the driver
//! takes the boxes when `submit` returns.

use super::body::Body;
use super::stack::Stack;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr;

/// The innermost call of `submit` on this thread.
struct Inside {
    /// Identifies its queue. Null if there is none.
    queue: Cell<*const ()>,
    /// The queue's requests that have ended. Empty outside `submit`.
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

/// Adds the box of a request of `queue` that has ended, if this thread is inside the `submit` of
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

/// A call of `submit` on this thread.
#[must_use = "a call ends by `leave`"]
pub(super) struct Call {
    outer_queue: *const (),
    /// Requests that the outer `submit` has ended.
    outer: Stack,
}

/// Begins a call of the `submit` of `queue`, which may use other disks with back ends. The thread
/// must not unwind past the call before [`leave`](Call::leave) ends it.
#[inline]
pub(super) fn enter(queue: *const ()) -> Call {
    INSIDE.with(|inside| Call {
        outer_queue: inside.queue.replace(queue),
        outer: inside.ended.take(),
    })
}

impl Call {
    /// Ends the call. Returns the boxes of the requests that it has ended on this thread.
    #[inline]
    pub(super) fn leave(self) -> Stack {
        INSIDE.with(|inside| {
            inside.queue.set(self.outer_queue);
            inside.ended.replace(self.outer)
        })
    }
}

/// Runs `submit` on a thread that unwinds already: a destructor of the user ends a plug.
#[cold]
pub(super) fn while_unwinding(submit: impl FnOnce()) {
    let outer = UNWINDS.replace(true);
    submit();
    UNWINDS.set(outer);
}
