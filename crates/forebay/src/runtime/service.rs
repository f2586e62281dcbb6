//! A thread that makes progress on a disk when nobody else is inside (`service=on`).
//!
//! It is the leader of the shared context, for ever: it waits in the driver, and everybody else
//! follows. Submitters still turn the context themselves.

use crate::driver::Waiter;
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::hctx::{Hctx, now_ns};
use crate::runtime::primitive::{AtomicBool, Ordering, thread};
use crate::runtime::shared::SHARED;
use crate::runtime::thread::reserve_spare;
use forebay_core::Commit;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The thread, and what it has of the disk.
#[derive(Debug)]
pub(crate) struct Service {
    thread: JoinHandle<()>,
    is_over: Arc<AtomicBool>,
}

/// Starts the thread of a disk that nobody else knows of yet.
pub(crate) fn start(
    hctxs: &Arc<[Hctx]>,
    waiter: &Arc<dyn Waiter>,
    is_timed: bool,
) -> io::Result<Service> {
    let leads = hctxs[SHARED].run.try_lead();
    assert!(leads, "a new disk has no leader");
    let is_over = Arc::new(AtomicBool::new(false));
    let server = Server {
        hctxs: Arc::clone(hctxs),
        waiter: Arc::clone(waiter),
        is_over: Arc::clone(&is_over),
        is_timed,
    };
    let builder = std::thread::Builder::new().name(String::from("forebay-service"));
    let thread =
        builder.stack_size(256 * 1024).spawn(move || AbortOnUnwind::guard(|| server.serve()))?;
    Ok(Service { thread, is_over })
}

impl Service {
    /// The disk is closed: the thread ends, and nobody leads the context then.
    pub(crate) fn end(self, hctx: &Hctx) {
        // Release, with the acquire in `serve`. The kick comes after: it is seen by who returns.
        self.is_over.store(true, Ordering::Release);
        // It may be this one: it woke somebody, who dropped the last handle.
        if self.thread.thread().id() != std::thread::current().id() {
            loop {
                if let Some(token) = hctx.try_take() {
                    token.kick();
                    break;
                }
                thread::yield_now();
            }
            // If it has panicked, the process has aborted.
            let _ = self.thread.join();
        }
        if hctx.run.is_blocked() {
            hctx.run.unblock();
        }
        hctx.run.resign();
    }
}

/// What the thread works with.
struct Server {
    hctxs: Arc<[Hctx]>,
    waiter: Arc<dyn Waiter>,
    is_over: Arc<AtomicBool>,
    is_timed: bool,
}

impl Server {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn serve(&self) {
        reserve_spare();
        let hctx = &self.hctxs[SHARED];
        loop {
            let timeout = self.turn(hctx);
            if self.is_over() {
                return;
            }
            self.waiter.wait(timeout);
            if self.is_over() {
                return;
            }
            hctx.run.unblock();
        }
    }

    /// Turns until nothing was published meanwhile, and announces the wait. Says for how long to
    /// wait at most.
    fn turn(&self, hctx: &Hctx) -> Option<std::time::Duration> {
        let token = hctx.try_take().or_else(|| {
            // Until its holder has reaped, the driver says that there is something to reap.
            thread::yield_now();
            hctx.block()
        });
        // Without it another turns, and knows that we wait.
        let mut kept = token;
        while let Some(mut token) = kept {
            hctx.timer.begin();
            token.turn(now_ns(self.is_timed), Commit::Now, None, None);
            kept = token.release_to_wait();
        }
        hctx.delay_left()
    }
}
