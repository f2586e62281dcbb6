//! Rings of virtio-blk in the simulator: seeds must break no rule and produce every kind of event.
//! Guests must find the planted bugs.

use crate::plants::check_found;
use crate::server::{check_repeats, check_seeds, search, selected_part};
use forebay_sim::ServerPlant;
use forebay_sim::blk::{BlkOptions, run_blk_seed};

const NR_SEEDS: u64 = 500;
/// Seeds of `cargo xtask sessions --all`.
const NR_SEEDS_OF_GATE: u64 = 10_000;
/// Within how many seeds a planted bug must be found.
const NR_SEEDS_PLANTED: u64 = 1000;

#[test]
fn no_seed_of_blk_breaks_a_rule_and_together_they_meet_everything() {
    check_seeds(0..NR_SEEDS, |seed| run_blk_seed(seed, &BlkOptions::default()));
}

#[test]
#[ignore = "more than a minute, optimized; each CI run executes a quarter: cargo xtask sessions"]
fn thousands_of_seeds_of_blk_break_no_rule() {
    let seeds = selected_part(NR_SEEDS..NR_SEEDS_OF_GATE);
    check_seeds(seeds, |seed| run_blk_seed(seed, &BlkOptions::default()));
}

#[test]
fn the_same_seed_of_blk_does_the_same_and_another_does_not() {
    check_repeats(|seed| run_blk_seed(seed, &BlkOptions::default()));
}

#[test]
fn every_planted_bug_of_blk_is_found_by_guests() {
    check_found(ServerPlant::of_blk(), |plant| {
        let options = BlkOptions { plant: Some(plant), ..BlkOptions::default() };
        search(NR_SEEDS_PLANTED, |seed| run_blk_seed(seed, &options))
    });
}
