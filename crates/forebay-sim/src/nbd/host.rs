//! The host of a worker's front: pipes for sockets, the simulated disk, and virtual time.

use super::context::Way;
use super::disk::Disk;
use super::outside::{Outside, SharedOutside};
use super::pieces::Piece;
use super::trace::Met;
use forebay_core::{Op, SubmitErrorKind};
use forebay_front::nbd::{NbdHost, Opened, StatusQuery, Stream};
use forebay_front::{
    Closed, Failed, Host, Interest, Io, Key, MARK_SHIFT, Parts, Peer, RequestKind, Stage,
};
use std::any::Any;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::panic::resume_unwind;
use std::rc::Rc;

/// The maximum number of bytes in one read.
const READ_MAX: u64 = 3000;

/// The host of one worker.
#[derive(Debug)]
pub(crate) struct SimHost {
    outside: SharedOutside,
    worker: usize,
}

impl SimHost {
    pub(crate) fn new(outside: &SharedOutside, worker: usize) -> SimHost {
        SimHost { outside: Rc::clone(outside), worker }
    }
}

/// The server's end of a connection.
#[derive(Debug)]
pub(crate) struct SimPeer {
    outside: SharedOutside,
    conn: usize,
}

impl SimPeer {
    pub(crate) fn new(outside: &SharedOutside, conn: usize) -> SimPeer {
        SimPeer { outside: Rc::clone(outside), conn }
    }
}

impl Peer for SimPeer {
    fn begin(&mut self, _kind: RequestKind) {}

    fn end(&mut self, _kind: RequestKind, _bytes: u64) {}

    fn fail(&mut self) {}

    fn set_export(&mut self, _export: usize) {}

    fn say_goodbye(&mut self) {}
}

impl Stream for SimPeer {
    fn receive(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Outside { cx, conns, .. } = &mut *self.outside.borrow_mut();
        let conn = &mut conns[self.conn];
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
        let conn = &self.outside.borrow().conns[self.conn];
        conn.is_unreported && conn.up.has_arrived()
    }

    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Outside { cx, conns, .. } = &mut *self.outside.borrow_mut();
        let conn = &mut conns[self.conn];
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

/// An open plug of a worker.
pub(crate) struct SimPlug {
    outside: SharedOutside,
    worker: usize,
}

impl Drop for SimPlug {
    fn drop(&mut self) {
        // A panic may have left the core in the middle of a step.
        if !std::thread::panicking() {
            let Outside { cx, disk, .. } = &mut *self.outside.borrow_mut();
            disk.unplug(self.worker, cx);
        }
    }
}

impl SimHost {
    fn disk<R>(&self, look: impl FnOnce(&Disk) -> R) -> R {
        look(&self.outside.borrow().disk)
    }
}

impl Host for SimHost {
    type Memory = Piece;
    type Peer = SimPeer;
    type Completion = Parts<Piece>;
    type Plug = SimPlug;

    fn plug(&mut self) -> SimPlug {
        self.outside.borrow_mut().disk.plug(self.worker);
        SimPlug { outside: Rc::clone(&self.outside), worker: self.worker }
    }

    fn now_ns(&self) -> u64 {
        self.outside.borrow().cx.now
    }

    fn submit(
        &mut self,
        export: usize,
        io: Io<Piece>,
        _now_ns: u64,
    ) -> Result<(), (SubmitErrorKind, Option<Piece>)> {
        assert_eq!(export, 0, "clients use the first export only");
        let Outside { cx, disk, .. } = &mut *self.outside.borrow_mut();
        if io.op == Op::Read && io.user_data >> MARK_SHIFT > 0 {
            cx.note(Met::Split, io.offset, io.len);
        }
        disk.submit(self.worker, io, cx)
    }

    fn reap(&mut self, done: &mut Vec<Parts<Piece>>, _now_ns: u64) {
        let Outside { cx, disk, .. } = &mut *self.outside.borrow_mut();
        disk.reap(self.worker, cx, done);
    }

    fn parts(completion: Parts<Piece>) -> Parts<Piece> {
        completion
    }

    fn has_ended(&self) -> bool {
        self.disk(|disk| disk.has_ended(self.worker))
    }

    fn is_busy(&self) -> bool {
        self.disk(|disk| disk.len(self.worker) > 0)
    }

    fn is_busy_with(&self, export: usize) -> bool {
        export == 0 && self.is_busy()
    }

    fn has_room(&self, _export: usize, nr: usize) -> bool {
        self.disk(|disk| disk.has_room(self.worker, nr))
    }

    fn watch(&mut self, peer: &mut SimPeer, key: Key, interest: Interest) -> io::Result<()> {
        let Outside { cx, conns, .. } = &mut *self.outside.borrow_mut();
        let conn = &mut conns[peer.conn];
        if !interest.receive && conn.interest.receive && !conn.is_gone {
            cx.note(Met::HeldBack, peer.conn as u64, 0);
        }
        (conn.key, conn.interest) = (Some(key), interest);
        Ok(())
    }

    fn record(&mut self, _export: usize, _stage: Stage, _ns: u64) {}

    /// Passes the panic on: the core's assertions, and the front's, are checkers.
    fn panicked(&mut self, panic: Box<dyn Any + Send>) {
        resume_unwind(panic);
    }

    fn failed(&mut self, _peer: &SimPeer, _failed: &Failed<'_>, _now_ns: u64) {}

    fn closed(&mut self, peer: &mut SimPeer, _closed: &Closed<'_>, _now_ns: u64) {
        let Outside { cx, conns, .. } = &mut *self.outside.borrow_mut();
        let conn = &mut conns[peer.conn];
        conn.key = None;
        conn.down.close();
        conn.start(peer.conn, Way::Down, cx);
        cx.note(Met::Drained, peer.conn as u64, 0);
    }
}

impl NbdHost for SimHost {
    fn allocate(len: usize) -> Piece {
        vec![0; len].into()
    }

    fn start_tls(&mut self, _peer: &mut SimPeer) -> Result<(), String> {
        unreachable!("TLS is off")
    }

    fn opened(&mut self, _peer: &SimPeer, _opened: &Opened, _now_ns: u64) {}

    fn refused(&mut self) {}

    fn query_status(&mut self, query: StatusQuery) -> bool {
        self.outside.borrow_mut().ask(self.worker, query);
        true
    }
}
