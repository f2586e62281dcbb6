//! The transport of virtio-blk: the rings of a guest, and its memory.

use super::memory::GuestMemory;
use super::met::Met;
use super::queue::Queue;
use super::rules::{X1, Y1};
use crate::check::{Broken, Verdict, broken};
use crate::server::{Context, Outside, SharedOutside, SimHost, Transport};
use forebay_front::blk::BlkHost;
use forebay_front::{Closed, Failed, Interest, Io, Key};
use std::rc::Rc;

/// The rings of the guest.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(super) queues: Vec<Queue>,
    /// Whether the write cache of the device is on.
    pub(super) write_cache: bool,
    /// The longest time of a reap, ns.
    reap_ns_max: u64,
    /// The first broken rule.
    broken: Option<Broken>,
}

/// The rings, the clock and the disk, as the fronts' hosts and the world share them.
pub(crate) type SharedRings = SharedOutside<Rings>;

/// The server's end of a ring.
#[derive(Debug)]
pub(crate) struct SimRing {
    pub(super) outside: SharedRings,
    pub(super) queue: usize,
    /// Requests that were begun and not answered.
    pub(super) nr_open: u32,
}

impl SimRing {
    pub(super) fn new(outside: &SharedRings, queue: usize) -> SimRing {
        SimRing { outside: Rc::clone(outside), queue, nr_open: 0 }
    }

    /// Enables or disables the ring.
    pub(super) fn set_enabled(&mut self, is_enabled: bool) {
        self.outside.borrow_mut().transport.queues[self.queue].is_enabled = is_enabled;
    }

    /// Checks that all requests that were taken are answered.
    fn check_answered(&self, queue: &Queue) -> Verdict {
        let rule = if queue.checks.is_reported() { Y1 } else { X1 };
        let nr_taken = queue.taken.iter().filter(|rq| rq.has_status).count();
        match (nr_taken, self.nr_open) {
            (0, 0) => Ok(()),
            (nr_taken, nr_open) => {
                let text = format!("{nr_taken} requests are not answered, {nr_open} are counted");
                broken(rule, format!("ring {} is closed: {text}", self.queue))
            }
        }
    }
}

impl Rings {
    pub(super) fn new(reap_ns_max: u64) -> Rings {
        Rings { queues: Vec::new(), write_cache: true, reap_ns_max, broken: None }
    }

    /// Records a verdict.
    pub(super) fn note(&mut self, verdict: Verdict) {
        if let Err(broken) = verdict {
            self.broken.get_or_insert(broken);
        }
    }

    /// Returns the first broken rule.
    pub(super) fn verdict(&mut self) -> Verdict {
        self.broken.take().map_or(Ok(()), Err)
    }
}

impl Transport for Rings {
    type Memory = GuestMemory;
    type Peer = SimRing;

    /// Kicks are events of the world.
    fn has_event(&self, _worker: usize) -> bool {
        false
    }

    fn watch(&mut self, _: &SimRing, _: Key, _: Interest, _: &mut Context) {}

    fn submits(&mut self, _worker: usize, _io: &Io<GuestMemory>, _cx: &mut Context) {}

    fn reaps(&mut self, worker: usize, cx: &mut Context) {
        if let Some(queue) = self.queues.get(worker) {
            let verdict = queue.checks.reaps(cx.server_ns());
            self.note(verdict);
        }
        cx.spent_ns += cx.random.below(self.reap_ns_max + 1);
    }

    fn failed(&mut self, _peer: &SimRing, _failed: &Failed<'_>) {}

    fn closed(&mut self, peer: &SimRing, _closed: &Closed<'_>, cx: &mut Context) {
        cx.note(Met::RingClosed, peer.queue as u64, 0);
        let verdict = peer.check_answered(&self.queues[peer.queue]);
        self.note(verdict);
    }
}

impl BlkHost for SimHost<Rings> {
    fn broken(&mut self, ring: &mut SimRing, why: &str, _now_ns: u64) {
        let Outside { cx, transport, .. } = &mut *self.outside.borrow_mut();
        let queue = &mut transport.queues[ring.queue];
        let is_busy = queue.taken.iter().any(|rq| rq.has_status);
        cx.note(if is_busy { Met::RingBrokenBusy } else { Met::RingBroken }, queue.id as u64, 0);
        let verdict = queue.checks.reports(why);
        transport.note(verdict);
    }
}
