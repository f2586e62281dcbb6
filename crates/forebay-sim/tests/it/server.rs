//! Checks of seeds of a simulated server, for each protocol of its clients.

use crate::plants::Found;
use forebay_sim::{ServerSummary, Violation};
use std::collections::BTreeMap;
use std::ops::Range;

/// Result of a run.
type Run = Result<ServerSummary, Box<Violation>>;

/// Runs seeds, and checks that every kind of event happened.
#[allow(clippy::print_stdout, reason = "a test says how much it has tried")]
pub(crate) fn check_seeds(seeds: Range<u64>, run: impl Fn(u64) -> Run) {
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds.clone() {
        let summary = run(seed).unwrap_or_else(|violation| panic!("{violation}"));
        summary.met.iter().for_each(|(name, nr)| *met.entry(name).or_default() += nr);
    }
    println!("seeds {seeds:?}: {met:?}");
    let never: Vec<_> = met.iter().filter(|(_, nr)| **nr == 0).map(|(name, _)| name).collect();
    assert!(never.is_empty(), "no seed has met {never:?}");
}

/// Returns the part of these seeds that `FOREBAY_SEEDS_PART` selects: `0/2` is the first half.
/// Without the variable, returns all of them.
pub(crate) fn selected_part(seeds: Range<u64>) -> Range<u64> {
    let Ok(part) = std::env::var("FOREBAY_SEEDS_PART") else { return seeds };
    let (number, nr_parts) = part.split_once('/').expect("NUMBER/PARTS");
    let [number, nr_parts] =
        [number, nr_parts].map(|text| text.parse::<u64>().expect("FOREBAY_SEEDS_PART"));
    part_of(seeds, number, nr_parts)
}

fn part_of(seeds: Range<u64>, number: u64, nr_parts: u64) -> Range<u64> {
    let nr = seeds.end - seeds.start;
    let begin = |number| seeds.start + nr * number / nr_parts;
    begin(number)..begin(number + 1)
}

#[test]
fn parts_of_seeds_have_each_seed_once() {
    let parts: Vec<u64> = (0..3).flat_map(|number| part_of(250..1000, number, 3)).collect();
    assert_eq!(parts, (250..1000).collect::<Vec<_>>());
    assert_eq!(part_of(500..10_000, 1, 2), 5250..10_000);
}

/// Checks that each seed does the same again, and that different seeds do not.
pub(crate) fn check_repeats(run: impl Fn(u64) -> Run) {
    check_hashes(|seed| run(seed).map(|summary| summary.hash).ok());
}

/// The same for the hashes of the runs.
pub(crate) fn check_hashes<H: Ord + Clone>(hash: impl Fn(u64) -> H) {
    let hashes: Vec<_> = (0..20).map(&hash).collect();
    assert!((0..20).all(|seed| hash(seed) == hashes[seed as usize]));
    let mut distinct = hashes.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), hashes.len());
}

/// Returns after how many seeds a rule is broken, and which one.
pub(crate) fn search(nr_seeds: u64, run: impl Fn(u64) -> Run) -> Found {
    (0..nr_seeds).find_map(|seed| {
        let violation = run(seed).err()?;
        Some((seed + 1, format!("{}: {}", violation.rule, violation.what)))
    })
}
