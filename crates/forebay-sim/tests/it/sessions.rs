//! NBD sessions of four connections, from many seeds: what clients see is what registers would do,
//! losses of power included; and a server that lies in one way is caught.

use forebay_sim::sessions::{Failure, Lie, Summary, run_seed};
use std::panic::{catch_unwind, set_hook, take_hook};

/// How many seeds are tried.
const NR_SEEDS: u64 = 200;
/// And by `cargo xtask sessions`.
const NR_SEEDS_OF_GATE: u64 = 8_000;
/// Within how many seeds a lie must be caught.
const NR_SEEDS_OF_LIE: u64 = 100;

#[test]
fn four_connections_see_registers_whatever_their_pipes_do() {
    check(0..NR_SEEDS);
}

/// Takes a minute with optimization.
#[test]
#[ignore = "cargo xtask sessions"]
fn many_sessions_see_registers() {
    check(NR_SEEDS..NR_SEEDS_OF_GATE);
}

#[allow(clippy::print_stdout)]
fn check(seeds: std::ops::Range<u64>) {
    let nr_seeds = seeds.end - seeds.start;
    let mut all = Summary::default();
    for seed in seeds {
        let summary = run_seed(seed, None);
        let summary = summary.unwrap_or_else(|failure| panic!("seed {seed}: {failure:?}"));
        all.nr_good += summary.nr_good;
        all.nr_failed += summary.nr_failed;
        all.nr_hung_up += summary.nr_hung_up;
        all.nr_racing_reads += summary.nr_racing_reads;
        all.nr_in_pieces += summary.nr_in_pieces;
        all.nr_late_failures += summary.nr_late_failures;
        all.nr_merged += summary.nr_merged;
        for (of_all, nr) in all.nr_framings.iter_mut().zip(summary.nr_framings) {
            *of_all += nr;
        }
    }
    println!("{all:?}");
    // Together they must have met everything.
    assert!(all.nr_good > 50 * nr_seeds, "{all:?}");
    let others = [
        all.nr_failed,
        all.nr_hung_up,
        all.nr_racing_reads,
        all.nr_in_pieces,
        all.nr_late_failures,
        all.nr_merged,
    ];
    let met = others.into_iter().chain(all.nr_framings).min();
    assert!(met > Some(nr_seeds / 4), "{all:?}");
}

#[test]
fn every_lie_of_a_server_is_caught() {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let found: Vec<_> = Lie::ALL.into_iter().map(|lie| (lie, find(lie))).collect();
    set_hook(hook);
    println!("{:<18} {:>5}  caught as", "lie", "seeds");
    for (lie, found) in &found {
        println!("{:<18} {found:?}", format!("{lie:?}"));
    }
    for (lie, found) in found {
        assert!(found.is_some(), "{lie:?} is not caught");
    }
}

/// After how many seeds it is caught, and as what.
fn find(lie: Lie) -> Option<(u64, String)> {
    (0..NR_SEEDS_OF_LIE).find_map(|seed| {
        let what = match catch_unwind(|| run_seed(seed, Some(lie))) {
            Ok(Ok(_)) => return None,
            Ok(Err(Failure::Anomaly(anomaly))) => format!("{:?}", anomaly.rule),
            Ok(Err(Failure::Broken(what))) => what,
            Ok(Err(Failure::Stall(_))) => "a stall".to_owned(),
            Err(_) => "a panic".to_owned(),
        };
        Some((seed + 1, what))
    })
}

#[test]
fn the_same_seed_does_the_same() {
    for seed in 0..10 {
        let [first, second] = [0, 1].map(|_| format!("{:?}", run_seed(seed, None)));
        assert_eq!(first, second, "seed {seed}");
    }
}
