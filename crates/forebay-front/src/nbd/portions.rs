//! Large reads, in portions of a few pieces.
//!
//! A portion is submitted when the data of the previous one are queued for the client, so that a
//! read of any length takes no more memory than a portion. If a reply has one header for all of its
//! data, nothing may be sent between its portions. Unless such a read fits into one portion, it
//! begins only when nothing but CACHE is in flight on its connection. Replies to CACHE wait for its
//! end.

use super::conn::Conn;
use super::in_flight::{NR_PIECES_MAX, NbdFlight, Portion, is_one_chunk};
use super::{NbdDesk, NbdHost};
use crate::host::Io;
use crate::plant::plants;
use crate::session::Begun;
use crate::slots::{Key, MARK_SHIFT};
use forebay_core::{Op, SubmitErrorKind};

impl<H: NbdHost> NbdDesk<H> {
    /// Returns whether all pieces of a large read fit into one portion now.
    pub(super) fn has_room_for_all(
        &mut self,
        conn: &mut Conn<H>,
        flight: &NbdFlight<H::Memory>,
    ) -> bool {
        let len = flight.rq.rq.len;
        let piece_max = self.common.pool.piece_max();
        let whole = len.next_multiple_of(piece_max as u64) as usize;
        len <= (NR_PIECES_MAX * piece_max) as u64
            && self.common.pool.may_have(whole, conn.held())
            && self.host.has_room(flight.export, NR_PIECES_MAX)
    }

    /// Submits the next pieces of a large read. The last portion must be over.
    pub(super) fn next_portion(&mut self, conn: &mut Conn<H>, key: Key) -> Begun {
        let Some(flight) = self.flights.get_mut(key) else { return Begun::Yes };
        let (export, rq) = (flight.export, flight.rq.rq);
        let mut at = flight.rq.portion.as_ref().map_or(0, |portion| portion.asked);
        let mut nr = 0;
        while nr < NR_PIECES_MAX && at < rq.len {
            let left = (rq.len - at).min(self.common.pool.piece_max() as u64) as usize;
            let Some(buf) = self.common.pool.take(left, conn.held()) else { break };
            let len = left.min(buf.len());
            let io = Io::data(Op::Read, buf, rq.offset + at, len);
            let io = io.user_data(key.to_u64() | (nr as u64) << MARK_SHIFT);
            if let Err((refusal, buf)) = self.submit(&conn.link.peer, export, io) {
                self.give_back(buf, conn);
                if refusal == SubmitErrorKind::WouldBlock {
                    break;
                }
                self.flights.get_mut(key).expect("looked up above").is_all_there = true;
                self.refused(key, refusal);
                return Begun::Yes;
            }
            at += len as u64;
            nr += 1;
            let flight = self.flights.get_mut(key).expect("looked up above");
            flight.in_disk += 1;
            flight.is_all_there = at == rq.len;
            flight.issued_ns = self.now_ns;
            let portion = flight.rq.portion.as_mut().expect("created by the caller");
            (portion.asked, portion.lens[nr - 1]) = (at, len);
        }
        if nr == 0 { Begun::NoRoom } else { Begun::Yes }
    }

    /// Handles a complete portion: queues its pieces for the client, in order, and submits the next
    /// portion. Returns whether the request is over.
    pub(super) fn end_portion(&mut self, conn: &mut Conn<H>, key: Key) -> bool {
        let flight = self.flights.get_mut(key).expect("checked by the caller");
        let keeps_data = self.common.facts[flight.export].keeps_data;
        let rq = flight.rq.rq;
        let Some(portion) = &mut flight.rq.portion else { return true };
        let Portion { sent, asked, pieces, .. } = &mut **portion;
        if plants!(MixPieces) && are_alike(pieces) {
            pieces.swap(0, 1);
        }
        for slot in pieces {
            let Some((mut buf, len)) = slot.take() else { continue };
            if flight.failure.is_some() {
                self.common.pool.give(buf, conn.held());
                continue;
            }
            if !keeps_data {
                buf[..len].fill(0);
            }
            let is_last = *sent + len as u64 == rq.len;
            let is_first = *sent == 0;
            if !is_one_chunk(&rq) {
                let at = rq.offset + *sent;
                conn.reply_head(&rq, (at, len as u64), (is_first, is_last));
            } else if is_first {
                conn.reply_head(&rq, (rq.offset, rq.len), (true, true));
            }
            conn.reply_data(buf, len);
            *sent += len as u64;
        }
        if flight.failure.is_some() || *asked == rq.len {
            flight.is_all_there = true;
            return true;
        }
        // A client that is slow to read its replies gets no further memory.
        if self.next_portion(conn, key) == Begun::NoRoom {
            conn.pause(key);
        }
        false
    }

    /// Returns the pieces of a read whose client is gone to the pool.
    pub(super) fn drop_pieces(&mut self, portion: Option<Box<Portion<H::Memory>>>) {
        for (buf, _) in portion.into_iter().flat_map(|portion| portion.pieces).flatten() {
            self.common.pool.give_gone(buf);
        }
    }
}

/// Returns whether the first two pieces have the same length.
fn are_alike<M>(pieces: &[Option<(M, usize)>]) -> bool {
    matches!(pieces, [Some((_, one)), Some((_, other)), ..] if one == other)
}
