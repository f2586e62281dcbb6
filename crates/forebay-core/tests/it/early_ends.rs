//! Bios that end before the driver is done with their request (H5, H6).

use crate::common::{Bench, limits};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Commit, Gates, Issue, Op, Policy, QueueLimits, QueuedBio,
    SchedulerPolicy,
};

const LIMIT_NS: u64 = 10_000;
const GRACE_NS: u64 = 5_000;

const LATE: Result<u64, BlockStatus> = Err(BlockStatus::Timeout);
const GONE: Result<u64, BlockStatus> = Err(BlockStatus::Offline);
const PAGE: u64 = 4096;

fn bench(limits: QueueLimits) -> Bench {
    let policy =
        Policy::default().queue_depth(4).io_timeout_ns(LIMIT_NS).io_timeout_grace_ns(GRACE_NS);
    Bench::new(limits, policy)
}

/// Lets the limit of everything at the driver pass, then the grace period.
fn give_up(bench: &mut Bench) {
    bench.turn_after(LIMIT_NS);
    assert_eq!(bench.ends(), [], "the driver may still cancel it");
    bench.turn_after(GRACE_NS);
}

#[test]
fn owned_bio_ends_with_the_grace_and_a_lent_one_with_its_request() {
    let mut bench = bench(limits());
    bench.issue(Op::Read, BioFlags::OWNED, 0, PAGE, 1);
    bench.issue(Op::Read, BioFlags::NONE, PAGE, PAGE, 2);
    give_up(&mut bench);
    assert_eq!(bench.ends(), [(1, LATE)]);
    let hctx = &bench.queue.hctx;
    assert_eq!((hctx.nr_quarantined(), hctx.nr_given_up_tags()), (1, 1));
    assert!(!hctx.has_only_given_up() && bench.queue.device.is_given_up());
    bench.complete(0, Ok(PAGE));
    assert_eq!(bench.ends(), [], "a late result is dropped");
    assert_eq!((bench.queue.hctx.nr_quarantined(), bench.queue.hctx.nr_free_tags()), (0, 3));
    bench.complete(0, Err(BlockStatus::Io));
    assert_eq!(bench.ends(), [(2, LATE)]);
    let stats = bench.queue.stats();
    assert_eq!((stats.timeouts, stats.early_ends), (2, 1));
}

#[test]
fn owned_and_lent_bios_do_not_merge() {
    let mut bench = bench(limits());
    for (page, flags) in [BioFlags::OWNED, BioFlags::OWNED, BioFlags::NONE].into_iter().enumerate()
    {
        let page = page as u64;
        let bio = bench.bio(Op::Read, page * PAGE, PAGE, page);
        bench.queue_bio(forebay_core::Bio { flags, ..bio }, 1);
    }
    bench.unplug();
    assert_eq!(bench.toy.issued(), [(Op::Read, 0, 2 * PAGE), (Op::Read, 2 * PAGE, PAGE)]);
    give_up(&mut bench);
    assert_eq!(bench.ends(), [(0, LATE), (1, LATE)]);
    assert_eq!(bench.queue.hctx.nr_quarantined(), 2);
    bench.complete(1, Ok(PAGE));
    assert_eq!(bench.ends(), [(2, Ok(PAGE))]);
    assert!(bench.queue.hctx.has_only_given_up());
}

#[test]
fn split_bio_ends_once_with_the_last_of_its_parts() {
    let mut bench = bench(limits().max_sectors(8));
    // Its last two parts find no tag.
    bench.issue(Op::Write, BioFlags::OWNED, 0, 6 * PAGE, 1);
    assert_eq!(bench.toy.running.len(), 4);
    bench.turn_after(LIMIT_NS / 2);
    bench.complete(2, Ok(PAGE));
    assert_eq!(bench.toy.running.len(), 4, "the next part is issued later");
    bench.turn_after(LIMIT_NS / 2);
    bench.turn_after(GRACE_NS);
    assert_eq!(bench.ends(), [], "the last part is not over its limits");
    bench.turn_after(LIMIT_NS);
    bench.turn_after(GRACE_NS);
    assert_eq!(bench.ends(), [(1, LATE)]);
    for _ in 0..4 {
        bench.complete(0, Ok(PAGE));
    }
    assert_eq!((bench.ends(), bench.queue.hctx.nr_free_tags()), (Vec::new(), 4));
}

#[test]
fn tags_of_late_requests_are_not_gathered() {
    let limits = limits().max_sectors(8).rotational(true);
    let mut bench = bench(limits);
    for page in 10..13 {
        bench.issue(Op::Read, BioFlags::OWNED, page * PAGE, PAGE, page);
    }
    give_up(&mut bench);
    assert_eq!(bench.ends(), [(10, LATE), (11, LATE), (12, LATE)]);
    bench.queue.device.revive();
    // Two tags are half of the four, but only one is left.
    bench.issue(Op::Read, BioFlags::NONE, 0, 2 * PAGE, 1);
    bench.complete(3, Ok(PAGE));
    bench.complete(3, Ok(PAGE));
    assert_eq!(bench.ends(), [(1, Ok(2 * PAGE))]);
}

#[test]
fn late_requests_do_not_count_as_progress_for_others() {
    let mut bench = bench(limits());
    bench.issue(Op::Read, BioFlags::OWNED, 0, PAGE, 1);
    give_up(&mut bench);
    bench.ends();
    let turned = bench.turn();
    assert!(turned.is_idle() && turned.is_drained(), "nothing waits for it");
    bench.queue.device.revive();
    bench.toy.answers.extend([forebay_core::Issue::Busy; 2]);
    bench.issue(Op::Read, BioFlags::NONE, 8 * PAGE, PAGE, 2);
    let turned = bench.turn();
    assert!(turned.is_stuck(), "no completion moves it on");
}

#[test]
fn requests_that_wait_behind_a_late_one_end_after_a_revive() {
    for is_busy in [false, true] {
        let mut bench = bench(limits());
        let nr_late = if is_busy { 1 } else { 4 };
        for page in 0..nr_late {
            bench.issue(Op::Read, BioFlags::OWNED, 2 * page * PAGE, PAGE, page);
        }
        give_up(&mut bench);
        assert_eq!(bench.ends().len() as u64, nr_late);
        bench.queue.device.revive();
        if is_busy {
            bench.toy.answers.extend([forebay_core::Issue::Busy; 5]);
        }
        bench.issue(Op::Read, BioFlags::NONE, 20 * PAGE, PAGE, 9);
        bench.turn_after(LIMIT_NS + GRACE_NS - 100);
        assert_eq!(bench.ends(), []);
        assert!(!bench.queue.device.is_failed());
        bench.turn_after(100);
        assert_eq!(bench.ends(), [(9, GONE)], "busy: {is_busy}");
        assert!(bench.queue.device.is_given_up());
        bench.toy.answers.clear();
        bench.complete(0, Ok(PAGE));
        bench.queue.device.revive();
        bench.issue(Op::Read, BioFlags::NONE, 20 * PAGE, PAGE, 10);
        let last = bench.toy.running.len() - 1;
        bench.complete(last, Ok(PAGE));
        assert_eq!(bench.ends(), [(10, Ok(PAGE))]);
    }
}

/// The owner of a context passes the list of all its results, with those of earlier turns.
#[test]
fn results_that_are_not_reaped_are_no_progress() {
    let mut bench = bench(limits());
    (0..4).for_each(|page| bench.issue(Op::Read, BioFlags::OWNED, 2 * page * PAGE, PAGE, page));
    give_up(&mut bench);
    bench.queue.device.revive();
    bench.issue(Op::Read, BioFlags::NONE, 20 * PAGE, PAGE, 9);
    let now = 10 * (LIMIT_NS + GRACE_NS);
    let mut results = vec![QueuedBio::new(0, 0)];
    bench.queue.hctx.turn(&mut bench.toy, now, Gates::OPEN, Commit::Now, &mut results);
    assert_eq!(results.last().map(|queued| queued.result()), Some(GONE));
    assert_eq!((results.len(), bench.queue.device.is_given_up()), (2, true));
}

#[test]
fn requests_behind_a_late_one_wait_for_a_closed_gate_and_for_the_time_of_a_flush() {
    let mut bench = bench(limits());
    (0..4).for_each(|page| bench.issue(Op::Read, BioFlags::OWNED, 2 * page * PAGE, PAGE, page));
    give_up(&mut bench);
    bench.ends();
    bench.queue.device.revive();
    bench.issue(Op::Read, BioFlags::NONE, 20 * PAGE, PAGE, 9);
    bench.queue.gates = Gates { dispatch: false, ..Gates::OPEN };
    bench.turn_after(LIMIT_NS + GRACE_NS);
    bench.queue.gates = Gates::OPEN;
    bench.turn_after(LIMIT_NS);
    assert_eq!((bench.ends(), bench.queue.device.is_failed()), (Vec::new(), false));

    let mut bench = self::bench(limits().volatile_cache(true));
    bench.issue(Op::Write, BioFlags::FUA, 0, PAGE, 1);
    give_up(&mut bench);
    bench.queue.device.revive();
    bench.issue(Op::Flush, BioFlags::NONE, 0, 0, 2);
    bench.turn_after(2 * (LIMIT_NS + GRACE_NS));
    bench.turn_after(2 * (LIMIT_NS + GRACE_NS));
    assert_eq!((bench.ends(), bench.queue.device.is_failed()), (Vec::new(), false));
    bench.turn_after(5_000_000_000);
    assert_eq!(bench.toy.seen.last().map(|seen| seen.op), Some(Op::Flush));
}

#[test]
fn requests_behind_a_late_one_wait_while_others_are_issued() {
    let mut bench = bench(limits());
    for page in 0..3 {
        bench.issue(Op::Read, BioFlags::OWNED, 2 * page * PAGE, PAGE, page);
    }
    give_up(&mut bench);
    bench.ends();
    bench.queue.device.revive();
    for nth in 0..9 {
        bench.issue(Op::Read, BioFlags::NONE, (20 + 2 * nth) * PAGE, PAGE, nth);
    }
    for nth in 0..9 {
        bench.turn_after(LIMIT_NS - 100);
        bench.complete(3, Ok(PAGE));
        assert_eq!(bench.ends(), [(nth, Ok(PAGE))]);
    }
    bench.turn_after(10 * LIMIT_NS);
    assert!(!bench.queue.device.is_failed(), "nothing waits");
}

#[test]
fn range_of_a_late_write_is_blocked_until_it_completes() {
    let mut bench = bench(limits());
    bench.issue(Op::Write, BioFlags::OWNED, 2 * PAGE, PAGE, 1);
    give_up(&mut bench);
    assert_eq!(bench.ends(), [(1, LATE)]);
    bench.issue(Op::Read, BioFlags::OWNED, 0, PAGE, 2);
    assert_eq!(bench.ends(), [(2, GONE)], "the device is gone");
    bench.queue.device.revive();
    for (nth, (start, len)) in [(0, 3), (2, 1), (2, 8)].into_iter().enumerate() {
        bench.issue(Op::Read, BioFlags::NONE, start * PAGE, len * PAGE, nth as u64);
        assert_eq!(bench.ends(), [(nth as u64, GONE)]);
    }
    assert!(!bench.queue.device.is_failed());
    bench.issue(Op::Write, BioFlags::NONE, PAGE, PAGE, 3);
    bench.issue(Op::Write, BioFlags::NONE, 3 * PAGE, PAGE, 4);
    assert_eq!(bench.toy.running.len(), 3);
    bench.complete(0, Err(BlockStatus::Io));
    bench.issue(Op::Write, BioFlags::NONE, 2 * PAGE, PAGE, 5);
    bench.finish();
    assert_eq!(bench.ends(), [(3, Ok(PAGE)), (4, Ok(PAGE)), (5, Ok(PAGE))]);
}

#[test]
fn late_write_counts_as_lost() {
    let mut bench = bench(limits().volatile_cache(true));
    bench.issue(Op::Write, BioFlags::OWNED, 0, PAGE, 1);
    give_up(&mut bench);
    assert_eq!(bench.ends(), [(1, LATE)]);
    let durability = std::sync::Arc::clone(bench.queue.device.durability());
    assert!(durability.lost().is_some());
    bench.queue.device.revive();
    bench.issue(Op::Flush, BioFlags::NONE, 0, 0, 2);
    assert_eq!(bench.ends(), [(2, Err(BlockStatus::Io))]);
    assert!(durability.acknowledge_loss().is_some());
    bench.issue(Op::Flush, BioFlags::NONE, 0, 0, 3);
    assert_eq!(bench.toy.running.len(), 2);
    bench.finish();
    assert_eq!(bench.ends(), [(3, Ok(0))]);
}

#[test]
fn flush_that_was_given_up_blocks_others_until_it_completes() {
    let mut bench = bench(limits().volatile_cache(true));
    bench.issue(Op::Write, BioFlags::NONE, 0, PAGE, 1);
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(PAGE))]);
    bench.issue(Op::Flush, BioFlags::NONE, 0, 0, 2);
    give_up(&mut bench);
    assert_eq!(bench.ends(), [(2, LATE)]);
    assert!(bench.queue.hctx.has_only_given_up());
    let durability = std::sync::Arc::clone(bench.queue.device.durability());
    bench.queue.device.revive();
    for nth in 3..5 {
        assert!(durability.acknowledge_loss().is_some());
        bench.issue(Op::Write, BioFlags::NONE, 0, PAGE, nth);
        bench.complete(1, Ok(PAGE));
        bench.issue(Op::Flush, BioFlags::NONE, 0, 0, 10);
        assert_eq!(bench.ends(), [(nth, Ok(PAGE)), (10, LATE)]);
    }
    durability.acknowledge_loss();
    // Writes that have ended since then may be lost, too.
    bench.complete(0, Err(BlockStatus::Io));
    assert!(durability.acknowledge_loss().is_some());
    bench.issue(Op::Write, BioFlags::NONE, 0, PAGE, 5);
    bench.finish();
    bench.issue(Op::Flush, BioFlags::NONE, 0, 0, 6);
    bench.finish();
    assert_eq!(bench.ends(), [(5, Ok(PAGE)), (6, Ok(0))]);
}

#[test]
fn fua_write_that_was_given_up_blocks_flushes_until_it_completes() {
    let limits = limits().volatile_cache(true).fua(true).fua_is_sync(true);
    let mut bench = bench(limits);
    bench.issue(Op::Write, BioFlags::FUA.union(BioFlags::OWNED), 0, PAGE, 1);
    give_up(&mut bench);
    assert_eq!(bench.ends(), [(1, LATE)]);
    let durability = std::sync::Arc::clone(bench.queue.device.durability());
    bench.queue.device.revive();
    for nth in 2..4 {
        assert!(durability.acknowledge_loss().is_some());
        bench.issue(Op::Flush, BioFlags::NONE, 0, 0, nth);
        assert_eq!(bench.ends(), [(nth, LATE)], "a flush would prove nothing");
    }
    durability.acknowledge_loss();
    bench.complete(0, Ok(PAGE));
    assert_eq!(durability.lost(), None, "the late sync has succeeded");
    bench.issue(Op::Flush, BioFlags::NONE, 0, 0, 4);
    bench.finish();
    assert_eq!(bench.ends(), [(4, Ok(0))]);
}

#[test]
fn memory_of_a_late_bio_is_kept_in_the_hold_of_its_owner() {
    let mut bench = bench(limits());
    bench.queue.hctx.set_new_hold(|| std::sync::Arc::new(7_u32));
    bench.issue(Op::Read, BioFlags::OWNED, 0, PAGE, 1);
    bench.turn_after(LIMIT_NS);
    let (mut boxes, now) = (Vec::new(), 10 * (LIMIT_NS + GRACE_NS));
    let hctx = &mut bench.queue.hctx;
    hctx.turn(&mut bench.toy, now, Gates::OPEN, Commit::Now, &mut boxes);
    assert!(boxes[0].has_hold() && hctx.nr_quarantined() == 1);
    let hold = boxes[0].take_hold().expect("the driver has the request");
    assert_eq!(hold.downcast_ref::<u32>(), Some(&7));
    assert!(!boxes[0].has_hold() && std::sync::Arc::strong_count(&hold) == 2);
    bench.toy.complete_oldest();
    hctx.turn(&mut bench.toy, now, Gates::OPEN, Commit::Now, &mut boxes);
    assert_eq!((std::sync::Arc::strong_count(&hold), hctx.nr_quarantined()), (1, 0));
}

#[test]
fn context_without_requests_has_not_only_late_ones() {
    let mut bench = bench(limits());
    assert!(!bench.queue.hctx.has_only_given_up());
    bench.issue(Op::Read, BioFlags::OWNED, 0, PAGE, 1);
    give_up(&mut bench);
    assert!(bench.queue.hctx.has_only_given_up());
    bench.finish_running();
    assert!(!bench.queue.hctx.has_only_given_up());
}

#[test]
fn late_requests_keep_no_others_from_being_committed() {
    let mut bench = bench(limits());
    bench.issue(Op::Read, BioFlags::OWNED, 0, PAGE, 1);
    give_up(&mut bench);
    bench.queue.device.revive();
    bench.queue.commit = Commit::Unless(1);
    let nr_commits = bench.toy.nr_commits;
    bench.issue(Op::Read, BioFlags::NONE, PAGE, PAGE, 2);
    assert_eq!(bench.toy.nr_commits, nr_commits + 1, "nothing waits for the late request");
    bench.issue(Op::Read, BioFlags::NONE, PAGE, PAGE, 3);
    assert_eq!(bench.toy.nr_commits, nr_commits + 1, "a wait for the second commits this one");
    bench.finish_running();
}

#[test]
fn io_that_a_thread_makes_itself_may_be_late() {
    let mut bench = bench(limits().volatile_cache(true));
    bench.toy.answers.extend([Issue::Begun; 2]);
    bench.issue(Op::Read, BioFlags::OWNED, 0, PAGE, 1);
    bench.issue(Op::Flush, BioFlags::FSYNC, 0, 0, 2);
    give_up(&mut bench);
    assert_eq!(bench.ends(), [(1, LATE), (2, LATE)]);
    bench.finish_running();
    assert_eq!(bench.queue.hctx.nr_busy_tags(), 0);
}

#[test]
fn late_write_that_needed_a_flush_does_not_shorten_the_waits_of_others() {
    let mut bench = bench(limits().volatile_cache(true));
    bench.issue(Op::Write, BioFlags::FUA.union(BioFlags::OWNED), 0, PAGE, 1);
    give_up(&mut bench);
    bench.queue.device.revive();
    (2..4).for_each(|page| bench.issue(Op::Read, BioFlags::NONE, page * PAGE, PAGE, page));
    assert_eq!(bench.queue.hctx.prepare_wait(2), 2);
    bench.finish_running();
}

#[test]
fn late_write_that_syncs_no_file_is_no_failed_flush() {
    let native = limits().volatile_cache(true).fua(true);
    for (limits, flags) in [
        (native, BioFlags::FUA),
        (native.fua_is_sync(true), BioFlags::NONE),
        (limits().volatile_cache(true).fua_is_sync(true), BioFlags::NONE),
    ] {
        let mut bench = bench(limits);
        let nr_failures = bench.queue.device.durability().nr_failures();
        bench.issue(Op::Write, flags.union(BioFlags::OWNED), 0, PAGE, 1);
        give_up(&mut bench);
        assert_eq!(bench.ends(), [(1, LATE)]);
        assert_eq!(bench.queue.device.durability().nr_failures(), nr_failures);
        bench.queue.device.revive();
        bench.queue.device.durability().acknowledge_loss();
        // No sync is at the device that could take the error of this flush.
        bench.issue(Op::Flush, BioFlags::FSYNC, 0, 0, 2);
        bench.complete(1, Ok(0));
        assert_eq!(bench.ends(), [(2, Ok(0))], "{limits:?}");
        bench.finish_running();
    }
}

#[test]
fn refused_write_fails_no_other_of_its_batch() {
    let mut bench = bench(limits().max_sectors(16));
    bench.issue(Op::Write, BioFlags::OWNED, 0, PAGE, 1);
    give_up(&mut bench);
    bench.queue.device.revive();
    bench.ends();
    // The first is refused (H6). The third is split; its first part is refused, and no part of it
    // is issued.
    for (user_data, start, nr_pages) in [(2, 0, 1), (3, 8, 1), (4, 0, 5), (5, 9, 5)] {
        let bio = bench.bio(Op::Write, start * PAGE, nr_pages * PAGE, user_data);
        bench.queue_bio(Bio { flags: BioFlags::NOMERGE, ..bio }, 1);
    }
    bench.unplug();
    assert_eq!(bench.ends(), [(2, GONE), (4, GONE)]);
    bench.complete(0, Ok(PAGE));
    bench.finish();
    assert_eq!(bench.ends(), [(3, Ok(PAGE)), (5, Ok(5 * PAGE))]);
}

/// Gives up a write of a page, and lets the device take requests again.
fn with_quarantined(bench: &mut Bench, page: u64) {
    bench.issue(Op::Write, BioFlags::OWNED, page * PAGE, PAGE, page);
    give_up(bench);
    assert_eq!(bench.ends(), [(page, LATE)]);
    bench.queue.device.revive();
    bench.toy.seen.clear();
    // It never completes.
    bench.toy.running.clear();
}

#[test]
fn only_the_bios_of_a_merged_request_that_overlap_a_given_up_write_fail() {
    for op in [Op::Read, Op::Write] {
        for bad in 10..15 {
            let mut bench = bench(limits());
            with_quarantined(&mut bench, bad);
            bench.plug_each(op, 10..15);
            bench.unplug();
            bench.finish_running();
            let mut ends = bench.ends();
            ends.sort_by_key(|(page, _)| *page);
            let of_page = |page| (page, if page == bad { GONE } else { Ok(PAGE) });
            assert_eq!(ends, [10, 11, 12, 13, 14].map(of_page), "{op:?} {bad}");
            let runs = [(10, bad), (bad + 1, 15)].into_iter().filter(|(from, to)| from < to);
            let issued = runs.map(|(from, to)| (op, from * PAGE, (to - from) * PAGE));
            assert!(bench.toy.issued().into_iter().eq(issued), "{op:?} {bad}");
            assert_eq!(bench.queue.hctx.nr_free_tags(), 3);
        }
    }
}

#[test]
fn rest_of_a_merged_request_that_overlaps_a_given_up_write_waits_for_a_tag() {
    let mut bench = bench(limits());
    with_quarantined(&mut bench, 11);
    for page in [30, 40] {
        bench.issue(Op::Read, BioFlags::NONE, page * PAGE, PAGE, page);
    }
    bench.plug_each(Op::Write, 10..14);
    bench.unplug();
    // The write that was given up has the fourth tag.
    let first = [30, 40, 10].map(|page| (page, 1));
    let runs = |bench: &Bench| -> Vec<(u64, u64)> {
        bench.toy.issued().iter().map(|(_, start, len)| (start / PAGE, len / PAGE)).collect()
    };
    assert_eq!((runs(&bench), bench.ends()), (first.to_vec(), vec![(11, GONE)]));
    bench.complete(0, Ok(PAGE));
    assert_eq!(runs(&bench)[3..], [(12, 2)]);
    bench.finish_running();
    let [first, a, b, c, d] = [30, 40, 10, 12, 13].map(|page| (page, Ok(PAGE)));
    assert_eq!(bench.ends(), [first, a, b, c, d]);
}

#[test]
fn nowait_rest_of_a_merged_request_that_overlaps_a_given_up_write_ends() {
    let mut bench = bench(limits());
    with_quarantined(&mut bench, 11);
    for page in 10..13 {
        let bio = bench.bio(Op::Write, page * PAGE, PAGE, page);
        bench.queue_bio(Bio { flags: BioFlags::NOWAIT, ..bio }, 1);
    }
    bench.unplug();
    bench.finish_running();
    let again = Err(BlockStatus::Again);
    let mut ends = bench.ends();
    ends.sort_by_key(|(page, _)| *page);
    assert_eq!(ends, [(10, Ok(PAGE)), (11, GONE), (12, again)]);
}

#[test]
fn bios_of_a_merged_request_that_was_taken_apart_keep_their_own_failures() {
    let mut bench = bench(limits());
    with_quarantined(&mut bench, 12);
    bench.plug_each(Op::Write, 10..15);
    bench.unplug();
    let (medium, io) = (Err(BlockStatus::Medium), Err(BlockStatus::Io));
    // 10 and 11 are repeated one by one, then 13 and 14.
    for (nth, result) in
        [(0, medium), (1, io), (1, medium), (0, medium), (0, Ok(PAGE)), (0, medium)]
    {
        bench.complete(nth, result);
    }
    let ends = [(12, GONE), (10, io), (11, medium), (13, Ok(PAGE)), (14, medium)];
    assert_eq!(bench.ends(), ends);
}

#[test]
fn repeat_of_a_merged_write_continues_behind_the_bio_that_overlaps_a_given_up_write() {
    let mut bench = bench(limits());
    bench.issue(Op::Write, BioFlags::OWNED, 11 * PAGE, PAGE, 99);
    bench.turn_after(LIMIT_NS);
    // The limit of this one begins later.
    bench.plug_each(Op::Read, 10..13);
    bench.unplug();
    bench.turn_after(GRACE_NS);
    assert_eq!(bench.ends(), [(99, LATE)]);
    bench.queue.device.revive();
    bench.complete(1, Err(BlockStatus::Medium));
    while bench.toy.running.len() > 1 {
        bench.complete(1, Ok(PAGE));
    }
    assert_eq!(bench.ends(), [(10, Ok(PAGE)), (11, GONE), (12, Ok(PAGE))]);
}

#[test]
fn rest_of_a_short_read_that_overlaps_a_given_up_write_merges_in_the_scheduler() {
    let policy = Policy::default().queue_depth(8).nr_requests(Some(8)).device_depth(Some(2));
    let policy = policy.scheduler(SchedulerPolicy::MqDeadline);
    let policy = policy.io_timeout_ns(LIMIT_NS).io_timeout_grace_ns(GRACE_NS);
    let mut bench = Bench::new(limits(), policy);
    bench.issue(Op::Write, BioFlags::OWNED, 13 * PAGE, PAGE, 99);
    bench.turn_after(LIMIT_NS);
    // The limit of this one begins later.
    bench.plug_each(Op::Read, 10..15);
    bench.unplug();
    bench.turn_after(GRACE_NS);
    assert_eq!(bench.ends(), [(99, LATE)]);
    bench.queue.device.revive();
    for page in [15, 60] {
        bench.issue(Op::Read, BioFlags::NONE, page * PAGE, PAGE, page);
    }
    let nth = bench.toy.running.len() - 1;
    bench.complete(nth, Ok(PAGE));
    while bench.toy.running.len() > 1 {
        let seen = &bench.toy.seen[bench.toy.running[1]];
        let len = seen.len;
        bench.complete(1, Ok(len));
    }
    let mut ends = bench.ends();
    ends.sort_by_key(|(page, _)| *page);
    let of_page = |page| (page, if page == 13 { GONE } else { Ok(PAGE) });
    assert_eq!(ends, [10, 11, 12, 13, 14, 15, 60].map(of_page));
}

#[test]
fn rest_of_merged_discards_begins_at_its_own_range() {
    let limits = limits().discard_granularity(4096).max_discard_sectors(1 << 20);
    let mut bench = bench(limits.max_discard_segments(8));
    with_quarantined(&mut bench, 20);
    bench.plug_each(Op::Discard, [20, 40]);
    bench.unplug();
    bench.finish_running();
    assert_eq!(bench.ends(), [(20, GONE), (40, Ok(PAGE))]);
    assert_eq!(bench.toy.issued(), [(Op::Discard, 40 * PAGE, PAGE)]);
}

#[test]
fn merged_discards_that_overlap_a_given_up_write_are_taken_apart() {
    let limits = limits().discard_granularity(4096).max_discard_sectors(1 << 20);
    let mut bench = bench(limits.max_discard_segments(8));
    with_quarantined(&mut bench, 20);
    bench.plug_each(Op::Discard, [40, 20, 60]);
    bench.unplug();
    bench.finish_running();
    let mut ends = bench.ends();
    ends.sort_by_key(|(page, _)| *page);
    assert_eq!(ends, [(20, GONE), (40, Ok(PAGE)), (60, Ok(PAGE))]);
    let ranges: Vec<_> = bench.toy.seen.iter().map(|seen| seen.ranges.clone()).collect();
    assert_eq!(ranges, [vec![(40 * PAGE, PAGE)], vec![(60 * PAGE, PAGE)]]);
}

#[test]
fn busy_device_gets_the_rest_of_a_merged_request_that_was_taken_apart_later() {
    let mut bench = bench(limits());
    with_quarantined(&mut bench, 10);
    bench.toy.answers.push_back(Issue::Busy);
    bench.plug_each(Op::Write, 10..13);
    bench.unplug();
    assert_eq!((bench.ends(), bench.toy.running.len()), (vec![(10, GONE)], 0));
    bench.turn();
    bench.finish_running();
    assert_eq!(bench.ends(), [(11, Ok(PAGE)), (12, Ok(PAGE))]);
}

#[test]
fn time_of_a_late_request_is_busy_time_of_the_device() {
    let mut bench = bench(limits());
    bench.issue(Op::Read, BioFlags::OWNED, 0, PAGE, 1);
    bench.issue(Op::Read, BioFlags::OWNED, PAGE, PAGE, 2);
    give_up(&mut bench);
    bench.complete(0, Ok(PAGE));
    assert_eq!(bench.queue.stats().busy_ns, 0, "one is there still");
    let issued = bench.toy.seen.len() as u64;
    bench.complete(0, Ok(PAGE));
    assert!(bench.queue.stats().busy_ns > LIMIT_NS + GRACE_NS && issued == 2);
}

#[test]
fn bio_whose_memory_the_driver_may_use_ends_late_whatever_became_of_its_parts() {
    let mut bench = bench(limits().max_sectors(8));
    bench.issue(Op::Read, BioFlags::OWNED, 0, 2 * PAGE, 1);
    bench.complete(0, Err(BlockStatus::Medium));
    give_up(&mut bench);
    assert_eq!(bench.ends(), [(1, LATE)], "its owner must leave the memory in the hold");
    bench.finish_running();
}
