//! Large reads, in portions of a few pieces.
//!
//! A portion is submitted when the data of the previous one are queued for the client, so that a
//! read of any length takes no more memory than a portion. If a reply has one header for all of its
//! data, nothing may be sent between its portions. Unless such a read fits into one portion, it
//! begins only when nothing but CACHE is in flight on its connection. Replies to CACHE wait for its
//! end.

use super::{Begun, Disks, Flight};
use crate::pool::PIECE_MAX;
use crate::worker::conn::Conn;
use crate::worker::slots::{Key, MARK_SHIFT};
use forebay::{Buf, Io, SubmitErrorKind};
use forebay_nbd::server::{Command, Request};

/// Most pieces of a large read in flight.
const NR_PIECES_MAX: usize = 4;

/// Progress of a read of several pieces.
#[derive(Debug, Default)]
pub(crate) struct Portion {
    /// Bytes that are queued for the client.
    pub(crate) sent: u64,
    /// Bytes that were submitted to the disk: `sent`, and those of the pieces in flight.
    pub(crate) asked: u64,
    /// Lengths of the pieces of this portion, bytes.
    pub(crate) lens: [usize; NR_PIECES_MAX],
    /// Completed pieces, in the order of their offsets.
    pub(crate) pieces: [Option<(Buf, usize)>; NR_PIECES_MAX],
}

impl Disks {
    /// Returns whether all pieces of a large read fit into one portion now.
    pub(super) fn has_room_for_all(&mut self, conn: &Conn, flight: &Flight) -> bool {
        let len = flight.rq.len;
        len <= (NR_PIECES_MAX * PIECE_MAX) as u64
            && self.pool.may_have(len.next_multiple_of(PIECE_MAX as u64) as usize, &conn.held)
            && self.has_boxes(flight.export, NR_PIECES_MAX)
    }

    /// Submits the next pieces of a large read. The last portion must be over.
    pub(crate) fn next_portion(&mut self, conn: &mut Conn, key: Key) -> Begun {
        let Some(flight) = self.flights.get_mut(key) else { return Begun::Yes };
        let (export, rq) = (flight.export, flight.rq);
        let mut at = flight.portion.as_ref().map_or(0, |portion| portion.asked);
        let mut nr = 0;
        while nr < NR_PIECES_MAX && at < rq.len {
            let left = (rq.len - at).min(PIECE_MAX as u64) as usize;
            let Some(buf) = self.pool.take(left, &mut conn.held) else { break };
            let len = left.min(buf.len());
            let io = Io::read_part(buf, len, rq.offset + at);
            let io = io.user_data(key.to_u64() | (nr as u64) << MARK_SHIFT);
            if let Err((refusal, io)) = self.submit(export, io) {
                self.give_back(io, conn);
                if refusal == SubmitErrorKind::WouldBlock {
                    break;
                }
                self.refused(key, refusal);
                return Begun::Yes;
            }
            at += len as u64;
            nr += 1;
            let flight = self.flights.get_mut(key).expect("looked up above");
            flight.in_disk += 1;
            flight.is_all_there = at == rq.len;
            flight.issued_ns = self.now_ns;
            let portion = flight.portion.as_mut().expect("created by the caller");
            (portion.asked, portion.lens[nr - 1]) = (at, len);
        }
        if nr == 0 { Begun::NoRoom } else { Begun::Yes }
    }

    /// Handles a complete portion: queues its pieces for the client, in order, and submits the next
    /// portion. Returns whether the request is over.
    pub(in crate::worker) fn end_portion(&mut self, conn: &mut Conn, key: Key) -> bool {
        let flight = self.flights.get_mut(key).expect("checked by the caller");
        let keeps_data = self.exports[flight.export].keeps_data;
        let transmission = conn.phase.transmission();
        let rq = flight.rq;
        let Some(portion) = &mut flight.portion else { return true };
        let Portion { sent, asked, pieces, .. } = &mut **portion;
        for slot in pieces {
            let Some((mut buf, len)) = slot.take() else { continue };
            if flight.failed.is_some() {
                self.pool.give(buf, &mut conn.held);
                continue;
            }
            if !keeps_data {
                buf[..len].fill(0);
            }
            let is_last = *sent + len as u64 == rq.len;
            let is_first = *sent == 0;
            if !is_one_chunk(&rq) {
                let at = rq.offset + *sent;
                let head = transmission.data(&rq, at, len as u32, is_first, is_last);
                conn.output.push(head.as_slice());
            } else if is_first {
                let head = transmission.data(&rq, rq.offset, rq.len as u32, true, true);
                conn.output.push(head.as_slice());
            }
            conn.output.push_data(buf, len);
            *sent += len as u64;
        }
        if flight.failed.is_some() || *asked == rq.len {
            flight.is_all_there = true;
            return true;
        }
        // A client that is slow to read its replies gets no further memory.
        if self.next_portion(conn, key) == Begun::NoRoom {
            conn.paused.push(key);
        }
        false
    }

    /// Returns the pieces of a read whose client is gone to the pool.
    pub(in crate::worker) fn drop_pieces(&mut self, portion: Option<Box<Portion>>) {
        for (buf, _) in portion.into_iter().flat_map(|portion| portion.pieces).flatten() {
            self.pool.give_gone(buf);
        }
    }
}

/// Returns whether the data of a read must be in one chunk, even if it is read in pieces.
pub(in crate::worker) fn is_one_chunk(rq: &Request) -> bool {
    rq.command == Ok(Command::Read { df: true })
}
