//! The rings of a traced disk, from the threads that write them to the one that reads them.

use forebay_core::{TraceReader, TraceWriter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The writer of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The hardware context with this index.
    Context(usize),
    /// A thread that submits I/O.
    Thread {
        /// Its number in the system.
        id: u32,
        /// Its name, or an empty string.
        name: String,
    },
}

/// A ring that the recorder has not seen yet.
#[derive(Debug)]
pub(crate) struct NewRing {
    pub(crate) source: Source,
    pub(crate) reader: TraceReader,
}

/// The rings of a traced disk. Threads add theirs, and the recorder takes them.
#[derive(Debug)]
pub(crate) struct DiskRings {
    /// The capacity of each ring, in records.
    nr_records: usize,
    added: Mutex<Vec<NewRing>>,
    /// No ring is read any more.
    is_closed: AtomicBool,
    /// The disk was closed: no ring is written any more.
    is_disk_closed: AtomicBool,
}

impl DiskRings {
    pub(crate) fn new(nr_records: usize) -> DiskRings {
        let (is_closed, is_disk_closed) = (AtomicBool::new(false), AtomicBool::new(false));
        DiskRings { nr_records, added: Mutex::default(), is_closed, is_disk_closed }
    }

    /// Ends the rings: no more are created.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        drop(self.take_added());
    }

    /// Returns whether the rings have ended.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Records that the disk was closed. The records of its I/O are in the rings.
    pub(super) fn close_disk(&self) {
        // Release: pairs with the load of the recorder, which then finds all records.
        self.is_disk_closed.store(true, Ordering::Release);
    }

    /// Returns whether the disk was closed.
    pub(crate) fn is_disk_closed(&self) -> bool {
        self.is_disk_closed.load(Ordering::Acquire)
    }

    /// Creates the ring of a hardware context.
    pub(super) fn add_context(&self, at: usize) -> TraceWriter {
        let (writer, reader) = TraceWriter::for_context(self.nr_records);
        self.add(Source::Context(at), reader);
        writer
    }

    /// Creates the ring of the calling thread.
    pub(super) fn add_thread(&self) -> TraceWriter {
        let (writer, reader) = TraceWriter::for_queue(self.nr_records);
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        self.add(Source::Thread { id: crate::sys::thread_id(), name }, reader);
        writer
    }

    /// Takes the rings that were added since the last call.
    pub(crate) fn take_added(&self) -> Vec<NewRing> {
        std::mem::take(&mut self.added.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, source: Source, reader: TraceReader) {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        added.push(NewRing { source, reader });
    }
}
