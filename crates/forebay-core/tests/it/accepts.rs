//! Tests of the ways of requests from a thread to a context: whichever it is, they are issued in
//! order.

use crate::common::{Toy, limits};
use forebay_core::{
    Bio, BioFlags, Commit, DeviceState, Emulation, Gates, HardwareContext, Op, Policy, QueueLimits,
    QueuedBio, RunCounters, Segment, SoftwareQueue, TagSet, UnplugCause, WakePolicy,
};
use std::sync::Arc;

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;

/// A thread that passes its queue to a context as a whole.
struct Thread {
    ctx: SoftwareQueue,
    hctx: HardwareContext,
    toy: Toy,
    ended: Vec<u64>,
    #[expect(clippy::vec_box, reason = "turns add boxes")]
    boxes: Vec<Box<QueuedBio>>,
}

impl Thread {
    fn new(policy: Policy, limits: QueueLimits) -> Thread {
        let (device, counters) = (Arc::new(DeviceState::new(1)), Arc::new(RunCounters::default()));
        let tags = Arc::new(TagSet::new(policy.queue_depth));
        let hctx = HardwareContext::new(limits, policy, 0, device, tags, counters);
        let ctx = SoftwareQueue::new(limits, policy, Arc::default());
        Thread { ctx, hctx, toy: Toy::default(), ended: Vec::new(), boxes: Vec::new() }
    }

    /// Queues a read of one or several pages.
    fn queue(&mut self, flags: BioFlags, page: u64, nr_pages: u64, level: u32) {
        let mut queued = QueuedBio::new(0, 0);
        let segment = Segment { addr: 1 << 20, len: (nr_pages * K4) as u32 };
        let bio = Bio::data(Op::Read, page * K4, segment);
        queued.fill(Bio { flags, user_data: page, ..bio });
        self.ctx.queue_bio(queued, level, 0).expect("a good bio");
    }

    fn turn(&mut self, gates: Gates) {
        self.hctx.accept_from(&mut self.ctx, gates.enter);
        assert!(!self.ctx.has_outgoing());
        loop {
            self.hctx.turn(&mut self.toy, 0, gates, Commit::Now, &mut self.boxes);
            let mut woken = Vec::new();
            self.hctx.take_woken(&mut |id| woken.push(id));
            if woken.is_empty() {
                break;
            }
            woken.into_iter().for_each(|id| self.hctx.awake(id));
        }
        assert!(self.boxes.iter().all(|queued| queued.result().is_ok()));
        self.ended.extend(self.boxes.drain(..).map(|queued| queued.bio().user_data));
        self.hctx.check_invariants();
    }

    fn finish(&mut self) {
        while !self.toy.running.is_empty() {
            self.toy.complete_oldest();
            self.turn(Gates::OPEN);
        }
    }

    /// Returns the pages that were issued.
    fn pages(&self) -> Vec<u64> {
        self.toy.seen.iter().map(|seen| seen.start / K4).collect()
    }
}

fn policies() -> [Policy; 3] {
    let policy = Policy::default().queue_depth(2);
    let emulation = Emulation::default().wake(WakePolicy::Single);
    [policy, policy.emulation(emulation), policy.nr_reserved(1)]
}

#[test]
fn requests_of_a_queue_are_issued_in_order() {
    for policy in policies() {
        let mut thread = Thread::new(policy, limits());
        for round in 0..3 {
            (0..5).for_each(|nth| thread.queue(NONE, 100 * round + 10 * nth, 1, 0));
            thread.turn(Gates::OPEN);
        }
        thread.finish();
        let expected: Vec<u64> = (0..15).map(|nth| 100 * (nth / 5) + 10 * (nth % 5)).collect();
        assert_eq!((thread.pages(), &thread.ended), (expected.clone(), &expected));
    }
}

#[test]
fn requests_behind_a_frozen_gate_enter_in_order() {
    let frozen = Gates { enter: false, ..Gates::OPEN };
    for policy in policies() {
        let mut thread = Thread::new(policy, limits());
        thread.turn(Gates::OPEN);
        for page in [10, 20, 30] {
            thread.queue(NONE, page, 1, 0);
            thread.turn(frozen);
        }
        assert_eq!((thread.pages(), thread.hctx.check_invariants()), (Vec::new(), 3));
        // The gate is open, and those before it are first.
        thread.queue(NONE, 40, 1, 0);
        thread.turn(Gates::OPEN);
        thread.finish();
        assert_eq!(thread.pages(), [10, 20, 30, 40]);
    }
}

#[test]
fn special_requests_are_handled_by_the_full_rules() {
    for policy in policies() {
        let small = limits().max_sectors(8);
        let mut thread = Thread::new(policy.queue_depth(8), small);
        thread.turn(Gates::OPEN);
        thread.queue(NONE, 10, 1, 0);
        thread.queue(NONE, 20, 3, 0);
        thread.queue(BioFlags::NOWAIT, 30, 1, 0);
        thread.turn(Gates::OPEN);
        assert_eq!(thread.pages(), [10, 20, 21, 22, 30]);
        thread.queue(NONE, 40, 1, 0);
        thread.turn(Gates::OPEN);
        thread.finish();
        assert_eq!(thread.ended, [10, 20, 30, 40]);
    }
}

#[test]
fn requests_in_the_plug_stay_there() {
    let mut thread = Thread::new(Policy::default(), limits());
    thread.turn(Gates::OPEN);
    thread.queue(BioFlags::NOWAIT, 10, 1, 1);
    thread.queue(NONE, 20, 1, 0);
    thread.turn(Gates::OPEN);
    assert_eq!(thread.pages(), [20]);
    thread.ctx.unplug(UnplugCause::Explicit, 1, 0);
    assert_eq!(thread.ctx.nr_outgoing(), 1);
    thread.turn(Gates::OPEN);
    assert_eq!(thread.pages(), [20, 10]);
    thread.finish();
}

#[test]
fn each_special_request_reaches_a_plain_context_by_the_full_rules() {
    // The part of a large bio, and a flush, which a disk without a cache does not get.
    for special in
        [Bio::data(Op::Read, 20 * K4, Segment { addr: 1 << 20, len: 3 * K4 as u32 }), Bio::flush()]
    {
        let mut thread = Thread::new(Policy::default(), limits().max_sectors(8));
        thread.turn(Gates::OPEN);
        let mut queued = QueuedBio::new(0, 0);
        queued.fill(Bio { user_data: 20, ..special.clone() });
        // In the plug, it is left there by requests that pass it.
        thread.ctx.queue_bio(queued, 1, 0).expect("a good bio");
        assert_eq!(thread.ctx.nr_outgoing(), 0);
        thread.queue(NONE, 10, 1, 0);
        thread.turn(Gates::OPEN);
        assert_eq!(thread.pages(), [10]);
        thread.ctx.unplug(UnplugCause::Explicit, 1, 0);
        thread.turn(Gates::OPEN);
        let expected = if special.op == Op::Flush { vec![10] } else { vec![10, 20, 21, 22] };
        assert_eq!(thread.pages(), expected);
        thread.finish();
        let mut ended = thread.ended;
        ended.sort_unstable();
        assert_eq!(ended, [10, 20]);
    }
}

#[test]
fn outgoing_requests_are_counted() {
    let mut thread = Thread::new(Policy::default(), limits());
    assert_eq!((thread.ctx.nr_outgoing(), thread.ctx.has_outgoing()), (0, false));
    (0..2).for_each(|nth| thread.queue(NONE, 10 * nth, 1, 0));
    assert_eq!((thread.ctx.nr_outgoing(), thread.ctx.has_outgoing()), (2, true));
    thread.turn(Gates::OPEN);
    thread.finish();
}
