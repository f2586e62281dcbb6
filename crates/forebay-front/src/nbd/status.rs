//! BLOCK_STATUS: which parts of a range are data, zeroes or holes.
//!
//! The query may take long, so no front waits for it. The host queues it, and the answer arrives
//! later.

use super::conn::Conn;
use super::{NbdDesk, NbdFront, NbdHost};
use crate::host::Peer;
use crate::session::Begun;
use crate::slots::Key;
use forebay_nbd::server::{NbdError, Request};

/// Maximum number of queries of one client at once. The pool does not count their answers.
pub const QUESTIONS_MAX: u32 = 4;

/// A query of a client.
#[derive(Clone, Copy, Debug)]
pub struct StatusQuery {
    /// The client.
    pub client: Key,
    /// Index of the export.
    pub export: usize,
    /// The request. Its command is BLOCK_STATUS.
    pub rq: Request,
}

/// The answer to a query: lengths and states (`STATE_HOLE`, `STATE_ZERO`) of the extents, or the
/// reason of a failure.
#[derive(Clone, Debug)]
pub struct StatusAnswer {
    /// The client.
    pub client: Key,
    /// The request.
    pub rq: Request,
    /// The extents, from the start of the range.
    pub extents: Result<Vec<(u64, u32)>, String>,
}

impl<H: NbdHost> NbdDesk<H> {
    /// Passes a BLOCK_STATUS request to the host.
    pub(super) fn ask(&mut self, conn: &mut Conn<H>, rq: Request) -> Begun {
        if conn.nr_questions() >= QUESTIONS_MAX {
            return Begun::NoRoom;
        }
        let export = conn.transmission().export();
        if !self.host.query_status(StatusQuery { client: conn.link.key(), export, rq }) {
            // Queries of closed connections may fill the queue.
            conn.link.peer.fail();
            conn.reply_error(&rq, NbdError::Io, "too many block status requests wait for the disk");
            return Begun::Yes;
        }
        conn.begin_question();
        Begun::Yes
    }
}

impl<H: NbdHost> NbdFront<H> {
    /// Sends an answer that has arrived.
    pub fn answer(&mut self, answer: StatusAnswer) {
        let StatusAnswer { client, rq, extents } = answer;
        let Some(conn) = self.clients.get_mut(client) else { return };
        conn.ended(&rq, extents.is_err());
        match extents {
            Ok(extents) => conn.reply_extents(&rq, &extents),
            Err(error) => conn.reply_error(&rq, NbdError::Io, &error),
        }
        self.mark_dirty(client);
    }
}
