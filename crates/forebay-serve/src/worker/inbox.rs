//! Inbox of a worker: new connections, new sizes of the exports, and answers of the BLOCK_STATUS
//! threads.

use crate::inbox::Inbox;
use crate::listen::Peer;
use crate::sizes::ResizeInbox;
use forebay_front::nbd::StatusAnswer;
use forebay_nbd::export::ExportInfo;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Command of another thread to a worker.
#[derive(Debug)]
pub(crate) enum WorkerCommand {
    /// Serve a connection that has just been accepted.
    Accept(OwnedFd, Peer),
    /// Use these descriptions of the exports: sizes have changed.
    Resize(Arc<[ExportInfo]>),
    /// Send the answer to a BLOCK_STATUS request.
    Answer(StatusAnswer),
}

/// Inbox of one worker, with the number of its connections.
#[derive(Debug)]
pub(crate) struct WorkerInbox {
    inbox: Inbox<WorkerCommand>,
    /// Open connections, including those in the inbox. Relaxed: it is only used to balance the
    /// load.
    nr_conns: AtomicUsize,
}

impl WorkerInbox {
    pub(crate) fn new(panicked: Arc<OwnedFd>) -> std::io::Result<WorkerInbox> {
        Ok(WorkerInbox { inbox: Inbox::new(panicked)?, nr_conns: AtomicUsize::new(0) })
    }

    /// Returns the number of connections of the worker.
    pub(crate) fn nr_conns(&self) -> usize {
        self.nr_conns.load(Ordering::Relaxed)
    }

    /// Adds a connection, and wakes the worker.
    pub(crate) fn accept(&self, fd: OwnedFd, peer: Peer) {
        self.nr_conns.fetch_add(1, Ordering::Relaxed);
        self.inbox.push(WorkerCommand::Accept(fd, peer));
    }

    /// Counts a closed connection.
    pub(crate) fn closed(&self) {
        self.nr_conns.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ResizeInbox<Arc<[ExportInfo]>> for WorkerInbox {
    fn resize(&self, infos: Arc<[ExportInfo]>) {
        self.inbox.push(WorkerCommand::Resize(infos));
    }
}

impl Deref for WorkerInbox {
    type Target = Inbox<WorkerCommand>;

    fn deref(&self) -> &Inbox<WorkerCommand> {
        &self.inbox
    }
}
