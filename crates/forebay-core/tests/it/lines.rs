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

/// Returns a policy under which threads wait, and each freed tag wakes one.
fn single(queue_depth: u32) -> Policy {
    let emulation = Emulation::default().wake(WakePolicy::Single);
    Policy::default().queue_depth(queue_depth).emulation(emulation)
}

impl Lines {
    fn new() -> Lines {
        Lines::with(limits(), single(1))
    }

    fn with(limits: QueueLimits, policy: Policy) -> Lines {
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
    let mut lines = Lines::with(limits, single(3));
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

#[test]
fn owners_that_lack_tags_are_reported_in_order() {
    let mut lines = Lines::new();
    for owner in 1..=3 {
        lines.accept(owner, Op::Read);
    }
    let changes = |lines: &mut Lines| {
        let mut changes = Vec::new();
        lines.hctx.take_changes(&mut |WaitId(owner), lacks| changes.push((owner, lacks)));
        changes
    };
    lines.turn();
    assert_eq!(changes(&mut lines), [(1, false), (2, true), (3, true)]);
    assert_eq!(changes(&mut lines), []);
    let lacking = |lines: &Lines| [1, 2, 3].map(|owner| lines.hctx.lacks_tags(WaitId(owner)));
    assert_eq!((lacking(&lines), lines.hctx.has_lines()), ([false, true, true], true));
    lines.complete();
    lines.ask(2);
    assert_eq!(changes(&mut lines), [(2, false)]);
    assert_eq!(lacking(&lines), [false, false, true]);
}

#[test]
fn wake_ups_in_vain_are_counted_and_keep_their_turn() {
    let counters = Arc::new(RunCounters::default());
    let mut lines = Lines::new();
    let device = Arc::new(DeviceState::new(1));
    let tags = Arc::new(TagSet::new(1));
    lines.hctx =
        HardwareContext::new(lines.limits, lines.policy, 0, device, tags, Arc::clone(&counters));
    let woken = |lines: &mut Lines| {
        let mut stats = forebay_core::QueueStats::default();
        stats.add_runs(&counters);
        let nr = |name| stats.emulation.get(name).expect(name);
        (std::mem::take(&mut lines.woken), nr("tag_wakeups"), nr("vain_wakeups"))
    };
    for owner in 1..=3 {
        lines.accept(owner, Op::Read);
    }
    lines.turn();
    lines.complete();
    assert_eq!(woken(&mut lines), (vec![2], 1, 0));
    // A thread that does not wait takes the tag first.
    lines.accept(4, Op::Read);
    lines.turn();
    lines.ask(2);
    assert_eq!(woken(&mut lines), (vec![], 1, 1));
    lines.complete();
    assert_eq!(woken(&mut lines), (vec![2], 2, 1), "T8: before the third");
    lines.ask(2);
    lines.complete();
    assert_eq!(woken(&mut lines), (vec![3], 3, 1));
}

#[test]
fn first_version_of_the_stash_is_for_threads_that_wait() {
    let policy =
        Policy::default().queue_depth(16).emulation(Emulation::default().wake(WakePolicy::Stash));
    let mut lines = Lines::with(limits(), policy);
    lines.hctx.emulate_stash_v1();
    (0..32).for_each(|owner| lines.accept(owner, Op::Read));
    lines.turn();
    (0..4).for_each(|_| lines.complete());
    assert!(lines.woken.is_empty(), "the first four tags fill the stash");
    lines.complete();
    assert_eq!(lines.woken, [16]);
    // Bios that wait have no stash.
    let mut fair = Lines::with(limits(), Policy::default());
    fair.hctx.emulate_stash_v1();
    assert!(!fair.hctx.has_lines() && !fair.hctx.lacks_tags(WaitId(1)));
}
