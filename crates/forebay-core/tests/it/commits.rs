//! Tests of commits and reaps: when a turn makes these calls of the driver.

use crate::common::{Bench, limits};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Commit, Gates, Issue, KickPolicy, Op, Policy, Reap,
};

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;

/// Returns a queue of four tags, after one turn.
fn bench(kick: KickPolicy) -> Bench {
    let mut bench = Bench::new(limits(), Policy::default().queue_depth(4).kick(kick));
    bench.turn();
    bench
}

impl Bench {
    /// Queues reads without a plug, and takes one turn.
    fn issue_several(&mut self, nr: u64) {
        for page in 0..nr {
            let bio = self.bio(Op::Read, 2 * page * K4, K4, page);
            self.queue_bio(bio, 0);
        }
        self.turn();
    }

    /// Returns the number of commits at the driver, by the counter, and of uncommitted requests.
    fn commits(&self) -> (usize, u64, u32) {
        let counted = self.queue.stats().commits;
        (self.toy.nr_commits, counted, self.queue.hctx.nr_uncommitted())
    }
}

#[test]
fn requests_of_a_turn_are_committed_once_or_left_to_the_caller() {
    for kick in [KickPolicy::Deferred, KickPolicy::PerRequest] {
        let mut bench = bench(kick);
        bench.issue_several(3);
        let nr = if kick == KickPolicy::PerRequest { 3 } else { 1 };
        assert_eq!(bench.commits(), (nr, nr as u64, 0), "{kick:?}");
        bench.finish();
        assert_eq!(bench.commits(), (nr, nr as u64, 0), "nothing is left to commit");
    }
    let mut bench = bench(KickPolicy::Deferred);
    bench.queue.commit = Commit::Later;
    bench.issue_several(3);
    assert_eq!(bench.commits(), (0, 0, 3));
    bench.queue.hctx.commit(&mut bench.toy);
    bench.queue.hctx.commit(&mut bench.toy);
    assert_eq!(bench.commits(), (1, 1, 0));
    bench.finish();
}

#[test]
fn wait_in_the_driver_commits() {
    let mut bench = bench(KickPolicy::Deferred);
    bench.queue.commit = Commit::Later;
    bench.issue_several(2);
    assert_eq!(bench.queue.hctx.prepare_wait(1), 1);
    assert_eq!(bench.commits(), (0, 1, 0), "the driver's wait makes this commit");
    bench.queue.hctx.prepare_wait(1);
    assert_eq!(bench.commits(), (0, 1, 0));
    bench.issue_several(1);
    bench.queue.hctx.leave_to_wait(&mut bench.toy);
    bench.queue.hctx.leave_to_wait(&mut bench.toy);
    // This driver commits before a wait, as most do.
    assert_eq!(bench.commits(), (1, 2, 0));
}

#[test]
fn turn_leaves_its_commit_to_a_leader_that_waits_for_enough_others() {
    for (nr_before, is_begun, limit, is_committed) in
        [(2, false, 2, false), (2, false, 3, true), (2, true, 1, true), (0, false, 0, false)]
    {
        let mut bench = bench(KickPolicy::Deferred);
        if is_begun {
            bench.toy.answers.extend([Issue::Begun; 2]);
        }
        bench.issue_several(nr_before);
        let before = bench.toy.nr_commits;
        bench.queue.commit = Commit::Unless(limit);
        bench.issue_several(1);
        assert_eq!(bench.toy.nr_commits - before, usize::from(is_committed), "{limit}");
    }
}

#[test]
fn request_that_a_thread_makes_itself_is_not_committed() {
    for nr in 1..3 {
        let mut bench = bench(KickPolicy::Deferred);
        bench.toy.answers.push_back(Issue::Begun);
        bench.queue.commit = Commit::Later;
        bench.issue_several(nr);
        assert_eq!(bench.queue.hctx.nr_uncommitted(), nr as u32 - 1);
        bench.queue.hctx.commit(&mut bench.toy);
        bench.finish();
        assert_eq!(bench.ends().len() as u64, nr);
    }
}

#[test]
fn driver_is_reaped_only_with_requests_in_flight_or_on_request() {
    for kick in [KickPolicy::Deferred, KickPolicy::PerRequest] {
        let mut bench = bench(kick);
        bench.turn();
        assert_eq!(bench.toy.reaps, []);
        bench.queue.hctx.reap_all();
        bench.turn();
        bench.turn();
        assert_eq!(bench.toy.reaps, [Reap::Full], "{kick:?}");
        bench.issue_several(1);
        bench.turn();
        assert_eq!(bench.toy.reaps.len(), 2);
        bench.queue.gates = Gates { reap: false, ..Gates::OPEN };
        bench.toy.complete_oldest();
        bench.turn();
        assert_eq!((bench.toy.reaps.len(), bench.ends()), (2, Vec::new()));
        bench.queue.gates = Gates::OPEN;
        bench.finish_running();
        bench.turn();
        assert_eq!(bench.ends(), [(0, Ok(K4))]);
    }
}

#[test]
fn turn_after_a_kick_reaps_once_the_kicked_thread_has_returned() {
    let mut bench = bench(KickPolicy::Deferred);
    bench.queue.hctx.note_kick();
    bench.queue.gates = Gates { reap: false, ..Gates::OPEN };
    bench.turn();
    assert_eq!(bench.toy.reaps, []);
    bench.queue.gates = Gates::OPEN;
    bench.turn();
    bench.turn();
    assert_eq!(bench.toy.reaps, [Reap::Full], "K8");
}

#[test]
fn glance_is_enough_before_a_commit() {
    for kick in [KickPolicy::Deferred, KickPolicy::PerRequest] {
        let mut bench = bench(kick);
        bench.issue_several(3);
        bench.turn();
        bench.issue_several(1);
        // All tags are in use, so nothing can be committed unless something has completed.
        bench.issue_several(1);
        // The fifth request waits: nothing but a completion moves it on.
        bench.turn();
        let expected = [Reap::Full, Reap::NoSyscall, Reap::Full, Reap::Full];
        assert_eq!(bench.toy.reaps, expected, "{kick:?}");
    }
}

#[test]
fn driver_is_reaped_in_full_if_it_may_wait_for_that() {
    let mut bench = bench(KickPolicy::PerRequest);
    bench.issue_several(1);
    bench.toy.answers.extend([Issue::Busy; 2]);
    bench.issue_several(1);
    assert_eq!(bench.toy.reaps, [Reap::NoSyscall]);
    bench.issue_several(1);
    assert_eq!(bench.toy.reaps[1..], [Reap::Full], "it was busy");
    bench.finish();
    // Behind a closed gate nothing is committed.
    bench.issue_several(1);
    bench.toy.reaps.clear();
    bench.queue.gates = Gates { dispatch: false, ..Gates::OPEN };
    bench.issue_several(1);
    assert_eq!(bench.toy.reaps, [Reap::Full]);
}

#[test]
fn turns_that_do_nothing_are_counted() {
    for kick in [KickPolicy::Deferred, KickPolicy::PerRequest] {
        let mut bench = bench(kick);
        let nr = |bench: &Bench| (bench.queue.stats().turns, bench.queue.stats().empty_turns);
        assert_eq!(nr(&bench), (1, 1));
        bench.issue_several(1);
        assert_eq!(nr(&bench), (2, 1), "it issues");
        bench.turn();
        assert_eq!(nr(&bench), (3, 2));
        bench.finish();
        assert_eq!(nr(&bench), (4, 2), "it completes");
        bench.toy.answers.push_back(Issue::Failed(BlockStatus::Io));
        bench.issue_several(1);
        assert_eq!(nr(&bench), (5, 2), "a bio ends");
        bench.issue(Op::Read, NONE, 0, 0, 1);
        assert_eq!(nr(&bench), (6, 2));
    }
}

#[test]
fn turn_reports_what_it_leaves() {
    let mut bench = bench(KickPolicy::Deferred);
    bench.issue_several(2);
    let turned = bench.turn();
    assert_eq!((turned.nr_in_flight(), turned.work_left(), turned.is_drained()), (2, false, false));
    assert!(!turned.is_stuck() && !turned.is_idle());
    let text = format!("{turned:?}");
    let expected =
        "Turned { nr_in_flight: 2, work_left: false, is_drained: false, deadline: None }";
    assert_eq!(text, expected);
    bench.issue_several(3);
    let turned = bench.turn();
    assert_eq!((turned.nr_in_flight(), turned.work_left(), turned.is_drained()), (4, true, false));
    assert!(!turned.is_stuck() && !turned.is_idle());
    bench.finish();
    let turned = bench.turn();
    assert_eq!((turned.nr_in_flight(), turned.work_left(), turned.is_drained()), (0, false, true));
    assert!(!turned.is_stuck() && turned.is_idle() && turned.deadline().is_none());
    bench.queue.gates = Gates { enter: false, ..Gates::OPEN };
    bench.issue_several(1);
    let turned = bench.turn();
    assert!(turned.is_drained() && turned.work_left() && turned.is_stuck() && !turned.is_idle());
    bench.queue.gates = Gates { dispatch: false, ..Gates::OPEN };
    let turned = bench.turn();
    assert!(!turned.is_drained() && turned.is_stuck());
    bench.queue.gates = Gates::OPEN;
    bench.turn();
    bench.finish();
}

#[test]
fn turn_that_issues_before_the_driver_is_busy_is_not_empty() {
    for kick in [KickPolicy::Deferred, KickPolicy::PerRequest] {
        for (answers, nr_empty) in [
            (&[Issue::Queued, Issue::Busy][..], 1),
            (&[Issue::Busy], 2),
            (&[Issue::Queued, Issue::Failed(BlockStatus::Io)], 1),
        ] {
            let mut bench = bench(kick);
            bench.toy.answers.extend(answers);
            bench.issue_several(2);
            assert_eq!(bench.queue.stats().empty_turns, nr_empty, "{kick:?} {answers:?}");
            bench.toy.answers.clear();
            bench.turn();
            bench.finish();
            assert_eq!(bench.ends().len(), 2);
        }
    }
}

#[test]
fn nowait_bio_is_issued_in_the_turn_of_others() {
    let mut bench = bench(KickPolicy::Deferred);
    for (flags, page) in [(NONE, 1), (BioFlags::NOWAIT, 2), (NONE, 3)] {
        let bio = Bio { flags, ..bench.bio(Op::Read, page << 20, K4, page) };
        bench.queue_bio(bio, 0);
    }
    bench.turn();
    assert_eq!(bench.toy.running.len(), 3);
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(K4)), (3, Ok(K4)), (2, Ok(K4))]);
}

#[test]
fn wait_beside_a_flush_that_data_follow_asks_for_one_completion() {
    let limits = limits().volatile_cache(true);
    let mut bench = Bench::new(limits, Policy::default());
    bench.issue(Op::Flush, NONE, 0, 0, 1);
    bench.issue(Op::Flush, NONE, 0, 0, 2);
    bench.issue(Op::Write, BioFlags::PREFLUSH, 0, K4, 3);
    (4..8).for_each(|page| bench.issue(Op::Read, NONE, page << 20, K4, page));
    bench.complete(0, Ok(0));
    assert_eq!(bench.queue.hctx.prepare_wait(4), 1, "its end issues the data of the write");
    bench.finish();
    bench.issue(Op::Flush, NONE, 0, 0, 1);
    bench.issue(Op::Flush, NONE, 0, 0, 2);
    bench.issue(Op::Flush, NONE, 0, 0, 3);
    (4..8).for_each(|page| bench.issue(Op::Read, NONE, page << 20, K4, page));
    bench.complete(0, Ok(0));
    assert_eq!(bench.queue.hctx.prepare_wait(4), 3, "the flush ends two, and each read one");
    bench.finish();
}
