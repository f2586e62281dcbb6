//! Service thread of a disk: makes progress when no other thread is inside.
//!
//! It leads the shared context by the core's leading loop ([`wait::lead`]): it waits in the driver,
//! and all other waiters follow. Submitters still turn the context themselves. `service=on` starts
//! the thread with the disk. Otherwise the first future starts it, if no event loop drives the disk
//! ([`Shared::drive`]).
//!
//! - V1 A thread that is started while another thread leads follows it, and becomes the leader when
//!   it receives the baton (W3), like any waiter. It keeps the baton until it steps down, or has
//!   wakers to run (V4).
//! - V2 It steps down when an event loop asks for the disk's descriptor, or when the disk is
//!   closed. If it is a follower, it steps down once it leads. If it is the leader, it passes the
//!   baton, makes the turn that it owes if no follower has received the baton (W6), and then wakes
//!   the event loops.
//! - V3 When the disk is closed, no other thread leads (a leader has a handle of the disk). So the
//!   service thread has the baton, receives it, or runs wakers, and then ends.
//! - V4 It passes the baton before it runs wakers, and afterwards leads again or follows. A waker
//!   is foreign code, and may wait for another thread's blocking call, which needs a leader.
//!
//! [`Shared::drive`]: super::shared::Shared::drive

use crate::driver::Waiter;
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::hctx::{At, HasMailbox, Hctx, SHARED, Token, User, follow};
use crate::runtime::mailbox::Mailbox;
use crate::runtime::spare::reserve_spare;
use crate::sys::clock;
use crate::sys::primitive::{AtomicBool, Ordering, thread};
use forebay_core::wait::{self, Leader, NEVER, Timers};
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
pub(crate) fn start(hctxs: &Arc<[Hctx]>, waiter: &Arc<dyn Waiter>) -> io::Result<Service> {
    let leads = hctxs[SHARED].run.try_lead();
    let (is_over, is_leading) = (AtomicBool::new(false), AtomicBool::new(leads));
    let state = Arc::new(State { is_over, is_leading, is_gone: false.into() });
    let (hctxs, waiter) = (Arc::clone(hctxs), Arc::clone(waiter));
    let server = Server { hctxs: Arc::clone(&hctxs), waiter, state: Arc::clone(&state) };
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
        let is_own = self.thread.thread().id() == thread::current().id();
        if !is_own {
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
        } else if !is_own {
            // The thread has resigned meanwhile, so its wait is over. It may still make a turn that
            // it owes.
            let _ = self.thread.join();
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
        while !self.lead(hctx, &mailbox) {
            self.follow(hctx, &mailbox);
        }
        hctx.wake_loops();
        self.state.is_gone.store(true, Ordering::Relaxed);
    }

    /// Becomes the leader, or waits for the baton (V1).
    fn follow(&self, hctx: &Hctx, mailbox: &Arc<Mailbox>) {
        while !hctx.run.try_lead() && !follow(hctx, mailbox) {}
        self.state.is_leading.store(true, Ordering::Relaxed);
    }

    /// Leads until the thread steps down, or has run wakers (V4). Returns whether it steps down.
    fn lead(&self, hctx: &Hctx, mailbox: &Arc<Mailbox>) -> bool {
        let serving = Serving { server: self, mailbox, has_resigned: false };
        wait::lead(&mut At::with(hctx, serving), NEVER, None)
    }
}

/// The service thread while it leads.
struct Serving<'a> {
    server: &'a Server,
    mailbox: &'a Arc<Mailbox>,
    /// This thread, and not the one that closes the disk, has cleared `is_leading`.
    has_resigned: bool,
}

impl User for Serving<'_> {}

impl HasMailbox for Serving<'_> {
    fn mailbox(&self) -> &Arc<Mailbox> {
        self.mailbox
    }

    /// Returns whether the thread has to step down (V2). No bio is delivered to its mailbox.
    fn is_over(&self, _goal: u64) -> bool {
        self.server.is_over()
    }
}

impl<'a> Leader for At<'a, Serving<'_>> {
    fn timers(&self) -> &Timers {
        &self.hctx.timers
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn leave_to_wait(&mut self, token: &mut Token<'a>) -> bool {
        token.leave_to_wait()
    }

    fn take_back(&mut self) -> bool {
        self.thread.server.waiter.take_back()
    }

    fn yield_now(&mut self) {
        thread::yield_now();
    }

    fn wait_in_driver(&mut self, timeout_ns: Option<u64>) {
        self.thread.server.waiter.wait(timeout_ns.map(Duration::from_nanos));
    }

    fn waits_for_bios(&self) -> bool {
        false
    }

    /// Returns whether the disk was closed while no kick could end the wait
    /// ([`Service::end`]).
    fn was_replaced(&mut self) -> bool {
        self.thread.server.is_over() && !self.resigns()
    }

    fn resigns(&mut self) -> bool {
        let Serving { server, has_resigned, .. } = &mut self.thread;
        if !*has_resigned {
            // AcqRel: only one of the two threads resigns.
            *has_resigned = server.state.is_leading.swap(false, Ordering::AcqRel);
        }
        *has_resigned
    }
}
