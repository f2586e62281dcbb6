//! Inbox of a worker: new connections, changes of the exports, and answers of the BLOCK_STATUS
//! threads.

use crate::export::Export;
use crate::inbox::Inbox;
use crate::listen::Peer;
use crate::sizes::ResizeInbox;
use forebay_front::nbd::StatusAnswer;
use forebay_nbd::export::ExportInfo;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;

/// Command of another thread to a worker.
#[derive(Debug)]
pub(crate) enum WorkerCommand {
    /// Serve a connection that has just been accepted.
    Accept(OwnedFd, Peer),
    /// Use these descriptions of the exports: sizes have changed.
    Resize(Arc<[ExportInfo]>),
    /// Open an export that was added, and offer it.
    Add(NewExport),
    /// Offer these exports only, and leave the one with this index, which was withdrawn.
    Withdraw { index: usize, infos: Arc<[ExportInfo]> },
    /// End the clients of the export with this index, which was withdrawn.
    EndClients { index: usize },
    /// Send the answer to a BLOCK_STATUS request.
    Answer(StatusAnswer),
}

/// An export that was added while the server runs.
#[derive(Clone, Debug)]
pub(crate) struct NewExport {
    pub(crate) index: usize,
    pub(crate) export: Arc<Export>,
    /// The descriptions of all exports.
    pub(crate) infos: Arc<[ExportInfo]>,
    /// Receives a message when the worker has its queue.
    pub(crate) answer: SyncSender<()>,
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
