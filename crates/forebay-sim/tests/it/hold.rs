//! The adaptive hold: random programs break no rule and produce every kind of event; loads with and
//! without it are compared; the planted bugs are found.

use crate::plants::check_found;
use crate::server::check_hashes;
use forebay_core::HoldLimits;
use forebay_sim::DeviceSpec;
use forebay_sim::hold::{
    HoldLoad, HoldMix, HoldOptions, HoldPlant, HoldSummary, run_hold, run_hold_seed,
};
use std::collections::BTreeMap;

const NR_SEEDS: u64 = 2000;
/// Within how many seeds a planted bug must be found.
const NR_SEEDS_PLANTED: u64 = 1000;

fn run(load: &HoldLoad) -> HoldSummary {
    run_hold(1, load).unwrap_or_else(|violation| panic!("{violation}"))
}

/// Runs a load with the hold, and without it.
fn both(load: &HoldLoad) -> (HoldSummary, HoldSummary) {
    assert!(load.hold.is_some());
    (run(load), run(&HoldLoad { hold: None, ..load.clone() }))
}

/// Returns a load with so many bios outstanding.
fn load(mix: HoldMix, depth: u32) -> HoldLoad {
    HoldLoad { mix, depth, ..HoldLoad::default() }
}

#[test]
fn no_seed_of_the_hold_breaks_a_rule_and_together_they_meet_everything() {
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..NR_SEEDS {
        let run = run_hold_seed(seed, &HoldOptions::default());
        let summary = run.unwrap_or_else(|violation| panic!("{violation}"));
        summary.met.iter().for_each(|(name, nr)| *met.entry(name).or_default() += nr);
    }
    println!("{met:?}");
    let never: Vec<_> = met.iter().filter(|(_, nr)| **nr == 0).collect();
    assert!(never.is_empty(), "no seed has met {never:?}");
}

#[test]
fn same_seed_of_the_hold_does_the_same_and_another_does_not() {
    let run = |seed| run_hold_seed(seed, &HoldOptions::default());
    check_hashes(|seed| run(seed).map(|summary| summary.hash).ok());
}

/// Returns how many bios a request of the run has on average.
fn bios_per_request(summary: &HoldSummary) -> f64 {
    f64::from(HoldLoad::default().nr_bios) / summary.requests.len() as f64
}

/// Returns the time of the first run as a part of that of the second one.
fn part(one: &HoldSummary, other: &HoldSummary) -> f64 {
    one.now_ns as f64 / other.now_ns as f64
}

#[test]
fn sequential_reads_one_by_one_become_a_sixteenth_of_the_requests_and_take_less_time() {
    let one_group = HoldLimits { groups: 1, ..HoldLimits::default() };
    for (depth, hold, nr_bios) in [
        // Bios that have ended are not outstanding, so an eighth is less than 16 at times.
        (128, HoldLimits::default(), 13.5),
        (128, one_group, 15.5),
        (256, HoldLimits::default(), 15.5),
    ] {
        let (held, off) = both(&HoldLoad { hold: Some(hold), ..load(HoldMix::SEQUENTIAL, depth) });
        println!("{depth}: {} and {}", bios_per_request(&held), part(&held, &off));
        assert_eq!((bios_per_request(&off), off.nr_held), (1.0, 0));
        assert!(bios_per_request(&held) > nr_bios);
        assert!(part(&held, &off) < 0.1);
    }
}

#[test]
fn deep_sequential_reads_take_no_longer_on_published_devices() {
    for device in ["ssd-sas", "nvme", "virtio-ram"] {
        let load = HoldLoad { device: device.parse().expect("a device"), ..HoldLoad::default() };
        let (held, off) = both(&load);
        println!("{device}: {} and {}", bios_per_request(&held), part(&held, &off));
        assert!(bios_per_request(&held) > 10.0);
        assert!(part(&held, &off) < 1.01);
    }
}

/// Such a device loses the time in which a read waits for the next ones, and gains nothing.
#[test]
fn shallow_reads_on_a_device_without_a_cost_per_request_take_at_most_a_fifth_longer() {
    let device: DeviceSpec = "nvme".parse().expect("a device");
    for depth in [16, 24, 32, 48, 64, 96] {
        let load = HoldLoad { device: device.clone(), ..load(HoldMix::SEQUENTIAL, depth) };
        let (held, off) = both(&load);
        println!("{depth}: {} and {}", bios_per_request(&held), part(&held, &off));
        assert!((0.98..1.2).contains(&part(&held, &off)));
    }
}

/// The last bios before such a wait have no successor. Without the release they wait until the
/// device is idle.
#[test]
fn waits_for_all_bios_take_no_longer_if_the_held_ones_are_passed_on_first() {
    for device in ["fixed", "ssd-sas", "nvme"] {
        for depth in [16, 32, 64, 128] {
            let with = HoldLoad {
                device: device.parse().expect("a device"),
                nr_awaited: depth,
                ..load(HoldMix::SEQUENTIAL, depth)
            };
            let (held, off) = both(&with);
            let without = run(&HoldLoad { passes_on_before_waits: false, ..with });
            println!("{device} {depth}: {} and {}", part(&held, &off), part(&without, &off));
            assert!(part(&held, &off) < 1.01);
            // It is needed.
            assert!(depth > 16 || part(&without, &off) > 1.4);
        }
    }
}

#[test]
fn random_reads_become_the_same_requests_at_the_same_times() {
    for depth in [1, 16, 128] {
        let (held, off) = both(&load(HoldMix::RANDOM, depth));
        assert_eq!(held.nr_held, 0);
        assert_eq!(held.requests, off.requests);
        assert_eq!(held.now_ns, off.now_ns);
    }
}

#[test]
fn few_outstanding_reads_are_never_held() {
    for depth in 1..16 {
        let load = HoldLoad { nr_bios: 2000, ..load(HoldMix::SEQUENTIAL, depth) };
        let (held, off) = both(&load);
        assert_eq!((held.nr_held, held.now_ns), (0, off.now_ns), "depth {depth}");
        assert_eq!(held.requests, off.requests);
    }
    assert!(run(&load(HoldMix::SEQUENTIAL, 16)).nr_held > 0);
}

#[test]
fn one_outstanding_read_is_never_held_by_any_limits() {
    let hold = HoldLimits { outstanding_min: 0, groups: 1, ..HoldLimits::default() };
    for mix in [HoldMix::SEQUENTIAL, HoldMix { jump: 30, pause: 10, ..HoldMix::SEQUENTIAL }] {
        let load = HoldLoad { hold: Some(hold), nr_bios: 2000, ..load(mix, 1) };
        let (held, off) = both(&load);
        assert_eq!((held.nr_held, held.requests), (0, off.requests));
    }
}

#[test]
fn mixed_reads_become_fewer_requests() {
    for jump in [2, 10, 40] {
        let (held, off) = both(&load(HoldMix { jump, ..HoldMix::SEQUENTIAL }, 128));
        println!("{jump} %: {} and {}", bios_per_request(&held), part(&held, &off));
        assert!(held.nr_held > 0 && bios_per_request(&held) > 1.5);
        assert!(part(&held, &off) < 0.7);
    }
}

#[test]
fn every_planted_bug_of_the_hold_is_found_and_named() {
    check_found(HoldPlant::all(), |plant| {
        let options = HoldOptions { plant: Some(plant), ..HoldOptions::default() };
        (0..NR_SEEDS_PLANTED).find_map(|seed| {
            let violation = run_hold_seed(seed, &options).err()?;
            Some((seed + 1, format!("{}: {}", violation.rule, violation.what)))
        })
    });
}
