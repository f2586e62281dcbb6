//! NBD sessions in the simulator: seeds must break no rule and produce every kind of event. Clients
//! of either kind alone must find the planted bugs.

use crate::plants::{Found, look_for};
use forebay_sim::nbd::{NbdClient, NbdOptions, NbdPlant, run_nbd_seed};
use std::collections::BTreeMap;

const NR_SEEDS: u64 = 250;
/// Seeds of `cargo xtask sessions`.
const NR_SEEDS_OF_GATE: u64 = 20_000;
/// Within how many seeds a planted bug must be found.
const NR_SEEDS_PLANTED: u64 = 1000;

/// Runs seeds, and checks that every kind of event happened.
#[allow(clippy::print_stdout, reason = "a test says how much it has tried")]
fn run_all(seeds: std::ops::Range<u64>) {
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds.clone() {
        match run_nbd_seed(seed, &NbdOptions::default()) {
            Ok(summary) => {
                summary.met.iter().for_each(|(name, nr)| *met.entry(name).or_default() += nr)
            }
            Err(violation) => panic!("{violation}"),
        }
    }
    println!("seeds {seeds:?}: {met:?}");
    let never: Vec<_> = met.iter().filter(|(_, nr)| **nr == 0).map(|(name, _)| name).collect();
    assert!(never.is_empty(), "no seed has met {never:?}");
}

#[test]
fn no_seed_of_nbd_breaks_a_rule_and_together_they_meet_everything() {
    run_all(0..NR_SEEDS);
}

#[test]
#[ignore = "more than a minute, optimized; every CI run makes it: cargo xtask sessions"]
fn thousands_of_seeds_of_nbd_break_no_rule() {
    run_all(NR_SEEDS..NR_SEEDS_OF_GATE);
}

#[test]
fn the_same_seed_of_nbd_does_the_same_and_another_does_not() {
    let hash = |seed| run_nbd_seed(seed, &NbdOptions::default()).map(|summary| summary.hash).ok();
    let hashes: Vec<_> = (0..20).map(hash).collect();
    assert!((0..20).all(|seed| hash(seed) == hashes[seed as usize]));
    let mut distinct = hashes.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), hashes.len());
}

#[test]
fn clients_of_either_kind_alone_break_no_rule() {
    for client in [NbdClient::Own, NbdClient::Library] {
        let options = NbdOptions { client: Some(client), ..NbdOptions::default() };
        let met = |seed, name| {
            let summary = run_nbd_seed(seed, &options).unwrap_or_else(|found| panic!("{found}"));
            summary.met.iter().find(|(other, _)| *other == name).map_or(0, |(_, nr)| *nr)
        };
        let nr_of_library: u64 = (0..20).map(|seed| met(seed, "LibraryExtended")).sum();
        assert_eq!(nr_of_library > 0, client == NbdClient::Library);
    }
}

#[test]
fn every_planted_bug_of_nbd_is_found_by_clients_that_parse_by_themselves() {
    check_all_found(NbdClient::Own);
}

#[test]
fn every_planted_bug_of_nbd_is_found_by_clients_that_are_the_library() {
    check_all_found(NbdClient::Library);
}

fn check_all_found(client: NbdClient) {
    for (plant, found) in look_for(NbdPlant::all(), |plant| find(plant, client)) {
        let Some((_, found)) = found else { panic!("{plant:?} is not found by {client:?}") };
        let rule = plant.breaks();
        assert!(found.starts_with(rule), "{plant:?} breaks {rule:?}, and {client:?} finds {found}");
    }
}

/// Returns after how many seeds the bug is found, and by which rule.
fn find(plant: NbdPlant, client: NbdClient) -> Found {
    let options = NbdOptions { plant: Some(plant), client: Some(client), ..NbdOptions::default() };
    (0..NR_SEEDS_PLANTED).find_map(|seed| {
        let violation = run_nbd_seed(seed, &options).err()?;
        Some((seed + 1, format!("{}: {}", violation.rule, violation.what)))
    })
}
