//! Split and merge against a naive model: every byte of every bio is covered once, from the right
//! memory, and every request keeps every limit.

use crate::common::{Bench, Seen};
use forebay_core::{
    Bio, BioFlags, MergePolicy, Op, PlugPolicy, Policy, QueueLimits, Segment, Segments,
    SubmitErrorKind,
};
use proptest::prelude::*;

const BLOCK: u64 = 512;
const NR_BLOCKS: u64 = 4096;

/// A bio of the generator: its addresses in blocks, and the places that divide its memory.
#[derive(Clone, Debug)]
struct Plan {
    op: Op,
    flags: BioFlags,
    /// Whether the bio begins where the previous bio ended (1), ends where it began (2), or neither
    /// (0).
    adjacent: u8,
    start: u64,
    nr_blocks: u64,
    cuts: Vec<u64>,
    /// The number of bytes from a page boundary to the beginning of the memory.
    misplaced: usize,
    unplug_after: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let op = prop_oneof![
        6 => Just(Op::Read),
        6 => Just(Op::Write),
        2 => Just(Op::Discard),
        1 => Just(Op::WriteZeroes),
        1 => Just(Op::Flush),
    ];
    let flags = prop_oneof![
        12 => Just(BioFlags::NONE),
        1 => Just(BioFlags::NOMERGE),
        1 => Just(BioFlags::FUA),
        1 => Just(BioFlags::PREFLUSH),
    ];
    let misplaced = prop_oneof![3 => Just(0usize), 1 => (0..8usize).prop_map(|n| n * 512)];
    let nr_blocks = prop_oneof![3 => 1..16u64, 1 => 16..96u64];
    let place = (0..3u8, 0..NR_BLOCKS, nr_blocks);
    let memory = (prop::collection::vec(1..48u64, 0..6), misplaced);
    (op, flags, place, memory, prop::bool::weighted(0.1)).prop_map(
        |(op, flags, (adjacent, start, nr_blocks), (cuts, misplaced), unplug_after)| Plan {
            op,
            flags,
            adjacent,
            start,
            nr_blocks,
            cuts,
            misplaced,
            unplug_after,
        },
    )
}

fn any_limits() -> impl Strategy<Value = QueueLimits> {
    let sizes =
        (8..512u32, 1..24u32, prop_oneof![Just(u32::MAX), (1..32u32).prop_map(|n| n * 512)]);
    let masks = (prop_oneof![Just(u64::MAX), Just(0xFFFF), Just(0xFFF)], any::<bool>());
    let shape =
        (prop_oneof![Just(0u32), Just(24), Just(64)], prop_oneof![Just(512u32), Just(4096)]);
    let discard = (1..4u32, 8..256u32, 1..5u32, 1..200u32);
    let cache = (any::<bool>(), any::<bool>());
    (sizes, masks, shape, discard, cache).prop_map(|(sizes, masks, shape, discard, cache)| {
        QueueLimits::default()
            .capacity_bytes(Some(NR_BLOCKS * BLOCK))
            .max_sectors(sizes.0)
            .max_segments(sizes.1)
            .max_segment_size(sizes.2)
            .seg_boundary_mask(masks.0)
            .virt_boundary_mask(if masks.1 { 0xFFF } else { 0 })
            .chunk_sectors(shape.0)
            .physical_block_size(shape.1)
            .discard_granularity(discard.0 * 512)
            .max_discard_sectors(discard.1)
            .max_discard_segments(discard.2)
            .max_write_zeroes_sectors(discard.3)
            .volatile_cache(cache.0)
            .fua(cache.1)
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let plugs = [PlugPolicy::Outermost, PlugPolicy::PerLevel, PlugPolicy::None];
    let merges = [MergePolicy::All, MergePolicy::OneShot, MergePolicy::Never];
    (0..3usize, 0..3usize, 1..40u32).prop_map(move |(plug, nomerges, queue_depth)| {
        Policy::default().plug(plugs[plug]).nomerges(merges[nomerges]).queue_depth(queue_depth)
    })
}

/// Returns the bio of a plan, placed relative to `previous`.
fn bio_of(plan: &Plan, previous: &Bio, bench: &mut Bench, user_data: u64) -> Bio {
    let nr_blocks = plan.nr_blocks.min(NR_BLOCKS);
    let previous_end = (previous.start + previous.len) / BLOCK;
    let start = match plan.adjacent {
        1 => previous_end,
        2 => (previous.start / BLOCK).saturating_sub(nr_blocks),
        _ => plan.start,
    };
    let start = start.min(NR_BLOCKS - nr_blocks) * BLOCK;
    let len = nr_blocks * BLOCK;
    if plan.op == Op::Flush {
        return Bio { user_data, ..Bio::flush() };
    }
    let mut segments = Vec::new();
    let mut left = if plan.op.moves_data() { len } else { 0 };
    let mut cuts = plan.cuts.iter();
    while left > 0 {
        let piece = cuts.next().map_or(left, |cut| (cut * BLOCK).min(left));
        let memory = bench.memory(piece + plan.misplaced as u64);
        segments.push(Segment { addr: memory.addr + plan.misplaced, len: piece as u32 });
        left -= piece;
    }
    let segments = match segments.as_slice() {
        [] => Segments::None,
        [one] => Segments::One(*one),
        many => Segments::Many(many.into()),
    };
    Bio { flags: plan.flags, segments, user_data, ..Bio::range(plan.op, start, len) }
}

/// Returns the number of segments that a naive walk counts, byte range by byte range.
fn count_segments(limits: &QueueLimits, seen: &Seen) -> u32 {
    let pieces = |segment: &Segment| {
        let (mut at, end) = (segment.addr as u64, segment.addr as u64 + u64::from(segment.len));
        let mut nr = 0;
        while at < end {
            let boundary = (at | limits.seg_boundary_mask).saturating_add(1);
            at = end.min(boundary).min(at + u64::from(limits.max_segment_size));
            nr += 1;
        }
        nr
    };
    seen.segments.iter().map(pieces).sum()
}

fn check_limits(limits: &QueueLimits, seen: &Seen) {
    let sectors = |nr: u32| u64::from(nr) * 512;
    assert!((seen.start | seen.len).is_multiple_of(BLOCK) && seen.len > 0, "L5: {seen:?}");
    match seen.op {
        Op::Read | Op::Write => {
            assert!(seen.len <= sectors(limits.max_sectors), "L1: {seen:?}");
            if limits.chunk_sectors > 0 {
                let chunk = sectors(limits.chunk_sectors);
                assert_eq!(seen.start / chunk, (seen.start + seen.len - 1) / chunk, "L1");
            }
            let nr_segments = count_segments(limits, seen);
            assert!(nr_segments <= limits.max_segments, "L3: {seen:?}");
            assert!(seen.nr_segments >= seen.segments.len() as u32);
            for pair in seen.segments.windows(2) {
                let joint = (pair[0].addr as u64 + u64::from(pair[0].len)) | pair[1].addr as u64;
                assert_eq!(joint & limits.virt_boundary_mask, 0, "L4: {seen:?}");
            }
            assert_eq!(seen.segments.iter().map(|s| u64::from(s.len)).sum::<u64>(), seen.len);
        }
        Op::Discard => {
            assert!(seen.len <= sectors(limits.max_discard_sectors), "L6: {seen:?}");
            if limits.max_discard_segments > 1 {
                assert!(seen.ranges.len() <= limits.max_discard_segments as usize, "M4");
            } else {
                assert!(seen.ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0));
            }
            assert_eq!(seen.ranges.iter().map(|range| range.1).sum::<u64>(), seen.len);
        }
        Op::WriteZeroes => assert!(seen.len <= sectors(limits.max_write_zeroes_sectors), "L6"),
        Op::Flush => unreachable!("checked by the caller"),
    }
}

/// Checks that the requests cover each byte of each bio once, with the right memory.
fn check_cover(bios: &[Bio], seen: &[Seen]) {
    let mut covered: Vec<Vec<bool>> =
        bios.iter().map(|bio| vec![false; (bio.len / BLOCK) as usize]).collect();
    for seen in seen.iter().filter(|seen| seen.op.moves_data()) {
        let mut at = seen.start;
        for segment in &seen.segments {
            let (nth, before) = find(bios, segment.addr);
            let bio = &bios[nth];
            assert_eq!(bio.op, seen.op);
            assert_eq!(bio.start + before, at, "memory meets its place on the disk");
            for block in 0..u64::from(segment.len) / BLOCK {
                let covered = &mut covered[nth][(before / BLOCK + block) as usize];
                assert!(!*covered, "a block is moved once");
                *covered = true;
            }
            at += u64::from(segment.len);
        }
    }
    let all = |(bio, blocks): (&Bio, &Vec<bool>)| {
        assert!(!bio.op.moves_data() || blocks.iter().all(|block| *block), "all is moved: {bio:?}");
    };
    bios.iter().zip(&covered).for_each(all);
    for op in [Op::Discard, Op::WriteZeroes] {
        let mut balance = vec![0i64; NR_BLOCKS as usize];
        let mut add = |start: u64, len: u64, n| {
            (start / BLOCK..(start + len) / BLOCK).for_each(|block| balance[block as usize] += n);
        };
        let of_op = bios.iter().filter(|bio| bio.op == op);
        of_op.for_each(|bio| add(bio.start, bio.len, 1));
        let of_op = seen.iter().filter(|seen| seen.op == op);
        of_op.flat_map(|seen| &seen.ranges).for_each(|range| add(range.0, range.1, -1));
        assert!(balance.iter().all(|balance| *balance == 0), "{op:?} covers its ranges once");
    }
}

/// Returns the bio that has the memory at `addr`, and the number of its bytes before `addr`.
fn find(bios: &[Bio], addr: usize) -> (usize, u64) {
    for (nth, bio) in bios.iter().enumerate() {
        let mut before = 0;
        for segment in bio.segments.as_slice() {
            if (segment.addr..segment.addr + segment.len as usize).contains(&addr) {
                return (nth, before + (addr - segment.addr) as u64);
            }
            before += u64::from(segment.len);
        }
    }
    panic!("a request has memory that no bio gave");
}

/// Runs the plans. The driver completes requests in an order drawn from `order`.
fn check(limits: QueueLimits, policy: Policy, plans: &[Plan], order: &[u8]) {
    let mut bench = Bench::new(limits, policy);
    let (mut bios, mut previous) = (Vec::new(), Bio::range(Op::Read, 0, 0));
    for (nth, plan) in plans.iter().enumerate() {
        let bio = bio_of(plan, &previous, &mut bench, nth as u64);
        previous = bio.clone();
        match bench.queue.queue_bio(bio.clone(), 1 + nth as u32 % 2, 0) {
            Ok(_) => bios.push(bio),
            Err((SubmitErrorKind::Unsplittable { .. }, back)) => assert_eq!(back, bio),
            Err((refusal, _)) => panic!("{refusal}"),
        }
        bench.queue.check_invariants();
        if plan.unplug_after {
            bench.unplug();
        }
    }
    bench.unplug();
    let mut order = order.iter().cycle();
    while !bench.toy.running.is_empty() {
        let pick = usize::from(*order.next().expect("a cycle")) % bench.toy.running.len();
        let len = bench.toy.seen[bench.toy.running[pick]].len;
        bench.complete(pick, Ok(len));
    }
    let failed: Vec<u64> = bench
        .ended
        .iter()
        .filter(|ended| ended.result.is_err())
        .map(|ended| ended.user_data)
        .collect();
    assert!(failed.is_empty() || limits.max_segments < 8, "only memory in crumbs cannot be cut");
    let mut ends = bench.ends();
    ends.sort_unstable_by_key(|end| end.0);
    assert_eq!(ends.len(), bios.len(), "each bio ends once");
    for (bio, end) in bios.iter().zip(&ends) {
        assert_eq!(bio.user_data, end.0);
        assert!(end.1 == Ok(bio.len) || failed.contains(&end.0));
    }
    assert_eq!(bench.queue.nr_bios(), 0);
    let data: Vec<Seen> = bench.toy.seen.into_iter().filter(|seen| seen.op != Op::Flush).collect();
    data.iter().for_each(|seen| check_limits(&limits, seen));
    if failed.is_empty() {
        check_cover(&bios, &data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn requests_cover_their_bios_and_keep_the_limits(
        limits in any_limits(),
        policy in any_policy(),
        plans in prop::collection::vec(plan(), 1..60),
        order in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        prop_assume!(limits.validate().is_ok());
        check(limits, policy, &plans, &order);
    }
}
