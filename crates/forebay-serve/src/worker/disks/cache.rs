//! `NBD_CMD_CACHE`: read-ahead, with a lower priority than all other requests.
//!
//! A CACHE request has 28 bytes and may cover the whole disk. So a worker has one small piece of
//! CACHE per export at the disk, however much its clients ask for, and serves its connections
//! between two pieces. While other requests keep coming, it reads one piece in
//! [`ROUNDS_PER_PIECE`] rounds. The pieces take background tags.
//!
//! CACHE is a hint. It ends early, with success, when its client leaves or the server ends; on a
//! disk where a read fills no cache it ends at once.

use super::{Begun, Disks, Flight};
use crate::pool::class;
use crate::worker::Worker;
use crate::worker::conn::Conn;
use crate::worker::slots::{Key, MARK_SHIFT};
use forebay::{Buf, Io, SubmitErrorKind};
use std::collections::VecDeque;

/// Length of a piece, bytes. Other clients wait about ten microseconds while a worker copies it
/// from the page cache.
const PIECE_BYTES: usize = 64 << 10;
/// Rounds per piece while other requests are in flight or keep arriving.
const ROUNDS_PER_PIECE: u32 = 16;

/// CACHE requests of one export at one worker.
#[derive(Debug, Default)]
pub(super) struct Caching {
    /// Requests that are not complete, and how many bytes of each are done or in flight. They take
    /// turns, piece by piece.
    waiting: VecDeque<(Key, u64)>,
    /// Request whose piece was submitted last.
    newest: Option<Key>,
    /// Rounds since the last piece in which pieces were postponed.
    nr_skipped: u32,
}

/// Result of the turn of one request.
enum Turn {
    /// A piece was submitted.
    Issued,
    /// The request is over, or will be when its piece in flight ends.
    Over,
    /// There is no memory for a piece, or no room in the queue of the disk.
    NoRoom,
}

/// Builds the read of one piece.
fn piece(buf: Buf, len: usize, offset: u64, key: Key) -> Io {
    let mark = (class(buf.len()) as u64) << MARK_SHIFT;
    Io::read_part(buf, len, offset).background().user_data(key.to_u64() | mark)
}

impl Disks {
    /// Begins a CACHE request.
    pub(super) fn begin_cache(&mut self, conn: &mut Conn, flight: Flight) -> Begun {
        let export = flight.export;
        let fills_cache = self.exports[export].caches_reads;
        let key = self.flights.insert(Flight { is_all_there: !fills_cache, ..flight });
        conn.nr_in_flight += 1;
        conn.nr_cache += 1;
        match fills_cache {
            true => self.caching[export].waiting.push_back((key, 0)),
            false => self.to_settle.push(key),
        }
        Begun::Yes
    }

    /// Returns whether a piece of an export is in flight.
    fn has_piece(&mut self, export: usize) -> bool {
        let newest = self.caching[export].newest;
        let flight = newest.and_then(|key| self.flights.get_mut(key));
        flight.is_some_and(|flight| flight.in_disk > 0)
    }
}

impl Worker {
    /// Submits the next pieces of CACHE requests to the disks. Called at the end of a round.
    #[inline]
    pub(in crate::worker) fn read_ahead(&mut self) {
        for export in 0..self.disks.caching.len() {
            if !self.disks.caching[export].waiting.is_empty() {
                self.read_ahead_on(export);
            }
        }
    }

    fn read_ahead_on(&mut self, export: usize) {
        // The completion of a piece in flight begins a round.
        if self.disks.has_piece(export) {
            return;
        }
        let is_busy = self.disks.is_busy_with(export);
        let caching = &mut self.disks.caching[export];
        if (is_busy || self.disks.nr_begun > 0) && caching.nr_skipped + 1 < ROUNDS_PER_PIECE {
            caching.nr_skipped += 1;
            // Without I/O in flight, no event might begin the next round.
            self.is_unfinished |= !is_busy;
            return;
        }
        for _ in 0..caching.waiting.len() {
            let Some((key, done)) = self.disks.caching[export].waiting.pop_front() else { break };
            match self.read_piece(key, done) {
                Turn::NoRoom => self.disks.caching[export].waiting.push_back((key, done)),
                Turn::Over => self.is_unfinished = true,
                Turn::Issued => {
                    // If the piece has ended already, no descriptor reports it.
                    self.is_unfinished = true;
                    self.disks.caching[export].nr_skipped = 0;
                    break;
                }
            }
        }
    }

    /// Submits the piece of a request that begins `done` bytes after its offset.
    fn read_piece(&mut self, key: Key, done: u64) -> Turn {
        let disks = &mut self.disks;
        let Some(flight) = disks.flights.get_mut(key) else { return Turn::Over };
        let (export, rq) = (flight.export, flight.rq);
        let client = self.conns.get_mut(flight.conn).filter(|conn| conn.ending.is_none());
        let (Some(conn), None) = (client, flight.failed) else {
            flight.is_all_there = true;
            disks.to_settle.push(key);
            return Turn::Over;
        };
        let left = (rq.len - done).min(PIECE_BYTES as u64) as usize;
        let Some(buf) = disks.pool.take(left, &mut conn.held) else { return Turn::NoRoom };
        let len = left.min(buf.len());
        if let Err((refusal, io)) = disks.submit(export, piece(buf, len, rq.offset + done, key)) {
            disks.give_back(io, conn);
            if refusal == SubmitErrorKind::WouldBlock {
                return Turn::NoRoom;
            }
            disks.refused(key, refusal);
            disks.flights.get_mut(key).expect("looked up above").is_all_there = true;
            return Turn::Over;
        }
        let now_ns = disks.now_ns;
        let flight = disks.flights.get_mut(key).expect("looked up above");
        flight.in_disk += 1;
        flight.issued_ns = now_ns;
        flight.is_all_there = done + len as u64 == rq.len;
        let caching = &mut disks.caching[export];
        caching.newest = Some(key);
        if !flight.is_all_there {
            caching.waiting.push_back((key, done + len as u64));
        }
        Turn::Issued
    }
}

#[cfg(test)]
mod tests;
