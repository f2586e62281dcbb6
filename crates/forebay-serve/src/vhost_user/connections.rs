//! Connections that wait for a device, and the one that it serves.

use crate::listen::is_exhausted;
use crate::metrics::OpenConnection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most front ends that wait for a device. More are refused.
const MAX_WAITING: usize = 8;

/// Longest wait, while the server ends, for a front end that does not read its replies.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for the first message of a front end while another one waits for the device. QEMU sends it
/// at once when it opens the device.
pub(super) const FIRST_MESSAGE: Duration = Duration::from_secs(10);
/// After that time, the interval between checks whether another front end waits.
const CHECK: Duration = Duration::from_secs(1);

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
    /// Too many wait. It is closed.
    TooMany,
    /// The device ends. The connection is closed.
    Closing(&'static str),
    /// A system call failed. The connection is closed.
    Failed(io::Error),
}

impl Admission {
    /// Returns the line for the log.
    pub(super) fn line(&self) -> Option<String> {
        match self {
            Admission::Served => None,
            Admission::Queued => Some("waits: another front end uses the device".to_owned()),
            Admission::TooMany => Some(format!(
                "refused: {MAX_WAITING} front ends wait for the device already: close those that \
                 do not use it, or give each virtual machine a disk of its own"
            )),
            Admission::Closing(why) => Some(format!("refused: {why}")),
            Admission::Failed(error) => Some(format!(
                "closed: its socket cannot be used: {error}{}",
                match is_exhausted(error) {
                    true => ": raise the limit of open files (ulimit -n, LimitNOFILE=)",
                    false => "",
                }
            )),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Each with a second handle, which shuts the connection down.
    waiting: VecDeque<(PendingConnection, UnixStream)>,
    /// A handle of the connection that the device serves.
    current: Option<UnixStream>,
    /// Whether that connection may still send replies. Later its rings stop.
    has_messages: bool,
    /// The export is being removed: no further connection is served.
    is_withdrawn: bool,
    /// The current connection must end.
    is_closing: bool,
}

impl State {
    /// Returns why no further connection is served, if that is so.
    fn why_ending(&self) -> Option<&'static str> {
        match self {
            State { is_withdrawn: true, .. } => Some("the export is removed"),
            State { is_closing: true, .. } => Some("the server shuts down"),
            _ => None,
        }
    }
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
        // The thread that reads the messages blocks until they arrive.
        let handle = connection.stream.set_nonblocking(false);
        let handle = match handle.and_then(|()| connection.stream.try_clone()) {
            Ok(handle) => handle,
            Err(error) => return Admission::Failed(error),
        };
        let mut state = self.lock();
        if let Some(why) = state.why_ending() {
            return Admission::Closing(why);
        }
        if state.waiting.len() == MAX_WAITING {
            return Admission::TooMany;
        }
        let is_first = state.current.is_none() && state.waiting.is_empty();
        state.waiting.push_back((connection, handle));
        self.changed.notify_one();
        if is_first { Admission::Served } else { Admission::Queued }
    }

    /// Records that the current connection has ended.
    pub(super) fn end_current(&self) {
        self.lock().current = None;
        // The end of the server may wait for this.
        self.changed.notify_all();
    }

    /// Returns the number of connections, including those that wait.
    pub(super) fn nr(&self) -> usize {
        let state = self.lock();
        state.waiting.len() + usize::from(state.current.is_some())
    }

    /// Waits for the next connection, after the end of the previous one. Returns `None` once the
    /// device ends.
    pub(super) fn next(&self) -> Option<PendingConnection> {
        let mut state = self.lock();
        state.current = None;
        // The end of the server may wait for the end of the connection.
        self.changed.notify_all();
        loop {
            if state.why_ending().is_some() {
                return None;
            }
            if let Some((connection, handle)) = state.waiting.pop_front() {
                (state.current, state.has_messages) = (Some(handle), true);
                return Some(connection);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the first message of the current connection, or for its end.
    ///
    /// # Errors
    /// Returns the reason to close the connection: it has sent nothing for a while, and another
    /// front end waits for the device. Without another one the connection goes on: QEMU connects
    /// long before it opens a device that is plugged in later.
    pub(super) fn await_first_message(
        &self,
        stream: &UnixStream,
        limit: Duration,
    ) -> Result<(), String> {
        let mut left = limit;
        loop {
            let mut fds = [PollFd::new(stream, PollFlags::IN)];
            match poll(&mut fds, left.try_into().ok().as_ref()) {
                Ok(0) if self.lock().waiting.is_empty() => left = CHECK.min(limit),
                Ok(0) => {
                    let limit = limit.as_secs();
                    return Err(format!(
                        "no message within {limit} s, and another front end waits for the device"
                    ));
                }
                Err(Errno::INTR) => {}
                // The next call on the connection returns the error.
                Ok(_) | Err(_) => return Ok(()),
            }
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

    /// Returns why the current connection was made to end, if it was.
    pub(super) fn why_closing(&self) -> Option<&'static str> {
        let state = self.lock();
        state.why_ending().filter(|_| state.is_closing)
    }

    /// Returns whether the device serves no further connection, because its export is removed.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.lock().is_withdrawn
    }

    /// Closes the connections that wait, and refuses new ones. The current one goes on.
    pub(super) fn withdraw(&self) {
        let mut state = self.lock();
        state.is_withdrawn = true;
        let waiting = std::mem::take(&mut state.waiting);
        self.changed.notify_all();
        drop(state);
        drop(waiting);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Counters;
    use std::io::Write;

    /// Returns a connection, and the end of the front end.
    fn connection() -> (PendingConnection, UnixStream) {
        let (stream, front_end) = UnixStream::pair().expect("a pair");
        let counters = Counters::new(Vec::new()).open_connection();
        (PendingConnection { stream, counters, opened_ns: 0 }, front_end)
    }

    #[test]
    fn refused_front_end_is_logged_with_the_reason() {
        let queue = ConnectionQueue::default();
        let mut kept = Vec::new();
        let mut push = || {
            let (connection, front_end) = connection();
            kept.push(front_end);
            queue.push(connection).line().unwrap_or_default()
        };
        assert_eq!(push(), "");
        assert!(queue.next().is_some());
        for _ in 0..MAX_WAITING {
            assert_eq!(push(), "waits: another front end uses the device");
        }
        let line = push();
        assert!(line.starts_with("refused: 8 front ends wait for the device already: "), "{line}");
        queue.close();
        assert_eq!(push(), "refused: the server shuts down");
        let line = |errno: Errno| Admission::Failed(errno.into()).line().expect("a line");
        assert_eq!(
            line(Errno::MFILE),
            "closed: its socket cannot be used: Too many open files (os error 24): raise the limit \
             of open files (ulimit -n, LimitNOFILE=)"
        );
        assert!(line(Errno::INVAL).ends_with("Invalid argument (os error 22)"));
    }

    #[test]
    fn front_end_that_sends_nothing_makes_room_for_one_that_waits() {
        let queue = ConnectionQueue::default();
        let (limit, (first, mut front_end)) = (Duration::from_millis(20), connection());
        queue.push(first);
        let current = queue.next().expect("the first one");
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| queue.await_first_message(&current.stream, limit));
            // No other front end waits.
            std::thread::sleep(10 * limit);
            assert!(!ended.is_finished());
            let (second, _front_end) = connection();
            queue.push(second);
            let why = ended.join().expect("no panic").expect_err("another one waits");
            assert!(why.starts_with("no message within"), "{why}");
        });
        // A front end that has sent a message is served, even if others wait.
        front_end.write_all(&[0]).expect("a message");
        assert_eq!(queue.await_first_message(&current.stream, limit), Ok(()));
    }
}
