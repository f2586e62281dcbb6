//! Tests of a hardware context with a scheduler: merging between threads, depths, and the rules
//! that hold beside every scheduler.

use crate::common::{Bench, limits};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Class, Issue, MergeKind, MergePolicy, MqDeadlineParams, Op, Origin,
    Policy, Priority, Reap, SchedulerPolicy,
};
use proptest::prelude::*;

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;

fn policy() -> Policy {
    let policy = Policy::default().queue_depth(8).scheduler(SchedulerPolicy::MqDeadline);
    policy.nr_requests(Some(8)).device_depth(Some(1))
}

/// Returns the origin of I/O of a class.
fn of_class(class: Class) -> Origin {
    Origin::NONE.with_priority(Priority::new(class, 4).expect("a level"))
}

impl Bench {
    /// Issues reads or writes of single pages, each from a plug of its own.
    fn issue_pages(&mut self, op: Op, pages: impl IntoIterator<Item = u64>) {
        pages.into_iter().for_each(|page| self.issue(op, NONE, page * K4, K4, page));
    }

    /// Returns the first page and the number of pages of each request issued since the last call.
    fn requests(&mut self) -> Vec<(u64, u64)> {
        let seen = &self.toy.seen[self.nr_checked..];
        self.nr_checked = self.toy.seen.len();
        seen.iter().map(|seen| (seen.start / K4, seen.len / K4)).collect()
    }
}

#[test]
fn requests_of_different_plugs_merge_while_the_device_is_busy() {
    let mut bench = Bench::new(limits(), policy());
    bench.issue_pages(Op::Read, [100, 0, 1, 2]);
    assert_eq!(bench.requests(), [(100, 1)], "one request is at the device");
    bench.toy.complete_oldest();
    bench.turn();
    assert_eq!(bench.requests(), [(0, 3)]);
    bench.finish();
    let ends: Vec<u64> = bench.ends().iter().map(|end| end.0).collect();
    assert_eq!(ends, [100, 0, 1, 2]);
    let stats = bench.queue.stats();
    assert_eq!((stats.merges(MergeKind::Back), stats.op(Op::Read).merges), (2, 2));
}

#[test]
fn request_that_fills_a_gap_joins_both_neighbours() {
    for order in [[10, 12, 11], [12, 10, 11], [11, 10, 12], [12, 11, 10]] {
        let mut bench = Bench::new(limits(), policy());
        bench.issue_pages(Op::Write, [100]);
        bench.issue_pages(Op::Write, order);
        assert_eq!(bench.queue.hctx.nr_free_tags(), 6, "{order:?}: a merged request has no tag");
        bench.toy.complete_oldest();
        bench.turn();
        assert_eq!(bench.requests(), [(100, 1), (10, 3)], "{order:?}");
        assert_eq!(bench.toy.seen[1].nr_bios, 3);
        bench.finish();
        let ends: Vec<u64> = bench.ends().iter().map(|end| end.0).collect();
        assert_eq!(ends, [100, 10, 11, 12], "{order:?}: in the order of the bytes");
    }
}

#[test]
fn requests_of_several_bios_merge_in_the_order_of_their_bytes() {
    let mut bench = Bench::new(limits(), policy());
    bench.issue_pages(Op::Write, [100]);
    for pages in [20..24, 28..30, 16..20, 24..28] {
        bench.plug_each(Op::Write, pages);
        bench.unplug();
    }
    bench.toy.complete_oldest();
    bench.turn();
    assert_eq!(bench.requests(), [(100, 1), (16, 14)]);
    bench.finish();
    assert!(bench.ends().iter().map(|end| end.0).skip(1).eq(16..30));
}

#[test]
fn each_bio_of_a_merged_request_gets_its_own_result() {
    let mut bench = Bench::new(limits(), policy());
    bench.issue_pages(Op::Read, [100, 11, 10, 12]);
    bench.toy.complete_oldest();
    bench.turn();
    bench.complete(0, Err(BlockStatus::Medium));
    // One bio after another, and the middle one fails again.
    bench.complete(0, Ok(K4));
    bench.complete(0, Err(BlockStatus::Medium));
    bench.complete(0, Ok(K4));
    let medium = Err(BlockStatus::Medium);
    assert_eq!(bench.ends(), [(100, Ok(K4)), (10, Ok(K4)), (11, medium), (12, Ok(K4))]);
}

#[test]
fn bios_merge_only_if_operation_flags_and_origin_are_equal() {
    let [idle, owned] = [of_class(Class::Idle), Origin::NONE.with_owner(1)];
    for (op, flags, origin) in [
        (Op::Read, NONE, Origin::NONE),
        (Op::Write, BioFlags::FUA, Origin::NONE),
        (Op::Write, BioFlags::NOMERGE, Origin::NONE),
        (Op::Write, BioFlags::BACKGROUND, Origin::NONE),
        (Op::Write, NONE, idle),
        (Op::Write, NONE, owned),
    ] {
        let mut bench = Bench::new(limits().fua(true), policy());
        bench.issue_pages(Op::Write, [100, 10]);
        let bio = Bio { flags, origin, ..bench.bio(op, 11 * K4, K4, 11) };
        bench.queue_bio(bio, 0);
        bench.turn();
        bench.finish();
        assert_eq!(bench.toy.seen.len(), 3, "{op:?} {flags:?} {origin:?}");
    }
}

#[test]
fn nomerges_of_1_and_2_forbids_merges_in_the_scheduler() {
    for nomerges in [MergePolicy::OneShot, MergePolicy::Never] {
        let mut bench = Bench::new(limits(), policy().nomerges(nomerges));
        bench.issue_pages(Op::Read, [100, 10, 11]);
        bench.finish();
        assert_eq!(bench.toy.seen.len(), 3, "{nomerges:?}");
    }
}

#[test]
fn merged_request_keeps_the_size_limit() {
    let mut bench = Bench::new(limits().max_sectors(16), policy());
    bench.issue_pages(Op::Read, [100, 10, 12, 11]);
    bench.finish();
    assert_eq!(bench.requests(), [(100, 1), (10, 2), (12, 1)]);
}

#[test]
fn discards_merge_as_ranges_where_the_device_takes_several() {
    let limits = limits().discard_granularity(4096).max_discard_sectors(1 << 20);
    for (max, nr) in [(4, 2), (1, 4)] {
        let mut bench = Bench::new(limits.max_discard_segments(max), policy());
        bench.issue_pages(Op::Discard, [100, 10, 30, 20]);
        bench.finish();
        assert_eq!(bench.toy.seen.len(), nr, "up to {max} ranges");
        assert_eq!(bench.ends().len(), 4);
    }
}

#[test]
fn parts_of_a_split_bio_stay_whole_and_in_order() {
    let mut bench = Bench::new(limits().max_sectors(16), policy());
    bench.issue_pages(Op::Read, [0, 12]);
    bench.issue(Op::Read, NONE, 8 * K4, 4 * K4, 8);
    assert_eq!(bench.queue.hctx.nr_free_tags(), 4);
    bench.finish();
    assert_eq!(bench.requests(), [(0, 1), (8, 2), (10, 2), (12, 1)]);
    assert!(bench.ends().contains(&(8, Ok(4 * K4))));
}

#[test]
fn request_that_a_busy_device_refused_goes_first() {
    let mut bench = Bench::new(limits(), policy());
    bench.toy.answers.push_back(Issue::Busy);
    bench.issue_pages(Op::Read, [100]);
    bench.toy.answers.push_back(Issue::Busy);
    bench.issue_pages(Op::Read, [10]);
    assert_eq!(bench.requests(), []);
    bench.turn();
    assert_eq!(bench.requests(), [(100, 1)], "the one that it has not refused waits its turn");
    bench.finish();
    assert_eq!(bench.requests(), [(10, 1)]);
}

#[test]
fn flush_passes_queued_requests_and_its_data_go_before_them() {
    let limits = limits().volatile_cache(true);
    let mut bench = Bench::new(limits, policy());
    bench.issue_pages(Op::Write, [100, 10, 20]);
    bench.issue(Op::Write, BioFlags::PREFLUSH, 30 * K4, K4, 30);
    let flush = bench.toy.seen.last().map(|seen| seen.op);
    assert_eq!(flush, Some(Op::Flush), "the flush waits for no room");
    bench.complete(1, Ok(0));
    bench.finish();
    assert_eq!(bench.requests(), [(100, 1), (0, 0), (30, 1), (10, 1), (20, 1)]);
    assert_eq!(bench.ends().len(), 4);
}

#[test]
fn nowait_bio_waits_for_the_device_but_not_for_a_tag() {
    let mut bench = Bench::new(limits(), policy().nr_requests(Some(3)));
    bench.issue_pages(Op::Read, [100, 10]);
    bench.issue(Op::Read, BioFlags::NOWAIT, 50 * K4, K4, 50);
    assert_eq!(bench.ends(), [], "it has a tag");
    bench.issue(Op::Read, BioFlags::NOWAIT, 70 * K4, K4, 70);
    assert_eq!(bench.ends(), [(70, Err(BlockStatus::Again))]);
    bench.finish();
    assert_eq!(bench.ends().len(), 3);
}

#[test]
fn queued_requests_end_when_the_device_is_gone() {
    let mut bench = Bench::new(limits(), policy().nr_requests(Some(3)));
    bench.issue_pages(Op::Read, (0..6).map(|nth| 100 * nth));
    let offline = Err(BlockStatus::Offline);
    bench.complete(0, offline);
    assert!(bench.ends().iter().map(|end| end.1).eq([offline; 6]));
    assert_eq!(bench.toy.seen.len(), 1, "nothing more reached the device");
}

impl Bench {
    /// Reads a page with a priority class.
    fn read_of(&mut self, class: Class, page: u64) {
        let origin = of_class(class);
        let bio = Bio { origin, ..self.bio(Op::Read, page * K4, K4, page) };
        self.queue_bio(bio, 0);
        self.turn();
    }
}

#[test]
fn higher_class_goes_first_and_lower_ones_wait_for_its_end() {
    let mut bench = Bench::new(limits(), policy().device_depth(Some(2)));
    bench.read_of(Class::Idle, 10);
    bench.read_of(Class::BestEffort, 20);
    bench.read_of(Class::Idle, 30);
    bench.read_of(Class::BestEffort, 40);
    bench.read_of(Class::RealTime, 50);
    assert_eq!(bench.requests(), [(10, 1), (20, 1)]);
    bench.complete(0, Ok(K4));
    assert_eq!(bench.requests(), [(50, 1)]);
    bench.complete(0, Ok(K4));
    assert_eq!(bench.requests(), [], "while the first class is at the device");
    bench.complete(0, Ok(K4));
    assert_eq!(bench.requests(), [(40, 1)]);
    bench.complete(0, Ok(K4));
    assert_eq!(bench.requests(), [(30, 1)]);
    bench.finish();
}

#[test]
fn repeats_of_a_failed_merged_request_keep_its_class() {
    let mut bench = Bench::new(limits(), policy().device_depth(Some(2)));
    for page in [100, 200, 10, 11] {
        bench.read_of(Class::RealTime, page);
    }
    bench.read_of(Class::Idle, 50);
    bench.complete(0, Ok(K4));
    bench.complete(0, Ok(K4));
    assert_eq!(bench.requests(), [(100, 1), (200, 1), (10, 2)]);
    bench.complete(0, Err(BlockStatus::Medium));
    assert_eq!(bench.requests(), [(10, 1)], "the idle class waits for the repeats (DL4)");
    bench.complete(0, Ok(K4));
    assert_eq!(bench.requests(), [(11, 1)]);
    bench.complete(0, Ok(K4));
    assert_eq!(bench.requests(), [(50, 1)]);
    bench.finish();
}

#[test]
fn completions_are_reaped_in_full_while_the_scheduler_holds_requests_back() {
    let mut bench = Bench::new(limits(), policy().device_depth(Some(2)));
    bench.read_of(Class::RealTime, 10);
    bench.read_of(Class::Idle, 20);
    bench.read_of(Class::Idle, 30);
    assert_eq!(bench.toy.running.len(), 1);
    assert_eq!(bench.toy.reaps.last(), Some(&Reap::Full), "no commit follows");
    bench.finish();
}

#[test]
fn request_that_absorbs_an_older_one_has_its_age() {
    const S: u64 = 1_000_000_000;
    let mut bench = Bench::new(limits(), policy());
    bench.turn_at(S);
    bench.read_of(Class::RealTime, 100);
    bench.read_of(Class::RealTime, 200);
    bench.read_of(Class::Idle, 12);
    bench.turn_at(10 * S);
    bench.read_of(Class::Idle, 10);
    bench.read_of(Class::Idle, 11);
    bench.turn_at(12 * S);
    assert_eq!(bench.requests(), [(100, 1)]);
    bench.complete(0, Ok(K4));
    assert_eq!(bench.requests(), [(10, 3)], "page 12 has waited for 11 s");
    bench.finish();
}

#[test]
fn preflush_without_a_cache_is_sorted_like_other_writes() {
    let mut bench = Bench::new(limits(), policy());
    bench.issue_pages(Op::Read, [100]);
    for page in [50, 10, 90] {
        bench.issue(Op::Write, BioFlags::PREFLUSH, page * K4, K4, page);
    }
    bench.issue_pages(Op::Read, [20]);
    bench.finish();
    assert_eq!(bench.requests(), [(100, 1), (20, 1), (10, 1), (50, 1), (90, 1)]);
}

#[test]
fn request_that_was_given_up_holds_back_no_lower_class() {
    let policy = policy().device_depth(Some(4)).io_timeout_ns(1000).io_timeout_grace_ns(1000);
    let mut bench = Bench::new(limits(), policy);
    let origin = of_class(Class::RealTime);
    let bio = Bio { origin, flags: BioFlags::OWNED, ..bench.bio(Op::Read, 0, K4, 1) };
    bench.queue_bio(bio, 0);
    bench.turn();
    bench.turn_after(1000);
    bench.turn_after(1000);
    assert_eq!(bench.ends(), [(1, Err(BlockStatus::Timeout))]);
    bench.queue.device.revive();
    bench.read_of(Class::BestEffort, 50);
    assert_eq!(bench.requests(), [(0, 1), (50, 1)]);
    // The device completes the first after all.
    bench.complete(0, Ok(K4));
    bench.read_of(Class::RealTime, 60);
    bench.read_of(Class::BestEffort, 70);
    bench.finish();
    assert_eq!(bench.requests(), [(60, 1), (70, 1)]);
}

#[test]
fn neighbour_of_a_bio_that_overlaps_a_given_up_write_is_issued() {
    let policy = policy().device_depth(Some(2)).io_timeout_ns(1000).io_timeout_grace_ns(1000);
    let mut bench = Bench::new(limits(), policy);
    bench.issue(Op::Write, BioFlags::OWNED, 11 * K4, K4, 99);
    bench.turn_after(1000);
    bench.turn_after(1000);
    assert_eq!(bench.ends(), [(99, Err(BlockStatus::Timeout))]);
    bench.queue.device.revive();
    bench.toy.running.clear();
    bench.issue_pages(Op::Write, [100, 10, 12, 11]);
    bench.finish_running();
    let offline = Err(BlockStatus::Offline);
    let mut ends = bench.ends();
    ends.sort_by_key(|(page, _)| *page);
    assert_eq!(ends, [(10, Ok(K4)), (11, offline), (12, Ok(K4)), (100, Ok(K4))]);
    assert_eq!(bench.requests(), [(11, 1), (100, 1), (10, 1), (12, 1)]);
}

#[test]
fn without_front_merges_a_queued_request_still_absorbs_its_successor() {
    let params = MqDeadlineParams::default().front_merges(false);
    let mut bench = Bench::new(limits(), policy().mq_deadline(params));
    bench.issue_pages(Op::Write, [100, 12, 10, 11, 9]);
    bench.finish();
    assert_eq!(bench.requests(), [(100, 1), (10, 3), (9, 1)]);
}

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    /// Operation, page, pages, flag, class.
    Queue(u8, u64, u64, u8, u8),
    Unplug,
    Complete(u8, u8),
    Busy,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..4_u8, 0..24_u64, 1..7_u64, 0..12_u8, 0..4_u8)
            .prop_map(|(op, page, nr, flag, class)| Step::Queue(op, page, nr, flag, class)),
        3 => Just(Step::Unplug),
        4 => (any::<u8>(), 0..10_u8).prop_map(|(nth, how)| Step::Complete(nth, how)),
        1 => Just(Step::Busy),
    ]
}

fn flags_of(flag: u8, op: Op) -> BioFlags {
    match flag {
        0 if op == Op::Write => BioFlags::FUA,
        1 if op == Op::Write => BioFlags::PREFLUSH,
        2 => BioFlags::NOMERGE,
        3 => BioFlags::BACKGROUND,
        4 => BioFlags::RESERVED,
        5 => BioFlags::NOWAIT,
        _ => NONE,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Each bio ends once, with a result that the device gave for its bytes; the device never has
    /// more than its depth; and the invariants hold after each step (`Bench`).
    #[test]
    fn random_histories_end_every_bio_once(
        steps in proptest::collection::vec(step(), 1..80),
        depths in (1..4_u32, 2..7_u32, 0..3_u32, 1..4_u32),
        is_queueable in any::<bool>(),
    ) {
        let limits = limits()
            .max_sectors(32)
            .volatile_cache(true)
            .flush_queueable(is_queueable)
            .discard_granularity(4096)
            .max_discard_sectors(1 << 20)
            .max_discard_segments(3);
        let (device_depth, nr_requests, nr_reserved, async_depth) = depths;
        let policy = policy()
            .device_depth(Some(device_depth))
            .nr_requests(Some(nr_requests))
            .nr_reserved(nr_reserved.min(nr_requests - 1))
            .async_depth(async_depth);
        let mut bench = Bench::new(limits, policy);
        let (mut nr_bios, mut has_failed, mut has_reserved) = (0, false, false);
        for step in steps {
            match step {
                Step::Queue(op, page, nr, flag, class) => {
                    let op = [Op::Read, Op::Write, Op::Discard, Op::Flush][usize::from(op)];
                    let len = if op == Op::Flush { 0 } else { nr * K4 };
                    let start = if op == Op::Flush { 0 } else { page * K4 };
                    let class = Class::ALL.get(usize::from(class)).copied().unwrap_or_default();
                    let origin = of_class(class);
                    let flags = flags_of(flag, op);
                    let bio = bench.bio(op, start, len, nr_bios);
                    nr_bios += 1;
                    has_reserved |= flags.contains(BioFlags::RESERVED);
                    bench.queue_bio(Bio { flags, origin, ..bio }, 1);
                }
                Step::Unplug => bench.unplug(),
                Step::Busy => bench.toy.answers.push_back(Issue::Busy),
                Step::Complete(nth, how) => {
                    let nr = bench.toy.running.len();
                    if nr > 0 {
                        let nth = usize::from(nth) % nr;
                        let len = bench.toy.seen[bench.toy.running[nth]].len;
                        has_failed |= how == 0;
                        let is_short = how == 1 && len > K4;
                        let result = match how {
                            0 => Err(BlockStatus::Medium),
                            _ if is_short => Ok(len - K4),
                            _ => Ok(len),
                        };
                        bench.complete(nth, result);
                    }
                }
            }
            let seen = &bench.toy.seen;
            let is_data = |at: &&usize| seen[**at].op != Op::Flush;
            let nr_at_device = bench.toy.running.iter().filter(is_data).count();
            prop_assert!(nr_at_device <= device_depth as usize, "Q5: {nr_at_device}");
            let is_write = |at: &&usize| !matches!(seen[**at].op, Op::Read | Op::Flush);
            let nr_writes = bench.toy.running.iter().filter(is_write).count();
            let is_limited = has_reserved || nr_writes <= async_depth as usize;
            prop_assert!(is_limited, "Q9: {nr_writes}");
        }
        bench.toy.answers.clear();
        bench.unplug();
        bench.turn();
        bench.finish();
        let mut ends = bench.ends();
        ends.sort_unstable_by_key(|end| end.0);
        prop_assert!(ends.iter().map(|end| end.0).eq(0..nr_bios), "{ends:?}");
        if !has_failed {
            // A short count may be refused a retry (A2).
            let allowed = [BlockStatus::Again, BlockStatus::NotSupported, BlockStatus::Io];
            let is_good = |result: &Result<u64, BlockStatus>| match result {
                Ok(_) => true,
                Err(status) => allowed.contains(status),
            };
            prop_assert!(ends.iter().all(|end| is_good(&end.1)), "{ends:?}");
        }
    }
}
