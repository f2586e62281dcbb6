//! Call queue of one hardware context: pending calls, finished calls, and the sleeping thread.
//!
//! Three parties share one lock, which each holds briefly. The driver pushes calls and reaps
//! results. The pool's threads take calls and return them. One thread waits, or makes a call
//! itself. No wake-up is lost: everything that a wait checks (completions, a kick) changes under
//! the lock that the sleeper releases when it falls asleep.
//!
//! Every committed call begins: the queue is on the pool's list, or a thread of the pool serves the
//! queue and checks it again. Calls that threads make themselves ([`OwnCalls`]) are not here.

use super::call::{Call, Target};
use crate::driver::Waiter;
use crate::driver::own_call::{OwnCall, OwnCalls};
use crate::driver::vectors::Vectors;
use crate::sys::event::Event;
use forebay_core::{BlockStatus, Tag};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A finished call.
#[derive(Debug)]
pub(in crate::driver) struct Done {
    pub(in crate::driver) tag: Tag,
    pub(in crate::driver) result: Result<u64, BlockStatus>,
    /// Returned for reuse.
    pub(in crate::driver) vectors: Vectors,
}

#[derive(Debug)]
pub(in crate::driver) struct Queue {
    target: Arc<Target>,
    state: Mutex<State>,
    wake: Condvar,
    /// Signalled while finished calls wait to be reaped. Created when a caller asks for it.
    event: OnceLock<Event>,
    /// An event of another component, which also clears it. Signalled when the first finished call
    /// is added to an empty list.
    others: Option<Arc<Event>>,
}

#[derive(Debug)]
struct State {
    /// Calls that have not begun, oldest first.
    calls: VecDeque<Call>,
    /// The number of calls that have begun and are not finished.
    nr_running: usize,
    /// Finished calls, oldest first.
    done: Vec<Done>,
    /// The queue is on the pool's list, or a thread is about to put it there.
    is_listed: bool,
    is_kicked: bool,
    is_signalled: bool,
    /// A thread sleeps until this many calls are finished.
    wanted: Option<usize>,
    nr_syscalls: u64,
}

impl State {
    /// Removes the oldest call and counts it as running.
    fn begin(&mut self) -> Option<Call> {
        let call = self.calls.pop_front()?;
        self.nr_running += 1;
        Some(call)
    }

    /// Returns whether the caller must put the queue on the pool's list. If so, marks it as listed.
    fn mark_listed(&mut self) -> bool {
        !self.calls.is_empty() && !std::mem::replace(&mut self.is_listed, true)
    }

    fn put_done(&mut self, ran: Ran) {
        self.nr_running -= 1;
        self.nr_syscalls += ran.nr_syscalls;
        self.done.push(ran.done);
    }
}

/// A call that was just made, with its result.
#[derive(Debug)]
pub(super) struct Ran {
    done: Done,
    nr_syscalls: u64,
}

impl Queue {
    /// Creates a queue of at most `depth` calls. Finished calls also signal `others`.
    pub(in crate::driver) fn new(
        target: Arc<Target>,
        depth: u32,
        others: Option<Arc<Event>>,
    ) -> Queue {
        let depth = depth as usize;
        let state = State {
            calls: VecDeque::with_capacity(depth),
            nr_running: 0,
            done: Vec::with_capacity(depth),
            is_listed: false,
            is_kicked: false,
            is_signalled: false,
            wanted: None,
            nr_syscalls: 0,
        };
        let (state, wake) = (Mutex::new(state), Condvar::new());
        Queue { target, state, wake, event: OnceLock::new(), others }
    }

    pub(in crate::driver) fn target(&self) -> &Target {
        &self.target
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of this file panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call. The caller must then call `Pool::begin` or wait.
    #[inline]
    pub(in crate::driver) fn push(&self, call: Call) {
        self.lock().calls.push_back(call);
    }

    /// Returns whether the caller must put the queue on the pool's list. If so, marks it as listed.
    pub(super) fn mark_listed(&self) -> bool {
        self.lock().mark_listed()
    }

    /// Returns a finished call of a pool thread and takes the oldest pending one. Also
    /// returns whether the caller must list the queue again. `is_new`: the thread has just taken
    /// this queue off the pool's list.
    pub(super) fn next(&self, ran: Option<Ran>, is_new: bool) -> (Option<Call>, bool) {
        let mut state = self.lock();
        if is_new {
            state.is_listed = false;
        }
        let wake = ran.is_some_and(|ran| self.finish(&mut state, ran));
        let call = state.begin();
        let more = state.mark_listed();
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        (call, more)
    }

    /// Returns a finished call of a pool thread and takes none. Returns whether the caller
    /// must list the queue again.
    pub(super) fn put(&self, ran: Ran) -> bool {
        let mut state = self.lock();
        let wake = self.finish(&mut state, ran);
        let more = state.mark_listed();
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        more
    }

    /// Records a finished call. Returns whether to wake the sleeper: enough calls are finished.
    fn finish(&self, state: &mut State, ran: Ran) -> bool {
        state.put_done(ran);
        if state.done.len() == 1 {
            let own = self.event.get();
            state.is_signalled |= own.is_some();
            for event in own.into_iter().chain(self.others.as_deref()) {
                state.nr_syscalls += 1;
                event.signal();
            }
        }
        let wake = state.wanted.is_some_and(|nr| state.done.len() >= nr);
        if wake {
            state.wanted = None;
            state.nr_syscalls += 1;
        }
        wake
    }

    /// Makes a call.
    pub(super) fn run(&self, call: Call) -> Ran {
        let mut nr_syscalls = 0;
        let result = call.run(&self.target, &mut nr_syscalls);
        Ran {
            done: Done { tag: call.tag, result, vectors: call.vectors },
            nr_syscalls: nr_syscalls.into(),
        }
    }

    /// Waits until `nr` calls are finished or `timeout` has passed, on the thread that also pushes
    /// and reaps. Without a timeout, makes the call itself if it is the only one. With a timeout it
    /// does not, because a call may last for longer (H5 of the core). `list` puts the queue on the
    /// pool's list.
    pub(in crate::driver) fn wait_as_owner(
        &self,
        nr: usize,
        list: impl FnOnce(),
        timeout: Option<Duration>,
    ) {
        let until = end_of(timeout);
        let mut state = self.lock();
        if state.done.len() >= nr {
            return;
        }
        if timeout.is_none()
            && state.calls.len() == 1
            && state.nr_running == 0
            && let Some(call) = state.begin()
        {
            drop(state);
            let ran = self.run(call);
            return self.lock().put_done(ran);
        }
        if state.mark_listed() {
            drop(state);
            list();
            state = self.lock();
        }
        drop(self.sleep(state, nr, until));
    }

    /// Sleeps until `nr` calls are finished, a kick arrives or the deadline passes.
    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        nr: usize,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        if state.done.len() >= nr || state.is_kicked {
            return state;
        }
        state.wanted = Some(nr);
        // The waker clears `wanted`. The calls may be reaped before this thread runs again.
        while state.wanted.is_some() {
            state.nr_syscalls += 1;
            let Some(until) = until else {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            let woken = self.wake.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.wanted = None;
        state
    }

    /// Ends the wait of a thread in [`Waiter::wait`], now or when it next waits.
    pub(in crate::driver) fn kick(&self) {
        let mut state = self.lock();
        state.is_kicked = true;
        let wake = state.wanted.take().is_some();
        state.nr_syscalls += u64::from(wake);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Swaps the finished calls with `empty`.
    pub(in crate::driver) fn reap(&self, empty: &mut Vec<Done>) {
        let mut state = self.lock();
        if let Some(event) = self.event.get()
            && std::mem::take(&mut state.is_signalled)
        {
            state.nr_syscalls += 1;
            event.clear();
        }
        std::mem::swap(&mut state.done, empty);
    }

    /// Waits until no call is pending or running. The caller has begun the calls.
    pub(in crate::driver) fn wait_until_idle(&self) {
        let mut state = self.lock();
        while !state.calls.is_empty() || state.nr_running > 0 {
            let nr = state.done.len() + 1;
            state.is_kicked = false;
            state = self.sleep(state, nr, None);
        }
    }

    pub(in crate::driver) fn has_done(&self) -> bool {
        !self.lock().done.is_empty()
    }

    pub(in crate::driver) fn nr_syscalls(&self) -> u64 {
        self.lock().nr_syscalls
    }
}

/// Returns when a wait that begins now ends, or `None` if it has no limit.
fn end_of(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// Waits for a queue's calls beside its driver.
#[derive(Debug)]
pub(super) struct PsyncWaiter {
    pub(super) queue: Arc<Queue>,
    /// Results of the requests that threads make themselves.
    pub(super) own: Option<Arc<OwnCalls>>,
}

impl Waiter for PsyncWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        let until = end_of(timeout);
        let state = self.queue.lock();
        self.queue.sleep(state, 1, until).is_kicked = false;
    }

    fn leaves_own_calls(&self) -> bool {
        self.own.is_some()
    }

    fn make_own_call(&self, call: OwnCall) {
        if let Some(own) = &self.own {
            own.make(call, &self.queue.target.file);
        }
    }

    fn poll_fd(&self) -> io::Result<Option<BorrowedFd<'_>>> {
        let queue = &self.queue;
        // Under the lock, so that calls finished later signal it.
        let mut state = queue.lock();
        if queue.event.get().is_none() {
            let _ = queue.event.set(Event::new()?);
            state.is_signalled = true;
            queue.event.get().expect("just set").signal();
        }
        Ok(queue.event.get().map(Event::fd))
    }
}
