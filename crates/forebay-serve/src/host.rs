//! Parts of a front's host that do not depend on the protocol: epoll, the metrics and the log.

use crate::metrics::WorkerCounters;
use crate::shared::Shared;
use forebay_front::{PollSums, Stage};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The part of a thread's host that all protocols share.
pub(crate) struct HostBase {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    counters: Arc<WorkerCounters>,
}

impl HostBase {
    /// Creates an epoll descriptor that reports an inbox, before the thread, so that the caller
    /// gets the error.
    ///
    /// # Errors
    /// Returns the error of the system call, such as a lack of descriptors.
    pub(crate) fn epoll_of(inbox: impl AsFd, data: u64) -> io::Result<OwnedFd> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, inbox, EventData::new_u64(data), EventFlags::IN)?;
        Ok(epoll)
    }

    pub(crate) fn new(shared: Arc<Shared>, epoll: OwnedFd) -> HostBase {
        HostBase { counters: shared.counters.worker(), shared, epoll }
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    #[inline]
    pub(crate) fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    /// Takes the pending events, or waits for the first one until the timeout.
    pub(crate) fn take_events(&self, events: &mut Vec<epoll::Event>, timeout: Option<&Timespec>) {
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => unreachable!("epoll_wait on descriptors of our own: {error}"),
        }
    }

    /// Registers the descriptor of a queue at epoll. Returns whether it is registered.
    pub(crate) fn watch_queue(&self, fd: io::Result<BorrowedFd<'_>>, data: u64) -> bool {
        let data = EventData::new_u64(data);
        fd.is_ok_and(|fd| epoll::add(&self.epoll, fd, data, EventFlags::IN).is_ok())
    }

    /// Records the polling of this thread so far.
    pub(crate) fn record_polling(&self, sums: PollSums) {
        self.counters.record_polling(sums);
    }

    /// Adds the time that each of `nr` requests has spent in a stage, ns.
    #[inline]
    pub(crate) fn record(&self, export: usize, stage: Stage, ns: u64, nr: u64) {
        self.counters.record(export, stage, ns, nr);
    }

    /// Counts a panic of a session.
    pub(crate) fn count_panic(&self) {
        self.shared.counters.server().panics.count();
    }

    /// Writes a line of the log.
    pub(crate) fn log(&self, now_ns: u64, line: impl fmt::Display) {
        self.shared.log.line(now_ns, line);
    }
}
