//! A driver whose waits miss an event, for checks that must notice it.
// Drivers are unsafe.
#![allow(unsafe_code)]

use forebay::driver::{BlockingWait, Driver, Mode, Wait, forward};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// An event that a wait of [`MissesEvents`] misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    Nothing,
    Kicks,
    /// The descriptor never becomes readable.
    Descriptors,
}

/// A wrapper of a driver with blocking waits, which miss an event.
pub(super) struct MissesEvents<D> {
    inner: D,
    missed: Missed,
}

impl<D> MissesEvents<D> {
    pub(super) fn new(inner: D, missed: Missed) -> MissesEvents<D> {
        MissesEvents { inner, missed }
    }
}

struct MissingWait {
    inner: Arc<dyn BlockingWait>,
    missed: Missed,
    reader: PipeReader,
    /// Open, so that the reader is not readable.
    _writer: PipeWriter,
}

impl BlockingWait for MissingWait {
    fn wait(&self, nr_completions: usize, timeout: Option<Duration>) {
        self.inner.wait(nr_completions, timeout);
    }

    fn kick(&self) {
        if self.missed != Missed::Kicks {
            self.inner.kick();
        }
    }

    fn poll_fd(&self) -> io::Result<BorrowedFd<'_>> {
        match self.missed {
            Missed::Descriptors => Ok(self.reader.as_fd()),
            _ => self.inner.poll_fd(),
        }
    }
}

// SAFETY: it passes on each request and each completion.
unsafe impl<D: Driver> Driver for MissesEvents<D> {
    type Queue = D::Queue;

    forward!(inner => facts, block_status, size_bytes, failure);

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<(D::Queue, Wait)> {
        let (queue, wait) = self.inner.open_queue(depth, mode)?;
        let Wait::Blocking(inner) = wait else { panic!("it wraps blocking waits") };
        let (reader, writer) = io::pipe()?;
        let wait = MissingWait { inner, missed: self.missed, reader, _writer: writer };
        Ok((queue, Wait::Blocking(Arc::new(wait))))
    }
}
