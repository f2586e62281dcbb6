//! BLOCK_STATUS: which parts of a range are data, zeroes or holes.
//!
//! The query may take long: a file may have many extents, another process may hold its lock while
//! it punches a hole, and a disk may be on an NBD server. So each export has a thread for queries,
//! and no worker waits for it. The answer arrives in the worker's inbox.

use super::Begun;
use crate::export::Export;
use crate::worker::Worker;
use crate::worker::conn::Conn;
use crate::worker::inbox::{Answer, Inbox};
use crate::worker::slots::Key;
use forebay::{Extent, ExtentKind};
use forebay_nbd::server::{Command, NbdError, Request};
use forebay_nbd::wire::numbers::{STATE_HOLE, STATE_ZERO};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};

/// Most extents of one reply.
const EXTENTS_MAX: usize = 1024;

/// Most queries of one connection at once: their answers are not part of the pool.
const QUESTIONS_MAX: u32 = 4;

/// Most clients whose queries can be queued; queries of more are refused.
const CLIENTS_MAX: usize = 1024;

/// A query of a client.
#[derive(Debug)]
struct Question {
    inbox: Arc<Inbox>,
    conn: Key,
    rq: Request,
}

/// Queues of the query threads, one for each export. A thread ends when this is dropped, or with
/// the process: a thread that waits for another server is not joined.
#[derive(Debug)]
pub(crate) struct BlockStatusThreads(Vec<SyncSender<Question>>);

impl BlockStatusThreads {
    /// Starts the threads, for at most `nr_clients` at once.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
    pub(crate) fn start(
        exports: &Arc<[Export]>,
        nr_clients: usize,
    ) -> io::Result<Arc<BlockStatusThreads>> {
        let start_one = |export| {
            let nr = nr_clients.min(CLIENTS_MAX) * QUESTIONS_MAX as usize;
            let (sender, questions) = sync_channel(nr);
            let exports = Arc::downgrade(exports);
            let builder = std::thread::Builder::new().name(format!("status-{export}"));
            builder.spawn(move || answer_all((&exports, export), &questions))?;
            Ok(sender)
        };
        let senders: io::Result<Vec<_>> = (0..exports.len()).map(start_one).collect();
        Ok(Arc::new(BlockStatusThreads(senders?)))
    }

    /// Queues a query; its answer goes to `inbox`.
    pub(super) fn ask(&self, conn: &mut Conn, rq: Request, inbox: &Arc<Inbox>) -> Begun {
        if conn.nr_questions >= QUESTIONS_MAX {
            return Begun::NoRoom;
        }
        let question = Question { inbox: Arc::clone(inbox), conn: conn.key, rq };
        let export = conn.phase.transmission().export();
        if self.0[export].try_send(question).is_err() {
            // Queries of closed connections may fill the queue.
            conn.counters.fail();
            conn.reply_error(&rq, NbdError::Io, "too many block status requests wait for the disk");
            return Begun::Yes;
        }
        conn.nr_questions += 1;
        conn.nr_in_flight += 1;
        Begun::Yes
    }
}

/// Answers all queries about an export. Does not keep the disk open.
fn answer_all((exports, export): (&Weak<[Export]>, usize), questions: &Receiver<Question>) {
    for Question { inbox, conn, rq } in questions {
        let Some(exports) = exports.upgrade() else { return };
        let is_one = matches!(rq.command, Ok(Command::BlockStatus { one: true }));
        let max = if is_one { 1 } else { EXTENTS_MAX };
        let mut extents: Vec<Extent> = Vec::new();
        let disk = &exports[export].disk;
        let ask = AssertUnwindSafe(|| disk.block_status(rq.offset, rq.len, max, &mut extents));
        let extents = match catch_unwind(ask) {
            Ok(found) => found.map(|()| extents).map_err(|error| error.to_string()),
            Err(_) => Err("internal error in the server".to_owned()),
        };
        inbox.answer(Answer { conn, rq, extents });
    }
}

impl Worker {
    /// Sends the answers that have arrived.
    pub(in crate::worker) fn take_answers(&mut self) {
        for Answer { conn: key, rq, extents } in self.inbox.take_answers() {
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.nr_questions -= 1;
            conn.ended(&rq, extents.is_err());
            match extents {
                Ok(extents) => reply(conn, &rq, &extents),
                Err(error) => conn.reply_error(&rq, NbdError::Io, &error),
            }
            self.mark_dirty(key);
        }
    }
}

/// Sends the reply with the extents of a range.
fn reply(conn: &mut Conn, rq: &Request, extents: &[Extent]) {
    let states: Vec<(u64, u32)> = extents
        .iter()
        .map(|extent| match extent.kind {
            ExtentKind::Data => (extent.len, 0),
            ExtentKind::Zero => (extent.len, STATE_ZERO),
            ExtentKind::Hole => (extent.len, STATE_HOLE | STATE_ZERO),
        })
        .collect();
    let transmission = conn.phase.transmission();
    conn.output.push_with(|heads| transmission.extents(rq, &states, heads));
}
