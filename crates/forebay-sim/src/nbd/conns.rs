//! The transport of NBD: connections, and queries that wait for an answer.

use super::conn::Conn;
use super::met::Met;
use crate::server::{Context, Event, Outside, Piece, SECTOR, SharedOutside, Transport, Way};
use forebay_core::Op;
use forebay_front::nbd::{StatusAnswer, StatusQuery};
use forebay_front::{Closed, Failed, Interest, Io, Key, MARK_SHIFT, Readiness, RequestKind};
use forebay_nbd::server::Command;
use forebay_nbd::wire::numbers::{STATE_HOLE, STATE_ZERO};
use std::rc::Rc;

/// The mean time until a query is answered, ns.
const ANSWER_NS: u64 = 2_000;
/// Most extents of an answer.
const EXTENTS_MAX: usize = 1024;
/// On a device that may fail, one query in `FAILS_OF` fails.
const FAILS_OF: u32 = 20;

/// The connections and the queries of the server.
#[derive(Debug)]
pub(crate) struct Conns {
    pub(crate) conns: Vec<Conn>,
    /// Queries without an answer, with their workers.
    questions: Vec<(usize, StatusQuery)>,
    may_fail: bool,
    nr_workers: usize,
}

/// The connections, the clock and the disk, as the fronts' hosts and the world share them.
pub(crate) type SharedConns = SharedOutside<Conns>;

/// The server's end of a connection.
#[derive(Debug)]
pub(crate) struct SimPeer {
    pub(super) outside: SharedConns,
    pub(super) conn: usize,
}

impl SimPeer {
    pub(crate) fn new(outside: &SharedConns, conn: usize) -> SimPeer {
        SimPeer { outside: Rc::clone(outside), conn }
    }
}

impl Conns {
    pub(crate) fn new(nr_workers: usize, may_fail: bool) -> Conns {
        Conns { conns: Vec::new(), questions: Vec::new(), may_fail, nr_workers }
    }

    /// Drops the connections and queries of a server that has died.
    pub(crate) fn forget(&mut self) {
        self.conns.clear();
        self.questions.clear();
    }

    /// Queues a query of a worker.
    pub(crate) fn ask(&mut self, worker: usize, query: StatusQuery, cx: &mut Context) {
        self.questions.push((worker, query));
        cx.soon(ANSWER_NS, Event::Answer);
    }

    /// Returns the events of a worker's connections, in any order.
    pub(crate) fn events(&self, worker: usize, cx: &mut Context) -> Vec<(Key, Readiness)> {
        let own = self.conns.iter().skip(worker).step_by(self.nr_workers);
        let mut events: Vec<_> =
            own.filter_map(|conn| Some((conn.key?, conn.readiness()?))).collect();
        cx.shuffle(&mut events);
        events
    }
}

impl Transport for Conns {
    type Memory = Piece;
    type Peer = SimPeer;

    fn has_event(&self, worker: usize) -> bool {
        let mut own = self.conns.iter().skip(worker).step_by(self.nr_workers);
        own.any(|conn| conn.readiness().is_some())
    }

    fn watch(&mut self, peer: &SimPeer, key: Key, interest: Interest, cx: &mut Context) {
        let conn = &mut self.conns[peer.conn];
        if !interest.receive && conn.interest.receive && !conn.is_gone {
            cx.note(Met::HeldBack, peer.conn as u64, 0);
        }
        (conn.key, conn.interest) = (Some(key), interest);
    }

    fn submits(&mut self, _worker: usize, io: &Io<Piece>, cx: &mut Context) {
        if io.op == Op::Read && io.user_data >> MARK_SHIFT > 0 {
            cx.note(Met::Split, io.offset, io.len);
        }
    }

    fn reaps(&mut self, _worker: usize, _cx: &mut Context) {}

    fn failed(&mut self, peer: &SimPeer, failed: &Failed<'_>) {
        self.conns[peer.conn].has_failed_read |= failed.kind == RequestKind::Read;
    }

    fn closed(&mut self, peer: &SimPeer, _closed: &Closed<'_>, cx: &mut Context) {
        let conn = &mut self.conns[peer.conn];
        conn.key = None;
        conn.down.close();
        conn.start(peer.conn, Way::Down, cx);
        cx.note(Met::Closed, peer.conn as u64, 0);
    }
}

/// Answers one query. Returns its worker and the answer.
pub(crate) fn answer(outside: &SharedConns) -> (usize, StatusAnswer) {
    let Outside { cx, disk, transport } = &mut *outside.borrow_mut();
    let nth = cx.random.below(transport.questions.len() as u64) as usize;
    let (worker, query) = transport.questions.swap_remove(nth);
    let StatusQuery { client, rq, .. } = query;
    // Extents of the device's present contents: zeroes, or data.
    let is_one = matches!(rq.command, Ok(Command::BlockStatus { one: true }));
    let sectors = rq.offset / SECTOR..(rq.offset + rq.len) / SECTOR;
    let extents = sectors.map(|sector| {
        let is_zero = disk.device.store.read(sector).iter().all(|&byte| byte == 0);
        (SECTOR, if is_zero { STATE_HOLE | STATE_ZERO } else { 0 })
    });
    let extents = match transport.may_fail && cx.random.chance(1, FAILS_OF) {
        true => Err("the device failed".to_owned()),
        false => Ok(extents.take(if is_one { 1 } else { EXTENTS_MAX }).collect()),
    };
    (worker, StatusAnswer { client, rq, extents })
}
