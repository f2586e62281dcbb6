//! Completions that come later than the device's: the effect `delay=TIME`.
//!
//! The device does a request as ever. When it has completed it, the completion is held for as long
//! as the rule says, and may be reaped then. So the time is added to that which the device takes
//! itself, and who has several requests under way has all their delays at once.
//!
//! What is held comes by the clock, which the wait of the device knows nothing of. Who waits there
//! ([`FaultWaiter`]) therefore does so until the first of what is held is due. Where nothing is, it
//! waits for [`LONGEST_WAIT`] at most: another thread may hold a completion between the look at
//! what is due and the begin of the wait, which then has nothing to end it.

use crate::driver::Waiter;
use crate::runtime::clock;
use forebay_core::{BlockStatus, Completed, Completions, Tag};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a wait lasts at most beside a driver that delays.
const LONGEST_WAIT: Duration = Duration::from_micros(500);

/// Nothing is due.
const NEVER: u64 = u64::MAX;

/// The delays of one queue.
#[derive(Debug)]
pub(super) struct Delays {
    /// For how long the completion of each tag is to be held, ns; 0 for those that are not.
    of_tag: Box<[u64]>,
    /// How many requests with a delay the device has.
    nr_at_device: usize,
    held: Vec<Held>,
    /// When the first of them is due, for who waits.
    due_ns: Arc<AtomicU64>,
    /// Empty between reaps.
    reaped: Completions,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    due_ns: u64,
    completed: Completed,
}

impl Delays {
    /// For a queue of `depth` tags.
    pub(super) fn new(depth: u32) -> Delays {
        Delays {
            of_tag: vec![0; depth as usize].into(),
            nr_at_device: 0,
            held: Vec::with_capacity(depth as usize),
            due_ns: Arc::new(AtomicU64::new(NEVER)),
            reaped: Completions::new(depth),
        }
    }

    /// The device has taken this request.
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

    /// Whether something is held or will be.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.nr_at_device == 0 && self.held.is_empty()
    }

    /// When the first is due, if some are held.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.held.iter().map(|held| held.due_ns).min()
    }

    /// Whether one can be reaped.
    pub(super) fn has_due(&self) -> bool {
        self.next_due_ns().is_some_and(|due_ns| due_ns <= clock::now_ns())
    }

    /// Hands over what the device has completed, but for what is to be held, and what was held long
    /// enough. `reap` reaps from the device.
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

    /// Publishes when the first is due, for the thread that waits.
    fn announce(&self) {
        // Relaxed: the number stands alone. A thread that reads an old one waits for LONGEST_WAIT.
        self.due_ns.store(self.next_due_ns().unwrap_or(NEVER), Ordering::Relaxed);
    }
}

/// Waits beside a driver that delays.
pub(super) struct FaultWaiter {
    inner: Arc<dyn Waiter>,
    due_ns: Arc<AtomicU64>,
}

impl FaultWaiter {
    /// Beside a driver with these delays, whose device waits so.
    pub(super) fn new(inner: Arc<dyn Waiter>, delays: &Delays) -> FaultWaiter {
        FaultWaiter { inner, due_ns: Arc::clone(&delays.due_ns) }
    }
}

impl Waiter for FaultWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        let due_ns = self.due_ns.load(Ordering::Relaxed);
        let longest = match due_ns {
            NEVER => LONGEST_WAIT,
            due_ns => Duration::from_nanos(due_ns.saturating_sub(clock::now_ns())),
        };
        if !longest.is_zero() {
            self.inner.wait(Some(timeout.map_or(longest, |timeout| timeout.min(longest))));
        }
    }

    fn can_help(&self) -> bool {
        self.inner.can_help()
    }

    fn offer(&self) {
        self.inner.offer();
    }

    fn withdraw(&self) {
        self.inner.withdraw();
    }

    fn help(&self, wanted: bool) -> bool {
        self.inner.help(wanted)
    }

    // `begins` and `take_back` are as they are: the driver leaves nothing to a wait.

    /// None: what is held comes by the clock.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn nr_syscalls(&self) -> u64 {
        self.inner.nr_syscalls()
    }
}
