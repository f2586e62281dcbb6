//! Duplicates have their share, chunks their zeros, and sectors their changes.

use std::collections::HashSet;

use super::*;

const BLOCK: usize = 4096;
const OWN: Member = Member { seed: 7, stream: 1, nr_parts: 100 };
const OTHER: Member = Member { seed: 7, stream: 2, nr_parts: 100 };

/// Returns the blocks of `nr` writes.
fn blocks(options: &DataOptions, own: Member, set: &[Member], nr: usize) -> Vec<Vec<u8>> {
    let mut contents = Contents::new(options, None, BLOCK as u32, own, set.to_vec());
    let block = |_| {
        let mut block = vec![0xaa; BLOCK];
        contents.fill(&mut block);
        block
    };
    (0..nr).map(block).collect()
}

fn unique(blocks: &[Vec<u8>]) -> HashSet<&[u8]> {
    blocks.iter().map(Vec::as_slice).collect()
}

#[test]
fn duplicates_have_their_share() {
    for (dedupe, expected) in [(0, 1000..=1000), (30, 650..=750), (90, 70..=130), (100, 1..=1)] {
        let options = DataOptions { dedupe, compress: Some(0), ..DataOptions::default() };
        let blocks = blocks(&options, OWN, &[], 1000);
        let nr = unique(&blocks).len();
        assert!(expected.contains(&nr), "{dedupe}: {nr}");
        // Each duplicate follows the data that it repeats.
        let starts = blocks.chunk_by(|a, b| a == b).count();
        assert_eq!(starts, nr, "{dedupe}");
    }
}

/// As in files that fio 3.33 has written with `bsrange`. Equal blocks within one write would make
/// the data far more compressible than `buffer_compress_percentage`.
#[test]
fn write_of_any_length_is_a_duplicate_as_a_whole() {
    for (has_working_set, set) in [(false, vec![]), (true, vec![OWN])] {
        let options = DataOptions { dedupe: 80, has_working_set, ..DataOptions::default() };
        let mut contents = Contents::new(&options, None, BLOCK as u32, OWN, set);
        let mut data = Vec::new();
        for nr_blocks in (1..=16).cycle().take(640) {
            let mut write = vec![0xaa; nr_blocks * BLOCK];
            contents.fill(&mut write);
            let blocks: Vec<_> = write.chunks(BLOCK).map(<[u8]>::to_vec).collect();
            assert_eq!(unique(&blocks).len(), nr_blocks, "no block repeats one of its own write");
            data.extend(blocks);
        }
        let percent = unique(&data).len() * 100 / data.len();
        assert!((17..=23).contains(&percent), "{percent}");
    }
}

#[test]
fn duplicates_of_a_working_set_are_of_the_first_blocks() {
    let options = DataOptions { dedupe: 50, has_working_set: true, ..DataOptions::default() };
    let all = blocks(&options, OWN, &[OWN], 2000);
    let nr = unique(&all).len();
    assert!((950..=1100).contains(&nr), "{nr}");
    // New data are in the order of their numbers.
    let new = DataOptions { dedupe: 0, compress: Some(0), ..DataOptions::default() };
    let first = blocks(&new, OWN, &[], 100);
    let first = unique(&first);
    let nr_of_first = all.iter().filter(|block| first.contains(block.as_slice())).count();
    assert!((1000..=1200).contains(&nr_of_first), "{nr_of_first}");
}

#[test]
fn clones_share_a_global_set() {
    let options = DataOptions {
        dedupe: 50,
        has_working_set: true,
        is_global: true,
        ..DataOptions::default()
    };
    let [a, b] = [OWN, OTHER].map(|own| blocks(&options, own, &[OWN, OTHER], 1000));
    let both = unique(&a).intersection(&unique(&b)).count();
    // Almost all of the 200 blocks of the set.
    assert!((180..=200).contains(&both), "{both}");
    let [a, b] = [OWN, OTHER].map(|own| blocks(&options, own, &[own], 1000));
    assert_eq!(unique(&a).intersection(&unique(&b)).count(), 0);
}

#[test]
fn each_chunk_ends_with_its_share_of_zeros_or_of_the_pattern() {
    let zeros = |options: &DataOptions| {
        let block = &blocks(options, OWN, &[], 1)[0];
        let is_zero: Vec<_> = block.chunks(8).map(|part| part == [0; 8]).collect();
        is_zero.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() * 8)).collect::<Vec<_>>()
    };
    let options = DataOptions { compress: Some(75), ..DataOptions::default() };
    assert_eq!(zeros(&options), [(false, 128), (true, 384)].repeat(8));
    let whole = DataOptions { chunk: Some(0), ..options.clone() };
    assert_eq!(zeros(&whole), [(false, 1024), (true, 3072)]);
    let odd = DataOptions { chunk: Some(3072), compress: Some(50), ..options };
    assert_eq!(zeros(&odd), [(false, 1536), (true, 1536), (false, 512), (true, 512)]);

    let pattern = Pattern::parse("\"abc\"", false).expect("a pattern");
    let options = DataOptions { compress: Some(50), ..DataOptions::default() };
    let mut contents = Contents::new(&options, Some(&pattern), 4096, OWN, Vec::new());
    let mut block = vec![0; BLOCK];
    contents.fill(&mut block);
    assert_eq!(block[256..264], *b"abcabcab");
    assert_eq!(block[768..776], *b"abcabcab");
}

#[test]
fn scrambling_changes_each_sector_and_little_of_it() {
    let first = vec![0; 8192];
    let mut seen = HashSet::new();
    for number in 0..20 {
        let mut block = first.clone();
        scramble(&mut block, 1 << 20, number);
        for sector in block.chunks(512) {
            assert!(sector.iter().filter(|&&byte| byte != 0).count() <= 16);
            assert!(seen.insert(sector.to_vec()), "{number}");
        }
    }
}
