//! The primitives of concurrent code: std's, or those of a model checker in their place.
//!
//! Code that threads share takes its primitives from here and from nowhere else, so that the same
//! code runs under three back ends:
//!
//! - std: the product, and Miri and ThreadSanitizer;
//! - loom (`--cfg blk_loom`): every interleaving of a small model, weak memory included;
//! - shuttle (`--cfg blk_shuttle`): random schedules of a large one, sequentially consistent.
//!
//! What holds for all of them is the least that each can do:
//!
//! - Nothing here can be made in a `static`: loom's constructors are no constants.
//! - Nothing here has a time limit: in a model no time passes, so such a wait never ends.
//! - A thread sleeps by [`Sleeper`], not by `thread::park`: loom forgets the token of a thread that
//!   meets a lock, or yields, between `unpark` and `park`, and then reports a deadlock.
//! - Under loom and shuttle the primitives live inside of a model only: see [`check`].

#[cfg(blk_loom)]
pub(crate) use self::on_loom::*;
#[cfg(blk_shuttle)]
pub(crate) use self::on_shuttle::*;
#[cfg(not(any(blk_loom, blk_shuttle)))]
pub(crate) use self::on_std::*;

#[cfg(all(blk_loom, blk_shuttle))]
compile_error!("one model checker at a time: blk_loom or blk_shuttle");

#[cfg(not(any(blk_loom, blk_shuttle)))]
mod on_std {
    #[cfg(test)]
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread;

    /// As std's, with accesses that a model checker can see the beginning and the end of.
    #[derive(Debug, Default)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        /// For reading: nobody writes meanwhile.
        #[inline]
        pub(crate) fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
            access(self.0.get())
        }

        /// For writing: nobody else reads or writes meanwhile.
        #[inline]
        pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0.get())
        }
    }
}

#[cfg(blk_loom)]
mod on_loom {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread;
}

#[cfg(blk_shuttle)]
mod on_shuttle {
    #[cfg(test)]
    pub(crate) use shuttle::sync::Arc;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread;
    use std::cell::Cell;
    use std::time::Duration;

    /// Shuttle has none. This one lets others run in the midst of an access, and fails when one of
    /// them gets at the value too.
    #[derive(Debug, Default)]
    pub(crate) struct UnsafeCell<T> {
        value: std::cell::UnsafeCell<T>,
        /// Readers; or -1, a writer.
        users: Cell<i32>,
    }

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell { value: std::cell::UnsafeCell::new(value), users: Cell::new(0) }
        }

        pub(crate) fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
            assert!(self.users.get() >= 0, "a cell is read while another writes it");
            self.users.set(self.users.get() + 1);
            thread::sleep(Duration::ZERO);
            let result = access(self.value.get());
            self.users.set(self.users.get() - 1);
            result
        }

        pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            assert!(self.users.get() == 0, "a cell is written while another uses it");
            self.users.set(-1);
            thread::sleep(Duration::ZERO);
            let result = access(self.value.get());
            self.users.set(0);
            result
        }
    }
}

/// A thread, to sleep and to be woken. A wake that comes before the sleep is kept, one; what was
/// written before a wake is seen after the sleep that it ends.
#[cfg(not(blk_loom))]
#[derive(Debug, Clone)]
pub(crate) struct Sleeper(thread::Thread);

#[cfg(not(blk_loom))]
impl Sleeper {
    /// The calling thread.
    pub(crate) fn of_this_thread() -> Sleeper {
        Sleeper(thread::current())
    }

    /// Sleeps until woken, on the thread that made this. May return without reason, so ask for
    /// yours in a loop.
    pub(crate) fn sleep(&self) {
        thread::park();
    }

    pub(crate) fn wake(&self) {
        self.0.unpark();
    }
}

/// A thread, to sleep and to be woken. The token is ours, since loom's gets lost.
#[cfg(blk_loom)]
#[derive(Debug, Clone)]
pub(crate) struct Sleeper(Arc<(Mutex<bool>, Condvar)>);

#[cfg(blk_loom)]
impl Sleeper {
    pub(crate) fn of_this_thread() -> Sleeper {
        Sleeper(Arc::new((Mutex::new(false), Condvar::new())))
    }

    pub(crate) fn sleep(&self) {
        let (token, given) = &*self.0;
        let mut token = token.lock().unwrap();
        while !*token {
            token = given.wait(token).unwrap();
        }
        *token = false;
    }

    pub(crate) fn wake(&self) {
        let (token, given) = &*self.0;
        *token.lock().unwrap() = true;
        given.notify_one();
    }
}

/// Locks. What a panic has left behind is whole: nothing of ours panics under a lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Like [`lock`], but returns `None` if another thread holds the lock.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Runs a test's `body` as the back end does: in every interleaving, in many random ones, or as it
/// happens. At most five threads and few steps under loom; loops that spin end under none of them.
#[cfg(test)]
pub(crate) fn check(body: impl Fn() + Send + Sync + 'static) {
    check_within(None, body);
}

/// As [`check`]; but loom tries only the interleavings with at most `preemptions` switches away
/// from a thread that could have gone on. Races want few: most need one or two.
#[cfg(test)]
pub(crate) fn check_within(
    preemptions: impl Into<Option<usize>>,
    body: impl Fn() + Send + Sync + 'static,
) {
    let _bound: Option<usize> = preemptions.into();
    #[cfg(blk_loom)]
    {
        if std::env::var_os("LOOM_LOG").is_some() {
            // Only this one logs. The bound is LOOM_MAX_PREEMPTIONS then.
            return loom::model(body);
        }
        let mut model = loom::model::Builder::new();
        // What the environment says goes first.
        model.preemption_bound = model.preemption_bound.or(_bound);
        model.max_branches = 100_000;
        model.check(body);
    }
    #[cfg(blk_shuttle)]
    {
        // The seed of both is what `cargo xtask shuttle` printed.
        let nr = std::env::var("BLK_SHUTTLE_SCHEDULES")
            .ok()
            .map_or(5_000, |nr| nr.parse().expect("BLK_SHUTTLE_SCHEDULES is a number"));
        let body = Arc::new(body);
        let same = Arc::clone(&body);
        shuttle::check_random(move || body(), nr);
        shuttle::check_pct(move || same(), nr, 3);
    }
    #[cfg(not(any(blk_loom, blk_shuttle)))]
    for _ in 0..if cfg!(miri) { 1 } else { 100 } {
        body();
    }
}

#[cfg(test)]
#[path = "primitive_models.rs"]
mod models;
