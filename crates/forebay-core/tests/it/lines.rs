//! Tests of threads that wait for tags: which thread gets a wake-up.

use crate::common::{Toy, limits};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Commit, DeviceState, Emulation, Gates, HardwareContext, Issue, Op,
    Policy, QueueLimits, QueueStats, QueuedBio, RunCounters, Segment, SoftwareQueue, TagSet,
    Turned, WaitId, WakePolicy,
};
use std::sync::Arc;

/// A hardware context with few tags, for bios of several owners.
struct Lines {
    hctx: HardwareContext,
    toy: Toy,
    limits: QueueLimits,
    policy: Policy,
    gates: Gates,
    counters: Arc<RunCounters>,
    /// The owners that were woken so far, unless a test has taken them; and their number.
    woken: Vec<u64>,
    nr_woken: u64,
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
        let hctx = HardwareContext::new(limits, policy, 0, device, tags, Arc::clone(&counters));
        Lines {
            hctx,
            toy: Toy::default(),
            limits,
            policy,
            gates: Gates::OPEN,
            counters,
            woken: Vec::new(),
            nr_woken: 0,
            ended: Vec::new(),
        }
    }

    /// Returns a counter of emulations.
    fn count(&self, name: &str) -> u64 {
        let mut stats = QueueStats::default();
        stats.add_runs(&self.counters);
        stats.emulation.get(name).expect(name)
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
        self.turn_at(0);
    }

    fn turn_at(&mut self, now: u64) -> Turned {
        let turned = self.hctx.turn(&mut self.toy, now, self.gates, Commit::Now, &mut self.ended);
        self.take_woken();
        turned
    }

    /// Notes the owners that the context wakes. Each wake-up is counted.
    fn take_woken(&mut self) {
        let before = self.woken.len();
        self.hctx.take_woken(&mut |WaitId(owner)| self.woken.push(owner));
        self.nr_woken += (self.woken.len() - before) as u64;
        assert_eq!(self.count("tag_wakeups"), self.nr_woken);
    }

    /// Returns the owners of the bios that ended, and whether each bio had to wait for a tag.
    fn ends(&mut self) -> Vec<(u64, bool)> {
        let end = |queued: Box<QueuedBio>| (queued.owner(), queued.tag_wait().is_some());
        self.ended.drain(..).map(end).collect()
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
    let mut lines = Lines::new();
    let woken = |lines: &mut Lines| {
        let woken = std::mem::take(&mut lines.woken);
        (woken, lines.count("tag_wakeups"), lines.count("vain_wakeups"))
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

#[test]
fn new_tags_wake_threads_and_each_wake_up_is_counted() {
    let mut lines = Lines::with(limits(), single(4).nr_requests(Some(1)));
    (1..=4).for_each(|owner| lines.accept(owner, Op::Read));
    lines.turn();
    lines.hctx.set_nr_requests(3);
    lines.take_woken();
    assert_eq!(lines.woken[..2], [2, 3]);
    (2..=4).for_each(|owner| lines.ask(owner));
    assert_eq!(lines.toy.running.len(), 3);
}

#[test]
fn batch_of_wake_ups_is_of_the_tags_that_threads_can_wait_for() {
    let emulation = Emulation::default().wake(WakePolicy::Batch);
    let policy = Policy::default().queue_depth(32).nr_reserved(8).emulation(emulation);
    let mut lines = Lines::with(limits(), policy);
    lines.hctx.set_nr_requests(16);
    (0..12).for_each(|owner| lines.accept(owner, Op::Read));
    lines.turn();
    assert_eq!(lines.toy.running.len(), 8, "the other eight are reserved");
    lines.complete();
    assert_eq!(lines.woken, [8], "an eighth of eight tags");
}

#[test]
fn thread_behind_a_closed_gate_does_not_sleep() {
    let mut lines = Lines::new();
    lines.gates.dispatch = false;
    lines.accept(1, Op::Read);
    let turned = lines.turn_at(0);
    assert!(turned.work_left() && !turned.is_drained());
    // No thread is woken for the gate: the turn that follows issues the request.
    lines.gates.dispatch = true;
    lines.turn();
    assert_eq!((lines.toy.running.len(), lines.woken.len()), (1, 0));
    lines.complete();
    assert!(lines.turn_at(0).is_drained());
}

#[test]
fn thread_at_a_busy_driver_does_not_sleep_and_lacks_no_tag() {
    let mut lines = Lines::with(limits(), single(2));
    lines.accept(1, Op::Read);
    lines.accept(2, Op::Read);
    lines.toy.answers.push_back(Issue::Busy);
    lines.turn();
    let lacking = [1, 2].map(|owner| lines.hctx.lacks_tags(WaitId(owner)));
    assert_eq!(lacking, [false, true], "the first has its tag");
    lines.turn();
    assert_eq!((lines.toy.running.len(), lines.woken.len()), (2, 0));
}

#[test]
fn freed_tag_wakes_a_thread_although_a_running_one_takes_the_tag() {
    let mut lines = Lines::new();
    lines.accept(1, Op::Read);
    lines.accept(2, Op::Read);
    lines.turn();
    lines.accept(3, Op::Read);
    lines.complete();
    assert_eq!((lines.woken.as_slice(), lines.toy.running.len()), (&[2][..], 1));
    lines.ask(2);
    assert_eq!(lines.count("vain_wakeups"), 1, "the third thread was faster");
}

#[test]
fn thread_that_runs_without_a_wake_up_uses_none() {
    let mut lines = Lines::new();
    (1..=3).for_each(|owner| lines.accept(owner, Op::Read));
    lines.turn();
    // The second thread tries again, in vain: now it is behind the third.
    lines.ask(2);
    lines.complete();
    lines.ask(3);
    lines.complete();
    assert_eq!(lines.woken, [3, 2]);
    assert_eq!(lines.count("vain_wakeups"), 0);
}

#[test]
fn bios_of_threads_that_slept_are_marked_as_having_waited() {
    let mut lines = Lines::new();
    lines.accept(1, Op::Read);
    lines.accept(2, Op::Read);
    lines.accept(2, Op::Read);
    lines.turn();
    lines.complete();
    assert_eq!(lines.ends(), [(1, false)]);
    // Both were in the queue when the thread went to sleep. The second sleeps once more.
    lines.ask(2);
    lines.complete();
    lines.ask(2);
    lines.accept(3, Op::Read);
    lines.complete();
    assert_eq!(lines.ends(), [(2, true), (2, true)]);
    lines.complete();
    assert_eq!(lines.ends(), [(3, false)], "it has found the tag");
}

#[test]
fn bio_that_joined_the_queue_of_a_sleeping_thread_is_marked_as_having_waited() {
    let mut lines = Lines::with(limits(), single(2));
    (1..=3).for_each(|owner| lines.accept(owner, Op::Read));
    lines.turn();
    // The third thread sleeps.
    lines.accept(3, Op::Read);
    lines.turn();
    lines.toy.complete_oldest();
    lines.complete();
    assert_eq!(lines.ends(), [(1, false), (2, false)]);
    lines.ask(3);
    lines.toy.complete_oldest();
    lines.complete();
    assert_eq!(lines.ends(), [(3, true), (3, true)]);
}
