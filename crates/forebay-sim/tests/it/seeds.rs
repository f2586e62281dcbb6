//! Swarm seeds: they break no rule, are reproducible, and together produce every kind of event.

use forebay_sim::{Options, Reached, run_seed};

const NR_SEEDS: u64 = 500;

#[test]
fn no_seed_breaks_a_rule_and_together_they_meet_everything() {
    let mut reached = Reached::default();
    let mut nr_bios = 0;
    for seed in 0..NR_SEEDS {
        match run_seed(seed, &Options::default()) {
            Ok(summary) => {
                nr_bios += summary.nr_bios;
                reached.add(&summary);
            }
            Err(violation) => panic!("{violation}"),
        }
    }
    println!("{nr_bios} bios: {:?}", reached.counts());
    for (what, nr) in reached.counts() {
        assert!(*nr > 0, "no seed has met any {what}");
    }
}

#[test]
fn the_same_seed_does_the_same_and_another_does_not() {
    let hash = |seed| run_seed(seed, &Options::default()).map(|summary| summary.hash);
    let hashes: Vec<_> = (0..20).map(|seed| hash(seed).unwrap_or(seed)).collect();
    assert!((0..20).all(|seed| hash(seed).unwrap_or(seed) == hashes[seed as usize]));
    let mut distinct = hashes.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), hashes.len());
}
