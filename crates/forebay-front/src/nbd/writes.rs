//! Writes: their payload is placed in buffers, and submitted to the disk piece by piece.

use super::conn::Conn;
use super::payload::Payload;
use super::planted::next_block;
use super::{NbdDesk, NbdHost};
use crate::host::Io;
use crate::plant::plants;
use crate::session::Begun;
use crate::slots::MARK_SHIFT;
use forebay_core::{Op, SubmitErrorKind};
use forebay_nbd::server::Command;

impl<H: NbdHost> NbdDesk<H> {
    /// Copies bytes to the payload, and submits complete pieces to the disk. Returns the number of
    /// bytes consumed: all of them, unless the payload ends or there is no room.
    #[inline]
    pub(super) fn fill(&mut self, conn: &mut Conn<H>, bytes: &[u8]) -> (usize, Begun) {
        let mut taken = 0;
        let piece_max = self.common.pool.piece_max();
        while let Some(wanted) = conn.payload().map(|payload| payload.wanted(piece_max)) {
            if let Some(want) = wanted {
                let Some(buf) = self.common.pool.take(want, conn.held()) else {
                    return (taken, Begun::NoRoom);
                };
                let len = want.min(buf.len());
                let payload = conn.payload_mut().expect("as above");
                payload.lay_out(buf, len, self.now_ns);
            }
            let payload = conn.payload_mut().expect("as above");
            taken += payload.copy(&bytes[taken..]);
            if !payload.is_full() {
                if plants!(TornPayload) && payload.is_last_piece() {
                    let missing = payload.missing().len();
                    payload.received(missing);
                    let begun = self.submit_piece(conn);
                    conn.skip(missing as u64);
                    return (taken, begun);
                }
                break;
            }
            if self.submit_piece(conn) == Begun::NoRoom {
                return (taken, Begun::NoRoom);
            }
        }
        (taken, Begun::Yes)
    }

    /// Submits the current piece if it is complete.
    #[inline]
    pub(super) fn submit_piece_if_full(&mut self, conn: &mut Conn<H>) -> Begun {
        match conn.payload().is_some_and(Payload::is_full) {
            true => self.submit_piece(conn),
            false => Begun::Yes,
        }
    }

    /// Submits the complete piece.
    fn submit_piece(&mut self, conn: &mut Conn<H>) -> Begun {
        let Some(payload) = conn.payload_mut() else { return Begun::Yes };
        let key = payload.flight();
        let flight = self.flights.get_mut(key).expect("a payload belongs to a request");
        let buf = payload.take_buf().expect("the piece is complete");
        let mark = (self.common.pool.class(&buf) as u64) << MARK_SHIFT;
        let (at, len) = payload.range();
        let is_fua = matches!(flight.rq.rq.command, Ok(Command::Write { fua: true }));
        let is_last = payload.is_last_piece();
        let export = flight.export;
        let at = match plants!(MisplacedWrite) {
            true => next_block(&self.common.infos[export], at, len as u64),
            false => at,
        };
        let io = Io::data(Op::Write, buf, at, len).user_data(key.to_u64() | mark).fua_if(is_fua);
        flight.in_disk += 1;
        flight.is_all_there = is_last;
        flight.issued_ns = self.now_ns;
        if plants!(LostWrite) {
            flight.in_disk -= 1;
            self.give_back(io.memory, conn);
            self.to_settle.push(key);
        } else if let Err((refusal, buf)) = self.submit(&conn.link.peer, export, io) {
            let flight = self.flights.get_mut(key).expect("as above");
            flight.in_disk -= 1;
            if refusal == SubmitErrorKind::WouldBlock {
                flight.is_all_there = false;
                conn.payload_mut().expect("as above").put_buf(buf);
                return Begun::NoRoom;
            }
            self.give_back(buf, conn);
            self.refused(key, refusal);
        } else if is_last && plants!(EarlyWrite) {
            self.answer_early(conn, key);
        }
        if !conn.payload_mut().expect("as above").next_piece() {
            conn.end_payload();
        }
        Begun::Yes
    }
}

#[cfg(test)]
mod tests;
