//! Hashes of runs, as lines: a seed gives the same ones in every build and on every machine.
//! `cargo xtask same-bytes` compares the lines of two C libraries.

use forebay_fio::cmdline::{Parsed, parse};
use forebay_sim::blk::{BlkOptions, run_blk_seed};
use forebay_sim::histories::{Kinds, Scope, Setting, explore};
use forebay_sim::hold::{HoldOptions, run_hold_seed};
use forebay_sim::nbd::{NbdOptions, run_nbd_seed};
use forebay_sim::{DeviceSpec, JobDisk, Options, run_jobs, run_seed};
use std::ffi::OsString;

const NR_SEEDS: u64 = 60;
const NR_NBD_SEEDS: u64 = 30;
const NR_BLK_SEEDS: u64 = 30;
const NR_HOLD_SEEDS: u64 = 30;

/// Loads whose blocks and sizes are drawn in all ways that a simulated job has.
const LOADS: [&str; 6] = [
    "--rw=randrw --random_distribution=zipf:1.2",
    "--rw=randread --random_distribution=zipf:0.6",
    "--rw=randwrite --random_distribution=pareto:0.2 --fsync=16",
    "--rw=randread --random_distribution=normal:10",
    "--rw=randrw --rwmixread=70 --bsrange=4k-32k",
    "--rw=randwrite --random_distribution=zoned:60/10:30/20:10/70",
];

const DEVICES: [&str; 3] = ["hdd", "nvme", "flaky"];

/// Prints a hash under its name, and returns it.
#[allow(clippy::print_stdout, reason = "another program compares the lines")]
fn print(name: &str, hash: u64) -> u64 {
    println!("hash {name}: {hash:016x}");
    hash
}

fn hash_of_load(load: &str, device: &str) -> u64 {
    let words = load.split(' ').chain(["--iodepth=8", "--size=64m", "--number_ios=2000"]);
    let words = words.chain(["--name=load"]).map(OsString::from);
    let Ok(Parsed::Run(command)) = parse(words) else { panic!("{load} is valid") };
    let disk = JobDisk::new(device.parse::<DeviceSpec>().expect("a device"));
    let run = run_jobs(&command.jobs, 7, &disk, None).expect("valid jobs");
    run.unwrap_or_else(|violation| panic!("{violation}")).hash
}

#[test]
fn hashes_of_seeds_jobs_and_histories_are_the_same_bytes() {
    let mut hashes = Vec::new();
    for seed in 0..NR_SEEDS {
        let run = run_seed(seed, &Options::default());
        let hash = run.unwrap_or_else(|violation| panic!("{violation}")).hash;
        hashes.push(print(&format!("seed {seed}"), hash));
    }
    for seed in 0..NR_NBD_SEEDS {
        let run = run_nbd_seed(seed, &NbdOptions::default());
        let hash = run.unwrap_or_else(|violation| panic!("{violation}")).hash;
        hashes.push(print(&format!("nbd seed {seed}"), hash));
    }
    for seed in 0..NR_BLK_SEEDS {
        let run = run_blk_seed(seed, &BlkOptions::default());
        let hash = run.unwrap_or_else(|violation| panic!("{violation}")).hash;
        hashes.push(print(&format!("blk seed {seed}"), hash));
    }
    for seed in 0..NR_HOLD_SEEDS {
        let run = run_hold_seed(seed, &HoldOptions::default());
        let hash = run.unwrap_or_else(|violation| panic!("{violation}")).hash;
        hashes.push(print(&format!("hold seed {seed}"), hash));
    }
    for load in LOADS {
        for device in DEVICES {
            hashes.push(print(&format!("{load} on {device}"), hash_of_load(load, device)));
        }
    }
    let scopes = [
        (Scope::all(2), Setting::all()),
        (Scope { one_of: 397, ..Scope::all(3) }, Setting::all()),
        (Scope::file(2, 2, Kinds::Syncs), Setting::files()),
    ];
    for (scope, settings) in scopes {
        let report = explore(&scope, &settings).unwrap_or_else(|fault| panic!("{fault}"));
        hashes.push(print(&format!("crash histories of {scope}"), report.hash));
    }
    let nr = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), nr, "different runs have different hashes");
}
