//! Streams on zones with write pointers: they end with all their bytes, or with a reason.

use super::super::super::zoned::tests::RULES;
use super::*;

/// Zones of two blocks of 4 KiB.
const ZONES: Zoned = Zoned { size: 8192, capacity: 8192, ..RULES };

/// Returns a workload of `blocks` blocks from the second zone on, with these sizes of reads and
/// writes, in blocks.
fn zoned(word: &str, blocks: u64, rules: Zoned, [reads, writes]: [u32; 2]) -> Workload {
    let sizes = [reads, writes, writes].map(|blocks| SizeRule::Fixed(blocks * 4096));
    let variety = Variety { sizes, zoned: Some(rules), ..variety(SizeRule::Fixed(4096)) };
    let mut load = workload(word, blocks * 4096, variety);
    load.region.offset = rules.size;
    load
}

/// Returns the I/Os as block numbers, and the reason of an early end.
fn run(load: &Workload, pointers: &Arc<WritePointers>) -> (Vec<Op>, Option<EarlyEnd>) {
    let mut stream = Varied::on(load, pointers);
    let ops = stream.by_ref().take(1000).collect();
    (ops, stream.early_end())
}

fn blocks(load: &Workload, pointers: &Arc<WritePointers>) -> Vec<u64> {
    run(load, pointers).0.iter().map(|op| op.offset / 4096).collect()
}

const NO_DATA: Option<EarlyEnd> = Some(EarlyEnd { why: Blocked::NoData, left_bytes: None });

#[test]
fn endless_sequential_reads_start_again_where_the_data_of_zones_end() {
    let pointers = Arc::default();
    let zoned = |word| zoned(word, 4, ZONES, [1, 1]);
    assert_eq!(Varied::on(&zoned("write"), &pointers).take(3).count(), 3);
    let (ops, end) = run(&zoned("read"), &pointers);
    assert_eq!(ops.iter().map(|op| op.offset / 4096).collect::<Vec<_>>(), [2, 3, 4]);
    let left_bytes = Some(4096);
    assert_eq!(end, Some(EarlyEnd { why: Blocked::NoData, left_bytes }), "the data end");
    let endless = Workload { io_size: None, ..zoned("read") };
    let first = |nr| Varied::on(&endless, &pointers).take(nr).map(|op| op.offset / 4096);
    assert_eq!(first(7).collect::<Vec<_>>(), [2, 3, 4, 2, 3, 4, 2]);
    assert_eq!(run(&endless, &Arc::default()), (Vec::new(), NO_DATA), "without data it ends");
}

#[test]
fn sequential_reads_with_a_number_of_bytes_start_again_where_the_data_end() {
    let pointers = Arc::default();
    assert_eq!(Varied::on(&zoned("write", 4, ZONES, [1, 1]), &pointers).take(3).count(), 3);
    let rules = Zoned { has_io_bytes: true, ..ZONES };
    let load = Workload { io_size: Some(7 * 4096), ..zoned("read", 4, rules, [1, 1]) };
    assert_eq!(blocks(&load, &pointers), [2, 3, 4, 2, 3, 4, 2]);
}

#[test]
fn sequential_read_of_full_zones_visits_each_block_at_most_once() {
    // No read of two blocks fits at the end of a zone, or no write.
    for (rules, size) in [
        (Zoned { size: 5 * 4096, capacity: 5 * 4096, ..ZONES }, 2),
        (Zoned { size: 5 * 4096, capacity: 4 * 4096, ..ZONES }, 1),
    ] {
        let pointers = Arc::default();
        let (_, end) = run(&zoned("write", 20, rules, [1, 1]), &pointers);
        assert_eq!(end, None);
        let load = zoned("read", 20, rules, [size, 1]);
        let (ops, end) = run(&load, &pointers);
        assert_eq!(end, None, "it has read all");
        let mut starts: Vec<_> = ops.iter().map(|op| op.offset).collect();
        assert!(starts.is_sorted(), "{starts:?}");
        starts.dedup();
        assert_eq!(starts.len(), ops.len(), "{starts:?}");
    }
}

#[test]
fn sequential_read_past_an_empty_zone_ends_early() {
    let pointers = Arc::default();
    let mut writes = zoned("write", 2, ZONES, [1, 1]);
    writes.region.offset += ZONES.size;
    assert_eq!(Varied::on(&writes, &pointers).count(), 2);
    let (ops, end) = run(&zoned("read", 4, ZONES, [1, 1]), &pointers);
    assert_eq!(ops.iter().map(|op| op.offset / 4096).collect::<Vec<_>>(), [4, 5]);
    assert_eq!(end, Some(EarlyEnd { why: Blocked::NoData, left_bytes: Some(2 * 4096) }));
}

#[test]
fn reads_of_a_mixed_job_are_possible_again_after_the_last_zone() {
    let rules = Zoned { capacity: 4096, ..ZONES };
    let load = Workload { io_size: None, ..zoned("rw", 4, rules, [1, 1]) };
    let mut ops = Varied::on(&load, &Arc::default());
    let mut next = |direction| ops.next_as(direction).map(|op| (op.direction, op.offset / 4096));
    for block in [2, 4] {
        assert_eq!(next(Direction::Write), Some((Direction::Write, block)));
    }
    for block in [2, 4] {
        assert_eq!(next(Direction::Read), Some((Direction::Read, block)));
    }
    assert_eq!(ops.possible_direction(Direction::Read), Direction::Read);
    assert_eq!(ops.next_as(Direction::Read).map(|op| op.offset / 4096), Some(2));
}

#[test]
fn mixed_job_writes_while_it_can_read_nothing() {
    let rules = Zoned { size: 16 * 4096, capacity: 16 * 4096, ..ZONES };
    for (word, sizes) in
        [("rw", [1, 1]), ("randrw", [1, 1]), ("randrw", [4, 1]), ("randrw", [1, 4]), ("rw", [3, 1])]
    {
        for endless in [false, true] {
            let mut load = zoned(word, 256, rules, sizes);
            if endless {
                load.io_size = None;
            }
            let (ops, end) = run(&load, &Arc::default());
            let text = format!("{word} {sizes:?} endless: {endless}");
            assert_eq!(end, None, "{text}");
            let bytes: u64 = ops.iter().map(|op| u64::from(op.len)).sum();
            assert!(
                if endless { ops.len() == 1000 } else { bytes >= 256 * 4096 },
                "{text}: {bytes}"
            );
            let smallest = |op: &Op| 4096 * sizes[op.direction.index()];
            assert!(ops.iter().all(|op| op.len >= smallest(op)), "{text}");
            let nr_reads = ops.iter().filter(|op| op.direction == Direction::Read).count();
            assert!(nr_reads * 10 > ops.len(), "{text}: {nr_reads} of {}", ops.len());
        }
    }
}

#[test]
fn mixed_job_reads_only_where_its_own_region_has_data() {
    let pointers = Arc::default();
    let of_clone = |stream: u64| {
        let mut load = zoned("randrw", 16, ZONES, [1, 1]);
        load.region.offset = stream * 16 * 4096;
        Workload { stream, ..load }
    };
    // The first clone writes; the others have not begun.
    assert!(Varied::on(&of_clone(0), &pointers).next().is_some());
    for stream in 1..4 {
        let load = of_clone(stream);
        let mut ops = Varied::on(&load, &pointers);
        assert_eq!(ops.possible_direction(Direction::Read), Direction::Write);
        let op = ops.next_as(Direction::Read).expect("it writes");
        assert_eq!(op.direction, Direction::Write);
        assert!(op.offset >= load.region.offset);
        assert_eq!(ops.possible_direction(Direction::Read), Direction::Read);
        assert_eq!(ops.next_as(Direction::Read).map(|op| op.direction), Some(Direction::Read));
    }
}

#[test]
fn write_that_may_open_no_zone_ends_the_stream_with_a_reason() {
    let rules = Zoned { max_open: 1, ..ZONES };
    let pointers = Arc::default();
    let of_clone = |stream: u64| {
        let mut load = zoned("write", 4, rules, [1, 1]);
        load.region.offset = stream * 4 * 4096;
        Workload { stream, ..load }
    };
    let mut first = Varied::on(&of_clone(0), &pointers);
    assert!(first.next().is_some());
    let mut second = Varied::on(&of_clone(1), &pointers);
    assert_eq!(second.next(), None);
    let end = EarlyEnd { why: Blocked::NoOpenZone, left_bytes: Some(4 * 4096) };
    assert_eq!((second.early_end(), first.early_end()), (Some(end), None));
    pointers.close(0);
    assert!(second.next().is_some(), "the first stream has ended");
    assert_eq!(second.early_end(), None);
}

/// Returns a workload with a step of this many blocks.
fn with_step(mut load: Workload, blocks: i64) -> Workload {
    load.variety.as_mut().expect("a variety").step = blocks * 4096;
    load
}

#[test]
fn mixed_job_with_large_reads_or_a_negative_step_transfers_all_its_bytes() {
    let small = Zoned { size: 16 * 4096, capacity: 12 * 4096, ..ZONES };
    let whole = Zoned { capacity: small.size, ..small };
    for (nr, rules, sizes, step) in [(16, whole, [16, 1], 0), (240, small, [1, 1], -2)] {
        let load = with_step(zoned("rw", nr, rules, sizes), step);
        for io_size in [load.io_size, None] {
            let (ops, end) = run(&Workload { io_size, ..load.clone() }, &Arc::default());
            let text = format!("{sizes:?}, step {step}, {io_size:?}: {} I/Os", ops.len());
            assert_eq!(end, None, "{text}");
            let bytes: u64 = ops.iter().map(|op| u64::from(op.len)).sum();
            assert!(io_size.map_or(ops.len() == 1000, |all| bytes >= all), "{text}");
            let has_reads = ops.iter().any(|op| op.direction == Direction::Read);
            assert!(has_reads || io_size.is_some(), "{text}");
        }
    }
}

#[test]
fn read_of_a_zone_that_lacks_a_part_of_a_block_ends_early() {
    let rules = Zoned { size: 16 * 4096, capacity: 16 * 4096, ..ZONES };
    let pointers = Arc::default();
    let writes = zoned("write", 48, rules, [1, 1]);
    let writes = Workload { io_size: Some(47 * 4096), ..writes };
    assert_eq!(run(&writes, &pointers).0.len(), 47);
    let (ops, end) = run(&zoned("read", 48, rules, [16, 1]), &pointers);
    assert_eq!(ops.len(), 2);
    assert_eq!(end, Some(EarlyEnd { why: Blocked::NoData, left_bytes: Some(16 * 4096) }));
}

#[test]
fn reads_with_a_step_transfer_all_their_bytes_below_the_capacity() {
    let rules = Zoned { size: 16 * 4096, capacity: 12 * 4096, ..ZONES };
    let pointers = Arc::default();
    run(&zoned("write", 256, rules, [1, 1]), &pointers);
    for step in [-2, -20, 2, 5] {
        for offset in [0, rules.size] {
            let mut load = with_step(zoned("read", 256, rules, [1, 1]), step);
            // Reads of the first zone of the file find no data.
            load.region.offset = offset;
            let (ops, end) = run(&load, &pointers);
            assert_eq!((ops.len(), end), (256, None), "step {step}, offset {offset}");
            let is_written = |op: &Op| op.offset >= rules.size && op.offset / 4096 % 16 < 12;
            assert!(ops.iter().all(is_written), "step {step}: {ops:?}");
            if step == -2 && offset > 0 {
                // From block 254 of the region on, which is behind the capacity of the last zone.
                let first: Vec<_> = ops[..13].iter().map(|op| op.offset / 4096 - 16).collect();
                assert_eq!(
                    first,
                    [251, 250, 249, 248, 247, 246, 245, 244, 243, 242, 241, 240, 235]
                );
            }
        }
    }
}

/// Returns zones of 60 KiB at the start of a file, with reads of `blocks` blocks of 4 KiB.
fn on_written_zones(word: &str, region: Region, blocks: u32) -> (Workload, Arc<WritePointers>) {
    let rules = Zoned { size: 15 * 4096, capacity: 15 * 4096, ..ZONES };
    let pointers = Arc::default();
    let mut writes = zoned("write", 16 * 15, rules, [1, 1]);
    writes.region.offset = 0;
    run(&writes, &pointers);
    let load = zoned(word, 1, rules, [blocks, 1]);
    (Workload { region, io_size: Some(region.len), ..load }, pointers)
}

#[test]
fn reads_have_passed_a_last_zone_whose_part_in_the_region_is_smaller_than_a_block() {
    // Three zones, and 12 KiB of the next one.
    let region = Region { offset: 0, len: 48 * 4096 };
    let (load, pointers) = on_written_zones("read", region, 4);
    let (ops, end) = run(&load, &pointers);
    assert_eq!((ops.len(), end), (9, None));
    // With a step, reads start again.
    let mut load = load;
    load.variety.as_mut().expect("a variety").step = 1024;
    let (ops, end) = run(&load, &pointers);
    assert_eq!((ops.len(), end), (12, None));
}

#[test]
fn region_that_holds_no_block_ends_the_reads_with_that_reason() {
    // Ten KiB of a zone, and six of the next one.
    let region = Region { offset: 50 << 10, len: 16 << 10 };
    for (word, step) in [("read", 0), ("read", -8), ("randread", 0)] {
        let (load, pointers) = on_written_zones(word, region, 4);
        for io_size in [load.io_size, None] {
            let load = with_step(Workload { io_size, ..load.clone() }, step);
            let end = EarlyEnd { why: Blocked::NoRoom, left_bytes: io_size };
            assert_eq!(run(&load, &pointers), (Vec::new(), Some(end)), "{word}, step {step}");
        }
    }
}

#[test]
fn reads_of_several_sizes_with_a_negative_step_leave_their_zone() {
    let (mut load, pointers) =
        on_written_zones("read", Region { offset: 0, len: 16 * 15 * 4096 }, 1);
    let variety = load.variety.as_mut().expect("a variety");
    variety.sizes[0] = SizeRule::Range { min: 4096, max: 4 * 4096 };
    variety.step = -2 * 4096;
    let (ops, end) = run(&load, &pointers);
    assert_eq!(end, None);
    let mut zones: Vec<_> = ops.iter().map(|op| op.offset / (15 * 4096)).collect();
    zones.dedup();
    assert!(zones.len() > 3, "{zones:?}");
}

#[test]
fn bytes_left_are_at_most_those_of_the_ios_left() {
    let mut load = zoned("read", 40, ZONES, [2, 1]);
    load.variety.as_mut().expect("a variety").number_ios = Some(5);
    let end = EarlyEnd { why: Blocked::NoData, left_bytes: Some(5 * 2 * 4096) };
    assert_eq!(run(&load, &Arc::default()).1, Some(end));
}
