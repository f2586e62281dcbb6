//! Completion path: turns ends of I/O into replies.

use super::conn::{Conn, kind_of};
use super::in_flight::{NbdFlight, is_one_chunk};
use super::{NbdDesk, NbdHost};
use crate::flight::{Answered, Ended, Failure};
use crate::host::Failed;
use crate::plant::plants;
use crate::session::Settled;
use crate::slots::Key;
use crate::stream::Piece;
use crate::stream::pool::Pool;
use forebay_core::BlockStatus;
use forebay_nbd::server::{Command, NbdError};

impl<H: NbdHost> NbdDesk<H> {
    /// Handles the end of an I/O whose client is gone.
    pub(super) fn complete_gone(&mut self, ended: Ended<H::Memory>) {
        let pool = &mut self.common.pool;
        let flight = self.flights.get_mut(ended.key).expect("checked by the caller");
        match ended.memory {
            Some(buf) if plants!(LeakBuffer) => drop(buf),
            Some(buf) => pool.give_gone(buf),
            None => pool.lose_gone(held_by(pool, flight, ended.mark)),
        }
    }

    /// Handles the end of an I/O. Returns the request if it is answered.
    #[inline]
    pub(super) fn complete(
        &mut self,
        conn: &mut Conn<H>,
        ended: Ended<H::Memory>,
    ) -> Option<Answered> {
        let Ended { key, mark, result, memory } = ended;
        let flight = self.flights.get_mut(key).expect("checked by the caller");
        let Some(mut buf) = memory else {
            if let Err(status) = result {
                flight.fail(Failure::Status(status));
            }
            let bytes = held_by(&self.common.pool, flight, mark);
            self.common.pool.lose(bytes, conn.held());
            return None;
        };
        let rq = flight.rq.rq;
        let is_whole =
            matches!(rq.command, Ok(Command::Read { .. })) && flight.rq.portion.is_none();
        match result {
            Ok(_) if flight.rq.is_answered() => {}
            // The common case: a single read that is complete.
            Ok(len) if is_whole && len == rq.len => {
                let answered = flight.answered();
                if !self.common.facts[answered.export].keeps_data {
                    buf[..len as usize].fill(0);
                }
                conn.reply_head(&rq, (rq.offset, len), (true, true));
                conn.reply_data(buf, len as usize);
                conn.ended(&rq, false);
                self.flights.remove(key);
                return Some(answered);
            }
            Ok(len) => match &mut flight.rq.portion {
                Some(portion) if portion.len_of(mark) as u64 == len => {
                    portion.keep(mark, buf);
                    return None;
                }
                None if !is_whole => {}
                // A short read: the file was truncated.
                _ => flight.fail(Failure::Status(BlockStatus::Io)),
            },
            Err(status) => flight.fail(Failure::Status(status)),
        }
        self.common.pool.give(buf, conn.held());
        None
    }

    /// Answers a request without I/O in flight, or continues it.
    pub(super) fn settle(&mut self, conn: &mut Conn<H>, key: Key) -> Settled {
        let flight = self.flights.get_mut(key).expect("checked by the caller");
        if flight.rq.portion.is_some() && !self.end_portion(conn, key) {
            return Settled::Continues;
        }
        let Some(flight) = self.flights.get_mut(key) else { return Settled::NotYet };
        if !flight.is_all_there {
            return Settled::NotYet; // its payload is incomplete
        }
        if conn.is_exclusive() && flight.rq.rq.command == Ok(Command::Cache) {
            conn.hold_back(key);
            return Settled::NotYet;
        }
        let flight = self.flights.remove(key).expect("it is there");
        let mut held_back = Vec::new();
        if flight.rq.portion.is_some() {
            // Only CACHE is in flight beside an exclusive request.
            held_back = conn.end_exclusive();
        }
        conn.ended(&flight.rq.rq, flight.failure.is_some());
        #[cfg(forebay_plant)]
        let flight = self.swap_cookies(flight);
        let failure = flight.failure.map(reply_to).filter(|_| !plants!(HideFailure));
        if let Some((_, why)) = failure {
            self.report(conn, &flight, why);
        }
        answer(conn, &flight, failure);
        Settled::Answered(flight.answered(), held_back)
    }

    /// Reports a request that has failed.
    #[cold]
    fn report(&mut self, conn: &Conn<H>, flight: &NbdFlight<H::Memory>, why: &str) {
        let rq = &flight.rq.rq;
        let Some(kind) = kind_of(rq) else { return };
        let (export, offset, len) = (flight.export, rq.offset, rq.len);
        let failed = Failed { export, kind, offset, len, why };
        self.host.failed(&conn.link.peer, &failed, self.now_ns);
    }
}

/// Queues the reply of a request that is over, and has no data or has sent it.
fn answer<H: NbdHost>(
    conn: &mut Conn<H>,
    flight: &NbdFlight<H::Memory>,
    failure: Option<(NbdError, &'static str)>,
) {
    let rq = &flight.rq.rq;
    let sent = flight.rq.portion.as_ref().map_or(0, |portion| portion.sent);
    let can_fail_late = || conn.transmission().can_fail_late() && !is_one_chunk(rq);
    match failure {
        _ if flight.rq.is_answered() || plants!(AnswerNever) => {}
        Some(_) if sent > 0 && can_fail_late() && plants!(HideLateFailure) => conn.reply_done(rq),
        None if sent > 0 => {} // the last piece ended the reply
        None => conn.reply_done(rq),
        Some((error, message)) if sent == 0 || can_fail_late() => {
            conn.reply_error(rq, error, message);
        }
        Some((_, message)) => {
            // A simple reply, or a single chunk, cannot report an error after its data have begun.
            conn.link.break_off(format!(
                "a read failed after the beginning of its reply was sent: {message}"
            ));
        }
    }
}

/// Returns the size of the piece of an I/O that completed without its piece, because the disk keeps
/// it (`io_timeout_ms`). Returns 0 if the I/O had none.
fn held_by<M: Piece>(pool: &Pool<M>, flight: &NbdFlight<M>, mark: usize) -> usize {
    match (&flight.rq.portion, flight.rq.rq.command) {
        (Some(portion), _) => pool.piece_bytes(portion.len_of(mark)),
        (None, Ok(Command::Read { .. })) => pool.piece_bytes(flight.rq.rq.len as usize),
        (None, Ok(Command::Write { .. } | Command::Cache)) => pool.piece_bytes_of(mark),
        _ => 0,
    }
}

/// Returns the error of the reply to a request that failed, and its message.
fn reply_to(failure: Failure) -> (NbdError, &'static str) {
    match failure {
        Failure::Status(status) => (NbdError::of(status), message(status)),
        Failure::ReadOnly => (NbdError::Perm, "the disk is read-only"),
        Failure::NotSupported => (NbdError::NotSup, "the disk does not support this"),
        Failure::Rejected => (NbdError::Inval, "the disk does not accept this request"),
    }
}

/// Returns the message of an error reply.
fn message(status: BlockStatus) -> &'static str {
    match status {
        BlockStatus::Io => "the disk reported an error",
        BlockStatus::Medium => "the disk cannot read or write these sectors",
        BlockStatus::NoSpace => "no space left on the storage of the disk",
        BlockStatus::NotSupported => "the disk does not support this",
        BlockStatus::Timeout => "the disk did not answer in time",
        BlockStatus::Transport => "the path to the disk failed",
        BlockStatus::Offline => "the disk is offline",
        BlockStatus::Resource => "the storage of the disk is out of a resource",
        BlockStatus::Again => "the disk is busy",
        BlockStatus::ReadOnly => "the disk is read-only",
        BlockStatus::Invalid => "the disk rejected the request as invalid",
    }
}
