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

/// Checks that each seed does the same again, and that different seeds do not.
pub(crate) fn check_repeats(run: impl Fn(u64) -> Run) {
    let hash = |seed| run(seed).map(|summary| summary.hash).ok();
    let hashes: Vec<_> = (0..20).map(hash).collect();
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
