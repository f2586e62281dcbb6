//! Completion list of a queue: completions from any thread, and the wait for them.
//!
//! A driver with such a list reaps from it, and its queue waits for the list. Pushes come from any
//! thread, at any time: from a callback of a library, or from a user's own thread.
//!
//! No wake-up is lost: everything that a wait checks (completions, a kick) changes under the lock
//! that the sleeper releases when it falls asleep. The descriptor changes under the same lock: it
//! is readable while completions are in the list, from the first time that an event loop asks for
//! it.

use crate::driver::Waiter;
use crate::sys::event::Event;
use crate::sys::primitive::{Condvar, Mutex, MutexGuard, lock};
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
// A counter and a cell that is set under the lock: models need not see them.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Completions of one queue that have not been reaped, oldest first: for a driver whose requests
/// complete in callbacks of a library, or on threads.
///
/// Any thread pushes a completion; [`Queue::reap`](crate::driver::Queue::reap) takes all of them.
/// The list is the queue's [`Wait::Blocking`](crate::driver::Wait::Blocking): it wakes the thread
/// that waits, and has a descriptor for event loops (an eventfd, created at the first use). A `T`
/// is any value that the driver converts to a completion, such as a tag and a result.
///
/// A push never calls back into the layer. So it may come from a callback that holds locks of a
/// library.
///
/// ```
/// use forebay::driver::kit::CompletionList;
/// use std::sync::Arc;
///
/// let list = Arc::new(CompletionList::new(32));
/// let pusher = Arc::clone(&list);
/// std::thread::spawn(move || pusher.push((7, Ok::<u64, i32>(4096)))).join().unwrap();
/// let mut ended = Vec::new();
/// list.reap(&mut ended);
/// assert_eq!(ended, [(7, Ok(4096))]);
/// ```
pub struct CompletionList<T> {
    state: Mutex<State<T>>,
    wake: Condvar,
    /// Readable while completions wait to be reaped. Created when an event loop asks for it.
    event: OnceLock<Event>,
    nr_syscalls: AtomicU64,
}

struct State<T> {
    done: Vec<T>,
    is_kicked: bool,
    is_signalled: bool,
    /// A thread sleeps until there are this many completions.
    wanted: Option<usize>,
}

impl<T> CompletionList<T> {
    /// Creates a list for a queue of `depth` tags.
    pub fn new(depth: u32) -> CompletionList<T> {
        let done = Vec::with_capacity(depth as usize);
        CompletionList {
            state: Mutex::new(State { done, is_kicked: false, is_signalled: false, wanted: None }),
            wake: Condvar::new(),
            event: OnceLock::new(),
            nr_syscalls: AtomicU64::new(0),
        }
    }

    /// Adds a completion, and wakes the thread or event loop that waits for it.
    pub fn push(&self, completion: T) {
        let mut state = lock(&self.state);
        state.done.push(completion);
        if let Some(event) = self.event.get()
            && !mem::replace(&mut state.is_signalled, true)
        {
            self.count_syscall();
            event.signal();
        }
        let wakes = state.wanted.is_some_and(|nr| state.done.len() >= nr);
        if wakes {
            state.wanted = None;
        }
        drop(state);
        if wakes {
            self.notify();
        }
    }

    /// Swaps the completions with `empty`, an empty list, and clears the descriptor. If `empty` has
    /// room for as many completions as the queue has tags, no push allocates.
    pub fn reap(&self, empty: &mut Vec<T>) {
        let mut state = lock(&self.state);
        if let Some(event) = self.event.get()
            && mem::take(&mut state.is_signalled)
        {
            self.count_syscall();
            event.clear();
        }
        mem::swap(&mut state.done, empty);
    }

    /// Returns whether an event loop has asked for the descriptor. From then on, a full reap
    /// ([`Reap::Full`](crate::driver::Reap::Full)) must call [`reap`](CompletionList::reap) even if
    /// nothing is in flight, because it clears the descriptor. Any thread may call this at any
    /// time. It makes no system call.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.event.get().is_some()
    }

    /// Waits until `nr` completions are in the list or `timeout` has passed. Called by the thread
    /// that also reaps.
    pub(crate) fn wait_for(&self, nr: usize, timeout: Option<Duration>) {
        let until = end_of(timeout);
        drop(self.sleep(lock(&self.state), nr, until));
    }

    /// Waits until `nr` completions are in the list, a kick arrives, or `timeout` has passed.
    /// Called beside the thread that reaps.
    pub(crate) fn wait_beside(&self, nr: usize, timeout: Option<Duration>) {
        self.wait_until(nr, end_of(timeout));
    }

    /// Does the same with a deadline. Returns whether a completion or a kick is there.
    pub(crate) fn wait_until(&self, nr: usize, until: Option<Instant>) -> bool {
        let mut state = self.sleep(lock(&self.state), nr, until);
        mem::take(&mut state.is_kicked) || !state.done.is_empty()
    }

    /// Returns the descriptor, which is readable while completions are in the list.
    ///
    /// # Errors
    /// The system's error if it has no resources for a descriptor.
    pub(crate) fn event_fd(&self) -> io::Result<BorrowedFd<'_>> {
        // Under the lock, so that later completions signal it.
        let mut state = lock(&self.state);
        if self.event.get().is_none() {
            let event = Event::new()?;
            self.count_syscall();
            event.signal();
            let _ = self.event.set(event);
            state.is_signalled = true;
        }
        Ok(self.event.get().expect("it was just created").fd())
    }

    /// Waits until `nr` completions are in the list, or `timeout` has passed. Kicks do not end the
    /// wait. Returns whether the completions are in the list, so false is a timeout; there are no
    /// other errors.
    ///
    /// This is for the drop of a queue after a panic, with requests in flight: they use memory that
    /// is freed next. If they do not end in time, the drop must abort the process. Any thread may
    /// push meanwhile. Only one thread at a time may wait for a list, in this way or by
    /// [`BlockingWait::wait`](crate::driver::BlockingWait::wait).
    ///
    /// ```
    /// # use forebay::driver::kit::CompletionList;
    /// # use std::time::Duration;
    /// # let (list, nr_in_flight) = (CompletionList::<u32>::new(1), 0);
    /// if !list.wait_for_all(nr_in_flight, Duration::from_secs(60)) {
    ///     eprintln!("requests are still in flight, so the process aborts");
    ///     std::process::abort();
    /// }
    /// ```
    pub fn wait_for_all(&self, nr: usize, timeout: Duration) -> bool {
        let until = end_of(Some(timeout));
        let mut state = lock(&self.state);
        while state.done.len() < nr && until.is_none_or(|until| Instant::now() < until) {
            state.is_kicked = false;
            state = self.sleep(state, nr, until);
        }
        state.done.len() >= nr
    }

    /// Returns the number of completions that were not reaped.
    #[expect(clippy::len_without_is_empty, reason = "another thread may change it at once")]
    pub fn len(&self) -> usize {
        lock(&self.state).done.len()
    }

    /// Ends the wait of a thread in [`Waiter::wait`], now or when it next waits.
    pub(crate) fn kick(&self) {
        let mut state = lock(&self.state);
        state.is_kicked = true;
        let wakes = state.wanted.take().is_some();
        drop(state);
        if wakes {
            self.notify();
        }
    }

    /// Returns the number of system calls that the list has made, at most one for each sleep,
    /// wake-up and signal.
    #[inline]
    pub fn nr_syscalls(&self) -> u64 {
        self.nr_syscalls.load(Ordering::Relaxed)
    }

    fn count_syscall(&self) {
        // Relaxed: a count.
        self.nr_syscalls.fetch_add(1, Ordering::Relaxed);
    }

    fn notify(&self) {
        self.count_syscall();
        self.wake.notify_one();
    }

    /// Sleeps until there are `nr` completions, a kick arrives or the deadline passes.
    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<T>>,
        nr: usize,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State<T>> {
        if state.done.len() >= nr || state.is_kicked {
            return state;
        }
        state.wanted = Some(nr);
        // The waker clears `wanted`. The completions may be reaped before this thread runs again.
        while state.wanted.is_some() {
            self.count_syscall();
            let Some(until) = until else {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            state = self.sleep_for(state, left);
        }
        state.wanted = None;
        state
    }

    #[cfg(not(any(blk_loom, blk_shuttle)))]
    fn sleep_for<'a>(
        &self,
        state: MutexGuard<'a, State<T>>,
        left: Duration,
    ) -> MutexGuard<'a, State<T>> {
        self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// No time passes in a model, so no model waits with a timeout.
    #[cfg(any(blk_loom, blk_shuttle))]
    fn sleep_for<'a>(
        &self,
        state: MutexGuard<'a, State<T>>,
        _left: Duration,
    ) -> MutexGuard<'a, State<T>> {
        self.wake.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns when a wait that begins now ends, or `None` if it has no limit.
pub(crate) fn end_of(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

impl<T: Send> Waiter for CompletionList<T> {
    fn wait(&self, timeout: Option<Duration>) {
        self.wait_beside(1, timeout);
    }

    fn poll_fd(&self) -> io::Result<Option<BorrowedFd<'_>>> {
        self.event_fd().map(Some)
    }
}

impl<T> fmt::Debug for CompletionList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionList").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod models;
