//! Service thread of a disk: makes progress when no other thread is inside.
//!
//! It leads the shared context by the core's leading loop ([`wait::lead`]): it waits in the driver,
//! and all other waiters follow. Submitters still turn the context themselves. `service=on` starts
//! the thread with the disk. Otherwise the first future starts it, if no event loop drives the disk
//! ([`Shared::drive`]). So does the end of the last event loop.
//!
//! - V1 A thread that is started while another thread leads follows it, and becomes the leader when
//!   it receives the baton (W3), like any waiter. It keeps the baton until it steps down, or has
//!   wakers to run (V4).
//! - V2 It steps down when an event loop asks for the disk's descriptor, or when the disk is
//!   closed. If it is a follower, it steps down once it leads. If it is the leader, it passes the
//!   baton, makes the turn that it owes if no follower has received the baton (W6), and then wakes
//!   the event loops.
//! - V3 When the disk is closed, no other thread leads (a leader has a handle of the disk). So the
//!   service thread has the baton, receives it, or runs wakers, and then ends. If it waits in the
//!   driver and no kick ends that wait, the closing thread resigns for it.
//! - V4 It passes the baton before it runs wakers, and afterwards leads again or follows. A waker
//!   is foreign code, and may wait for another thread's blocking call, which needs a leader.
//! - V5 A disk has at most one thread that serves. If the last event loop ends before the thread
//!   has begun to step down, it continues: a follower would otherwise step down at any later time.
//!   If the thread has begun to step down, the next one starts beside it, and follows it until it
//!   passes the baton (V1). So no start waits for a waker that the former thread runs. The close of
//!   the disk joins all of them.
//!
//! [`Shared::drive`]: super::shared::Shared::drive

use crate::driver::Waiter;
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::hctx::{At, HasMailbox, Hctx, SHARED, Token, User, follow};
use crate::runtime::mailbox::Mailbox;
use crate::runtime::spare::reserve_spare;
use crate::sys::clock;
use crate::sys::primitive::{AtomicU32, Ordering, thread};
use forebay_core::wait::{self, Leader, NEVER, Timers};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The number of times, one per millisecond, that [`Service::end`] checks whether a thread that it
/// has replaced has ended. No time passes in a model.
const NR_LOOKS: u32 = match (cfg!(any(blk_loom, blk_shuttle)), cfg!(test)) {
    (true, _) => 0,
    (_, true) => 2,
    _ => 100,
};

/// State of a thread that serves.
const SERVES: u32 = 0;
/// State of a thread that was requested to step down, and has not seen the request.
const ASKED: u32 = 1;
/// State of a thread that steps down. It is the last one.
const OVER: u32 = 2;

/// The service thread, and its state shared with the disk.
#[derive(Debug)]
pub(crate) struct Service {
    thread: thread::JoinHandle<()>,
    /// [`SERVES`], [`ASKED`] or [`OVER`]. The thread has the other handle.
    state: Arc<AtomicU32>,
}

/// Starts the service thread of a disk.
///
/// # Errors
/// The OS error if the thread cannot be started.
pub(crate) fn start(hctxs: &Arc<[Hctx]>, waiter: &Arc<dyn Waiter>) -> io::Result<Service> {
    let leads = hctxs[SHARED].run.try_lead();
    let state = Arc::new(AtomicU32::new(SERVES));
    let (hctxs, waiter) = (Arc::clone(hctxs), Arc::clone(waiter));
    let server = Server { hctxs: Arc::clone(&hctxs), waiter, state: Arc::clone(&state) };
    let builder = thread::Builder::new().name(String::from("forebay-service"));
    let spawned =
        builder.stack_size(256 * 1024).spawn(move || AbortOnUnwind::guard(|| server.run(leads)));
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
    /// Requests that the thread steps down (V2), and ends its wait in the driver. Returns the
    /// token, before the thread has stepped down. The caller finishes it, under no lock: that may
    /// run wakers.
    ///
    /// A thread that has announced a wait is kicked. If it has not, it announces one after this
    /// thread took the token. So it sees the request when it tests again, and does not wait (W2).
    pub(crate) fn step_down<'a>(&self, hctx: &'a Hctx) -> Token<'a> {
        self.ask();
        kicked(hctx)
    }

    /// Requests that the thread steps down.
    fn ask(&self) {
        // Release: pairs with the acquire in `Server::is_over`. The change of the run word that
        // takes the token comes later, and publishes this store to all changes after it.
        let asked = Ordering::AcqRel;
        let _ = self.state.compare_exchange(SERVES, ASKED, asked, Ordering::Acquire);
    }

    /// Cancels the request to step down, unless the thread has begun to do so (V5). Returns the
    /// token if the thread serves on. The caller finishes it, under no lock: that makes a turn,
    /// which reaps what event loops have left, and may run wakers.
    ///
    /// Either this exchange succeeds and the thread sees no request, or that of `Server::is_over`
    /// does and the thread steps down for certain.
    pub(crate) fn serve_on<'a>(&self, hctx: &'a Hctx) -> Option<Token<'a>> {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let serves_on = self.state.compare_exchange(ASKED, SERVES, order.0, order.1).is_ok();
        serves_on.then(|| kicked(hctx))
    }

    /// Waits until a thread that has begun to step down has ended (V5), when the disk is closed.
    /// That thread no longer waits in the driver, but may run wakers.
    pub(crate) fn end_former(self) {
        if self.thread.thread().id() != thread::current().id() {
            // If it has panicked, the process has aborted.
            let _ = self.thread.join();
        }
        // Otherwise one of its wakers has dropped the last handle. It takes no token after that.
    }

    /// Returns a service thread that has begun to step down: `thread` does its remaining work.
    #[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
    pub(crate) fn stepping_down(thread: thread::JoinHandle<()>) -> Service {
        Service { thread, state: Arc::new(AtomicU32::new(OVER)) }
    }

    /// Waits until the thread has stepped down.
    #[cfg(test)]
    pub(crate) fn join(self) {
        self.thread.join().expect("no panic");
    }

    /// Ends the thread when the disk is closed. The thread does not lead any more when this
    /// returns, and takes no token. The caller then drains the disk.
    pub(crate) fn end(self, hctx: &Hctx, waiter: &dyn Waiter) {
        if self.thread.thread().id() == thread::current().id() {
            // The thread runs a waker that dropped the last handle. It no longer leads (V4).
            return self.ask();
        }
        let token = self.step_down(hctx);
        // Under the token: the thread has announced its wait and released the token, or it sees the
        // request before it waits. (If the ring ends later than this, the kick has arrived.)
        let is_replaced = waiter.misses_kicks() && hctx.run.resign_for_blocked();
        token.finish();
        if !is_replaced || self.is_gone_soon() {
            // If it has panicked, the process has aborted.
            let _ = self.thread.join();
        }
        // Otherwise the thread sleeps in the driver until the process ends.
    }

    /// Returns whether the thread ends without a kick, because its wait in the driver is short.
    #[cold]
    fn is_gone_soon(&self) -> bool {
        (0..NR_LOOKS).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            self.is_gone()
        })
    }

    /// Returns whether the thread has dropped its state.
    pub(crate) fn is_gone(&self) -> bool {
        Arc::strong_count(&self.state) == 1
    }
}

/// Takes the token and ends the wait of the leader in the driver.
fn kicked(hctx: &Hctx) -> Token<'_> {
    loop {
        if let Some(mut token) = hctx.try_take() {
            token.kick();
            return token;
        }
        thread::yield_now();
    }
}

/// State that the thread uses.
struct Server {
    hctxs: Arc<[Hctx]>,
    waiter: Arc<dyn Waiter>,
    state: Arc<AtomicU32>,
}

impl Server {
    /// Returns whether the thread steps down. After the first `true` it always does.
    fn is_over(&self) -> bool {
        let begin =
            || self.state.compare_exchange(ASKED, OVER, Ordering::AcqRel, Ordering::Acquire);
        match self.state.load(Ordering::Acquire) {
            SERVES => false,
            // If the request was cancelled meanwhile, the thread serves on.
            ASKED => begin().is_ok(),
            _ => true,
        }
    }

    fn run(&self, leads: bool) {
        reserve_spare();
        let (hctx, mailbox) = (&self.hctxs[SHARED], Arc::new(Mailbox::of_thread()));
        if !leads {
            follow_until_leader(hctx, &mailbox);
        }
        while !self.lead(hctx, &mailbox) {
            follow_until_leader(hctx, &mailbox);
        }
        hctx.wake_loops();
    }

    /// Leads until the thread steps down, or has run wakers (V4). Returns whether it steps down.
    fn lead(&self, hctx: &Hctx, mailbox: &Arc<Mailbox>) -> bool {
        wait::lead(&mut At::with(hctx, Serving { server: self, mailbox }), NEVER, None)
    }
}

/// Becomes the leader, or waits for the baton (V1).
fn follow_until_leader(hctx: &Hctx, mailbox: &Arc<Mailbox>) {
    while !hctx.run.try_lead() && !follow(hctx, mailbox) {}
}

/// The service thread while it leads.
struct Serving<'a> {
    server: &'a Server,
    mailbox: &'a Arc<Mailbox>,
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

    /// The thread that closes the disk replaces this one if no kick ends its wait
    /// ([`Service::end`]).
    fn unblock(&mut self) -> bool {
        self.hctx.run.unblock_unless_replaced()
    }
}

#[cfg(test)]
mod models;
