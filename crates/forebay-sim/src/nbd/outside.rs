//! State behind the hosts of all fronts, which the world shares: connections, the disk, and queries
//! that wait for an answer.

use super::conn::Conn;
use super::context::{Context, Event};
use super::disk::Disk;
use super::store::SECTOR;
use forebay_front::nbd::{StatusAnswer, StatusQuery};
use forebay_nbd::server::Command;
use forebay_nbd::wire::numbers::{STATE_HOLE, STATE_ZERO};
use std::cell::RefCell;
use std::rc::Rc;

/// The mean time until a query is answered, ns.
const ANSWER_NS: u64 = 2_000;
/// Most extents of an answer.
const EXTENTS_MAX: usize = 1024;
/// On a device that may fail, one query in `FAILS_OF` fails.
const FAILS_OF: u32 = 20;

/// The connections, the disk and the queries of the server.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) cx: Context,
    pub(crate) conns: Vec<Conn>,
    pub(crate) disk: Disk,
    /// Queries without an answer, with their workers.
    questions: Vec<(usize, StatusQuery)>,
    may_fail: bool,
}

/// An [`Outside`], as the fronts' hosts and the world share it.
pub(crate) type SharedOutside = Rc<RefCell<Outside>>;

impl Outside {
    pub(crate) fn new(cx: Context, disk: Disk, may_fail: bool) -> Outside {
        Outside { cx, conns: Vec::new(), disk, questions: Vec::new(), may_fail }
    }

    /// Drops the connections and queries of a server that has died.
    pub(crate) fn forget(&mut self) {
        self.cx.forget();
        self.conns.clear();
        self.questions.clear();
    }

    /// Queues a query of a worker.
    pub(crate) fn ask(&mut self, worker: usize, query: StatusQuery) {
        self.questions.push((worker, query));
        self.cx.soon(ANSWER_NS, Event::Answer);
    }

    /// Answers one query. Returns its worker and the answer.
    pub(crate) fn answer(&mut self) -> (usize, StatusAnswer) {
        let nth = self.cx.random.below(self.questions.len() as u64) as usize;
        let (worker, query) = self.questions.swap_remove(nth);
        let StatusQuery { client, rq, .. } = query;
        let extents = match self.may_fail && self.cx.random.chance(1, FAILS_OF) {
            true => Err("the device failed".to_owned()),
            false => Ok(self.extents(&query)),
        };
        (worker, StatusAnswer { client, rq, extents })
    }

    /// Returns extents for the device's present contents: zeroes, or data.
    fn extents(&self, query: &StatusQuery) -> Vec<(u64, u32)> {
        let rq = query.rq;
        let is_one = matches!(rq.command, Ok(Command::BlockStatus { one: true }));
        let sectors = rq.offset / SECTOR..(rq.offset + rq.len) / SECTOR;
        let extents = sectors.map(|sector| {
            let is_zero = self.disk.device.store.read(sector).iter().all(|&byte| byte == 0);
            (SECTOR, if is_zero { STATE_HOLE | STATE_ZERO } else { 0 })
        });
        extents.take(if is_one { 1 } else { EXTENTS_MAX }).collect()
    }
}
