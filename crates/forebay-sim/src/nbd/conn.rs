//! A connection: two pipes between a client and the server.

use super::pipe::Pipe;
use crate::server::{Context, Event, Way};
use forebay_front::{Interest, Key, Readiness, RequestKind};

/// Requests that the server has begun.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    nr: u32,
    is_last_write: bool,
}

impl Begun {
    /// Counts a request.
    pub(super) fn count(&mut self, kind: RequestKind) {
        self.nr += 1;
        self.is_last_write = kind == RequestKind::Write;
    }

    /// Returns how many must be answered before the server closes the connection. `may_lack_data`:
    /// the server has not received everything that the client has to send. Then the payload of the
    /// last request may be incomplete.
    pub(crate) fn nr_due(&self, may_lack_data: bool) -> u32 {
        self.nr - u32::from(self.is_last_write && may_lack_data)
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) up: Pipe,
    pub(crate) down: Pipe,
    pub(super) client: usize,
    /// The client is gone, and all data on the way to it is lost.
    pub(crate) is_gone: bool,
    pub(super) piece_max: u64,
    pipe_ns: u64,
    /// Key of the client in its front; `None`: the server has closed the connection, or has not
    /// accepted it.
    pub(super) key: Option<Key>,
    /// Events for which the front watches the connection.
    pub(super) interest: Interest,
    /// After a read, no event reports the bytes that are left, as with TLS.
    pub(super) is_unreported: bool,
    /// Bytes have arrived since the last read.
    pub(super) has_new: bool,
    pub(crate) begun: Begun,
    /// The server has reported a read that failed.
    pub(crate) has_failed_read: bool,
}

impl Conn {
    /// Returns the connection of a client. Its pipes deliver pieces of at most `piece_max` bytes,
    /// and take `pipe_ns` for each, on average.
    pub(super) fn new(
        (up, down): (Pipe, Pipe),
        client: usize,
        (piece_max, pipe_ns): (u64, u64),
        is_unreported: bool,
    ) -> Conn {
        let (is_gone, key, interest) = (false, None, Interest::default());
        Conn {
            up,
            down,
            client,
            is_gone,
            piece_max,
            pipe_ns,
            key,
            interest,
            is_unreported,
            has_new: false,
            begun: Begun::default(),
            has_failed_read: false,
        }
    }

    /// Returns what an event reports of the connection now.
    pub(super) fn readiness(&self) -> Option<Readiness> {
        self.key?;
        let is_reported = self.has_new || !self.is_unreported;
        let is_readable = self.up.is_over() || (self.up.has_arrived() && is_reported);
        if self.is_gone {
            Some(Readiness::Gone)
        } else if self.interest.receive && is_readable {
            Some(Readiness::Received)
        } else if self.interest.send && self.down.has_room() {
            Some(Readiness::Sendable)
        } else {
            None
        }
    }

    pub(super) fn pipe(&mut self, way: Way) -> &mut Pipe {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }

    /// Schedules the transport after a pipe was written or closed.
    pub(crate) fn start(&mut self, at: usize, way: Way, cx: &mut Context) {
        let pipe_ns = self.pipe_ns;
        if !std::mem::replace(&mut self.pipe(way).is_moving, true) {
            cx.soon(pipe_ns, Event::Move(at, way));
        }
    }

    /// Closes both pipes, because the client is gone.
    pub(crate) fn hang_up(&mut self, at: usize, cx: &mut Context) {
        self.is_gone = true;
        self.up.close();
        self.down.close();
        self.start(at, Way::Up, cx);
    }
}
