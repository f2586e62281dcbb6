//! Connections that wait for a device, and the one that it serves.

use crate::metrics::OpenConnection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most front ends that wait for a device. More are refused.
const MAX_WAITING: usize = 8;

/// Longest wait, while the server ends, for a front end that does not read its replies.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection of a front end.
#[derive(Debug)]
pub(super) struct PendingConnection {
    pub(super) stream: UnixStream,
    pub(super) counters: OpenConnection,
    pub(super) opened_ns: u64,
}

/// Outcome of adding a connection.
#[derive(Debug)]
pub(super) enum Admission {
    /// The device serves it now.
    Served,
    /// It waits for the end of another connection.
    Queued,
    /// Too many wait, or the server ends. It is closed.
    Refused,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<PendingConnection>,
    /// A handle of the connection that the device serves.
    current: Option<UnixStream>,
    /// Whether that connection may still send replies. Later its rings stop.
    has_messages: bool,
    is_closing: bool,
}

/// Connections of a device.
#[derive(Debug, Default)]
pub(super) struct ConnectionQueue {
    state: Mutex<State>,
    changed: Condvar,
}

impl ConnectionQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change under this lock is complete even if a panic follows.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection.
    pub(super) fn push(&self, connection: PendingConnection) -> Admission {
        let mut state = self.lock();
        if state.is_closing || state.waiting.len() == MAX_WAITING {
            return Admission::Refused;
        }
        let is_first = state.current.is_none() && state.waiting.is_empty();
        state.waiting.push_back(connection);
        self.changed.notify_one();
        if is_first { Admission::Served } else { Admission::Queued }
    }

    /// Waits for the next connection, after the end of the previous one. Returns `None` once the
    /// server ends.
    pub(super) fn next(&self) -> Option<PendingConnection> {
        let mut state = self.lock();
        state.current = None;
        // The end of the server may wait for the end of the connection.
        self.changed.notify_all();
        loop {
            if state.is_closing {
                return None;
            }
            // Without a second descriptor the connection could not be shut down: it is closed.
            while let Some(connection) = state.waiting.pop_front() {
                if let Ok(current) = connection.stream.try_clone() {
                    (state.current, state.has_messages) = (Some(current), true);
                    return Some(connection);
                }
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records that the current connection sends no more replies.
    pub(super) fn end_messages(&self) {
        self.lock().has_messages = false;
        self.changed.notify_all();
    }

    /// Waits until the current connection sends no more replies. From `until` on, makes a reply
    /// that its front end does not read fail. It checks that again after each `timeout`. The queue
    /// of connections must be closed.
    ///
    /// A time limit of the socket would not help: the crate `vhost` repeats a write that was timed
    /// out. A connection whose replies are read is not cut off, because a message may wait for I/O
    /// of a ring: see `close`.
    pub(super) fn end_replies(&self, mut until: Instant, timeout: Duration) {
        let mut state = self.lock();
        assert!(state.is_closing, "the front end is not asked to leave");
        while state.has_messages
            && let Some(current) = &state.current
        {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if !has_room(current) {
                    // This fails only if the front end has closed the connection.
                    let _ = current.shutdown(Shutdown::Both);
                    return;
                }
                until = Instant::now() + timeout;
                continue;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns whether the server ends.
    pub(super) fn is_closing(&self) -> bool {
        self.lock().is_closing
    }

    /// Ends the current connection, and closes those that wait.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closing = true;
        if let Some(current) = &state.current {
            // Only the channel sees the end now, not the front end. The front end would take the
            // used index as the place where the next server goes on, while rings still complete
            // requests. This fails only if the front end has closed the connection.
            let _ = current.shutdown(Shutdown::Read);
        }
        let waiting = std::mem::take(&mut state.waiting);
        self.changed.notify_all();
        drop(state);
        drop(waiting);
    }
}

/// Returns whether a stream has room for a reply. If not, its peer has not read the last ones.
fn has_room(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::OUT)];
    // It does not wait, so no signal interrupts it.
    poll(&mut fds, Some(&Timespec::default())).map_or(true, |nr| nr > 0)
}
