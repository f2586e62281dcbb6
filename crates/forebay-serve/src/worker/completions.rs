//! Completion path: turns completions of the disks into replies.

use super::Worker;
use super::conn::{Conn, kind_of};
use super::disks::Flight;
use super::disks::portions::is_one_chunk;
use super::slots::{Key, MARK_SHIFT};
use crate::metrics::Stage;
use crate::pool::{piece_bytes, piece_bytes_of};
use forebay::{BlockStatus, Completion, LateRequest, LateStage, now_ns};
use forebay_nbd::server::{Command, NbdError};

impl Worker {
    /// Reaps completions, and answers requests that are over. Returns whether there were any.
    pub(super) fn reap(&mut self) -> bool {
        let mut done = std::mem::take(&mut self.done);
        self.disks.reap(&mut done);
        let any = !done.is_empty() || !self.disks.to_settle.is_empty();
        if any {
            self.ended_ns = now_ns();
        }
        for completion in done.drain(..) {
            self.complete(completion);
        }
        self.done = done;
        for key in std::mem::take(&mut self.disks.to_settle) {
            self.settle(key);
        }
        self.log_late();
        any
    }

    /// Logs each request of the disks that exceeded its time limit.
    fn log_late(&self) {
        for (export, info) in self.disks.exports.iter().zip(&self.shared.infos) {
            for late in export.disk.take_late_requests() {
                let LateRequest { op, start, len, stage } = late;
                let policy = &export.disk.info().policy;
                let limit_ms = policy.io_timeout_ns / 1_000_000;
                let grace_ms = policy.io_timeout_grace_ns / 1_000_000;
                let (name, op) = (&info.name, op.name());
                let done = match stage {
                    LateStage::Cancelled => {
                        format!("exceeded the time limit of {limit_ms} ms: cancelling it")
                    }
                    LateStage::Awaited => {
                        format!(
                            "exceeded the time limit of {limit_ms} ms: waiting, because the disk \
                             cannot cancel it"
                        )
                    }
                    LateStage::GivenUp => {
                        format!(
                            "did not complete within {grace_ms} ms after its time limit: the disk \
                             counts as gone and fails all requests; check it and restart the server"
                        )
                    }
                };
                let now_ns = self.disks.now_ns;
                let log = |line| self.shared.log.line(now_ns, line);
                match len {
                    // A flush has no range.
                    0 => log(format_args!("export {name:?}: {op} {done}")),
                    _ => {
                        log(format_args!("export {name:?}: {op} of {len} bytes at {start} {done}"))
                    }
                }
            }
        }
    }

    /// Handles one completion.
    #[inline]
    fn complete(&mut self, completion: Completion) {
        let key = Key::of_u64(completion.user_data);
        let flight = self.disks.flights.get_mut(key).expect("a bio ends once, before its request");
        flight.in_disk -= 1;
        let Some(conn) = self.conns.get_mut(flight.conn) else {
            // The client is gone, so its I/O ends here.
            match completion.buf {
                Some(buf) => self.disks.pool.give_gone(buf),
                None => self.disks.pool.lose_gone(flight.piece_bytes(completion.user_data)),
            }
            return self.settle(key);
        };
        let result = completion.result;
        let Some(mut buf) = completion.buf else {
            if let Err(status) = result {
                flight.fail(status);
            }
            self.disks.pool.lose(flight.piece_bytes(completion.user_data), &mut conn.held);
            return self.settle(key);
        };
        let is_whole =
            matches!(flight.rq.command, Ok(Command::Read { .. })) && flight.portion.is_none();
        match result {
            // The common case: a single read that is complete.
            Ok(len) if is_whole && len == flight.rq.len => {
                let (conn_key, export, rq) = (flight.conn, flight.export, flight.rq);
                let transmission = conn.phase.transmission();
                if !self.disks.exports[export].keeps_data {
                    buf[..len as usize].fill(0);
                }
                conn.output
                    .push(transmission.data(&rq, rq.offset, len as u32, true, true).as_slice());
                conn.output.push_data(buf, len as usize);
                conn.ended(&rq, false);
                let (begun_ns, issued_ns) = (flight.begun_ns, flight.issued_ns);
                self.disks.flights.remove(key);
                self.count(export, begun_ns, issued_ns);
                self.mark_dirty(conn_key);
                return;
            }
            Ok(len) => {
                let nr = (completion.user_data >> MARK_SHIFT) as usize;
                match &mut flight.portion {
                    Some(portion) if portion.lens[nr] as u64 == len => {
                        portion.pieces[nr] = Some((buf, len as usize));
                        return self.settle(key);
                    }
                    None if !is_whole => {}
                    // A short read: the file was truncated.
                    _ => flight.fail(BlockStatus::Io),
                }
            }
            Err(status) => flight.fail(status),
        }
        self.disks.pool.give(buf, &mut conn.held);
        self.settle(key);
    }

    /// Answers a request if none of its I/O is in flight, or continues it.
    pub(super) fn settle(&mut self, key: Key) {
        let Some(flight) = self.disks.flights.get_mut(key) else { return };
        if flight.in_disk > 0 {
            return;
        }
        let conn_key = flight.conn;
        let Some(conn) = self.conns.get_mut(conn_key) else {
            if let Some(flight) = self.disks.flights.remove(key) {
                self.disks.drop_pieces(flight.portion);
            }
            return;
        };
        if flight.portion.is_some() && !self.disks.end_portion(conn, key) {
            self.wait_if_due(conn_key);
            self.mark_dirty(conn_key);
            return;
        }
        let Some(flight) = self.disks.flights.get_mut(key) else { return };
        if !flight.is_all_there {
            return; // its payload is incomplete
        }
        if conn.is_exclusive && flight.rq.command == Ok(Command::Cache) {
            return conn.held_back.push(key);
        }
        let flight = self.disks.flights.remove(key).expect("it is there");
        let mut held_back = Vec::new();
        if flight.portion.is_some() {
            // Only CACHE is in flight beside an exclusive request.
            conn.is_exclusive = false;
            held_back = std::mem::take(&mut conn.held_back);
        }
        conn.ended(&flight.rq, flight.failed.is_some());
        if let (Some((_, why)), Some(kind)) = (flight.failed, kind_of(&flight.rq)) {
            let (id, rq) = (conn.counters.id(), &flight.rq);
            let export = &self.shared.infos[flight.export].name;
            let line = format_args!(
                "connection {id}: export {export:?}: {kind:?} of {} bytes at {} failed: {why}",
                rq.len, rq.offset
            );
            self.shared.log.line(self.disks.now_ns, line);
        }
        answer(conn, &flight);
        self.count(flight.export, flight.begun_ns, flight.issued_ns);
        self.mark_dirty(conn_key);
        for key in held_back {
            self.settle(key);
        }
    }

    /// Adds the latencies of a request to the statistics.
    #[inline]
    fn count(&self, export: usize, begun_ns: u64, issued_ns: u64) {
        let times = &self.counters;
        times.record(export, Stage::Receive, issued_ns.saturating_sub(begun_ns));
        times.record(export, Stage::Disk, self.ended_ns.saturating_sub(issued_ns));
    }
}

/// Queues the reply of a request that is over, and has no data or has sent it.
fn answer(conn: &mut Conn, flight: &Flight) {
    let transmission = conn.phase.transmission();
    let rq = &flight.rq;
    let sent = flight.portion.as_ref().map_or(0, |portion| portion.sent);
    match flight.failed {
        None if sent > 0 => {} // the last piece ended the reply
        None => conn.output.push(transmission.done(rq).as_slice()),
        Some((error, message))
            if sent == 0 || (transmission.can_fail_late() && !is_one_chunk(rq)) =>
        {
            conn.reply_error(rq, error, message);
        }
        Some((_, message)) => {
            // A simple reply, or a single chunk, cannot report an error after its data have begun.
            conn.break_off(format!(
                "a read failed after the beginning of its reply was sent: {message}"
            ));
        }
    }
}

impl Flight {
    /// Returns the size of the piece of an I/O that completed without its piece, because the disk
    /// keeps it (`io_timeout_ms`). Returns 0 if the I/O had none.
    fn piece_bytes(&self, user_data: u64) -> usize {
        let mark = (user_data >> MARK_SHIFT) as usize;
        match (&self.portion, self.rq.command) {
            (Some(portion), _) => piece_bytes(portion.lens[mark]),
            (None, Ok(Command::Read { .. })) => piece_bytes(self.rq.len as usize),
            (None, Ok(Command::Write { .. } | Command::Cache)) => piece_bytes_of(mark),
            _ => 0,
        }
    }

    /// Records the first failure.
    fn fail(&mut self, status: BlockStatus) {
        self.failed.get_or_insert((NbdError::of(status), message(status)));
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
