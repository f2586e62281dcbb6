//! Tests of plug and merge: which bios merge, and when the plug is unplugged.

use crate::common::{Bench, limits};
use forebay_core::{
    Bio, BioFlags, MergeKind, MergePolicy, Op, PLUG_FLUSH_BYTES, PLUG_MAX_REQUESTS, PlugPolicy,
    Policy, Segment, Segments, UnplugCause,
};

const K4: u64 = 4096;

fn bench() -> Bench {
    Bench::new(limits(), Policy::default())
}

#[test]
fn sixteen_neighbours_become_one_request() {
    let mut bench = bench();
    bench.plug_each(Op::Read, 0..16);
    assert!(bench.toy.seen.is_empty(), "nothing is issued while plugged");
    bench.unplug();
    assert_eq!(bench.toy.issued(), [(Op::Read, 0, 16 * K4)]);
    assert_eq!(bench.toy.nr_commits, 1);
    bench.finish();
    assert_eq!(bench.ends(), (0..16).map(|n| (n, Ok(K4))).collect::<Vec<_>>());
    assert_eq!(bench.queue.stats().merges(MergeKind::Back), 15);
    assert_eq!(bench.queue.stats().unplugs(UnplugCause::Outermost), 1);
}

#[test]
fn neighbours_join_at_the_front_too_and_end_in_the_order_of_the_disk() {
    let mut bench = bench();
    bench.plug_each(Op::Write, [2, 1, 3, 0]);
    bench.unplug();
    assert_eq!(bench.toy.issued(), [(Op::Write, 0, 4 * K4)]);
    bench.finish();
    let order: Vec<u64> = bench.ends().iter().map(|end| end.0).collect();
    assert_eq!(order, [0, 1, 2, 3]);
    assert_eq!(bench.queue.stats().merges(MergeKind::Front), 2);
}

#[test]
fn only_the_newest_request_is_a_candidate() {
    let mut bench = bench();
    bench.plug_each(Op::Read, [0, 100, 1]);
    bench.unplug();
    assert_eq!(bench.toy.issued().len(), 3, "I6: 1 would join 0, but 100 is newer");
}

#[test]
fn bios_that_must_not_merge_stay_apart() {
    let flagged = |flags| Bio { flags, ..Bio::range(Op::Write, K4, K4) };
    for (op, flags) in [
        (Op::Read, BioFlags::NONE),
        (Op::Discard, BioFlags::NONE),
        (Op::Write, BioFlags::FUA),
        (Op::Write, BioFlags::PREFLUSH),
        (Op::Write, BioFlags::NOMERGE),
    ] {
        let limits = limits()
            .discard_granularity(512)
            .max_discard_sectors(1 << 20)
            .volatile_cache(true)
            .fua(true);
        let mut bench = Bench::new(limits, Policy::default());
        bench.plug(Op::Write, 0, K4, 0);
        let bio = Bio { op, ..flagged(flags) };
        let bio = Bio { segments: bench.bio(op, K4, K4, 0).segments, ..bio };
        bench.queue_bio(bio, 1);
        bench.unplug();
        bench.finish();
        let data = bench.toy.issued().iter().filter(|issued| issued.0 != Op::Flush).count();
        assert_eq!(data, 2, "{op:?} {flags:?}");
    }
}

#[test]
fn discards_join_as_ranges_if_the_device_takes_several() {
    for (max_discard_segments, requests) in [(1, 3), (2, 2), (8, 1)] {
        let limits = limits()
            .discard_granularity(512)
            .max_discard_sectors(1 << 20)
            .max_discard_segments(max_discard_segments);
        let mut bench = Bench::new(limits, Policy::default());
        bench.plug_each(Op::Discard, [9, 4, 20]);
        bench.unplug();
        assert_eq!(bench.toy.seen.len(), requests);
        let ranges: Vec<(u64, u64)> =
            bench.toy.seen.iter().flat_map(|seen| seen.ranges.clone()).collect();
        assert_eq!(ranges, [(9 * K4, K4), (4 * K4, K4), (20 * K4, K4)]);
        bench.finish();
        assert!(bench.ends().iter().all(|end| end.1 == Ok(K4)));
    }
}

#[test]
fn a_full_list_is_let_through_before_the_next_request() {
    let mut bench = bench();
    for n in 0..PLUG_MAX_REQUESTS as u64 {
        assert!(!bench.plug(Op::Read, n * 2 * K4, K4, n));
    }
    assert!(bench.plug(Op::Read, 1 << 24, K4, 99));
    bench.turn();
    assert_eq!(bench.toy.seen.len(), PLUG_MAX_REQUESTS, "I3: in order, the new one not yet");
    assert!(bench.toy.seen.is_sorted_by_key(|seen| seen.start));
    assert!(bench.queue.is_plugged());
    assert_eq!(bench.queue.stats().unplugs(UnplugCause::Limit), 1);
}

#[test]
fn a_large_newest_request_is_let_through_unless_merging_is_off() {
    for (nomerges, due) in
        [(MergePolicy::All, true), (MergePolicy::OneShot, true), (MergePolicy::Never, false)]
    {
        let mut bench = Bench::new(limits(), Policy::default().nomerges(nomerges));
        bench.plug(Op::Read, 0, PLUG_FLUSH_BYTES, 0);
        assert_eq!(bench.plug(Op::Read, 1 << 24, K4, 1), due);
    }
}

#[test]
fn the_size_trigger_waits_for_a_request_that_does_not_merge() {
    let mut bench = bench();
    (0..64).for_each(|n| assert!(!bench.plug(Op::Read, n * K4, K4, n)));
    bench.unplug();
    assert_eq!(bench.toy.issued(), [(Op::Read, 0, 64 * K4)]);
}

#[test]
fn per_level_submits_the_bios_of_its_level() {
    let mut bench = Bench::new(limits(), Policy::default().plug(PlugPolicy::PerLevel));
    bench.plug(Op::Read, 0, K4, 0);
    let inner = bench.bio(Op::Read, K4, K4, 1);
    bench.queue_bio(inner, 2);
    assert!(bench.queue.unplug(UnplugCause::Level, 2, 0));
    bench.turn();
    assert_eq!(bench.toy.issued(), [(Op::Read, K4, K4)], "levels do not merge with each other");
    bench.unplug();
    assert_eq!(bench.toy.seen.len(), 2);
}

#[test]
fn nomerges_and_plug_none_keep_bios_apart() {
    let policies =
        [Policy::default().nomerges(MergePolicy::Never), Policy::default().plug(PlugPolicy::None)];
    for policy in policies {
        let mut bench = Bench::new(limits(), policy);
        bench.plug_each(Op::Read, 0..4);
        bench.unplug();
        assert_eq!(bench.toy.seen.len(), 4);
    }
}

#[test]
fn no_merge_crosses_a_chunk_or_passes_the_size_limit() {
    let two_pages = limits().chunk_sectors(16);
    let small = limits().max_sectors(16);
    for (limits, pages, requests) in [
        (two_pages, [1, 0], 1),
        (two_pages, [2, 1], 2),
        (two_pages, [1, 2], 2),
        (two_pages, [2, 3], 1),
        (small, [2, 1], 1),
    ] {
        let mut bench = Bench::new(limits, Policy::default());
        bench.plug_each(Op::Read, pages);
        bench.unplug();
        assert_eq!(bench.toy.seen.len(), requests, "{pages:?}");
    }
    let mut bench = Bench::new(small, Policy::default());
    bench.plug_each(Op::Read, [2, 1, 0, 3]);
    bench.unplug();
    assert_eq!(
        bench.toy.issued(),
        [(Op::Read, K4, 2 * K4), (Op::Read, 0, K4), (Op::Read, 3 * K4, K4)]
    );
}

#[test]
fn bios_that_may_not_merge_do_not_merge_with_their_like_either() {
    // On a disk without a cache, FUA and PREFLUSH need no further command.
    for flags in [BioFlags::NOMERGE, BioFlags::FUA, BioFlags::PREFLUSH] {
        let mut bench = bench();
        for page in 0..2 {
            let bio = bench.bio(Op::Write, page * K4, K4, page);
            bench.queue_bio(Bio { flags, ..bio }, 1);
        }
        bench.unplug();
        assert_eq!(bench.toy.seen.len(), 2, "M1: {flags:?}");
        bench.finish();
    }
    let limits = limits().max_write_zeroes_sectors(1 << 10);
    let mut bench = Bench::new(limits, Policy::default());
    bench.plug_each(Op::WriteZeroes, 0..2);
    bench.unplug();
    assert_eq!(bench.toy.seen.len(), 2, "M1");
}

#[test]
fn bios_merge_up_to_the_largest_request_and_no_further() {
    for (limits, nr_pages) in [
        (limits().max_sectors(16), 2),
        (limits().max_segments(3), 3),
        (limits().chunk_sectors(16), 2),
    ] {
        let mut bench = Bench::new(limits, Policy::default());
        bench.plug_each(Op::Read, 0..4);
        bench.unplug();
        let first = bench.toy.issued()[0];
        assert_eq!(first, (Op::Read, 0, nr_pages * K4), "M3: {limits:?}");
        bench.finish();
    }
}

#[test]
fn discards_merge_up_to_the_largest_discard_and_no_further() {
    let discards = limits().discard_granularity(512).max_discard_sectors(16);
    // As ranges of one command, and as neighbours.
    for (max_discard_segments, pages) in [(8, [0, 10, 20]), (1, [0, 1, 2])] {
        let limits = discards.max_discard_segments(max_discard_segments);
        let mut bench = Bench::new(limits, Policy::default());
        bench.plug_each(Op::Discard, pages);
        bench.unplug();
        let lens: Vec<u64> = bench.toy.seen.iter().map(|seen| seen.len).collect();
        assert_eq!(lens, [2 * K4, K4], "M4, M3: {max_discard_segments}");
        if max_discard_segments > 1 {
            assert_eq!(bench.toy.seen[0].nr_segments, 2, "one for each range");
        }
        bench.finish();
    }
}

#[test]
fn empty_segments_make_no_gap() {
    let limits = limits().virt_boundary_mask(4095);
    let mut bench = Bench::new(limits, Policy::default());
    let (page, empty) = (1 << 20, Segment { addr: 77, len: 0 });
    for nth in 0..2 {
        let segment = Segment { addr: page + nth * 8192, len: K4 as u32 };
        let mut bio = Bio::data(Op::Read, nth as u64 * K4, segment);
        bio.segments = Segments::Many(vec![empty, segment, empty]);
        bench.queue_bio(bio, 1);
    }
    bench.unplug();
    assert_eq!(bench.toy.issued(), [(Op::Read, 0, 2 * K4)]);
    bench.finish();
}

#[test]
fn bio_with_a_gap_in_its_memory_stays_apart() {
    let limits = limits().virt_boundary_mask(4095);
    let mut bench = Bench::new(limits, Policy::default());
    let mut bio = bench.bio(Op::Read, 0, 1024, 1);
    let halves = [1 << 20, 1 << 21].map(|addr| Segment { addr, len: 512 });
    bio.segments = Segments::Many(halves.into());
    bench.queue_bio(bio, 1);
    let next = bench.bio(Op::Read, 1024, 512, 2);
    bench.queue_bio(next, 1);
    bench.unplug();
    bench.finish();
    let issued = [(Op::Read, 0, 512), (Op::Read, 512, 512), (Op::Read, 1024, 512)];
    assert_eq!(bench.toy.issued(), issued, "L4");
}
