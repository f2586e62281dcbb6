//! Queue: a connection, under a lock that is hardly ever contended.
//!
//! The thread that holds the token uses the connection. Beside it there are only block-status
//! queries, which use the connection of the shared context ([`super::status`]). A thread that
//! receives takes the data for all.
// The traits of drivers are unsafe.
#![allow(unsafe_code)]

use super::link::Link;
use crate::driver::{Answer, Queue};
use crate::sys::event::{AnyOf, Event};
use crate::sys::fork::Origin;
use forebay_core::{BlockStatus, Completions, IssuedRequest, Op, Reap, Tag};
use forebay_nbd::client::{Command, Request};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The role of the thread that received data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It holds the token, and reaps.
    Reaper,
    /// It has sent a block-status query, and waits for the reply.
    StatusQuery,
    /// It waits beside the driver, and does neither.
    Waiter,
}

/// A connection, and the state that waiting threads check.
pub(super) struct Shared {
    link: Mutex<Link>,
    /// A duplicate of the connection's descriptor, so that a thread can wait without the lock.
    pub(super) fd: OwnedFd,
    /// Wakes the waiter: for a kick, for completions that another thread has received, or for data
    /// to be sent when there is room.
    pub(super) event: Event,
    /// Held by the one thread with a block-status query.
    pub(super) asking: Mutex<()>,
    /// Wakes that thread when another thread has received its reply.
    pub(super) answered: Event,
    /// Data wait to be sent, for which there was no room. The thread that holds the lock stores it
    /// with release before it signals the event. The waiter loads it with acquire after it has
    /// cleared the event. So the waiter sees it, or its wait ends.
    pub(super) for_room: AtomicBool,
    /// The connection is lost; published in the same way.
    pub(super) is_lost: AtomicBool,
    /// An event loop polls the connection. Each full reap then clears the event first.
    pub(super) watched: OnceLock<Watched>,
    pub(super) nr_syscalls: AtomicU64,
}

impl Shared {
    pub(super) fn new(link: Link) -> io::Result<Shared> {
        Ok(Shared {
            fd: link.stream.as_fd().try_clone_to_owned()?,
            link: Mutex::new(link),
            event: Event::new()?,
            asking: Mutex::new(()),
            answered: Event::new()?,
            for_room: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            watched: OnceLock::new(),
            nr_syscalls: AtomicU64::new(0),
        })
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the threads that wait for a change that only the thread in this role can see.
    #[inline]
    pub(super) fn wake_others(&self, link: &Link, role: Role) {
        let (for_room, is_lost) = (link.holds_back(), link.is_lost());
        // Relaxed: it changes only under the lock, which this thread holds.
        let is_news = for_room != self.for_room.load(Ordering::Relaxed)
            || is_lost != self.is_lost.load(Ordering::Relaxed);
        if is_news {
            self.for_room.store(for_room, Ordering::Release);
            self.is_lost.store(is_lost, Ordering::Release);
        }
        self.watch(link);
        if is_news && (for_room || is_lost) || role != Role::Reaper && link.has_done() {
            self.event.signal();
        }
        if role != Role::StatusQuery && link.query.has_answer() {
            self.answered.signal();
        }
    }
}

impl Shared {
    /// Receives on a connection without requests, because no thread reaps from it. Only its end or
    /// a protocol error can arrive there.
    pub(super) fn look_if_idle(&self) {
        let mut link = self.lock();
        if link.nr_in_flight() == 0 {
            link.receive(false);
            self.wake_others(&link, Role::Waiter);
        }
    }

    /// Updates what an event loop polls, if there is one. It polls for input only while there are
    /// requests, because it could not react to other input. It polls for room if data wait to be
    /// sent.
    #[inline]
    fn watch(&self, link: &Link) {
        if let Some(watched) = self.watched.get() {
            watched.set(link.nr_in_flight() > 0 && !link.is_lost(), link.holds_back());
        }
    }

    /// Returns a descriptor for an event loop.
    ///
    /// # Errors
    /// Returns the system's error if it has no resources for it.
    pub(super) fn poll_fd(&self) -> io::Result<BorrowedFd<'_>> {
        let link = self.lock();
        if self.watched.get().is_none() {
            let fd = self.fd.try_clone()?;
            let any = AnyOf::new([self.event.fd(), fd.as_fd()])?;
            let _ = self.watched.set(Watched { any, fd, now: AtomicU8::new(IS_INPUT) });
            self.watch(&link);
            // This signal makes the caller reap what was already received. With nothing in flight,
            // no reap follows.
            if link.nr_in_flight() > 0 {
                self.event.signal();
            }
        }
        Ok(self.watched.get().expect("just set").any.fd())
    }
}

/// The descriptors that an event loop polls.
pub(super) struct Watched {
    any: AnyOf,
    /// A duplicate of the connection's descriptor.
    fd: OwnedFd,
    /// [`IS_INPUT`] and [`IS_ROOM`]. Relaxed, because it changes only under the connection's lock.
    now: AtomicU8,
}

const IS_INPUT: u8 = 1;
const IS_ROOM: u8 = 2;

impl Watched {
    #[inline]
    fn set(&self, for_input: bool, for_room: bool) {
        let wanted = (u8::from(for_input) * IS_INPUT) | (u8::from(for_room) * IS_ROOM);
        if self.now.swap(wanted, Ordering::Relaxed) != wanted {
            self.any.change(self.fd.as_fd(), for_input, for_room);
        }
    }
}

pub(super) struct NbdQueue {
    shared: Arc<Shared>,
    origin: Origin,
}

impl NbdQueue {
    pub(super) fn new(shared: Arc<Shared>) -> NbdQueue {
        NbdQueue { shared, origin: Origin::here() }
    }
}

/// Converts a request to its form on the wire.
fn request_of(rq: &IssuedRequest<'_>) -> Request {
    let command = match rq.op {
        Op::Read => Command::Read,
        Op::Write => Command::Write { fua: rq.fua },
        Op::Flush => Command::Flush,
        Op::Discard => Command::Trim,
        Op::WriteZeroes => Command::WriteZeroes { fua: rq.fua },
    };
    Request { command, offset: rq.start, len: rq.len }
}

// SAFETY: as [`NbdDriver`](super::driver::NbdDriver) says. No method unwinds after a request began.
unsafe impl Queue for NbdQueue {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Answer {
        let mut link = self.shared.lock();
        if link.is_lost() {
            return Answer::Failed(BlockStatus::Offline);
        }
        link.begin(rq.tag, request_of(rq), rq.segments());
        Answer::Queued
    }

    fn commit_rqs(&mut self) {
        let mut link = self.shared.lock();
        link.send();
        self.shared.wake_others(&link, Role::Reaper);
    }

    fn reap(&mut self, done: &mut Completions, how: Reap) {
        let is_polled = self.shared.watched.get().is_some();
        if is_polled && how == Reap::Full {
            // Later completions signal the event again.
            self.shared.event.clear();
        }
        let mut link = self.shared.lock();
        if how == Reap::Full {
            link.receive(false);
            link.send();
        }
        link.take_done(done);
        self.shared.wake_others(&link, Role::Reaper);
    }

    fn cancel(&mut self, _tag: Tag) -> bool {
        false
    }

    fn has_ready(&self) -> bool {
        self.shared.lock().has_done()
    }

    fn nr_syscalls(&self) -> Option<u64> {
        Some(self.shared.lock().nr_syscalls)
    }
}

impl Drop for NbdQueue {
    /// The layer drains a driver before it drops it. After a panic, requests in flight are
    /// abandoned: only calls of this driver use their memory.
    fn drop(&mut self) {
        let mut link = self.shared.lock();
        assert!(
            link.nr_in_flight() == 0 || std::thread::panicking(),
            "a driver is drained before it is dropped"
        );
        // In a child of a fork the connection belongs to the parent.
        if link.nr_in_flight() == 0 && !self.origin.is_elsewhere() {
            link.disconnect();
        }
    }
}
