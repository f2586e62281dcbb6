//! Tests of threads that wait for tags: which thread gets a wake-up.

use crate::common::{Toy, limits};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Commit, DeviceState, Emulation, Gates, HardwareContext, Issue, Op,
    Policy, QueueLimits, QueuedBio, RunCounters, Segment, SoftwareQueue, TagSet, WaitId,
    WakePolicy,
};
use std::sync::Arc;

/// A hardware context with few tags, for bios of several owners.
struct Lines {
    hctx: HardwareContext,
    toy: Toy,
    limits: QueueLimits,
    policy: Policy,
    /// All owners that were woken so far.
    woken: Vec<u64>,
    #[expect(clippy::vec_box, reason = "turns add boxes")]
    ended: Vec<Box<QueuedBio>>,
}

impl Lines {
    fn new() -> Lines {
        Lines::with(limits(), 1)
    }

    fn with(limits: QueueLimits, queue_depth: u32) -> Lines {
        let emulation = Emulation::default().wake(WakePolicy::Single);
        let policy = Policy::default().queue_depth(queue_depth).emulation(emulation);
        let device = Arc::new(DeviceState::new(1));
        let tags = Arc::new(TagSet::new(policy.queue_depth));
        let counters = Arc::new(RunCounters::default());
        let hctx = HardwareContext::new(limits, policy, 0, device, tags, counters);
        Lines { hctx, toy: Toy::default(), limits, policy, woken: Vec::new(), ended: Vec::new() }
    }

    fn accept(&mut self, owner: u64, op: Op) {
        self.accept_len(owner, op, BioFlags::NONE, 4096);
    }

    fn accept_len(&mut self, owner: u64, op: Op, flags: BioFlags, len: u32) {
        let mut ctx = SoftwareQueue::new(self.limits, self.policy, Arc::default());
        let mut queued = QueuedBio::new(owner, 0);
        let bio = match op {
            Op::Flush => Bio::flush(),
            op => Bio::data(op, 0, Segment { addr: 4096, len }),
        };
        queued.fill(Bio { flags, ..bio });
        ctx.queue_bio(queued, 0, 0).expect("it is a good bio");
        ctx.outgoing().for_each(|rq| self.hctx.accept(rq, true));
    }

    fn turn(&mut self) {
        self.hctx.turn(&mut self.toy, 0, Gates::OPEN, Commit::Now, &mut self.ended);
        self.hctx.take_woken(&mut |WaitId(owner)| self.woken.push(owner));
    }

    fn complete(&mut self) {
        self.toy.complete_oldest();
        self.turn();
    }

    fn ask(&mut self, owner: u64) {
        self.hctx.awake(WaitId(owner));
        self.turn();
    }
}

#[test]
fn woken_thread_without_need_passes_the_wake_up_on() {
    let mut lines = Lines::new();
    for (owner, op) in [(1, Op::Read), (2, Op::Read), (3, Op::Flush)] {
        lines.accept(owner, op);
    }
    lines.turn();
    lines.accept(4, Op::Read);
    lines.turn();
    lines.complete();
    assert_eq!(lines.woken, [2]);
    lines.ask(2);
    lines.complete();
    assert_eq!(lines.woken, [2, 3]);
    // The disk has no cache to flush, so the flush ends without a tag.
    lines.ask(3);
    assert_eq!(lines.ended.last().map(|bio| bio.owner()), Some(3));
    assert_eq!(lines.woken, [2, 3, 4], "nobody else will ever wake it");
    lines.ask(4);
    assert_eq!(lines.toy.running.len(), 1);
}

#[test]
fn a_tag_that_comes_back_from_a_failed_issue_wakes_at_once() {
    let mut lines = Lines::new();
    for owner in 1..=3 {
        lines.accept(owner, Op::Read);
    }
    lines.turn();
    lines.complete();
    assert_eq!(lines.woken, [2]);
    lines.toy.answers.push_back(Issue::Failed(BlockStatus::Io));
    lines.ask(2);
    assert_eq!(lines.woken, [2, 3], "nothing is at the device, so no completion wakes it");
}

#[test]
fn rest_of_a_nowait_bio_waits_in_the_queue_of_its_owner() {
    let limits = limits().max_sectors(8);
    let mut lines = Lines::with(limits, 3);
    lines.accept_len(1, Op::Read, BioFlags::NOWAIT, 3 * 4096);
    lines.toy.answers.extend([Issue::Queued, Issue::Busy, Issue::Busy]);
    lines.turn();
    assert_eq!(lines.toy.running.len(), 1, "the driver has its first part");
    lines.accept_len(2, Op::Read, BioFlags::NONE, 3 * 4096);
    for _ in 0..8 {
        lines.turn();
        if !lines.toy.running.is_empty() {
            lines.complete();
        }
        std::mem::take(&mut lines.woken).into_iter().for_each(|owner| lines.ask(owner));
    }
    let mut owners: Vec<_> = lines.ended.iter().map(|bio| bio.owner()).collect();
    owners.sort_unstable();
    assert_eq!(owners, [1, 2]);
    assert!(lines.ended.iter().all(|bio| bio.result().is_ok()));
}
