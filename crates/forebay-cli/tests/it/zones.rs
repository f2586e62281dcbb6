//! Zones beside those of fio, if it is installed: the same offsets in the logs of both programs.

use std::thread;

use crate::common::{self, bench, data_file, folder, stderr};

/// One I/O of a log: its action, offset and length.
type Io = (String, u64, u64);

/// Parses a log of I/Os in fio's version 3.
fn ios(log: &str) -> Vec<Io> {
    let mut ios = Vec::new();
    for line in log.lines() {
        if let [_, _, action @ ("read" | "write" | "trim"), offset, len] =
            line.split_whitespace().collect::<Vec<_>>()[..]
        {
            ios.push((
                action.to_owned(),
                offset.parse().expect("a number"),
                len.parse().expect("a number"),
            ));
        }
    }
    ios
}

/// Runs the options with both programs on a file of 1 MiB. Returns the I/Os of fio, if it is
/// installed, and ours.
fn run(test: &str, options: &str) -> Option<[Vec<Io>; 2]> {
    let args = format!("--name=a --filename=x --write_iolog=log --ioengine=sync {options}");
    let (theirs, ours) = (folder(), folder());
    for folder in [&theirs, &ours] {
        data_file(folder, "x", 1 << 20);
    }
    common::fio(test, &theirs, &args)?;
    let run = bench(&ours, &args);
    assert_eq!(run.status.code(), Some(0), "{args}: {}", stderr(&run));
    let log = |folder: &tempfile::TempDir| {
        ios(&std::fs::read_to_string(folder.path().join("log")).expect("a log"))
    };
    Some([log(&theirs), log(&ours)])
}

/// Runs all option sets beside each other: fio mostly sleeps.
fn run_all(test: &str, options: &[&str], check: impl Fn(&str, [Vec<Io>; 2]) + Sync) {
    let check = &check;
    thread::scope(|scope| {
        for &options in options {
            scope.spawn(move || {
                if let Some(both) = run(test, &format!("--zonemode=strided {options}")) {
                    check(options, both);
                }
            });
        }
    });
}

#[test]
fn sequential_offsets_in_zones_are_those_of_fio() {
    let options = [
        "--zonesize=16k --zoneskip=32k",
        "--size=256k --zonesize=16k --zonerange=64k --zoneskip=64k",
        "--size=256k --zonesize=16k --zonerange=8k --zoneskip=64k",
        "--size=256k --zonesize=10k --zoneskip=6k",
        "--size=25% --zonesize=16k --zoneskip=2z",
        "--size=256k --offset=640k --zonesize=80k --zoneskip=16k",
        "--size=256k --io_size=300k --zonesize=16k --zoneskip=32k",
        "--size=256k --zonesize=16k --zoneskip=32k --number_ios=9",
        "--size=256k --rw=read:4k --zonesize=32k --zoneskip=64k",
        "--size=256k --bs=24k --zonesize=64k --zonerange=32k",
        "--size=256k --rw=write --zonesize=32k --zoneskip=32k --direct=1",
    ];
    let test = "sequential_offsets_in_zones_are_those_of_fio";
    run_all(test, &options, |options, [theirs, ours]| {
        assert!(theirs.len() > 8, "{options}");
        assert_eq!(ours, theirs, "{options}");
    });
}

/// The draws of the two programs differ, and so do the offsets within a zone.
#[test]
fn random_and_mixed_io_visits_the_zones_of_fio() {
    let options = [
        "--size=256k --rw=randread --zonesize=16k --zonerange=64k --zoneskip=64k",
        "--size=256k --rw=randwrite --zonesize=32k --zonerange=16k --zoneskip=64k",
        "--size=256k --rw=randread --norandommap --zonesize=32k --zonerange=16k --zoneskip=64k",
        "--size=256k --offset=64k --rw=randrw --zonesize=16k --zoneskip=48k",
        "--size=256k --rw=rw --zonesize=16k --zoneskip=64k",
    ];
    let test = "random_and_mixed_io_visits_the_zones_of_fio";
    run_all(test, &options, |options, [theirs, ours]| {
        // Each of these ranges lies within 64 KiB.
        let zones = |ios: &[Io]| ios.iter().map(|io| io.1 >> 16).collect::<Vec<_>>();
        assert_eq!(zones(&ours), zones(&theirs), "{options}");
        if options.contains("norandommap") || options.contains("rw=rw") {
            return;
        }
        for ios in [&theirs, &ours] {
            let mut first: Vec<_> = ios[..4].iter().map(|io| io.1).collect();
            first.sort_unstable();
            first.dedup();
            assert_eq!(first.len(), 4, "{options}: blocks of a zone are visited once");
        }
    });
}
