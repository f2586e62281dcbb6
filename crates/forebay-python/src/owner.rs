//! Values that one thread uses, in objects that any thread of a Python program may have.
// Makes values of one thread reachable from all threads, behind a check.
#![allow(unsafe_code)]

use crate::error::misuse;
use pyo3::{PyErr, PyResult, Python};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Returns the number of this thread. No other thread of the process ever has the same number.
#[inline]
pub(crate) fn this_thread() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local! { static NUMBER: Cell<u64> = const { Cell::new(0) }; }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        number.get()
    })
}

/// A value that only the thread that made it may use, one call at a time.
pub(crate) struct Owned<T> {
    owner: u64,
    /// A call uses the value. Only the owner sets and clears it, with the GIL.
    is_used: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` checks the thread, and `peek` hands out what the GIL protects. The value is
// dropped by its owner only: others forget it (`Queue::drop`).
unsafe impl<T> Send for Owned<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Owned<T> {}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Owned<T> {
        let is_used = AtomicBool::new(false);
        Owned { owner: this_thread(), is_used, value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.owner == this_thread()
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
        // Relaxed suffices: this thread is the only one that stores here.
        if self.is_used.load(Ordering::Relaxed) {
            return Err(misuse("the queue is in use by another call of this thread"));
        }
        let _using = Using::begin(&self.is_used);
        // SAFETY: only the owner comes here, and `is_used` keeps out a call within this one.
        // `peek` reads nothing while it is set.
        call(unsafe { &mut *self.value.get() })
    }

    /// Calls a function with a pointer to the value, unless a call uses it. For the garbage
    /// collector, which holds the GIL on any thread.
    ///
    /// # Safety
    /// The caller holds the GIL, and `call` reads only what is changed with the GIL.
    pub(crate) unsafe fn peek<R>(&self, call: impl FnOnce(*const T) -> R) -> Option<R> {
        // The owner sets the flag while it has the GIL, so it is not in a call now if it is clear.
        // The GIL orders this load after the store.
        match self.is_used.load(Ordering::Relaxed) {
            true => None,
            false => Some(call(self.value.get())),
        }
    }
}

/// A call that uses a value, until it returns or panics.
struct Using<'a>(&'a AtomicBool);

impl<'a> Using<'a> {
    fn begin(is_used: &'a AtomicBool) -> Using<'a> {
        is_used.store(true, Ordering::Relaxed);
        Using(is_used)
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[cold]
fn foreign() -> PyErr {
    misuse("the queue belongs to another thread; open a queue on each thread that needs one")
}
