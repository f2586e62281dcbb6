//! A context of the program: it submits iocbs, and hands out their events.
//!
//! A thread in `io_getevents` waits in the kernel itself, so timeouts, signals and masks are the
//! kernel's. It takes the kernel's events without the lock, and processes them with it: an event of
//! the kernel may be the end of several iocbs, whose events it posts to the ring. If it leaves
//! events there, and other threads wait in the kernel, it kicks one of them. So no thread waits for
//! another one that reaps.
//!
//! Most iocbs take a *short path*. If the layer does not take an iocb, it has no eventfd, and its
//! time is not measured, the kernel gets it at the program's address, and its event is the one that
//! the program expects. There is no record of it, only a number in `nr_out`. The submission of a
//! single one takes the lock once, and allocates nothing. The kernel writes events into the
//! program's array. They stay there if all are of such iocbs and the ring is empty. Otherwise they
//! are processed in order, through the ring. The address in an event shows which kind of iocb has
//! ended ([`own_iocbs`](crate::own_iocbs)).
//!
//! - [`submit`](self): iocbs to requests, and requests to the kernel;
//! - [`hold`](self): reads of several calls that become one request;
//! - [`wait`](self): events of the kernel to events of iocbs;
//! - [`counts`](self): counters of calls, files and times;
//! - [`service`](self): the thread that reaps for programs that make no call for it.
//!
//! No system call that may block is made under the lock, except for held reads: their submission,
//! and a read by the keeper after the program has closed their descriptor ([`hold`](self)). A
//! thread is counted in `nr_inside` before it releases the lock for a call. The end of a context
//! waits until none is inside, since the kernel may give the id of a destroyed context to a new
//! one. A thread on the short path of a submission leaves without the lock, and adds to `nr_left`.

mod counts;
mod hold;
mod service;
mod submit;
mod wait;

use crate::file::Outgoing;
use crate::files::Files;
use crate::kernel::{Kernel, Wait};
use crate::own_iocbs::OwnIocbs;
use crate::program;
use crate::raw::Errno;
use crate::records::Records;
use crate::ring::{self, Ring};
use counts::Starts;
use forebay_core::{HoldLimits, MergePolicy, PlugPolicy, Policy};
use forebay_run::Settings;
use hold::Stream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use service::start as start_service;
pub(crate) use wait::Events;

/// Marks the data of a kernel's event as that of a request of the layer.
const OF_LAYER: u64 = 1 << 62;

/// The most requests of a file at the kernel.
const DEPTH_MAX: u32 = 1024;

/// The places of the kernel's context that are for kicks.
const KICK_ROOM: u32 = 2 * wait::WAIT_MIN_MAX as u32;

/// The time between two kicks of threads that a context waits for at its end.
const KICK_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Context {
    ring: Ring,
    kernel: Kernel,
    own_iocbs: OwnIocbs,
    /// The capacity: iocbs that have not ended, and events in the ring.
    nr_max: u32,
    policy: Policy,
    hold_limits: HoldLimits,
    /// Reads may be held.
    holds: bool,
    start: Instant,
    state: Mutex<State>,
    /// How many threads have left the context without the lock.
    nr_left: AtomicU32,
    /// A thread has left the context, which ends.
    left: Condvar,
    /// The service thread may have work.
    wake_service: Condvar,
    service: Once,
}

#[derive(Debug)]
struct State {
    records: Records,
    files: Files,
    /// The number of iocbs that were submitted and have not ended.
    nr_out: u32,
    /// The number of events posted so far.
    nr_posted: u64,
    /// The number of threads that are in a call of this context without the lock, and of those
    /// that `nr_left` counts.
    nr_inside: u32,
    /// How many of them wait in the kernel for events, beside the service thread.
    nr_waiting: u32,
    /// The service thread waits in the kernel for events.
    is_serving: bool,
    /// The events of the kernel that the first of the waiting threads waits for.
    wait_min: usize,
    /// The number of kicks that no thread has taken yet.
    nr_kicks: usize,
    /// A kick has failed, and the service thread has to repeat it.
    kick_failed: bool,
    /// Requests that the kernel had no place for, by the index of their file.
    deferred: Vec<(u32, Outgoing)>,
    is_gone: bool,
    /// An iocb has had an eventfd.
    has_eventfd: bool,
    /// The service thread sleeps until it is woken.
    service_sleeps: bool,
    /// The service thread pauses for longer than reads may be held.
    long_pause: bool,
    /// The number of calls of the program for events.
    nr_calls: u64,
    stream: Stream,
    starts: Starts,
}

impl State {
    fn new(hold_limits: HoldLimits) -> State {
        State {
            records: Records::default(),
            files: Files::default(),
            nr_out: 0,
            nr_posted: 0,
            nr_inside: 0,
            nr_waiting: 0,
            is_serving: false,
            wait_min: 0,
            nr_kicks: 0,
            kick_failed: false,
            deferred: Vec::new(),
            is_gone: false,
            has_eventfd: false,
            service_sleeps: false,
            long_pause: false,
            nr_calls: 0,
            stream: Stream::new(hold_limits),
            starts: Starts::default(),
        }
    }
}

type Locked<'a> = MutexGuard<'a, State>;

impl Context {
    /// Creates a context for `nr` iocbs at once, with a ring of this id.
    pub(crate) fn new(nr: u32, id: u32, settings: Settings) -> Result<Context, Errno> {
        let places = ring::places(nr).ok_or(libc::EINVAL)?;
        // The kernel's context has as many places, some of them for kicks.
        let nr_max = places - 1 - KICK_ROOM;
        let kernel = Kernel::new(nr)?;
        let (policy, hold) = (settings.policy(), settings.hold());
        let merges = policy.plug != PlugPolicy::None && policy.nomerges != MergePolicy::Never;
        let hold_limits = hold.unwrap_or_default();
        Ok(Context {
            ring: Ring::new(places, id)?,
            kernel,
            own_iocbs: OwnIocbs::new(nr_max)?,
            nr_max,
            policy,
            hold_limits,
            holds: hold.is_some() && merges,
            start: Instant::now(),
            state: Mutex::new(State::new(hold_limits)),
            nr_left: AtomicU32::new(0),
            left: Condvar::new(),
            wake_service: Condvar::new(),
            service: Once::new(),
        })
    }

    /// Returns the most requests of a file at the kernel.
    fn depth(&self) -> u32 {
        self.nr_max.min(DEPTH_MAX)
    }

    /// Returns the program's handle.
    pub(crate) fn address(&self) -> usize {
        self.ring.address()
    }

    /// Returns the most iocbs that can be submitted at once.
    pub(crate) fn nr_max(&self) -> usize {
        self.nr_max as usize
    }

    fn lock(&self) -> Locked<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock, and counts this thread as one inside.
    ///
    /// # Errors
    /// `EINVAL` if the context ends.
    fn enter(&self) -> Result<Locked<'_>, Errno> {
        let mut state = self.lock();
        if state.is_gone {
            return Err(libc::EINVAL);
        }
        state.nr_inside = state.nr_inside.wrapping_add(1);
        Ok(state)
    }

    /// Ends a call that [`Context::enter`] began.
    fn leave(&self, mut state: Locked<'_>) {
        state.nr_inside = state.nr_inside.wrapping_sub(1);
        if state.is_gone && self.nr_inside(&state) == 0 {
            self.left.notify_all();
        }
        self.wake_others(&mut state);
    }

    /// Ends a call that [`Context::enter`] began, without the lock. If the context ends, its end
    /// sees this after at most [`KICK_PAUSE`]. The caller has woken the others before.
    fn leave_unlocked(&self) {
        // Release pairs with the Acquire of `nr_inside`: the end of the context comes after the
        // system calls of this thread.
        self.nr_left.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of threads inside.
    fn nr_inside(&self, state: &State) -> u32 {
        state.nr_inside.wrapping_sub(self.nr_left.load(Ordering::Acquire))
    }

    /// Wakes a thread that waits for events, if there are some, and the service thread, if it has
    /// to wait for an iocb.
    fn wake_others(&self, state: &mut State) {
        // Events that this thread has posted, or left.
        if self.ring.len() > 0 {
            self.kick(state);
        }
        if state.nr_out > 0 && state.service_sleeps && state.nr_waiting == 0 {
            self.wake_service.notify_one();
        }
    }

    /// Ends the wait of a thread of the program in the kernel, if there is one and no kick is on
    /// its way. The service thread may take the kick instead, and kicks again when it leaves.
    fn kick(&self, state: &mut State) {
        if state.nr_waiting == 0 || state.nr_kicks > 0 {
            return;
        }
        let nr = state.wait_min.max(1);
        match self.kernel.kick(&self.own_iocbs, nr) {
            Ok(()) => state.nr_kicks += nr,
            // The process has no free descriptor.
            Err(_) => {
                state.kick_failed = true;
                self.wake_service.notify_one();
            }
        }
    }

    /// Cancels an iocb, as the kernel does. Returns the errno: `EINPROGRESS` if the event of the
    /// cancelled iocb comes as usual.
    pub(crate) fn cancel(&self, obj: usize) -> Errno {
        if !program::can_be_memory(obj) {
            return libc::EFAULT;
        }
        let state = self.lock();
        if state.is_gone {
            return libc::EINVAL;
        }
        // The kernel cancels polls only. Under the lock, the record stays.
        match state.records.find(obj as u64) {
            Some((_, record)) if record.is_layered => libc::EINVAL,
            Some((number, _)) => self.kernel.cancel(self.own_iocbs.place(number).addr()),
            None => self.kernel.cancel(obj),
        }
    }

    /// Ends the context: waits until no thread is inside and all requests have ended, and signals
    /// the eventfds of the iocbs.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.is_gone = true;
        self.wake_service.notify_all();
        while self.nr_inside(&state) > 0 {
            // A thread that is on its way into the kernel may come after the kick.
            if state.nr_waiting > 0 || state.is_serving {
                let _ = self.kernel.kick(&self.own_iocbs, state.wait_min.max(1));
            }
            let woken = self.left.wait_timeout(state, KICK_PAUSE);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state = self.release(state);
        // Requests of the layer may have to be repeated, so the kernel must not end them.
        while state.records.nr_layered() > 0 {
            let mut events = Vec::new();
            drop(state);
            let wait = Wait { min: 1, timeout: None, mask: None };
            let waited = self.kernel.events(wait, wait::NR_AT_ONCE, &mut events);
            state = self.lock();
            state = self.process(state, &events);
            if waited.is_err_and(|errno| errno != libc::EINTR) {
                break;
            }
        }
        drop(state);
        self.kernel.destroy();
        let mut signals = crate::eventfds::Signals::default();
        let mut state = self.lock();
        state.records.drain().filter_map(|record| record.resfd).for_each(|fd| signals.push(fd));
        drop(state);
        signals.send();
    }
}
