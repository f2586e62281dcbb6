//! Driver of one queue: turns requests into chains, kicks the device, and waits for interrupts.
//!
//! The device signals the queue's call eventfd when it has used a chain, if it was asked to. It is
//! asked only before a wait, and after each reap while an event loop polls the queue. So a caller
//! that finds completions without waiting costs the server no system call.
//!
//! With `poll_us` a wait first polls the used ring ([`Spin`]), unless nothing is in flight.
//!
//! A server that is gone sends no interrupt, so each wait is also for the connection. A caller that
//! only reaps looks at the connection now and then ([`NR_EMPTY_REAPS`]).

use super::connect::Ready;
use super::link::Link;
use super::requests::Queue;
use super::ring::Watch;
use super::spin::Spin;
use crate::driver::Mode;
use crate::driver::deadline::Deadline;
use crate::sys::event::{AnyOf, Edges, Event, await_readable};
use crate::sys::fork::Origin;
use forebay_core::{BlockStatus, Completions, Driver, Issue, IssuedRequest, Reap};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The number of reaps in a row without a completion after which one looks at the connection. Each
/// look is a system call, which costs as much as some ten reaps.
const NR_EMPTY_REAPS: u32 = 64;

/// The longest wait beside a device that is gone. A request that was issued at that moment has no
/// other event, and its next turn ends it.
const PAUSE: Duration = Duration::from_millis(10);

/// The bits of the connection in the result of a wait.
const OF_LINK: u64 = 1 << 2 | 1 << 3;

/// The state that a driver and the waits beside it share.
#[derive(Debug)]
pub(super) struct Shared {
    link: Arc<Link>,
    watch: Watch,
    /// The index of the next element to take. Relaxed, because an outdated value makes a wait
    /// return early. While an event loop polls the queue it changes under the lock.
    taken: AtomicU16,
    /// The number of requests in flight, as of the last commit or reap.
    nr_in_flight: AtomicUsize,
    call: Arc<Event>,
    /// Ends the wait beside the driver, and wakes event loops.
    event: Event,
    /// The event was signalled and not cleared. Release and acquire: set after the signal. So a
    /// thread that takes the mark clears that signal.
    has_signalled: AtomicBool,
    /// The same, for a wait that polls: it takes the mark, and clears the signal unless an event
    /// loop does.
    is_kicked: AtomicBool,
    /// An event loop has found its descriptor readable, so the next reap clears the event. Relaxed:
    /// that reap follows on the same thread, or on one that takes the context over from it.
    is_acknowledged: AtomicBool,
    /// Held while an interrupt is asked for. A wait must not replace the request of a later reap by
    /// that for an element which is taken: then no interrupt would follow.
    arming: Mutex<()>,
    /// The call eventfd, the event, and the connection ([`OF_LINK`]), for waits.
    edges: Edges,
    watched: OnceLock<Watched>,
    spin: Spin,
    nr_syscalls: AtomicU64,
}

/// The descriptors that an event loop polls.
#[derive(Debug)]
struct Watched {
    any: AnyOf,
    /// The call eventfd and the connection. Part of `any` while requests are in flight: otherwise
    /// no reap follows, which could react to them.
    of_device: AnyOf,
    /// Whether it is part now. Relaxed: only the thread that uses the driver changes it.
    has_device: AtomicBool,
}

impl Shared {
    fn new(link: Arc<Link>, queue: &Queue, call: Arc<Event>, spin: Spin) -> io::Result<Shared> {
        let event = Event::new()?;
        let [stream, error] = link.fds();
        let edges = Edges::new([call.fd(), event.fd(), stream, error])?;
        Ok(Shared {
            link,
            watch: queue.ring().watch().clone(),
            taken: AtomicU16::new(queue.ring().taken()),
            nr_in_flight: AtomicUsize::new(0),
            call,
            event,
            has_signalled: AtomicBool::new(false),
            is_kicked: AtomicBool::new(false),
            is_acknowledged: AtomicBool::new(false),
            arming: Mutex::new(()),
            edges,
            watched: OnceLock::new(),
            spin,
            nr_syscalls: AtomicU64::new(0),
        })
    }

    #[inline]
    fn is_polled(&self) -> bool {
        self.watched.get().is_some()
    }

    fn count_syscalls(&self, nr: u64) {
        self.nr_syscalls.fetch_add(nr, Ordering::Relaxed);
    }

    pub(super) fn nr_syscalls(&self) -> u64 {
        self.nr_syscalls.load(Ordering::Relaxed)
    }

    /// Looks at the connection.
    #[cfg(any(test, fuzzing))]
    pub(super) fn look(&self) {
        self.link.look();
    }

    /// Returns why the device is gone.
    #[cfg(any(test, fuzzing))]
    pub(super) fn failure(&self) -> Option<String> {
        self.link.failure()
    }

    fn signal(&self) {
        self.count_syscalls(1);
        self.event.signal();
        self.is_kicked.store(true, Ordering::Release);
        self.has_signalled.store(true, Ordering::Release);
    }

    /// Makes the next reap clear the event. It is not cleared here: it may be the kick of a thread
    /// that has not returned from its wait. That thread reaps first (K8).
    pub(super) fn acknowledge(&self) {
        self.is_acknowledged.store(true, Ordering::Relaxed);
    }

    /// Clears the event if it was signalled.
    fn clear(&self) {
        if self.has_signalled.swap(false, Ordering::Acquire) {
            self.count_syscalls(1);
            self.event.clear();
        }
    }

    /// Asks for an interrupt at the next element. Returns whether it was used already.
    fn arm(&self, taken: u16) -> bool {
        let _lock = lock(&self.arming);
        self.taken.store(taken, Ordering::Relaxed);
        self.watch.arm(taken, 1)
    }

    /// Suppresses interrupts after a wait, unless an event loop needs them.
    fn suppress(&self) {
        let _lock = lock(&self.arming);
        if !self.is_polled() {
            self.watch.suppress();
        }
    }

    /// Polls the used ring, if waits poll and requests are in flight. Returns whether the wait is
    /// over.
    fn poll(&self, timeout: Option<Duration>) -> bool {
        // Relaxed: an outdated number makes one wait poll in vain, or sleep at once.
        if !self.spin.is_on() || self.nr_in_flight.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let taken = self.taken.load(Ordering::Relaxed);
        let is_kicked = || self.is_kicked.load(Ordering::Acquire);
        let is_over = self.spin.poll(timeout, || {
            self.watch.used_index() != taken || is_kicked() || self.link.is_lost()
        });
        if is_over && self.is_kicked.swap(false, Ordering::Acquire) && !self.is_polled() {
            self.clear();
        }
        is_over
    }

    /// Waits beside the driver: until an element is used that was not taken, a kick, the end of the
    /// device, or the timeout.
    pub(super) fn wait(&self, timeout: Option<Duration>) {
        if self.link.is_lost() {
            let timeout = timeout.map_or(PAUSE, |timeout| timeout.min(PAUSE));
            self.count_syscalls(1);
            await_readable([self.event.fd()], Some(timeout));
            return self.clear();
        }
        let until = Deadline::after(timeout);
        if self.poll(timeout) {
            return;
        }
        let has_used = {
            let _lock = lock(&self.arming);
            self.watch.arm(self.taken.load(Ordering::Relaxed), 1)
        };
        if !has_used {
            self.count_syscalls(1);
            if self.edges.wait(until.left()).is_some_and(|ended| ended & OF_LINK != 0) {
                self.link.look();
            }
            // A kick that ended this sleep ends no later wait.
            self.is_kicked.store(false, Ordering::Relaxed);
        }
        self.suppress();
    }

    /// Returns a descriptor for an event loop.
    ///
    /// # Errors
    /// Returns the system's error if it has no resources for it.
    pub(super) fn poll_fd(&self) -> io::Result<BorrowedFd<'_>> {
        if self.watched.get().is_none() {
            let [stream, error] = self.link.fds();
            let of_device = AnyOf::new([self.call.fd(), stream, error])?;
            let any = AnyOf::new([self.event.fd()])?;
            let has_device = AtomicBool::new(false);
            let _ = self.watched.set(Watched { any, of_device, has_device });
            // SeqCst: a commit stores the number, and then checks for a descriptor. Either this
            // thread sees the requests, and the caller reaps, or the commit sees the descriptor.
            fence(Ordering::SeqCst);
            if self.nr_in_flight.load(Ordering::Relaxed) > 0 {
                self.signal();
            }
        }
        Ok(self.watched.get().expect("just set").any.fd())
    }

    /// Updates what an event loop polls, if there is one. Returns whether the device was added.
    #[inline]
    fn watch_device(&self, nr_in_flight: usize) -> bool {
        let Some(watched) = self.watched.get() else { return false };
        let is_busy = nr_in_flight > 0;
        let is_news = watched.has_device.load(Ordering::Relaxed) != is_busy;
        if is_news {
            watched.has_device.store(is_busy, Ordering::Relaxed);
            self.count_syscalls(1);
            watched.any.change(watched.of_device.fd(), is_busy, false);
        }
        is_news && is_busy
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device's queues that no driver uses.
pub(super) type Spare = Arc<Mutex<Vec<Ready>>>;

pub(super) struct VhostUserDriver {
    /// Goes back to the spare ones with the driver.
    ready: Option<Ready>,
    spare: Spare,
    shared: Arc<Shared>,
    mode: Mode,
    origin: Origin,
    nr_empty_reaps: u32,
    nr_syscalls: u64,
}

impl VhostUserDriver {
    /// Takes a spare queue.
    ///
    /// # Errors
    /// Fails if none is left, or no descriptor can be created.
    pub(super) fn new(
        link: &Arc<Link>,
        spare: &Spare,
        mode: Mode,
        spin: Spin,
    ) -> io::Result<VhostUserDriver> {
        let taken = lock(spare).pop();
        let Some(ready) = taken else {
            return Err(io::Error::other("all queues of the server are in use"));
        };
        // Interrupts for a driver before.
        ready.call.clear_shared();
        let call = Arc::clone(&ready.call);
        let shared = match Shared::new(Arc::clone(link), &ready.queue, call, spin) {
            Ok(shared) => Arc::new(shared),
            Err(error) => {
                // The caller may try again later.
                lock(spare).push(ready);
                return Err(error);
            }
        };
        Ok(VhostUserDriver {
            ready: Some(ready),
            spare: Arc::clone(spare),
            shared,
            mode,
            origin: Origin::here(),
            nr_empty_reaps: 0,
            nr_syscalls: 0,
        })
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    #[inline]
    fn queue(&mut self) -> &mut Queue {
        &mut self.ready.as_mut().expect("a driver has its queue until it is dropped").queue
    }

    /// Takes what the device has completed. If the device is gone, ends everything else.
    fn take(&mut self, done: &mut Completions) {
        // Before the ring: completions that the device made before its end are taken.
        let is_lost = self.shared.link.is_lost();
        match self.queue().take(done) {
            Ok(()) if !is_lost => {}
            Ok(()) => self.queue().fail_all(done),
            Err(why) => {
                self.shared.link.lose(&format!("the server breaks the protocol: {why}"));
                self.queue().fail_all(done);
            }
        }
    }

    /// Asks for an interrupt at the next element. Takes the elements that were used before the
    /// device could see that.
    fn take_and_arm(&mut self, done: &mut Completions) {
        loop {
            let taken = self.queue().ring().taken();
            if !self.shared.arm(taken) || self.queue().nr_in_flight() == 0 {
                return;
            }
            self.take(done);
        }
    }

    /// Looks at the connection, if nothing has completed for a while or if the reap has a reason.
    /// Returns whether it did.
    fn look(&mut self, has_reason: bool) -> bool {
        self.nr_empty_reaps += 1;
        let is_due = has_reason || self.nr_empty_reaps >= NR_EMPTY_REAPS;
        if is_due {
            self.nr_empty_reaps = 0;
            self.nr_syscalls += 1;
            self.shared.link.look();
        }
        is_due
    }
}

impl Driver for VhostUserDriver {
    #[inline]
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        if self.shared.link.is_lost() {
            return Issue::Failed(BlockStatus::Offline);
        }
        self.queue().begin(rq);
        Issue::Queued
    }

    #[inline]
    fn commit_rqs(&mut self) {
        let nr_in_flight = self.queue().nr_in_flight();
        // Relaxed: `publish` has a fence behind it.
        self.shared.nr_in_flight.store(nr_in_flight, Ordering::Relaxed);
        if self.queue().publish() {
            self.nr_syscalls += 1;
            self.ready.as_ref().expect("as above").kick.signal();
            self.shared.spin.has_kicked();
        }
        if self.shared.watch_device(nr_in_flight) {
            // The reap before may have been made before there was a descriptor.
            let taken = self.queue().ring().taken();
            if self.shared.arm(taken) {
                self.shared.signal();
            }
        }
    }

    fn reap(&mut self, done: &mut Completions, how: Reap) {
        let is_polled = self.shared.is_polled();
        let is_full = how == Reap::Full;
        if is_polled && (is_full || self.shared.is_acknowledged.load(Ordering::Relaxed)) {
            self.shared.is_acknowledged.store(false, Ordering::Relaxed);
            // Later completions signal again.
            self.shared.clear();
            self.nr_syscalls += 1;
            self.shared.call.clear_shared();
        }
        let before = done.len();
        self.take(done);
        let is_empty = done.len() == before && self.queue().nr_in_flight() > 0;
        match is_empty && is_full {
            // The connection may be what an event loop has found readable.
            true if self.look(is_polled) => self.take(done),
            true => {}
            false => self.nr_empty_reaps = 0,
        }
        if is_polled {
            self.take_and_arm(done);
        } else {
            let taken = self.queue().ring().taken();
            self.shared.taken.store(taken, Ordering::Relaxed);
        }
        let nr_in_flight = self.queue().nr_in_flight();
        self.shared.nr_in_flight.store(nr_in_flight, Ordering::Relaxed);
        if is_polled {
            self.shared.watch_device(nr_in_flight);
        }
    }

    fn wait(&mut self, nr_completions: u32, timeout: Option<Duration>) {
        self.commit_rqs();
        if self.shared.link.is_lost() && self.queue().nr_in_flight() == 0 {
            // The caller waits for its timeout only: nothing of a lost device completes.
            self.nr_syscalls += 1;
            await_readable([], timeout);
            return;
        }
        let until = Deadline::after(timeout);
        let nr = nr_completions.clamp(1, u32::from(u16::MAX / 2)) as u16;
        let taken = self.queue().ring().taken();
        let shared = Arc::clone(&self.shared);
        let has_enough = || shared.watch.used_index().wrapping_sub(taken) >= nr;
        let is_done = || has_enough() || shared.link.is_lost();
        if shared.spin.is_on() && shared.spin.poll(timeout, is_done) {
            return;
        }
        let mut has_polled = false;
        let is_over =
            |has_polled| has_enough() || shared.link.is_lost() || has_polled && until.is_over();
        while !is_over(has_polled) {
            if shared.watch.arm(taken, nr) {
                break;
            }
            self.nr_syscalls += 1;
            let Some(ended) = shared.edges.wait(until.left()) else { break };
            if ended & OF_LINK != 0 {
                shared.link.look();
            }
            has_polled = true;
        }
        shared.suppress();
    }

    fn kick(&mut self) {
        if self.mode == Mode::Shared {
            self.shared.signal();
        }
    }

    fn nr_syscalls(&self) -> u64 {
        self.nr_syscalls
    }
}

impl Drop for VhostUserDriver {
    /// The layer drains a driver before it drops it. After a panic, requests in flight are
    /// abandoned, and their queue with them: the server knows none of their callers' memory.
    fn drop(&mut self) {
        let Some(ready) = self.ready.take() else { return };
        let nr_in_flight = ready.queue.nr_in_flight();
        assert!(
            nr_in_flight == 0 || std::thread::panicking(),
            "a driver is drained before it is dropped"
        );
        if nr_in_flight == 0 && !self.shared.link.is_lost() && !self.origin.is_elsewhere() {
            // An event loop of this queue may have asked for interrupts.
            self.shared.watch.suppress();
            lock(&self.spare).push(ready);
        }
    }
}
