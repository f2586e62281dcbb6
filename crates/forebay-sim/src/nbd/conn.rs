//! A connection: two pipes between a client and the server.

use super::context::{Context, Event, Way};
use super::pipe::Pipe;

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
}

impl Conn {
    /// Returns the connection of a client. Its pipes deliver pieces of at most `piece_max` bytes,
    /// and take `pipe_ns` for each, on average.
    pub(super) fn new(
        (up, down): (Pipe, Pipe),
        client: usize,
        (piece_max, pipe_ns): (u64, u64),
    ) -> Conn {
        Conn { up, down, client, is_gone: false, piece_max, pipe_ns }
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
