//! Delayed completions: the effect `delay=TIME`.
//!
//! The device does a request as usual. Its completion is then held for the time of the rule before
//! it can be reaped. So the delay adds to the device's own time, and the delays of requests in
//! flight together overlap.
//!
//! A held completion becomes due by the clock, which the wait of the device does not observe. So
//! the waiter ([`FaultWaiter`]) waits only until the first held completion is due. If none is held,
//! it waits for at most [`LONGEST_WAIT`]: another thread may hold a completion after the waiter has
//! read the due time and before the wait begins. Nothing would then end that wait. An event loop
//! watches a timer as well ([`DueFd`]).

use crate::driver::due_fd::{DueFd, NEVER};
use crate::driver::{OwnCall, RingMemory, Waiter};
use crate::sys::clock;
use crate::sys::event::AnyOf;
use forebay_core::{BlockStatus, Completed, Completions, Tag};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The maximum wait beside a driver that delays completions.
const LONGEST_WAIT: Duration = Duration::from_micros(500);

/// The delays of one queue.
#[derive(Debug)]
pub(super) struct Delays {
    /// The delay of each tag's completion, ns; 0 if it is not delayed.
    of_tag: Box<[u64]>,
    /// The number of delayed requests that the device has.
    nr_at_device: usize,
    held: Vec<Held>,
    due: Arc<Due>,
    /// Empty between reaps.
    reaped: Completions,
}

/// The due time of the first held completion, for the waiter and for event loops.
#[derive(Debug)]
struct Due {
    /// [`NEVER`] if no completion is held.
    at_ns: AtomicU64,
    fd: DueFd,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    due_ns: u64,
    completed: Completed,
}

impl Delays {
    /// Creates the delays of a queue of `depth` tags.
    pub(super) fn new(depth: u32) -> Delays {
        Delays {
            of_tag: vec![0; depth as usize].into(),
            nr_at_device: 0,
            held: Vec::with_capacity(depth as usize),
            due: Arc::new(Due { at_ns: AtomicU64::new(NEVER), fd: DueFd::default() }),
            reaped: Completions::new(depth),
        }
    }

    /// Records that the device has accepted a delayed request.
    pub(super) fn queued(&mut self, tag: Tag, delay_ns: u64) {
        self.of_tag[tag.index()] = delay_ns;
        self.nr_at_device += 1;
    }

    /// Holds a completion that does not come from the device.
    pub(super) fn hold(&mut self, tag: Tag, result: Result<u64, BlockStatus>, delay_ns: u64) {
        let due_ns = clock::now_ns().saturating_add(delay_ns);
        self.held.push(Held { due_ns, completed: Completed { tag, result } });
        self.announce();
    }

    /// Returns whether no completion is held or will be.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.nr_at_device == 0 && self.held.is_empty()
    }

    /// Returns when the first held completion is due, if there is one.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.held.iter().map(|held| held.due_ns).min()
    }

    /// Returns whether a held completion is due.
    pub(super) fn has_due(&self) -> bool {
        self.next_due_ns().is_some_and(|due_ns| due_ns <= clock::now_ns())
    }

    /// Returns the device's completions that are not delayed, and the held ones that are due.
    /// `reap` reaps from the device.
    pub(super) fn reap(&mut self, done: &mut Completions, reap: impl FnOnce(&mut Completions)) {
        reap(&mut self.reaped);
        let now_ns = clock::now_ns();
        for completed in self.reaped.drain() {
            match std::mem::take(&mut self.of_tag[completed.tag.index()]) {
                0 => done.push(completed.tag, completed.result),
                delay_ns => {
                    self.nr_at_device -= 1;
                    self.held.push(Held { due_ns: now_ns.saturating_add(delay_ns), completed });
                }
            }
        }
        self.held.retain(|held| {
            let is_due = held.due_ns <= now_ns;
            if is_due {
                done.push(held.completed.tag, held.completed.result);
            }
            !is_due
        });
        self.announce();
    }

    /// Publishes the due time of the first held completion.
    fn announce(&self) {
        let at_ns = self.next_due_ns().unwrap_or(NEVER);
        // Relaxed: the number stands alone. A thread that reads an old one waits for LONGEST_WAIT.
        self.due.at_ns.store(at_ns, Ordering::Relaxed);
        self.due.fd.set(at_ns);
    }

    /// Resets the descriptor for event loops, at the end of each reap.
    pub(super) fn end_reap(&self) {
        self.due.fd.reaped(|| self.next_due_ns().unwrap_or(NEVER));
    }
}

/// Waits beside a driver that delays completions.
pub(super) struct FaultWaiter {
    inner: Arc<dyn Waiter>,
    due: Arc<Due>,
    /// The descriptors of the device and of the delays, once an event loop has asked for them.
    any: OnceLock<AnyOf>,
}

impl FaultWaiter {
    /// Creates a waiter for a driver with these delays; `inner` is its device's waiter.
    pub(super) fn new(inner: Arc<dyn Waiter>, delays: &Delays) -> FaultWaiter {
        FaultWaiter { inner, due: Arc::clone(&delays.due), any: OnceLock::new() }
    }
}

impl Waiter for FaultWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        let due_ns = self.due.at_ns.load(Ordering::Relaxed);
        let longest = match due_ns {
            NEVER => LONGEST_WAIT,
            due_ns => Duration::from_nanos(due_ns.saturating_sub(clock::now_ns())),
        };
        if !longest.is_zero() {
            self.inner.wait(Some(timeout.map_or(longest, |timeout| timeout.min(longest))));
        }
    }

    fn leaves_own_calls(&self) -> bool {
        self.inner.leaves_own_calls()
    }

    fn make_own_call(&self, call: OwnCall) {
        self.inner.make_own_call(call);
    }

    fn misses_kicks(&self) -> bool {
        self.inner.misses_kicks()
    }

    // `begins` and `take_back` keep their defaults: the driver leaves nothing to a wait.

    fn poll_fd(&self) -> io::Result<Option<BorrowedFd<'_>>> {
        if self.any.get().is_none() {
            let own = self.due.fd.fd()?;
            let any = AnyOf::new(self.inner.poll_fd()?.into_iter().chain([own]))?;
            // Fails if another thread was first.
            let _ = self.any.set(any);
        }
        Ok(self.any.get().map(AnyOf::fd))
    }

    fn ack_poll(&self) {
        self.inner.ack_poll();
    }

    fn memory(&self) -> Option<&Arc<RingMemory>> {
        self.inner.memory()
    }

    fn nr_syscalls(&self) -> u64 {
        self.inner.nr_syscalls() + self.due.fd.nr_syscalls()
    }

    fn nr_uncounted_syscalls(&self) -> u64 {
        self.inner.nr_uncounted_syscalls()
    }
}
