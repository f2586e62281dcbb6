//! Tests of the rest of a short write. A device whose counts are not exact may have written the
//! rest already; then it is sent again only if no later write can have overtaken it.

use crate::common::{Bench, Ended, TestQueue, Toy, limits};
use forebay_core::{
    Backing, Bio, BioFlags, BlockStatus, DeviceState, Op, Policy, QueueLimits, Segment, UnplugCause,
};
use std::sync::Arc;

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;
const IO: Result<u64, BlockStatus> = Err(BlockStatus::Io);

/// Returns the limits of a device that may have written more than it counts.
fn doubtful() -> QueueLimits {
    limits().exact_counts(false)
}

fn bench(limits: QueueLimits) -> Bench {
    Bench::new(limits, Policy::default())
}

/// Issues a write of four pages. The device has written all of it, and a reader has seen it. Then
/// another write to its third page is issued and ends.
fn overtaken(limits: QueueLimits) -> Bench {
    let mut bench = bench(limits);
    bench.issue(Op::Write, NONE, 0, 4 * K4, 0);
    bench.issue(Op::Read, NONE, 2 * K4, K4, 1);
    bench.complete(1, Ok(K4));
    bench.issue(Op::Write, NONE, 2 * K4, K4, 2);
    bench.complete(1, Ok(K4));
    assert_eq!(bench.ends(), [(1, Ok(K4)), (2, Ok(K4))]);
    bench
}

#[test]
fn rest_of_an_overtaken_write_is_not_written_over_the_later_write() {
    let mut bench = overtaken(doubtful());
    bench.complete(0, Ok(K4));
    assert_eq!(bench.toy.issued().len(), 3, "the old bytes do not come back");
    assert_eq!(bench.ends(), [(0, IO)]);
    assert_eq!(bench.queue.stats().overtaken, 1);
    bench.finish();
}

#[test]
fn it_is_where_the_device_has_not_written_it() {
    let mut bench = overtaken(limits());
    bench.complete(0, Ok(K4));
    assert_eq!(bench.toy.issued()[3..], [(Op::Write, K4, 3 * K4)]);
    bench.finish();
    assert_eq!(bench.ends(), [(0, Ok(4 * K4))]);
}

#[test]
fn a_write_before_it_or_beside_its_rest_is_in_nobodys_way() {
    let mut bench = bench(doubtful());
    bench.issue(Op::Write, NONE, 0, 4 * K4, 1);
    bench.complete(0, Ok(4 * K4));
    bench.issue(Op::Write, NONE, 0, 4 * K4, 2);
    bench.issue(Op::Write, NONE, 0, K4, 3);
    bench.issue(Op::Write, NONE, 4 * K4, K4, 4);
    bench.complete(1, Ok(K4));
    bench.complete(1, Ok(K4));
    bench.complete(0, Ok(K4));
    assert_eq!(bench.toy.issued()[4..], [(Op::Write, K4, 3 * K4)]);
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(4 * K4)), (3, Ok(K4)), (4, Ok(K4)), (2, Ok(4 * K4))]);
}

#[test]
fn nothing_that_overlaps_the_rest_goes_out_before_its_end() {
    let mut bench = bench(doubtful());
    bench.issue(Op::Write, NONE, 0, 4 * K4, 0);
    bench.complete(0, Ok(K4));
    bench.issue(Op::Write, NONE, 3 * K4, K4, 1);
    bench.issue(Op::Write, NONE, 0, K4, 2);
    let rest = (Op::Write, K4, 3 * K4);
    assert_eq!(bench.toy.issued()[1..], [rest, (Op::Write, 0, K4)]);
    // Short again: the write keeps its retry range.
    bench.complete(0, Ok(K4));
    assert_eq!(bench.toy.issued()[3..], [(Op::Write, 2 * K4, 2 * K4)]);
    bench.complete(1, Ok(2 * K4));
    assert_eq!(bench.toy.issued()[4..], [(Op::Write, 3 * K4, K4)]);
    bench.finish();
    assert_eq!(bench.ends(), [(0, Ok(4 * K4)), (2, Ok(K4)), (1, Ok(K4))]);
}

#[test]
fn of_a_merged_write_the_covered_bios_end_well_and_the_rest_is_judged() {
    for overtakes in [false, true] {
        let mut bench = bench(doubtful());
        bench.plug_each(Op::Write, 0..4);
        bench.unplug();
        let start = if overtakes { 3 * K4 } else { 0 };
        bench.issue(Op::Write, NONE, start, K4, 9);
        bench.complete(1, Ok(K4));
        bench.complete(0, Ok(K4 + 512));
        bench.finish();
        let result = if overtakes { IO } else { Ok(K4) };
        let rest = [1, 2, 3].map(|n| (n, result));
        assert_eq!(bench.ends(), [(9, Ok(K4)), (0, Ok(K4)), rest[0], rest[1], rest[2]]);
    }
}

#[test]
fn a_rest_that_fails_is_tried_bio_by_bio_in_the_place_that_it_has() {
    let mut bench = bench(doubtful());
    bench.plug_each(Op::Write, 0..4);
    bench.unplug();
    bench.complete(0, Ok(K4));
    bench.complete(0, Err(BlockStatus::Medium));
    bench.issue(Op::Read, NONE, 3 * K4, K4, 9);
    assert_eq!(bench.toy.running.len(), 1, "held back");
    for result in [Ok(K4), Err(BlockStatus::Medium), Ok(K4)] {
        bench.complete(0, result);
    }
    bench.finish();
    let medium = Err(BlockStatus::Medium);
    let ends = [(0, Ok(K4)), (1, Ok(K4)), (2, medium), (3, Ok(K4)), (9, Ok(K4))];
    assert_eq!(bench.ends(), ends);
}

#[test]
fn a_flush_that_follows_the_data_holds_nothing_back() {
    let limits = doubtful().volatile_cache(true);
    let mut bench = bench(limits);
    bench.issue(Op::Write, BioFlags::FUA, 0, 2 * K4, 0);
    bench.complete(0, Ok(K4));
    bench.complete(0, Ok(K4));
    assert_eq!(bench.toy.seen.last().map(|seen| seen.op), Some(Op::Flush));
    bench.issue(Op::Write, NONE, K4, K4, 1);
    assert_eq!(bench.toy.running.len(), 2, "the write is beside the flush");
    bench.finish();
    assert_eq!(bench.ends(), [(0, Ok(2 * K4)), (1, Ok(K4))]);
}

#[test]
fn a_part_of_a_bio_that_was_overtaken_fails_the_whole() {
    let limits = doubtful().max_sectors(16);
    let mut bench = bench(limits);
    bench.issue(Op::Write, NONE, 0, 4 * K4, 0);
    assert_eq!(bench.toy.running.len(), 2);
    bench.issue(Op::Write, NONE, K4, K4, 1);
    bench.complete(2, Ok(K4));
    bench.complete(0, Ok(K4));
    bench.finish();
    assert_eq!(bench.ends(), [(1, Ok(K4)), (0, IO)]);
}

/// Issues a write of two pages on the first of two contexts, which completes short. Meanwhile
/// `other` acts on the second context.
fn beside(other: impl FnOnce(&mut TestQueue)) -> Vec<Ended> {
    let device = Arc::new(DeviceState::new(2));
    let queue = |index| TestQueue::with_device(doubtful(), Policy::default(), index, &device);
    let (mut one, mut two) = (queue(0), queue(1));
    let (mut toy, mut ended) = (Toy::default(), Vec::new());
    let bio = Bio::data(Op::Write, 0, Segment { addr: 1 << 20, len: 2 * K4 as u32 });
    one.queue_bio(bio, 0, 0).expect("a good bio");
    one.turn(&mut toy, 0, &mut ended);
    other(&mut two);
    toy.complete(0, Ok(K4));
    one.turn(&mut toy, 0, &mut ended);
    while !toy.running.is_empty() {
        toy.complete_oldest();
        one.turn(&mut toy, 0, &mut ended);
    }
    ended
}

#[test]
fn a_write_of_another_context_may_have_overtaken_it_and_a_read_may_not() {
    let do_one = |op: Op| {
        beside(|two| {
            let bio = Bio::data(op, 8 * K4, Segment { addr: 1 << 22, len: K4 as u32 });
            two.queue_bio(bio, 0, 0).expect("a good bio");
            two.unplug(UnplugCause::Outermost, 0, 0);
            two.turn(&mut Toy::default(), 0, &mut Vec::new());
        })
    };
    assert_eq!(do_one(Op::Write)[0].result, IO);
    assert_eq!(do_one(Op::Read)[0].result, Ok(2 * K4));
    assert_eq!(beside(|_| {})[0].result, Ok(2 * K4));
}

/// Contexts of one device that writes all bytes as soon as it gets them, and returns arbitrary
/// counts.
struct Liar {
    contexts: Vec<(TestQueue, Toy)>,
    /// How many requests of each context were examined.
    nr_seen: Vec<usize>,
    /// For each write: when it was first issued to the device, and whether it has ended
    /// successfully.
    writes: Vec<(Option<usize>, bool)>,
    /// The write that each page holds.
    pages: [Option<usize>; NR_PAGES],
    nr_brought_back: usize,
    nr_failed: usize,
}

const NR_PAGES: usize = 8;

impl Liar {
    /// Creates the contexts of these disks. Each disk has the given number of contexts.
    fn new(disks: Vec<(DeviceState, u32)>, limits: QueueLimits) -> Liar {
        let policy = Policy::default().queue_depth(8);
        let contexts = disks.into_iter().flat_map(|(state, nr)| {
            let state = Arc::new(state);
            (0..nr).map(move |nth| TestQueue::with_device(limits, policy, nth, &state))
        });
        let contexts: Vec<_> = contexts.map(|queue| (queue, Toy::default())).collect();
        Liar {
            nr_seen: vec![0; contexts.len()],
            contexts,
            writes: Vec::new(),
            pages: [None; NR_PAGES],
            nr_brought_back: 0,
            nr_failed: 0,
        }
    }

    /// Queues a write. The address of its memory identifies it.
    fn write(&mut self, context: usize, page: usize, nr: usize, level: u32) {
        let segment = Segment { addr: (self.writes.len() + 1) << 20, len: (nr << 12) as u32 };
        let bio = Bio { user_data: self.writes.len() as u64, ..data(page, segment) };
        self.writes.push((None, false));
        self.contexts[context].0.queue_bio(bio, level, 0).expect("a good bio");
    }

    fn turn(&mut self, context: usize) {
        let (queue, toy) = &mut self.contexts[context];
        let mut ended = Vec::new();
        queue.turn(toy, 0, &mut ended);
        queue.check_invariants();
        for Ended { user_data, result, .. } in ended {
            self.writes[user_data as usize].1 = result.is_ok();
            self.nr_failed += usize::from(result.is_err());
        }
        let seen = &self.contexts[context].1.seen;
        for request in &seen[self.nr_seen[context]..] {
            let mut page = (request.start >> 12) as usize;
            for segment in &request.segments {
                let (write, order) = ((segment.addr >> 20) - 1, self.nr_seen.iter().sum());
                let first = *self.writes[write].0.get_or_insert(order);
                for _ in 0..segment.len >> 12 {
                    // A write that was issued later and has ended is overwritten by an older one.
                    let (then, has_ended) =
                        self.pages[page].map_or((None, false), |at| self.writes[at]);
                    self.nr_brought_back += usize::from(has_ended && then > Some(first));
                    self.pages[page] = Some(write);
                    page += 1;
                }
            }
            self.nr_seen[context] += 1;
        }
    }

    /// Queues some requests and completes some: in part, in full, or with an error.
    fn step(&mut self, random: &mut impl FnMut(usize) -> usize) {
        let context = random(self.contexts.len());
        let has_room = self.contexts[context].0.nr_bios() < 16;
        for _ in 0..if has_room { random(4) } else { 0 } {
            let page = random(NR_PAGES);
            let nr = 1 + random(NR_PAGES - page);
            self.write(context, page, nr, random(2) as u32);
        }
        self.contexts[context].0.unplug(UnplugCause::Outermost, 1, 0);
        self.turn(context);
        let toy = &mut self.contexts[context].1;
        if !toy.running.is_empty() {
            let nth = random(toy.running.len());
            let len = toy.seen[toy.running[nth]].len;
            let nr_pages = (len >> 12) as usize;
            toy.complete(
                nth,
                match random(8) {
                    0 => Err(BlockStatus::Medium),
                    1..4 => Ok((1 + random(nr_pages) as u64) << 12),
                    _ => Ok(len),
                },
            );
            self.turn(context);
        }
    }
}

fn data(page: usize, segment: Segment) -> Bio {
    Bio::data(Op::Write, (page as u64) << 12, segment)
}

/// Runs a thousand steps for each of `nr_seeds` seeds. Returns how many pages went back to older
/// bytes, and how many writes failed. `disks` opens the disks.
fn long_run(
    disks: impl Fn() -> Vec<(DeviceState, u32)>,
    limits: QueueLimits,
    nr_seeds: u64,
) -> (usize, usize) {
    let mut sum = (0, 0);
    for seed in 1..=nr_seeds {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let mut liar = Liar::new(disks(), limits);
        (0..1000).for_each(|_| liar.step(&mut random));
        sum = (sum.0 + liar.nr_brought_back, sum.1 + liar.nr_failed);
    }
    sum
}

#[test]
fn no_page_returns_to_data_replaced_by_an_ended_write() {
    for nr_contexts in [1, 2] {
        let disks = || vec![(DeviceState::new(nr_contexts), nr_contexts)];
        let (nr_brought_back, nr_failed) = long_run(disks, doubtful(), 50);
        assert_eq!(nr_brought_back, 0, "{nr_contexts} contexts");
        assert!(nr_failed > 100, "{nr_contexts} contexts: nothing was overtaken");
        // With `exact_counts` the layer trusts the counts of this device, and pages go back. So the
        // test can detect them.
        let (nr_brought_back, _) = long_run(disks, limits(), 50);
        assert!(nr_brought_back > 100, "{nr_contexts} contexts: {nr_brought_back}");
    }
}

#[test]
fn no_page_returns_to_data_replaced_by_an_ended_write_of_another_disk() {
    let share = |nrs: &[u32]| {
        let backing = Backing::shared(nrs[0]);
        nrs.iter().map(|nr| (DeviceState::on(&backing, *nr), *nr)).collect::<Vec<_>>()
    };
    for nrs in [&[1, 1][..], &[2, 1], &[1, 1, 1]] {
        let (nr_brought_back, nr_failed) = long_run(|| share(nrs), doubtful(), 20);
        assert_eq!(nr_brought_back, 0, "{nrs:?}");
        assert!(nr_failed > 50, "{nrs:?}: nothing was overtaken");
    }
    // There are too few free counts for the second disk.
    let uncounted = || {
        let backing = Backing::shared(1);
        let large = DeviceState::on(&backing, 65);
        vec![(DeviceState::on(&backing, 1), 1), (large, 1)]
    };
    assert_eq!(long_run(uncounted, doubtful(), 20).0, 0);
    // Disks that do not share a backing bring pages back.
    let apart = || (0..2).map(|_| (DeviceState::new(1), 1)).collect::<Vec<_>>();
    let (nr_brought_back, _) = long_run(apart, doubtful(), 20);
    assert!(nr_brought_back > 0, "{nr_brought_back}");
}
