//! NBD sessions in the simulator: seeds must break no rule and produce every kind of event. Clients
//! of either kind alone must find the planted bugs.

use crate::plants::{Found, check_found};
use crate::server::{check_repeats, check_seeds, search, selected_part};
use forebay_sim::ServerPlant;
use forebay_sim::nbd::{NbdClient, NbdOptions, run_nbd_seed};
use std::ops::Range;

const NR_SEEDS: u64 = 250;
/// Seeds of `cargo xtask sessions --all`.
const NR_SEEDS_OF_GATE: u64 = 20_000;
/// Within how many seeds a planted bug must be found.
const NR_SEEDS_PLANTED: u64 = 1000;

fn run_all(seeds: Range<u64>) {
    check_seeds(seeds, |seed| run_nbd_seed(seed, &NbdOptions::default()));
}

#[test]
fn no_seed_of_nbd_breaks_a_rule_and_together_they_meet_everything() {
    run_all(0..NR_SEEDS);
}

#[test]
#[ignore = "more than a minute, optimized; each CI run executes a quarter: cargo xtask sessions"]
fn thousands_of_seeds_of_nbd_break_no_rule() {
    run_all(selected_part(NR_SEEDS..NR_SEEDS_OF_GATE));
}

#[test]
fn the_same_seed_of_nbd_does_the_same_and_another_does_not() {
    check_repeats(|seed| run_nbd_seed(seed, &NbdOptions::default()));
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
    check_found(ServerPlant::of_nbd(), |plant| find(plant, client));
}

/// Returns after how many seeds the bug is found, and by which rule.
fn find(plant: ServerPlant, client: NbdClient) -> Found {
    let options = NbdOptions { plant: Some(plant), client: Some(client), ..NbdOptions::default() };
    search(NR_SEEDS_PLANTED, |seed| run_nbd_seed(seed, &options))
}
