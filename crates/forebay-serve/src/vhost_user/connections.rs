//! Connections that wait for a device, and the one that it serves.

use crate::metrics::OpenConnection;
use std::collections::VecDeque;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most front ends that wait for a device. More are refused.
const MAX_WAITING: usize = 8;

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
        loop {
            if state.is_closing {
                return None;
            }
            // Without a second descriptor the connection could not be shut down: it is closed.
            while let Some(connection) = state.waiting.pop_front() {
                if let Ok(current) = connection.stream.try_clone() {
                    state.current = Some(current);
                    return Some(connection);
                }
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
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
