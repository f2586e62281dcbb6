//! Parts of a front's host that do not depend on the protocol: epoll, queues whose descriptors it
//! reports, the metrics and the log.

use crate::metrics::WorkerCounters;
use crate::shared::Shared;
use forebay::{BioQueue, Completion, PollMode, QueuePoll, Segments};
use forebay_front::PollSums;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec};
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Returns the processor time of the calling thread, ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

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

    /// Records the polling of this thread so far.
    pub(crate) fn record_polling(&self, sums: PollSums) {
        self.counters.record_polling(sums);
    }

    /// Counts a panic of a session.
    pub(crate) fn count_panic(&self) {
        self.shared.counters.server().panics.count();
    }

    /// Writes a line of the log.
    pub(crate) fn log(&self, now_ns: u64, line: impl fmt::Display) {
        self.shared.log.line(now_ns, line);
    }

    /// Writes a line of the log about a failure.
    pub(crate) fn warn(&self, now_ns: u64, line: impl fmt::Display) {
        self.shared.log.warn(now_ns, line);
    }
}

/// A queue of this thread, whose descriptor epoll reports.
#[derive(Debug)]
pub(crate) struct WatchedQueue {
    queue: BioQueue,
    /// The descriptor that is registered with epoll.
    handle: Option<QueuePoll>,
    /// Whether the descriptor was reported since the last reap.
    is_readable: bool,
}

impl WatchedQueue {
    pub(crate) fn new(queue: BioQueue) -> WatchedQueue {
        WatchedQueue { queue, handle: None, is_readable: false }
    }

    /// Returns the queue.
    #[inline]
    pub(crate) fn queue(&self) -> &BioQueue {
        &self.queue
    }

    /// Returns the queue, for submissions.
    #[inline]
    pub(crate) fn queue_mut(&mut self) -> &mut BioQueue {
        &mut self.queue
    }

    /// Registers the descriptor at epoll with this event data, unless it is registered. Returns
    /// whether it is registered now.
    pub(crate) fn watch(&mut self, host: &HostBase, data: u64) -> bool {
        if self.handle.is_none() {
            // Each wait follows a reap: see `Host::wants_reap`.
            let handle = self.queue.poll_handle(PollMode::AfterReap);
            let data = EventData::new_u64(data);
            let add = |fd: &QueuePoll| epoll::add(&host.epoll, fd, data, EventFlags::IN);
            self.handle = handle.ok().filter(|handle| add(handle).is_ok());
        }
        self.handle.is_some()
    }

    /// Ends the registration at epoll, because the queue is closed next.
    pub(crate) fn unwatch(&mut self, host: &HostBase) {
        if let Some(handle) = self.handle.take() {
            // It is registered, so this does not fail.
            let _ = epoll::delete(&host.epoll, &handle);
        }
    }

    /// Records that the descriptor was reported: the queue must be reaped, even if it is empty.
    pub(crate) fn note_readable(&mut self) {
        self.is_readable = true;
    }

    /// Appends all completions, and clears the descriptor if it was reported.
    pub(crate) fn reap_all(&mut self, done: &mut Vec<Completion>) {
        if self.is_reap_due() {
            self.queue.reap(0, usize::MAX, done);
        }
    }

    /// Reaps as [`reap_all`](WatchedQueue::reap_all) does, but calls `each` with each completion
    /// and its segments.
    #[inline(always)]
    pub(crate) fn reap_all_raw_with(&mut self, each: impl FnMut(Completion, Segments)) {
        if self.is_reap_due() {
            self.queue.reap_raw_with(0, usize::MAX, each);
        }
    }

    /// Returns whether the queue may have completions, or its descriptor was reported. Then a reap
    /// follows, which clears the descriptor.
    #[inline]
    fn is_reap_due(&mut self) -> bool {
        if mem::take(&mut self.is_readable) {
            self.queue.ack_poll();
            return true;
        }
        !self.queue.is_empty()
    }
}
