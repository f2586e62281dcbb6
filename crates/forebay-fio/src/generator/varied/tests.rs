//! Streams of several sizes keep their shares, stay inside, and visit what they should.

use super::super::{Pattern, Region};
use super::*;

mod strided;
mod zoned;

fn variety(rule: SizeRule) -> Variety {
    Variety {
        sizes: [rule.clone(), rule.clone(), rule],
        unaligned: false,
        align: [None; 3],
        distribution: Distribution::Random,
        percentage_random: [100; 3],
        step: 0,
        identical: false,
        number_ios: None,
        zones: None,
        zoned: None,
    }
}

fn workload(word: &str, len: u64, variety: Variety) -> Workload {
    let pattern = Pattern::from_word(word).expect("a word of fio");
    let sizes = pattern.directions().map(|direction| variety.sizes[direction.index()].min());
    let bs = sizes.min().expect("one");
    Workload {
        pattern,
        rwmixread: 50,
        bs,
        region: Region { offset: 8192, len },
        io_size: Some(len),
        norandommap: false,
        seed: 0x89,
        stream: 0,
        variety: Some(Box::new(variety)),
    }
}

fn offsets(load: &Workload) -> Vec<u64> {
    Varied::new(load).map(|op| (op.offset - 8192) / 1024).collect()
}

#[test]
fn sequential_blocks_of_several_sizes_leave_no_hole() {
    let load = workload("read", 1 << 20, variety(SizeRule::Range { min: 1024, max: 7168 }));
    let mut next = 8192;
    for op in Varied::new(&load) {
        assert_eq!(op.offset, next);
        next += u64::from(op.len);
    }
    assert_eq!(next, 8192 + (1 << 20));
}

#[test]
fn sequential_pass_ends_where_no_size_fits() {
    let mut variety = variety(SizeRule::Range { min: 1000, max: 5000 });
    variety.unaligned = true;
    let load = workload("read", 100_000, variety);
    for passes in 1..4 {
        let load = Workload { io_size: Some(passes * 100_000), ..load.clone() };
        let ops: Vec<_> = Varied::new(&load).collect();
        let nr = ops.iter().filter(|op| op.offset == 8192).count();
        assert_eq!(nr as u64, passes, "{ops:?}");
        let bytes: u64 = ops.iter().map(|op| u64::from(op.len)).sum();
        assert!((passes * 99_000..=passes * 100_000).contains(&bytes), "{bytes}");
    }
}

#[test]
fn a_random_pass_covers_every_byte_once_with_any_sizes() {
    let split = SizeRule::Split(vec![(4096, 30), (16_384, 50), (65_536, 20)]);
    let load = workload("randrw", 4 << 20, variety(split));
    let mut covered = vec![0_u8; 1024];
    for op in Varied::new(&load) {
        assert_eq!(op.len % 4096, 0);
        let first = (op.offset - 8192) / 4096;
        (first..first + u64::from(op.len / 4096)).for_each(|at| covered[at as usize] += 1);
    }
    assert!(covered.iter().all(|&n| n == 1));
}

#[test]
fn the_next_pass_covers_all_of_it_again_in_another_order() {
    let mut load = workload("randread", 64 << 10, variety(SizeRule::Fixed(1024)));
    load.io_size = Some(128 << 10);
    let offsets = offsets(&load);
    assert_eq!(offsets.len(), 128);
    assert_ne!(offsets[..64], offsets[64..]);
    let mut second = offsets[64..].to_vec();
    second.sort_unstable();
    assert_eq!(second, (0..64).collect::<Vec<_>>());
}

#[test]
fn directions_have_sizes_of_their_own() {
    let mut variety = variety(SizeRule::Fixed(4096));
    variety.sizes[1] = SizeRule::Fixed(8192);
    let mut load = workload("randrw", 1 << 24, variety);
    load.norandommap = true;
    for op in Varied::new(&load) {
        assert_eq!(op.len, if op.direction == Direction::Read { 4096 } else { 8192 });
        assert_eq!((op.offset - 8192) % u64::from(op.len), 0);
    }
}

#[test]
fn unaligned_sizes_stay_inside() {
    let mut variety = variety(SizeRule::Range { min: 1000, max: 5000 });
    variety.unaligned = true;
    variety.align = [Some(512); 3];
    let load = workload("randread", 100_000, variety);
    for op in Varied::new(&load) {
        assert_eq!((op.offset - 8192) % 512 * u64::from(op.offset + 1000 <= 8192 + 99_000), 0);
        assert!(op.offset + u64::from(op.len) <= 8192 + 100_000, "{op:?}");
    }
}

#[test]
fn sequential_io_leaves_out_what_the_colon_says() {
    let mut variety = variety(SizeRule::Fixed(1024));
    variety.step = 2048;
    let mut load = workload("read", 8 << 10, variety);
    load.io_size = Some(5 << 10);
    assert_eq!(offsets(&load), [0, 3, 6, 0, 3]);
    load.variety.as_mut().expect("a variety").identical = true;
    assert_eq!(offsets(&load), [0, 3, 6, 0, 3], "as fio 3.33 has it");
}

#[test]
fn random_io_seeks_after_so_many() {
    let mut variety = variety(SizeRule::Fixed(1024));
    variety.step = 4;
    let mut load = workload("randread", 1 << 20, variety.clone());
    load.norandommap = true;
    let follows = |offsets: &[u64]| {
        offsets.chunks(4).all(|run| run.windows(2).all(|pair| pair[1] == pair[0] + 1))
    };
    let runs = offsets(&load);
    assert!(follows(&runs[..512]), "{runs:?}");
    variety.identical = true;
    load.variety = Some(Box::new(variety));
    let runs = offsets(&load);
    assert!(runs.chunks(4).all(|run| run.iter().all(|&at| at == run[0])));
}

#[test]
fn part_of_the_io_is_sequential() {
    let mut variety = variety(SizeRule::Fixed(1024));
    variety.percentage_random = [25; 3];
    let mut load = workload("randread", 10 << 20, variety);
    load.norandommap = true;
    let offsets = offsets(&load);
    let follow = offsets.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
    assert!((follow as f64 / offsets.len() as f64 - 0.75).abs() < 0.03, "{follow}");
}

#[test]
fn the_number_of_ios_ends_the_stream() {
    let mut variety = variety(SizeRule::Fixed(1024));
    variety.number_ios = Some(7);
    assert_eq!(offsets(&workload("read", 1 << 20, variety)).len(), 7);
}

/// Returns the blocks of zones of `size` bytes, of which `range` bytes are used.
fn zone_blocks(word: &str, blocks: u64, [size, range, skip]: [u64; 3], nr: usize) -> Vec<u64> {
    let zones = Some(Strided { size: size * 512, range: range * 512, skip: skip * 512 });
    let variety = Variety { zones, ..variety(SizeRule::Fixed(512)) };
    let mut workload = workload(word, blocks * 512, variety);
    workload.io_size = None;
    Varied::new(&workload).take(nr).map(|op| (op.offset - 8192) / 512).collect()
}

#[test]
fn last_zone_ends_with_the_file() {
    let blocks = zone_blocks("read", 14, [4, 4, 2], 16);
    assert_eq!(blocks, [0, 1, 2, 3, 6, 7, 8, 9, 12, 13, 12, 13, 0, 1, 2, 3]);
    for word in ["randread", "randrw"] {
        let mut blocks = zone_blocks(word, 14, [4, 4, 2], 1000);
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!(blocks, [0, 1, 2, 3, 6, 7, 8, 9, 12, 13], "{word}");
    }
}

#[test]
fn backward_io_in_zones_continues_at_the_end_of_its_zone() {
    let blocks = |range: u64, step: i64, nr| {
        let zones = Some(Strided { size: 2048, range: range * 512, skip: 2048 });
        let variety = Variety { zones, step: step * 512, ..variety(SizeRule::Fixed(512)) };
        let workload = Workload { io_size: None, ..workload("write", 22 * 512, variety) };
        let ops = Varied::new(&workload).take(nr);
        ops.map(|op| (op.offset - 8192) / 512).collect::<Vec<_>>()
    };
    // Zones begin at the blocks 0, 8 and 16.
    assert_eq!(blocks(4, -2, 12), [0, 2, 1, 0, 8, 10, 9, 8, 16, 18, 17, 16]);
    assert_eq!(blocks(4, -9, 8), [0, 0, 0, 0, 8, 8, 8, 8], "longer than a zone");
    // Zones of eight blocks at 0 and 12; the next one would be past the end.
    assert_eq!(blocks(8, -2, 9), [0, 6, 5, 4, 12, 18, 17, 16, 0]);
}

#[test]
fn small_range_is_visited_several_times() {
    let blocks = zone_blocks("randread", 64, [8, 4, 12], 24);
    for (zone, visits) in blocks.chunks(8).enumerate() {
        for visit in visits.chunks(4) {
            let mut visit = visit.to_vec();
            visit.sort_unstable();
            let start = zone as u64 * 16;
            assert_eq!(visit, [start, start + 1, start + 2, start + 3]);
        }
    }
}

#[test]
fn drawn_offsets_stay_in_their_zone() {
    let zones = Some(Strided { size: 4096, range: 2048, skip: 1024 });
    let distribution = Distribution::Zipf(1.2);
    let variety = Variety { zones, distribution, ..variety(SizeRule::Fixed(512)) };
    let mut workload = workload("randread", 20 * 512, variety);
    workload.io_size = None;
    for (at, op) in Varied::new(&workload).take(400).enumerate() {
        // Zones begin at the blocks 0, 6, 12 and 18; the last one has two blocks.
        let (zone, block) = (at as u64 / 8 % 4 * 6, (op.offset - 8192) / 512);
        assert!((zone..(zone + 4).min(20)).contains(&block), "{at}: {block}");
    }
}

#[test]
fn backward_io_continues_at_the_end_of_the_region() {
    let mut variety = variety(SizeRule::Fixed(1024));
    variety.step = -2048;
    let mut load = workload("read", 4 << 10, variety);
    load.io_size = Some(7 << 10);
    assert_eq!(offsets(&load), [2, 1, 0, 2, 1, 0, 2]);
    load.region.offset = 0;
    let blocks: Vec<_> = Varied::new(&load).map(|op| op.offset / 1024).collect();
    assert_eq!(blocks, [0, 2, 1, 0, 2, 1, 0], "as in fio, the first one is at the start of a file");
    load.variety.as_mut().expect("a variety").step = -1 << 20;
    assert!(Varied::new(&load).all(|op| op.offset == 0), "the step is longer than the region");
}

#[test]
fn last_drawn_offset_is_aligned_too() {
    let mut variety = variety(SizeRule::Fixed(4096));
    variety.align = [Some(512); 3];
    let mut load = workload("randread", 100_100, variety);
    load.io_size = Some(8 << 20);
    let mut ops = Varied::new(&load);
    assert!(ops.all(|op| (op.offset - 8192) % 512 == 0 && op.offset - 8192 <= 100_100 - 4096));
}
