//! Tests of split bios that gather tags (T14), under `wake=fair`.

use crate::common::{Bench, limits};
use forebay_core::{
    Bio, BioFlags, BlockStatus, CostModel, Emulation, Issue, Op, Owners, Policy, QUEUE_DEPTH_MAX,
    QueueLimits, Segment, Segments, TagNeed, WakePolicy, WeightBy,
};

/// The largest request.
const PART: u64 = 8192;

/// Returns a rotational disk of small requests.
fn rotational() -> QueueLimits {
    limits().max_sectors((PART / 512) as u32).rotational(true)
}

fn with_depth(queue_depth: u32) -> Policy {
    Policy::default().queue_depth(queue_depth)
}

impl Bench {
    /// Reads `nr_parts` requests at a place that is far from others.
    fn read(&mut self, place: u64, nr_parts: u64) {
        self.read_with(BioFlags::NONE, place, nr_parts);
    }

    fn read_with(&mut self, flags: BioFlags, place: u64, nr_parts: u64) {
        self.issue(Op::Read, flags, place << 20, nr_parts * PART, place);
    }

    /// Returns the places of the requests that were issued since the last call.
    fn places(&mut self) -> Vec<u64> {
        assert!(self.toy.running.iter().all(|&at| at < self.toy.seen.len()));
        let places = self.toy.seen[self.nr_checked..].iter().map(|seen| seen.start >> 20).collect();
        self.nr_checked = self.toy.seen.len();
        places
    }

    /// Completes the oldest request and returns the places of those that are issued then.
    fn next_places(&mut self) -> Vec<u64> {
        self.toy.complete_oldest();
        self.turn();
        self.places()
    }
}

/// Reads three bios of four parts each, with eight tags, one of which is in use.
fn three_of_four(policy: Policy, limits: QueueLimits) -> Bench {
    let mut bench = Bench::new(limits, policy);
    bench.read(9, 1);
    (1..=3).for_each(|place| bench.read(place, 4));
    bench
}

#[test]
fn bios_gather_tags_on_a_disk_with_owners() {
    let mut bench = Bench::new(rotational(), with_depth(8));
    let mut owners = Owners::new();
    owners.add("a", None, 0).expect("a new name");
    bench.queue.hctx.set_owners(owners, WeightBy::Bytes, CostModel::default());
    bench.read(9, 1);
    (1..=3).for_each(|place| bench.read(place, 4));
    assert_eq!(bench.places(), [9, 1, 1, 1, 1], "three tags are left, and four are needed");
    assert_eq!(bench.next_places(), [2, 2, 2, 2]);
    bench.finish();
}

#[test]
fn parts_of_a_bio_are_issued_together() {
    let mut bench = three_of_four(with_depth(8), rotational());
    assert_eq!(bench.places(), [9, 1, 1, 1, 1], "three tags are left, and four are needed");
    assert_eq!(bench.next_places(), [2, 2, 2, 2]);
    let issued: Vec<_> = (0..4).map(|_| bench.next_places()).collect();
    assert_eq!(issued, [vec![], vec![], vec![], vec![3, 3, 3, 3]]);
    bench.finish();
    assert_eq!(bench.ends().len(), 4);
}

#[test]
fn disk_without_an_arm_issues_each_part_at_once() {
    let limits = rotational().rotational(false);
    let mut bench = three_of_four(with_depth(8), limits);
    assert_eq!(bench.places(), [9, 1, 1, 1, 1, 2, 2, 2]);
    assert_eq!(bench.next_places(), [2]);
    bench.finish();
}

#[test]
fn setting_goes_before_the_kind_of_the_disk() {
    let one = with_depth(8).tag_need(TagNeed::One);
    assert_eq!(three_of_four(one, rotational()).places().len(), 8);
    let limits = rotational().rotational(false);
    let parts = with_depth(8).tag_need(TagNeed::Parts);
    assert_eq!(three_of_four(parts, limits).places().len(), 5);
}

#[test]
fn threads_that_wait_for_tags_gather_none() {
    let emulation = Emulation::default().wake(WakePolicy::Batch);
    let policy = with_depth(8).tag_need(TagNeed::Parts).emulation(emulation);
    assert_eq!(three_of_four(policy, rotational()).places().len(), 8);
}

#[test]
fn bio_of_many_parts_needs_half_of_the_tags() {
    let mut bench = Bench::new(rotational(), with_depth(8));
    bench.read(1, 5);
    assert_eq!(bench.places(), [1; 5]);
    bench.read(2, 20);
    assert_eq!(bench.places(), [], "three tags are free");
    assert_eq!(bench.next_places(), [2; 4]);
    let issued: Vec<_> = (0..8).map(|_| bench.next_places().len()).collect();
    assert_eq!(issued, [0, 0, 0, 4, 0, 0, 0, 4]);
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(5 * PART)), (2, Ok(20 * PART))]);
}

#[test]
fn rest_of_a_bio_needs_no_more_tags_than_it_has_parts() {
    let mut bench = Bench::new(rotational(), with_depth(8));
    bench.read(9, 1);
    bench.read(1, 9);
    assert_eq!(bench.places(), [9, 1, 1, 1, 1]);
    // Four of the other five parts, and then the last one, which needs a single tag.
    assert_eq!(bench.next_places(), [1; 4]);
    assert_eq!(bench.next_places(), [1]);
    bench.finish();
}

#[test]
fn single_tag_serves_all_parts() {
    for depth in [1, 2, 3] {
        let mut bench = Bench::new(rotational(), with_depth(depth));
        (1..=3).for_each(|place| bench.read(place, 4));
        bench.finish();
        assert_eq!(bench.toy.seen.len(), 12);
    }
}

#[test]
fn bios_behind_one_that_gathers_wait_for_it_and_no_longer() {
    let mut bench = three_of_four(with_depth(8), rotational());
    bench.read(4, 1);
    bench.finish_running();
    assert_eq!(bench.places(), [9, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4]);
}

#[test]
fn need_follows_the_number_of_tags() {
    let mut bench = three_of_four(with_depth(8), rotational());
    bench.queue.hctx.set_nr_requests(6);
    bench.turn();
    // Five tags are in use; half of six are needed.
    assert_eq!(bench.places(), [9, 1, 1, 1, 1]);
    assert_eq!(bench.next_places(), []);
    assert_eq!(bench.next_places(), [2; 3]);
    bench.queue.hctx.set_nr_requests(8);
    bench.turn();
    assert_eq!(bench.places(), [2], "the last part needs a single tag");
    bench.finish();
}

#[test]
fn split_bios_beside_classes_take_each_tag_that_is_free() {
    let reserved = with_depth(8).nr_reserved(4).async_depth(QUEUE_DEPTH_MAX);
    let mut bench = Bench::new(rotational(), reserved);
    for id in 0..4 {
        bench.read_with(BioFlags::RESERVED, 10 + id, 1);
    }
    bench.read(1, 4);
    assert_eq!(bench.places(), [10, 11, 12, 13]);
    // Each reserved bio that ends is followed by another, so there are never two free tags for all.
    assert_eq!(bench.next_places(), [1]);
    bench.finish();
    let background = with_depth(16).async_depth(4);
    let mut bench = Bench::new(rotational(), background);
    bench.read_with(BioFlags::BACKGROUND, 1, 3);
    bench.read_with(BioFlags::BACKGROUND, 2, 4);
    bench.read(3, 1);
    assert_eq!(bench.places(), [1, 1, 1, 2, 3], "the fourth tag of the class");
    assert_eq!(bench.next_places(), [2]);
    bench.finish();
    assert_eq!(bench.ends().len(), 3);
}

#[test]
fn nowait_bio_that_finds_tags_for_all_parts_does_not_gather() {
    let mut bench = Bench::new(rotational(), with_depth(8));
    bench.read_with(BioFlags::NOWAIT, 1, 8);
    assert_eq!(bench.places(), [1; 8]);
    bench.read(2, 4);
    bench.read_with(BioFlags::NOWAIT, 3, 1);
    assert_eq!(bench.ends(), [(3, Err(BlockStatus::Again))]);
    bench.finish();
}

#[test]
fn busy_driver_does_not_make_a_bio_gather_twice() {
    let mut bench = Bench::new(rotational(), with_depth(8));
    bench.toy.answers.extend([Issue::Queued, Issue::Queued, Issue::Busy]);
    bench.read(1, 4);
    assert_eq!(bench.places(), [1, 1]);
    bench.turn();
    assert_eq!(bench.places(), [1, 1]);
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(4 * PART))]);
}

#[test]
fn bios_end_without_tags_if_the_device_is_gone() {
    let mut bench = three_of_four(with_depth(8), rotational());
    bench.toy.complete(0, Err(BlockStatus::Offline));
    bench.turn();
    bench.finish_running();
    let nr_offline = bench.ends().iter().filter(|end| end.1 == Err(BlockStatus::Offline)).count();
    assert_eq!(nr_offline, 3);
}

#[test]
fn need_of_a_bio_is_that_of_its_segments() {
    // Two pairs of small segments and a large one: three requests.
    let limits = limits().max_segments(2).max_sectors(16);
    let lens = [2048, 2048, 2048, 2048, 8192];
    let segments =
        lens.iter().enumerate().map(|(nth, &len)| Segment { addr: (nth + 1) << 20, len });
    let mut bench = Bench::new(limits, with_depth(3));
    let bio = Bio::range(Op::Read, 0, 16_384);
    let segments = Segments::Many(segments.collect());
    bench.queue_bio(Bio { segments, flags: BioFlags::NOWAIT, ..bio }, 0);
    bench.turn();
    assert_eq!(bench.toy.running.len(), 3);
    bench.finish();
    assert_eq!(bench.ends(), [(0, Ok(16_384))]);
}
