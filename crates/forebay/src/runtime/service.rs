//! Service thread of a disk: makes progress when no other thread is inside.
//!
//! It leads the shared context: it waits in the driver, and all other waiters follow. Submitters
//! still turn the context themselves. `service=on` starts the thread with the disk. Otherwise the
//! first future starts it, if no event loop drives the disk ([`Shared::drive`]).
//!
//! - V1 A thread that is started while another thread leads follows it, and becomes the leader when
//!   it receives the baton (W3), like any waiter. It keeps the baton until it steps down, or has
//!   wakers to run (V4).
//! - V2 It steps down when an event loop asks for the disk's descriptor, or when the disk is
//!   closed. If it is a follower, it steps down once it leads. If it is the leader, it passes the
//!   baton, then wakes the event loops. Work that arrived while it was kicked was left to it (W6).
//!   The next turn of an event loop, or of the thread that closes the disk, finds that work.
//! - V3 When the disk is closed, no other thread leads (a leader has a handle of the disk). So the
//!   service thread has the baton, receives it, or runs wakers, and then ends.
//! - V4 It passes the baton before it runs wakers, and afterwards leads again or follows. A waker
//!   is foreign code, and may wait for another thread's blocking call, which needs a leader.
//!
//! [`Shared::drive`]: super::shared::Shared::drive

use crate::driver::Waiter;
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::hctx::{At, Hctx, SHARED, Token, follow, now_ns};
use crate::runtime::mailbox::Mailbox;
use crate::runtime::spare::reserve_spare;
use crate::sys::clock;
use crate::sys::primitive::{AtomicBool, Ordering, thread};
use forebay_core::Commit;
use forebay_core::wait::{block, release_to_wait};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The service thread, and its state shared with the disk.
#[derive(Debug)]
pub(crate) struct Service {
    thread: thread::JoinHandle<()>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// Requests that the thread steps down.
    is_over: AtomicBool,
    /// The thread leads the context, or has received the baton and is about to. Written by the
    /// thread itself, or by the thread that closes the disk without it.
    is_leading: AtomicBool,
    /// The thread no longer accesses the disk. Only a hint, so it is std's type even in models.
    is_gone: std::sync::atomic::AtomicBool,
}

/// Starts the service thread of a disk.
///
/// # Errors
/// The OS error if the thread cannot be started.
pub(crate) fn start(
    hctxs: &Arc<[Hctx]>,
    waiter: &Arc<dyn Waiter>,
    is_timed: bool,
) -> io::Result<Service> {
    let leads = hctxs[SHARED].run.try_lead();
    let (is_over, is_leading) = (AtomicBool::new(false), AtomicBool::new(leads));
    let state = Arc::new(State { is_over, is_leading, is_gone: false.into() });
    let (hctxs, waiter) = (Arc::clone(hctxs), Arc::clone(waiter));
    let server = Server { hctxs: Arc::clone(&hctxs), waiter, state: Arc::clone(&state), is_timed };
    let builder = thread::Builder::new().name(String::from("forebay-service"));
    let spawned =
        builder.stack_size(256 * 1024).spawn(move || AbortOnUnwind::guard(|| server.run()));
    match spawned {
        Ok(thread) => Ok(Service { thread, state }),
        Err(error) => {
            if leads {
                hctxs[SHARED].hand_off();
            }
            Err(error)
        }
    }
}

impl Service {
    /// Requests that the thread steps down (V2). Returns before the thread has done so.
    pub(crate) fn step_down(&self, hctx: &Hctx) {
        // Release: pairs with the acquire in `is_over`. The kick comes later, so the thread that it
        // wakes sees this store.
        self.state.is_over.store(true, Ordering::Release);
        loop {
            if let Some(token) = hctx.try_take() {
                return token.kick();
            }
            thread::yield_now();
        }
    }

    /// Waits until the thread has stepped down.
    #[cfg(test)]
    pub(crate) fn join(self) {
        self.thread.join().expect("no panic");
    }

    /// Ends the thread when the disk is closed. The thread does not lead any more when this
    /// returns.
    pub(crate) fn end(self, hctx: &Hctx, waiter: &dyn Waiter) {
        // The caller may be the service thread itself: it runs a waker that dropped the last
        // handle, and no longer leads.
        if self.thread.thread().id() != thread::current().id() {
            self.step_down(hctx);
            if !waiter.misses_kicks() || self.is_gone_soon() {
                // If it has panicked, the process has aborted.
                let _ = self.thread.join();
                return;
            }
            // The thread sleeps in the driver until the process ends.
        }
        // The caller then drains the disk. The last steps of `run` are done here in place of the
        // thread.
        self.state.is_over.store(true, Ordering::Release);
        // AcqRel: only one of the two threads resigns.
        if self.state.is_leading.swap(false, Ordering::AcqRel) {
            if hctx.run.is_blocked() {
                hctx.run.unblock();
            }
            hctx.run.resign();
        }
    }
}

impl Service {
    /// Returns whether the thread ends without a kick.
    #[cold]
    fn is_gone_soon(&self) -> bool {
        let is_gone = || self.state.is_gone.load(Ordering::Relaxed);
        (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            is_gone()
        })
    }
}

/// State that the thread uses.
struct Server {
    hctxs: Arc<[Hctx]>,
    waiter: Arc<dyn Waiter>,
    state: Arc<State>,
    is_timed: bool,
}

impl Server {
    fn is_over(&self) -> bool {
        self.state.is_over.load(Ordering::Acquire)
    }

    fn run(&self) {
        reserve_spare();
        let (hctx, mailbox) = (&self.hctxs[SHARED], Arc::new(Mailbox::of_thread()));
        if !self.state.is_leading.load(Ordering::Relaxed) {
            self.follow(hctx, &mailbox);
        }
        while let Some(token) = self.lead(hctx) {
            self.run_wakers(hctx, token);
            if self.is_over() {
                break;
            }
            self.follow(hctx, &mailbox);
        }
        // False after wakers ran, and if the disk was closed while no kick could end the wait.
        if self.state.is_leading.swap(false, Ordering::AcqRel) {
            hctx.run.unblock();
            hctx.hand_off();
        }
        hctx.wake_loops();
        self.state.is_gone.store(true, Ordering::Relaxed);
    }

    /// Becomes the leader, or waits for the baton (V1).
    fn follow(&self, hctx: &Hctx, mailbox: &Arc<Mailbox>) {
        while !hctx.run.try_lead() && !follow(hctx, mailbox) {}
        self.state.is_leading.store(true, Ordering::Relaxed);
    }

    /// Turns and waits in the driver. Returns the token if releasing it runs wakers. Returns `None`
    /// if the thread has to step down; it has then announced a wait.
    fn lead<'a>(&self, hctx: &'a Hctx) -> Option<Token<'a>> {
        loop {
            let token = self.turn(hctx);
            if token.is_some() {
                return token;
            }
            if self.is_over() {
                return None;
            }
            let left_ns = hctx.timers.wait_ns(clock::now_ns);
            self.waiter.wait(left_ns.map(Duration::from_nanos));
            if self.is_over() {
                return None;
            }
            hctx.run.unblock();
        }
    }

    /// Turns until nothing was published meanwhile, and announces the wait. Returns the token
    /// instead after a turn with wakers to run.
    fn turn<'a>(&self, hctx: &'a Hctx) -> Option<Token<'a>> {
        let token = hctx.try_take().or_else(|| {
            // Until the token holder has reaped, the driver reports that there is something to
            // reap.
            thread::yield_now();
            block(&mut At::new(hctx), None)
        });
        // If another thread has the token, that thread turns, and finds this one blocked.
        let mut kept = token;
        while let Some(mut token) = kept {
            hctx.timers.take();
            token.turn(now_ns(self.is_timed), Commit::Now);
            if token.runs_wakers() {
                return Some(token);
            }
            kept = release_to_wait(&mut At::new(hctx), token);
        }
        None
    }

    /// Passes the baton, then releases the token, which runs wakers (V4). No turn is owed (W6): the
    /// caller has made one since it last waited.
    fn run_wakers(&self, hctx: &Hctx, token: Token<'_>) {
        self.state.is_leading.store(false, Ordering::Relaxed);
        hctx.hand_off();
        token.finish();
    }
}
