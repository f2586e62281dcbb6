//! `NBD_CMD_CACHE`: read-ahead, with a lower priority than all other requests.
//!
//! A CACHE request has 28 bytes and may cover the whole disk. So a worker has one small piece of
//! CACHE per export at the disk, however much its clients ask for, and serves its connections
//! between two pieces. While other requests keep coming, it reads one piece in
//! [`ROUNDS_PER_PIECE`] rounds. The pieces take background tags.
//!
//! CACHE is a hint. It ends early, with success, when its client leaves or the server ends; on a
//! disk where a read fills no cache it ends at once.

use super::conn::Conn;
use super::in_flight::NbdFlight;
use super::{NbdClients, NbdDesk, NbdHost};
use crate::flight::Flight;
use crate::host::Io;
use crate::session::Begun;
use crate::slots::{Key, MARK_SHIFT};
use crate::stream::Piece;
use forebay_core::{BioFlags, Op, SubmitErrorKind};
use std::collections::VecDeque;

/// Length of a piece, bytes. Other clients wait about ten microseconds while a worker copies it
/// from the page cache.
const PIECE_BYTES: usize = 64 << 10;
/// Rounds per piece while other requests are in flight or keep arriving.
const ROUNDS_PER_PIECE: u32 = 16;

/// CACHE requests of one export at one front.
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
fn piece<M: Piece>(buf: M, class: usize, (offset, len): (u64, usize), key: Key) -> Io<M> {
    let mark = (class as u64) << MARK_SHIFT;
    let io = Io::data(Op::Read, buf, offset, len).flag(BioFlags::BACKGROUND);
    io.user_data(key.to_u64() | mark)
}

impl<H: NbdHost> NbdDesk<H> {
    /// Begins a CACHE request.
    pub(super) fn begin_cache(
        &mut self,
        conn: &mut Conn<H>,
        flight: NbdFlight<H::Memory>,
    ) -> Begun {
        let export = flight.export;
        let fills_cache = self.common.facts[export].caches_reads;
        let key = self.flights.insert(Flight { is_all_there: !fills_cache, ..flight });
        conn.begin_cache();
        match fills_cache {
            true => self.common.caching[export].waiting.push_back((key, 0)),
            false => self.to_settle.push(key),
        }
        Begun::Yes
    }

    /// Returns whether a piece of an export is in flight.
    fn has_piece(&mut self, export: usize) -> bool {
        let newest = self.common.caching[export].newest;
        let flight = newest.and_then(|key| self.flights.get_mut(key));
        flight.is_some_and(|flight| flight.in_disk > 0)
    }

    /// Submits the next pieces of CACHE requests. Called at the end of a round. Returns whether
    /// there is work that no event reports.
    #[inline]
    pub(super) fn read_ahead(&mut self, clients: &mut NbdClients<H>) -> bool {
        let mut is_unfinished = false;
        for export in 0..self.common.caching.len() {
            if !self.common.caching[export].waiting.is_empty() {
                is_unfinished |= self.read_ahead_on(export, clients);
            }
        }
        is_unfinished
    }

    fn read_ahead_on(&mut self, export: usize, clients: &mut NbdClients<H>) -> bool {
        // The completion of a piece in flight begins a round.
        if self.has_piece(export) {
            return false;
        }
        let is_busy = self.host.is_busy_with(export);
        let caching = &mut self.common.caching[export];
        if (is_busy || self.nr_begun > 0) && caching.nr_skipped + 1 < ROUNDS_PER_PIECE {
            caching.nr_skipped += 1;
            // Without I/O in flight, no event might begin the next round.
            return !is_busy;
        }
        let mut is_unfinished = false;
        for _ in 0..caching.waiting.len() {
            let Some((key, done)) = self.common.caching[export].waiting.pop_front() else {
                break;
            };
            match self.read_piece(key, done, clients) {
                Turn::NoRoom => self.common.caching[export].waiting.push_back((key, done)),
                Turn::Over => is_unfinished = true,
                Turn::Issued => {
                    // If the piece has ended already, no descriptor reports it.
                    is_unfinished = true;
                    self.common.caching[export].nr_skipped = 0;
                    break;
                }
            }
        }
        is_unfinished
    }

    /// Submits the piece of a request that begins `done` bytes after its offset.
    fn read_piece(&mut self, key: Key, done: u64, clients: &mut NbdClients<H>) -> Turn {
        let Some(flight) = self.flights.get_mut(key) else { return Turn::Over };
        let (export, rq) = (flight.export, flight.rq.rq);
        let client = clients.get_mut(flight.client).filter(|conn| !conn.link.is_ending());
        let (Some(conn), None) = (client, flight.failure) else {
            flight.is_all_there = true;
            self.to_settle.push(key);
            return Turn::Over;
        };
        let left = (rq.len - done).min(PIECE_BYTES as u64) as usize;
        let Some(buf) = self.common.pool.take(left, conn.held()) else { return Turn::NoRoom };
        let len = left.min(buf.len());
        let class = self.common.pool.class(&buf);
        let io = piece(buf, class, (rq.offset + done, len), key);
        if let Err((refusal, buf)) = self.submit(&conn.link.peer, export, io) {
            self.give_back(buf, conn);
            if refusal == SubmitErrorKind::WouldBlock {
                return Turn::NoRoom;
            }
            self.refused(key, refusal);
            self.flights.get_mut(key).expect("looked up above").is_all_there = true;
            return Turn::Over;
        }
        let now_ns = self.now_ns;
        let flight = self.flights.get_mut(key).expect("looked up above");
        flight.in_disk += 1;
        flight.issued_ns = now_ns;
        flight.is_all_there = done + len as u64 == rq.len;
        let caching = &mut self.common.caching[export];
        caching.newest = Some(key);
        if !flight.is_all_there {
            caching.waiting.push_back((key, done + len as u64));
        }
        Turn::Issued
    }
}

#[cfg(test)]
mod tests;
