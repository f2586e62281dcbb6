//! The driver of one queue: a connection, under a lock that is hardly ever waited for.
//!
//! Whoever has the token uses the connection; beside it there are only questions about extents,
//! which go over the connection of the shared context ([`super::status`]). Whoever receives takes
//! what there is for all.

use super::link::Link;
use super::socket::Socket;
use crate::driver::Mode;
use crate::runtime::event::{AnyOf, Event};
use crate::runtime::fork::Origin;
use forebay_core::{BlockStatus, Completions, Driver, Issue, IssuedRequest, Look, Op};
use forebay_nbd::client::{Command, Request};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Who has received what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Who has the token, and reaps.
    Reaper,
    /// Who has a question, and looks for its answer.
    Asker,
    /// Who waits beside the driver, and does neither.
    Waiter,
}

/// A connection, and what those who wait for it look at.
pub(super) struct Shared {
    link: Mutex<Link>,
    /// The connection's descriptor, of its own, so that it can be waited for without the lock.
    pub(super) fd: OwnedFd,
    /// Tells the one that waits: of a kick, of completions that another has received, of something
    /// that is to be sent when there is room.
    pub(super) event: Event,
    /// Somebody has a question.
    pub(super) asking: Mutex<()>,
    /// Tells that one of its answer, which another has received.
    pub(super) answered: Event,
    /// There is something to send, for which there was no room. Release by who holds the lock,
    /// before the event is signalled; acquired by who waits, after it was cleared: so the waiter
    /// sees it, or its wait ends.
    pub(super) for_room: AtomicBool,
    /// The connection is lost; published in the same way.
    pub(super) is_lost: AtomicBool,
    /// Somebody watches with an event loop. The event is cleared before each reap then.
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

    /// Tells those who wait what they would not see for themselves, since `by` has received it.
    #[inline]
    pub(super) fn tell(&self, link: &Link, by: By) {
        let (for_room, is_lost) = (link.holds_back(), link.is_lost());
        // Relaxed: it is changed under the lock alone, which we hold.
        let is_news = for_room != self.for_room.load(Ordering::Relaxed)
            || is_lost != self.is_lost.load(Ordering::Relaxed);
        if is_news {
            self.for_room.store(for_room, Ordering::Release);
            self.is_lost.store(is_lost, Ordering::Release);
        }
        self.watch(link);
        if is_news && (for_room || is_lost) || by != By::Reaper && link.has_done() {
            self.event.signal();
        }
        if by != By::Asker && link.asked.has_answer() {
            self.answered.signal();
        }
    }
}

impl Shared {
    /// Nobody reaps from a connection without requests: what comes there is its end, or breaks it.
    pub(super) fn look_if_idle(&self) {
        let mut link = self.lock();
        if link.nr_in_flight() == 0 {
            link.receive(false);
            self.tell(&link, By::Waiter);
        }
    }

    /// Has an event loop told, if there is one, of what comes while there are requests, since it
    /// could do nothing about what comes without; and of room, if that is waited for.
    #[inline]
    fn watch(&self, link: &Link) {
        if let Some(watched) = self.watched.get() {
            watched.set(link.nr_in_flight() > 0 && !link.is_lost(), link.holds_back());
        }
    }

    /// A descriptor for an event loop.
    pub(super) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        let link = self.lock();
        if self.watched.get().is_none() {
            let fd = self.fd.try_clone().ok()?;
            let any = AnyOf::new([self.event.fd(), fd.as_fd()]).ok()?;
            let _ = self.watched.set(Watched { any, fd, now: AtomicU8::new(IS_INPUT) });
            self.watch(&link);
            // What was received already is reaped by this. (With nothing in flight nobody reaps.)
            if link.nr_in_flight() > 0 {
                self.event.signal();
            }
        }
        self.watched.get().map(|watched| watched.any.fd())
    }
}

/// What an event loop watches.
pub(super) struct Watched {
    any: AnyOf,
    /// The connection's.
    fd: OwnedFd,
    /// [`IS_INPUT`] and [`IS_ROOM`]. Changed under the connection's lock alone, hence Relaxed.
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

pub(super) struct NbdDriver {
    shared: Arc<Shared>,
    mode: Mode,
    origin: Origin,
}

impl NbdDriver {
    pub(super) fn new(shared: Arc<Shared>, mode: Mode) -> NbdDriver {
        NbdDriver { shared, mode, origin: Origin::here() }
    }
}

/// What a request is on the wire.
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

impl Driver for NbdDriver {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        let mut link = self.shared.lock();
        if link.is_lost() {
            return Issue::Failed(BlockStatus::Offline);
        }
        link.begin(rq.tag, request_of(rq), rq.segments());
        Issue::Queued
    }

    fn commit_rqs(&mut self) {
        let mut link = self.shared.lock();
        link.send();
        self.shared.tell(&link, By::Reaper);
    }

    fn reap(&mut self, done: &mut Completions, look: Look) {
        let is_polled = self.shared.watched.get().is_some();
        if is_polled && look == Look::Hard {
            // What comes after this is told again.
            self.shared.event.clear();
        }
        let mut link = self.shared.lock();
        if look == Look::Hard {
            link.receive(false);
            link.send();
        }
        link.take_done(done);
        self.shared.tell(&link, By::Reaper);
    }

    fn wait(&mut self, nr_completions: u32) {
        let nr = (nr_completions as usize).max(1);
        let mut link = self.shared.lock();
        loop {
            link.send();
            // An owner has the connection to itself.
            let waits = self.mode == Mode::Owned
                && link.nr_done() < nr
                && link.stream.can_wait()
                && !link.holds_back();
            let before = link.nr_syscalls;
            link.receive(waits);
            if link.nr_done() >= nr || link.is_lost() {
                break;
            }
            if waits {
                // A signal of the system's, or too little.
                if link.nr_syscalls - before == 1 && !link.has_done() {
                    break;
                }
                continue;
            }
            let for_room = link.holds_back();
            link.nr_syscalls += 1;
            drop(link);
            Socket::poll(Some((self.shared.fd.as_fd(), for_room)), None, None);
            link = self.shared.lock();
        }
        self.shared.tell(&link, By::Reaper);
    }

    fn kick(&mut self) {
        if self.mode == Mode::Shared {
            self.shared.event.signal();
        }
    }

    fn has_ready(&self) -> bool {
        self.shared.lock().has_done()
    }

    fn nr_syscalls(&self) -> u64 {
        self.shared.lock().nr_syscalls
    }
}

impl Drop for NbdDriver {
    /// The layer drains before it drops a driver. What is in flight for all that, after a panic, is
    /// left: its memory is used by calls of this driver alone.
    fn drop(&mut self) {
        let mut link = self.shared.lock();
        assert!(link.nr_in_flight() == 0 || std::thread::panicking(), "a driver is drained first");
        // In a child of a fork it is the parent's connection.
        if link.nr_in_flight() == 0 && !self.origin.is_elsewhere() {
            link.disconnect();
        }
    }
}
