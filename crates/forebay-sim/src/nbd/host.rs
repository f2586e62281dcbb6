//! The server's end of a connection, and the NBD part of the host of a worker's front.

use super::conns::{Conns, SimPeer};
use super::met::Met;
use crate::server::{Outside, Piece, SimHost, Way};
use forebay_front::nbd::{NbdHost, Opened, StatusQuery, Stream};
use forebay_front::{Peer, RequestKind};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

/// The maximum number of bytes in one read.
const READ_MAX: u64 = 3000;

impl Peer for SimPeer {
    fn begin(&mut self, kind: RequestKind) {
        self.outside.borrow_mut().transport.conns[self.conn].begun.count(kind);
    }

    fn end(&mut self, _kind: RequestKind, _bytes: u64) {}

    fn fail(&mut self) {}

    fn set_export(&mut self, _export: usize) {}

    fn say_goodbye(&mut self) {}
}

impl Stream for SimPeer {
    fn receive(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Outside { cx, transport, .. } = &mut *self.outside.borrow_mut();
        let conn = &mut transport.conns[self.conn];
        conn.has_new = false;
        let up = &mut conn.up;
        if up.is_over() {
            if slices.len() > 1 {
                cx.note(Met::VanishInPayload, self.conn as u64, slices[0].len() as u64);
            }
            return Ok(0);
        }
        let mut left = cx.random.between(1, READ_MAX) as usize;
        let mut nr = 0;
        for slice in slices {
            let len = slice.len().min(left);
            let now = up.read_into(&mut slice[..len]);
            (nr, left) = (nr + now, left - now);
        }
        if nr == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(nr) }
    }

    fn has_received(&self) -> bool {
        let conn = &self.outside.borrow().transport.conns[self.conn];
        conn.is_unreported && conn.up.has_arrived()
    }

    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Outside { cx, transport, .. } = &mut *self.outside.borrow_mut();
        let conn = &mut transport.conns[self.conn];
        let mut nr = 0;
        for slice in slices {
            let now = conn.down.write(slice);
            nr += now;
            if now < slice.len() {
                break;
            }
        }
        if nr == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        conn.start(self.conn, Way::Down, cx);
        Ok(nr)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wants_send(&self) -> bool {
        false
    }
}

impl NbdHost for SimHost<Conns> {
    fn allocate(len: usize) -> Piece {
        vec![0; len].into()
    }

    fn start_tls(&mut self, _peer: &mut SimPeer) -> Result<(), String> {
        unreachable!("TLS is off")
    }

    fn opened(&mut self, _peer: &mut SimPeer, _opened: &Opened, _now_ns: u64) {}

    fn refused(&mut self) {}

    fn query_status(&mut self, query: StatusQuery) -> bool {
        let Outside { cx, transport, .. } = &mut *self.outside.borrow_mut();
        transport.ask(self.worker, query, cx);
        true
    }
}
