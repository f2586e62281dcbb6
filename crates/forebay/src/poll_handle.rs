//! Handles of the descriptors that event loops watch. They own the descriptors.

use crate::runtime::shared::{Shared, Watched};
use crate::sys::event::AnyOf;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};

/// A handle of a disk for an event loop. Created by
/// [`Disk::poll_handle`](crate::Disk::poll_handle).
///
/// It owns a descriptor that is readable when [`poll`](DiskPoll::poll) is due. The descriptor is
/// readable at first, and stays valid as long as the handle. `AsFd` and `AsRawFd` return the same
/// descriptor each time. Only watch it: do not read from it, and do not change what it watches.
///
/// While a handle exists, event loops drive the disk: futures start no thread, and one that a
/// future has started ends. When the last handle is dropped, a thread of the disk takes over, so
/// futures that are waiting become ready. (If the system cannot start a thread, they become ready
/// when a later future starts one, or when a new handle is polled.)
///
/// The handle does not keep the disk open. Once the disk is closed, the descriptor is readable, and
/// `poll` returns false.
///
/// `DiskPoll` is `Send` and `Sync`. Several handles of a disk share one descriptor.
pub struct DiskPoll {
    watched: Arc<Watched>,
    shared: Weak<Shared>,
}

impl DiskPoll {
    pub(crate) fn new(shared: &Arc<Shared>) -> io::Result<DiskPoll> {
        Ok(DiskPoll { watched: shared.begin_loop()?, shared: Arc::downgrade(shared) })
    }

    /// Reaps completions of the shared hardware context and issues waiting I/O, without blocking,
    /// as [`Disk::poll`](crate::Disk::poll) does. Returns whether the disk is open.
    ///
    /// If another thread drops the last owner of the disk (a [`Disk`](crate::Disk), a queue or a
    /// future) during this call, the call closes the disk, and waits for the I/O of dropped
    /// futures.
    pub fn poll(&self) -> bool {
        let shared = self.shared.upgrade();
        if let Some(shared) = &shared {
            shared.poll_shared();
        }
        shared.is_some()
    }

    /// Returns whether the descriptor is readable now.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_readable(&self) -> bool {
        self.watched.is_readable()
    }
}

impl AsFd for DiskPoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}

impl AsRawFd for DiskPoll {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for DiskPoll {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.end_loop();
        }
    }
}

impl fmt::Debug for DiskPoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskPoll").field("fd", &self.as_raw_fd()).finish_non_exhaustive()
    }
}

/// A handle of the descriptor of a queue, for an event loop. Created by
/// [`BioQueue::poll_handle`](crate::BioQueue::poll_handle).
///
/// It owns the descriptor, which is readable when a reap of the queue is due. `AsFd` and `AsRawFd`
/// return the same descriptor each time. Only watch it: do not read from it, and do not change what
/// it watches. After the queue is dropped, it stays valid, but may be readable for I/O of other
/// queues: deregister it before.
///
/// `QueuePoll` is `Send` and `Sync`: a thread other than that of the queue may wait for it.
pub struct QueuePoll {
    any: Arc<AnyOf>,
}

impl QueuePoll {
    pub(crate) fn new(any: Arc<AnyOf>) -> QueuePoll {
        QueuePoll { any }
    }
}

impl AsFd for QueuePoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.any.fd()
    }
}

impl AsRawFd for QueuePoll {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for QueuePoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePoll").field("fd", &self.as_raw_fd()).finish_non_exhaustive()
    }
}
