//! Values that one thread uses, in objects that any thread of a Python program may have.
// Makes values of one thread reachable from all threads, behind a check.
#![allow(unsafe_code)]

use crate::error::misuse;
use forebay::foreign::thread_number;
use pyo3::{PyErr, PyResult, Python};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum number of attempts to use a value, made by a thread that ends.
const TRIES: u32 = 1000;

/// A value that only the thread that made it may use, one call at a time.
pub(crate) struct Owned<T> {
    owner: u64,
    /// A thread uses the value: its owner during a call, or the garbage collector.
    is_used: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` and `end` check the thread, and `peek` hands out parts that any thread may use.
// The part that only the owner may drop is gone before the last reference is (`threads`).
unsafe impl<T> Send for Owned<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Owned<T> {}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Owned<T> {
        let is_used = AtomicBool::new(false);
        Owned { owner: thread_number(), is_used, value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.owner == thread_number()
    }

    /// Calls a function with the value.
    ///
    /// # Errors
    /// `RuntimeError` on a thread that does not own the value, or within such a call.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        _py: Python<'_>,
        call: impl FnOnce(&mut T) -> PyResult<R>,
    ) -> PyResult<R> {
        if !self.is_own() {
            return Err(foreign());
        }
        // The collector has the GIL while it uses the value, so only a call of this thread can.
        let Some(_using) = Using::begin(&self.is_used) else {
            return Err(misuse("the queue is in use by another call of this thread"));
        };
        // SAFETY: only the owner comes here, and `is_used` keeps out all other uses.
        call(unsafe { &mut *self.value.get() })
    }

    /// Calls a function with the value when the owner ends, without the GIL. Returns `None` if a
    /// call that never returned still uses the value, because the interpreter has ended the thread.
    pub(crate) fn end<R>(&self, call: impl FnOnce(&mut T) -> R) -> Option<R> {
        assert!(self.is_own(), "the owner ends its values");
        for _ in 0..TRIES {
            if let Some(_using) = Using::begin(&self.is_used) {
                // SAFETY: as in `with`.
                return Some(call(unsafe { &mut *self.value.get() }));
            }
            // A collector on another thread uses the value briefly.
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Calls a function with a pointer to the value, unless it is in use. Any thread may call this.
    ///
    /// # Safety
    /// `call` uses only parts that any thread may use.
    pub(crate) unsafe fn peek<R>(&self, call: impl FnOnce(*mut T) -> R) -> Option<R> {
        let _using = Using::begin(&self.is_used)?;
        Some(call(self.value.get()))
    }
}

/// A call that uses a value, until it returns or panics.
struct Using<'a>(&'a AtomicBool);

impl<'a> Using<'a> {
    /// Begins a use, unless there is one.
    #[inline]
    fn begin(is_used: &'a AtomicBool) -> Option<Using<'a>> {
        // Acquire: pairs with the release of the last use.
        let begun = is_used.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        begun.is_ok().then(|| Using(is_used))
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cold]
fn foreign() -> PyErr {
    misuse("the queue belongs to another thread; open a queue on each thread that needs one")
}
