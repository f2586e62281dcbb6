//! Concurrency primitives: those of std, or those of a model checker in their place.
//!
//! Code that runs on several threads takes its primitives only from this module, so that the same
//! code runs under three back ends:
//! - std: the product, and Miri and ThreadSanitizer;
//! - loom (`--cfg blk_loom`): every interleaving of a small model, weak memory included;
//! - shuttle (`--cfg blk_shuttle`): random schedules of a large one, sequentially consistent.
//!
//! The back ends share only the features that each of them has:
//!
//! - No primitive can be in a `static`: loom's constructors are not `const`.
//! - No wait has a timeout: no time passes in a model, so such a wait never ends.
//! - A thread sleeps by [`Sleeper`], not by `thread::park`: loom loses the token of a thread that
//!   takes a lock, or yields, between `unpark` and `park`, and then reports a deadlock.
//! - Under loom and shuttle the primitives exist only inside a model: see [`check`].

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
    #[cfg(test)]
    pub(crate) use std::sync::atomic::fence;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread;

    /// Same as std's, but a model checker can see where an access begins and ends.
    #[derive(Debug, Default)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        /// Runs a read access. No other thread may write meanwhile.
        #[inline]
        pub(crate) fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
            access(self.0.get())
        }

        /// Runs a write access. No other thread may read or write meanwhile.
        #[inline]
        pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0.get())
        }
    }
}

#[cfg(blk_loom)]
mod on_loom {
    pub(crate) use loom::cell::UnsafeCell;
    #[cfg(test)]
    pub(crate) use loom::sync::atomic::fence;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread;
}

#[cfg(blk_shuttle)]
mod on_shuttle {
    #[cfg(test)]
    pub(crate) use shuttle::sync::Arc;
    #[cfg(test)]
    pub(crate) use shuttle::sync::atomic::fence;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread;
    use std::cell::Cell;
    use std::time::Duration;

    /// Shuttle has no `UnsafeCell`. This one lets other threads run in the middle of an access, and
    /// panics if one of them accesses the value in conflict.
    #[derive(Debug, Default)]
    pub(crate) struct UnsafeCell<T> {
        value: std::cell::UnsafeCell<T>,
        /// Number of readers; -1 for a writer.
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

/// Handle to park and wake a thread. One wake that comes before the sleep is kept. Writes before a
/// wake are visible after the sleep that it ends.
#[cfg(not(blk_loom))]
#[derive(Debug, Clone)]
pub(crate) struct Sleeper(thread::Thread);

#[cfg(not(blk_loom))]
impl Sleeper {
    /// Returns a handle of the calling thread.
    pub(crate) fn of_this_thread() -> Sleeper {
        Sleeper(thread::current())
    }

    /// Sleeps until woken. Only the thread that created this may call it. May return spuriously, so
    /// the caller checks its condition in a loop.
    pub(crate) fn sleep(&self) {
        thread::park();
    }

    pub(crate) fn wake(&self) {
        self.0.unpark();
    }
}

/// Handle to park and wake a thread, with its own token, since loom loses the token of `park`.
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

/// Loads a word whose value is the first guess for an exchange. The word never has the value
/// `$never`.
///
/// Under loom this is an exchange that changes nothing and orders nothing. After a plain load, loom
/// would never run the caller's exchange before an earlier load by another thread. `guess!` in
/// `forebay-core` has the reason.
macro_rules! guess {
    ($word:expr, $never:expr) => {{
        use $crate::sys::primitive::Ordering::Relaxed;
        #[cfg(not(blk_loom))]
        let now = $word.load(Relaxed);
        #[cfg(blk_loom)]
        let now =
            $word.compare_exchange($never, $never, Relaxed, Relaxed).unwrap_or_else(|now| now);
        now
    }};
}

pub(crate) use guess;

/// Locks a mutex and ignores poisoning: no code of this crate panics while it holds a lock, so the
/// data is consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks like [`lock`], but returns `None` if another thread holds the lock.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Sleeps for this time. In a model, where no time passes, lets other threads run: under shuttle
/// for many steps, because a thread that continues at once may disturb another in each of its
/// turns.
pub(crate) fn pause_for(time: std::time::Duration) {
    #[cfg(not(any(blk_loom, blk_shuttle)))]
    thread::sleep(time);
    #[cfg(any(blk_loom, blk_shuttle))]
    {
        let _ = time;
        (0..if cfg!(blk_loom) { 1 } else { 64 }).for_each(|_| thread::yield_now());
    }
}

/// Runs a test's `body` under the back end: in every interleaving (loom), in many random ones
/// (shuttle), or repeatedly (std). Loom supports at most five threads and few steps. A busy loop
/// ends under no model checker.
#[cfg(test)]
pub(crate) fn check(body: impl Fn() + Send + Sync + 'static) {
    check_within(None, body);
}

/// Same as [`check`], but loom explores only the interleavings with at most `preemptions` switches
/// away from a runnable thread. Few switches find most races: one or two usually suffice.
#[cfg(test)]
pub(crate) fn check_within(
    preemptions: impl Into<Option<usize>>,
    body: impl Fn() + Send + Sync + 'static,
) {
    let _bound: Option<usize> = preemptions.into();
    #[cfg(blk_loom)]
    {
        if std::env::var_os("LOOM_LOG").is_some() {
            // Only this function enables loom's log. The bound is then LOOM_MAX_PREEMPTIONS.
            return loom::model(body);
        }
        let mut model = loom::model::Builder::new();
        // The environment variable takes precedence.
        model.preemption_bound = model.preemption_bound.or(_bound);
        model.max_branches = 100_000;
        model.check(body);
    }
    #[cfg(blk_shuttle)]
    {
        // The seed of both runs is the one that `cargo xtask shuttle` printed.
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
mod models;
