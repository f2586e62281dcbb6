//! BLOCK_STATUS: what a range of a disk consists of.
//!
//! To find that out may take long: the extents of a file may be many, or locked by somebody who
//! punches a hole, and a disk may be another server's. So each export has a thread that asks, and
//! no worker waits for it. The answer comes in through the worker's door.

use super::Worker;
use super::conn::Conn;
use super::disks::Begun;
use super::door::{Answer, Door};
use super::slots::Key;
use crate::export::Export;
use forebay::{Extent, ExtentKind};
use forebay_nbd::server::{Command, NbdError, Request};
use forebay_nbd::wire::numbers::{STATE_HOLE, STATE_ZERO};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};

/// How many extents one reply describes at most.
const EXTENTS_MAX: usize = 1024;

/// How many questions of one connection are under way at once: their answers are not of the pool.
const QUESTIONS_MAX: u32 = 4;

/// Of so many clients questions wait; those of more are refused while they do.
const CLIENTS_MAX: usize = 1024;

/// A question of a client's.
#[derive(Debug)]
struct Question {
    door: Arc<Door>,
    conn: Key,
    rq: Request,
}

/// Where questions go: a thread for each export. They end with this, or else with the process: one
/// that waits for another server is not waited for.
#[derive(Debug)]
pub(crate) struct Asker(Vec<SyncSender<Question>>);

impl Asker {
    /// Starts the threads, for at most `nr_clients` at once.
    ///
    /// # Errors
    /// If one cannot be started.
    pub(crate) fn start(exports: &Arc<[Export]>, nr_clients: usize) -> io::Result<Arc<Asker>> {
        let start_one = |export| {
            let nr = nr_clients.min(CLIENTS_MAX) * QUESTIONS_MAX as usize;
            let (sender, questions) = sync_channel(nr);
            let exports = Arc::downgrade(exports);
            let builder = std::thread::Builder::new().name(format!("status-{export}"));
            builder.spawn(move || answer_all((&exports, export), &questions))?;
            Ok(sender)
        };
        let senders: io::Result<Vec<_>> = (0..exports.len()).map(start_one).collect();
        Ok(Arc::new(Asker(senders?)))
    }

    /// Asks; `door` is where the answer comes in.
    pub(super) fn ask(&self, conn: &mut Conn, rq: Request, door: &Arc<Door>) -> Begun {
        if conn.nr_questions >= QUESTIONS_MAX {
            return Begun::NoRoom;
        }
        let question = Question { door: Arc::clone(door), conn: conn.key, rq };
        let export = conn.phase.transmission().export();
        if self.0[export].try_send(question).is_err() {
            // Those of clients that have gone fill it up.
            conn.counters.fail();
            conn.reply_error(
                &rq,
                NbdError::Io,
                "too many requests for block status wait for the disk",
            );
            return Begun::Yes;
        }
        conn.nr_questions += 1;
        conn.nr_in_flight += 1;
        Begun::Yes
    }
}

/// Answers all questions about an export. The disk is not kept open for that.
fn answer_all((exports, export): (&Weak<[Export]>, usize), questions: &Receiver<Question>) {
    for Question { door, conn, rq } in questions {
        let Some(exports) = exports.upgrade() else { return };
        let is_one = matches!(rq.command, Ok(Command::BlockStatus { one: true }));
        let max = if is_one { 1 } else { EXTENTS_MAX };
        let mut extents: Vec<Extent> = Vec::new();
        let disk = &exports[export].disk;
        let ask = AssertUnwindSafe(|| disk.block_status(rq.offset, rq.len, max, &mut extents));
        let extents = match catch_unwind(ask) {
            Ok(found) => found.map(|()| extents).map_err(|error| error.to_string()),
            Err(_) => Err("internal error of the server".to_owned()),
        };
        door.answer(Answer { conn, rq, extents });
    }
}

impl Worker {
    /// Passes answers on that have come.
    pub(super) fn take_answers(&mut self) {
        for Answer { conn: key, rq, extents } in self.door.take_answers() {
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

/// Says what a range consists of.
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
