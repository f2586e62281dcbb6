//! Inbox of a worker: new connections, the order to stop, new sizes of the exports, and answers of
//! the BLOCK_STATUS thread.

use crate::listen::Peer;
use crate::sizes::ResizeInbox;
use forebay_front::nbd::StatusAnswer;
use forebay_nbd::export::ExportInfo;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A connection that has just been accepted.
#[derive(Debug)]
pub(crate) struct NewConnection {
    pub(crate) fd: OwnedFd,
    pub(crate) peer: Peer,
}

/// Content of the inbox.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) new_connections: Vec<NewConnection>,
    /// Descriptions of the exports, if sizes have changed.
    pub(crate) resized: Option<Arc<[ExportInfo]>>,
    /// The worker must stop. No connection follows these.
    pub(crate) is_closing: bool,
}

/// Inbox of one worker. The accept loop puts new connections there.
#[derive(Debug)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    answers: Mutex<Vec<StatusAnswer>>,
    /// Open connections, including those in the inbox. Relaxed: it is only used to balance the
    /// load.
    nr_conns: AtomicUsize,
    event: OwnedFd,
    /// Eventfd shared by all workers; signalled when a worker panics.
    panicked: Arc<OwnedFd>,
}

impl Inbox {
    pub(crate) fn new(panicked: Arc<OwnedFd>) -> std::io::Result<Inbox> {
        Ok(Inbox {
            waiting: Mutex::default(),
            answers: Mutex::default(),
            nr_conns: AtomicUsize::new(0),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            panicked,
        })
    }

    /// Returns an eventfd that is readable when the inbox has something new.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Returns the number of connections of the worker.
    pub(crate) fn nr_conns(&self) -> usize {
        self.nr_conns.load(Ordering::Relaxed)
    }

    /// Adds a connection, and wakes the worker.
    pub(crate) fn push(&self, connection: NewConnection) {
        self.nr_conns.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().expect("no panic under this lock").new_connections.push(connection);
        self.ring();
    }

    /// Adds an answer, and wakes the worker.
    pub(super) fn answer(&self, answer: StatusAnswer) {
        self.answers.lock().expect("no panic under this lock").push(answer);
        self.ring();
    }

    /// Takes all answers. Call it after [`Inbox::take`], which resets the eventfd.
    pub(super) fn take_answers(&self) -> Vec<StatusAnswer> {
        std::mem::take(&mut *self.answers.lock().expect("no panic under this lock"))
    }

    /// Makes the worker stop. Nothing may be added afterwards.
    pub(crate) fn close(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_closing = true;
        self.ring();
    }

    fn ring(&self) {
        // The write fails only if the counter is at its maximum: then the eventfd is signalled
        // already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Takes all new connections, new sizes, and whether the worker must stop. One lock protects
    /// these, so that no connection arrives after the order to stop was taken.
    pub(crate) fn take(&self) -> Waiting {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        let is_closing = waiting.is_closing;
        let resized = waiting.resized.take();
        Waiting {
            new_connections: std::mem::take(&mut waiting.new_connections),
            resized,
            is_closing,
        }
    }

    /// Signals the accept loop that the worker has panicked and serves no connection any more.
    pub(crate) fn report_panic(&self) {
        // The counter of the eventfd is far below its maximum, so the write does not fail.
        let _ = rustix::io::write(&self.panicked, &1_u64.to_ne_bytes());
    }

    /// Poisons the lock, so that the worker panics when it next takes from the inbox.
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

    /// Counts a closed connection.
    pub(crate) fn closed(&self) {
        self.nr_conns.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ResizeInbox<Arc<[ExportInfo]>> for Inbox {
    fn resize(&self, infos: Arc<[ExportInfo]>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).resized = Some(infos);
        self.ring();
    }
}
