//! Writes: their payload is placed in buffers, and submitted to the disk piece by piece.

use super::{Begun, Disks};
use crate::pool::{PIECE_MAX, class};
use crate::worker::conn::Conn;
use crate::worker::payload::Payload;
use crate::worker::slots::MARK_SHIFT;
use forebay::{Io, SubmitErrorKind};
use forebay_nbd::server::Command;

impl Disks {
    /// Copies bytes to the payload, and submits complete pieces to the disk. Returns the number of
    /// bytes consumed: all of them, unless the payload ends or there is no room.
    #[inline]
    pub(crate) fn fill(&mut self, conn: &mut Conn, bytes: &[u8]) -> (usize, Begun) {
        let mut taken = 0;
        while let Some(payload) = &mut conn.payload {
            if payload.buf.is_none() {
                let want = payload.left.min(PIECE_MAX as u64) as usize;
                let Some(buf) = self.pool.take(want, &mut conn.held) else {
                    return (taken, Begun::NoRoom);
                };
                let len = want.min(buf.len());
                payload.lay_out(buf, len, self.now_ns);
            }
            let (Some(buf), at) = (&mut payload.buf, payload.filled) else { unreachable!() };
            let now = (bytes.len() - taken).min(payload.piece_len - at);
            buf[at..at + now].copy_from_slice(&bytes[taken..taken + now]);
            payload.filled += now;
            taken += now;
            if payload.filled < payload.piece_len {
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
    pub(crate) fn submit_piece_if_full(&mut self, conn: &mut Conn) -> Begun {
        match conn.payload.as_ref().is_some_and(Payload::is_full) {
            true => self.submit_piece(conn),
            false => Begun::Yes,
        }
    }

    /// Submits the complete piece.
    fn submit_piece(&mut self, conn: &mut Conn) -> Begun {
        let Some(payload) = &mut conn.payload else { return Begun::Yes };
        let key = payload.flight;
        let flight = self.flights.get_mut(key).expect("a payload belongs to a request");
        let buf = payload.buf.take().expect("the piece is complete");
        let mark = (class(buf.len()) as u64) << MARK_SHIFT;
        let io = Io::write_part(buf, payload.piece_len, payload.at);
        let io = io.user_data(key.to_u64() | mark);
        let is_fua = matches!(flight.rq.command, Ok(Command::Write { fua: true }));
        let io = if is_fua { io.fua() } else { io };
        let is_last = payload.left == payload.piece_len as u64;
        let export = flight.export;
        flight.in_disk += 1;
        flight.is_all_there = is_last;
        flight.issued_ns = self.now_ns;
        if let Err((refusal, io)) = self.submit(export, io) {
            let flight = self.flights.get_mut(key).expect("as above");
            flight.in_disk -= 1;
            let payload = conn.payload.as_mut().expect("as above");
            if refusal == SubmitErrorKind::WouldBlock {
                flight.is_all_there = false;
                payload.buf = io.into_buf();
                return Begun::NoRoom;
            }
            self.give_back(io, conn);
            self.refused(key, refusal);
        }
        let payload = conn.payload.as_mut().expect("as above");
        payload.at += payload.piece_len as u64;
        payload.left -= payload.piece_len as u64;
        if is_last {
            conn.payload = None;
        }
        Begun::Yes
    }
}

#[cfg(test)]
mod tests;
