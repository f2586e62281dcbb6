//! Progress on the shared context while tasks sleep: by the service thread or by event loops.
//!
//! An event loop begins when a caller asks for the descriptor, and ends when the caller drops its
//! handle. While there is one, the service thread is not needed: futures start none, and one that a
//! future has started steps down. When the last event loop ends, a new thread starts, because
//! futures may be waiting. Its first turn reaps everything that the loops have left.

use crate::driver::Waiter;
use crate::runtime::hctx::{Hctx, SHARED, Token};
use crate::runtime::service::{self, Service};
use crate::sys::event::{AnyOf, Event};
use crate::sys::primitive::{AtomicBool, Mutex, Ordering, lock};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};

/// Parts of the disk that the service thread and the descriptor use.
#[derive(Clone, Copy)]
pub(super) struct Seat<'a> {
    pub(super) hctxs: &'a Arc<[Hctx]>,
    pub(super) waiter: &'a Arc<dyn Waiter>,
    pub(super) ends_at_once: bool,
}

/// The service thread, and the descriptor for event loops.
pub(super) struct Driving {
    /// Created for the first event loop.
    watched: OnceLock<Arc<Watched>>,
    state: Mutex<State>,
    /// Set by `service=on`: the service thread does not step down.
    keeps_service: bool,
    /// The service thread or an event loop makes progress on the shared context. Changes under the
    /// lock of `state`.
    is_driven: AtomicBool,
}

/// Finishes a token, if there is one: makes a turn, which may run wakers.
fn finish(token: Option<Token<'_>>) {
    if let Some(token) = token {
        token.finish();
    }
}

#[derive(Default)]
struct State {
    /// The service thread. Started by `service=on`, by the first future, or by the end of the last
    /// event loop. The value stays here after the thread has stepped down, until the next one
    /// starts or the disk is closed.
    service: Option<Service>,
    /// Service threads that have begun to step down, and may run wakers (V5).
    former: Vec<Service>,
    nr_loops: usize,
    /// One of the loops has borrowed the descriptor, and ends when the disk is closed.
    has_borrowed: bool,
}

/// The descriptor that event loops watch. It stays valid after the disk is closed.
#[derive(Debug)]
pub(crate) struct Watched {
    any: AnyOf,
    /// Signalled when the disk is closed.
    closed: Event,
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.any.fd()
    }
}

impl Watched {
    /// Returns whether the descriptor is readable.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_readable(&self) -> bool {
        self.any.is_readable()
    }

    fn open(seat: Seat<'_>) -> io::Result<Watched> {
        let driver = seat.waiter.poll_fd()?;
        let closed = Event::new()?;
        let any = seat.hctxs[SHARED].watch(driver.into_iter().chain([closed.fd()]))?;
        Ok(Watched { any, closed })
    }
}

impl Driving {
    pub(super) fn new(keeps_service: bool) -> Driving {
        let (watched, is_driven) = (OnceLock::new(), AtomicBool::new(false));
        Driving { watched, state: Mutex::default(), keeps_service, is_driven }
    }

    pub(super) fn has_service(&self) -> bool {
        lock(&self.state).service.is_some()
    }

    #[cfg(test)]
    pub(super) fn take_service(&self) -> Option<Service> {
        lock(&self.state).service.take()
    }

    /// Ensures progress on the shared context while tasks sleep: starts the service thread, unless
    /// it already exists or an event loop drives the disk. Does nothing if every request completes
    /// in the turn that issues it.
    ///
    /// # Errors
    /// The OS error if the thread cannot be started.
    pub(super) fn drive(&self, seat: Seat<'_>) -> io::Result<()> {
        // Relaxed: `false` is checked again under the lock. If `true` is obsolete, the thread that
        // cleared it starts the service thread, and the first turn of that thread comes later.
        match self.is_driven.load(Ordering::Relaxed) || seat.ends_at_once {
            true => Ok(()),
            false => self.start_service(seat),
        }
    }

    #[cold]
    pub(super) fn start_service(&self, seat: Seat<'_>) -> io::Result<()> {
        let mut state = lock(&self.state);
        let token = match self.is_driven.load(Ordering::Relaxed) {
            true => None,
            false => self.start(&mut state, seat)?,
        };
        drop(state);
        finish(token);
        Ok(())
    }

    /// Starts a service thread. If the previous one was requested to step down but has not begun
    /// to, it continues instead, and this returns the token, which the caller finishes under no
    /// lock. Does not wait for a previous one.
    fn start<'a>(&self, state: &mut State, seat: Seat<'a>) -> io::Result<Option<Token<'a>>> {
        // V5.
        let serves_on = |service: &Service| service.serve_on(&seat.hctxs[SHARED]);
        if let Some(token) = state.service.as_ref().and_then(serves_on) {
            self.is_driven.store(true, Ordering::Relaxed);
            return Ok(Some(token));
        }
        let next = service::start(seat.hctxs, seat.waiter)?;
        state.former.retain(|service| !service.is_gone());
        state.former.extend(state.service.replace(next));
        self.is_driven.store(true, Ordering::Relaxed);
        Ok(None)
    }

    /// Begins an event loop that borrows the descriptor, unless one has done so before.
    pub(super) fn poll_fd(&self, seat: Seat<'_>) -> io::Result<BorrowedFd<'_>> {
        let mut state = lock(&self.state);
        if !state.has_borrowed {
            let token = self.begin(&mut state, seat)?;
            state.has_borrowed = true;
            drop(state);
            finish(token);
            seat.hctxs[SHARED].wake_loops();
        }
        Ok(self.watched.get().expect("a loop has begun").as_fd())
    }

    /// Begins an event loop. Returns its descriptor.
    pub(super) fn begin_loop(&self, seat: Seat<'_>) -> io::Result<Arc<Watched>> {
        let token = self.begin(&mut lock(&self.state), seat)?;
        finish(token);
        seat.hctxs[SHARED].wake_loops();
        Ok(Arc::clone(self.watched.get().expect("a loop has begun")))
    }

    /// Begins an event loop. Returns the token if the service thread steps down. The caller
    /// finishes it under no lock, and then wakes the loops.
    #[cold]
    fn begin<'a>(&self, state: &mut State, seat: Seat<'a>) -> io::Result<Option<Token<'a>>> {
        if self.watched.get().is_none() {
            let _ = self.watched.set(Arc::new(Watched::open(seat)?));
        }
        state.nr_loops += 1;
        if state.nr_loops > 1 {
            return Ok(None);
        }
        self.is_driven.store(true, Ordering::Relaxed);
        let service = state.service.as_ref().filter(|_| !self.keeps_service);
        Ok(service.map(|service| service.step_down(&seat.hctxs[SHARED])))
    }

    /// Ends an event loop. If it was the last one, the service thread takes over. If that cannot be
    /// started, the next future tries again.
    #[cold]
    pub(super) fn end_loop(&self, seat: Seat<'_>) {
        let mut state = lock(&self.state);
        state.nr_loops -= 1;
        if state.nr_loops == 0 && !self.keeps_service {
            self.is_driven.store(false, Ordering::Relaxed);
            if !seat.ends_at_once {
                let started = self.start(&mut state, seat);
                drop(state);
                finish(started.unwrap_or_default());
            }
        }
    }

    /// Ends the service threads and wakes the event loops, because the disk is closed.
    pub(super) fn end(&mut self, hctx: &Hctx, waiter: &dyn Waiter) {
        if let Some(watched) = self.watched.get() {
            watched.closed.signal();
        }
        let State { service, former, .. } = std::mem::take(&mut *lock(&self.state));
        if let Some(service) = service {
            service.end(hctx, waiter);
        }
        former.into_iter().for_each(Service::end_former);
    }

    /// Leaks the service thread in a child of a fork: it belongs to the parent.
    pub(super) fn forget(&mut self) {
        std::mem::forget(std::mem::take(&mut self.state));
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests;
