//! Where new connections come to a worker, and answers that it does not wait for.

use super::slots::Key;
use crate::listen::Peer;
use forebay::Extent;
use forebay_nbd::server::Request;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A connection that has just been accepted.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) fd: OwnedFd,
    pub(crate) peer: Peer,
}

/// What a disk has said of a range that a client has asked about.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) conn: Key,
    pub(super) rq: Request,
    pub(super) extents: Result<Vec<Extent>, String>,
}

/// Who waits at a door.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) arrivals: Vec<Arrival>,
    /// The worker is to stop: nobody comes after these.
    pub(crate) is_closing: bool,
}

/// The door of one worker: the accepting thread puts connections there.
#[derive(Debug)]
pub(crate) struct Door {
    waiting: Mutex<Waiting>,
    answers: Mutex<Vec<Answer>>,
    /// Connections that are in, or wait to be. Relaxed: it is a count to choose by.
    nr_conns: AtomicUsize,
    event: OwnedFd,
    /// Where a panic of the worker's is told: it is the server's, of all doors.
    panicked: Arc<OwnedFd>,
}

impl Door {
    pub(crate) fn new(panicked: Arc<OwnedFd>) -> std::io::Result<Door> {
        Ok(Door {
            waiting: Mutex::default(),
            answers: Mutex::default(),
            nr_conns: AtomicUsize::new(0),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            panicked,
        })
    }

    /// Readable when somebody is at the door.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// How many connections the worker has.
    pub(crate) fn nr_conns(&self) -> usize {
        self.nr_conns.load(Ordering::Relaxed)
    }

    /// Brings a connection.
    pub(crate) fn bring(&self, arrival: Arrival) {
        self.nr_conns.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().expect("nobody panics here").arrivals.push(arrival);
        self.ring();
    }

    /// Brings an answer.
    pub(super) fn answer(&self, answer: Answer) {
        self.answers.lock().expect("nobody panics here").push(answer);
        self.ring();
    }

    /// Takes the answers that are there. Call it after [`Door::take`], which takes the event.
    pub(super) fn take_answers(&self) -> Vec<Answer> {
        std::mem::take(&mut *self.answers.lock().expect("nobody panics here"))
    }

    /// Tells the worker to stop. Nothing may be brought afterwards.
    pub(crate) fn close(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_closing = true;
        self.ring();
    }

    fn ring(&self) {
        // It fails only where the count is at its end, and then the worker is told already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Takes who waits, and what is known of who will come: both in one look, so that nobody comes
    /// in between who would not be told that the worker stops.
    pub(crate) fn take(&self) -> Waiting {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        let mut waiting = self.waiting.lock().expect("nobody panics here");
        let is_closing = waiting.is_closing;
        Waiting { arrivals: std::mem::take(&mut waiting.arrivals), is_closing }
    }

    /// The worker has panicked: it will not open any more.
    pub(crate) fn tell_panic(&self) {
        // The count of an event is far from its end, so this does not fail.
        let _ = rustix::io::write(&self.panicked, &1_u64.to_ne_bytes());
    }

    /// Has the worker panic at the next thing that comes through its door.
    #[cfg(test)]
    pub(crate) fn poison(&self) {
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _held = self.waiting.lock();
                panic!("a test has this lock poisoned");
            });
            assert!(panics.join().is_err());
        });
        self.ring();
    }

    /// A connection has ended.
    pub(crate) fn closed(&self) {
        self.nr_conns.fetch_sub(1, Ordering::Relaxed);
    }
}
