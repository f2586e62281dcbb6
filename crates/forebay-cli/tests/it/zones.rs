//! Zones beside those of fio, if it is installed: the same offsets in the logs of both programs.

use std::thread;

use crate::common::{self, bench, data_file, folder, stderr, stdout};

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
fn run_all(test: &str, mode: &str, options: &[&str], check: impl Fn(&str, [Vec<Io>; 2]) + Sync) {
    let check = &check;
    thread::scope(|scope| {
        for &options in options {
            scope.spawn(move || {
                if let Some(both) = run(test, &format!("--zonemode={mode} {options}")) {
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
    run_all(test, "strided", &options, |options, [theirs, ours]| {
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
    run_all(test, "strided", &options, |options, [theirs, ours]| {
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

#[test]
fn sequential_offsets_at_write_pointers_are_those_of_fio() {
    let options = [
        "--rw=write --zonesize=64k",
        "--rw=write --zonesize=64k --zonecapacity=48k",
        "--rw=write --zonesize=64k --zonecapacity=48k --io_size=3m",
        "--rw=write --bs=24k --zonesize=64k",
        "--rw=write --zonesize=64k --offset=100k --size=500k",
        "--rw=write --zonesize=64k --max_open_zones=2 --io_size=2m",
        "--rw=write --zonesize=64k --zone_reset_threshold=0.2 --zone_reset_frequency=0.1 \
         --io_size=2m",
        "--rw=read --zonesize=64k --read_beyond_wp=1",
    ];
    let test = "sequential_offsets_at_write_pointers_are_those_of_fio";
    run_all(test, "zbd", &options, |options, [theirs, ours]| {
        assert!(theirs.len() > 8, "{options}");
        assert_eq!(ours, theirs, "{options}");
    });
}

/// Returns the numbers of zones with a write pointer inside, after each write. Checks that each
/// write is at the write pointer of its zone.
fn nr_open(ios: &[Io], options: &str) -> Vec<usize> {
    let mut pointers = std::collections::BTreeMap::new();
    let mut after = Vec::new();
    for (_, offset, len) in ios {
        let (zone, inside) = (offset >> 16, offset & 0xffff);
        let pointer = pointers.entry(zone).or_insert(0);
        assert_eq!(*pointer, inside, "{options}: zone {zone}");
        *pointer = (*pointer + len) % (1 << 16);
        after.push(pointers.values().filter(|&&at| at > 0).count());
    }
    after
}

/// The draws of the two programs differ, and so do the zones.
#[test]
fn random_writes_go_to_write_pointers_of_as_many_zones_as_in_fio() {
    let options = [
        ("--rw=randwrite --zonesize=64k --max_open_zones=1", 1),
        ("--rw=randwrite --zonesize=64k --max_open_zones=3", 3),
        ("--rw=randwrite --zonesize=64k --max_open_zones=4 --job_max_open_zones=2", 2),
    ];
    let test = "random_writes_go_to_write_pointers_of_as_many_zones_as_in_fio";
    for (options, expected) in options {
        let Some(both) = run(test, &format!("--zonemode=zbd {options}")) else { return };
        for ios in both {
            assert_eq!(ios.len(), 256, "{options}");
            assert_eq!(nr_open(&ios, options).into_iter().max(), Some(expected), "{options}");
        }
    }
}

#[test]
fn reads_of_empty_zones_end_as_in_fio_and_see_earlier_writes() {
    let options = "--rw=read --zonesize=64k";
    let test = "reads_of_empty_zones_end_as_in_fio_and_see_earlier_writes";
    let args = format!("--name=a --filename=x --ioengine=sync --zonemode=zbd {options}");
    let folder = folder();
    data_file(&folder, "x", 1 << 20);
    let log =
        |name: &str| ios(&std::fs::read_to_string(folder.path().join(name)).expect("a log")).len();
    let run_ours = |args: &str| {
        let run = bench(&folder, args);
        assert_eq!(run.status.code(), Some(0), "{test}: {}", stderr(&run));
        stderr(&run)
    };
    let messages = run_ours(&format!("{args} --write_iolog=empty"));
    assert_eq!(log("empty"), 0);
    assert!(messages.contains("use --read_beyond_wp=1 to read everything"), "{messages}");
    if let Some([theirs, ours]) = run(test, &format!("--zonemode=zbd {options}")) {
        assert_eq!((theirs.len(), ours.len()), (0, 0));
    }
    run_ours(
        "--filename=x --ioengine=sync --zonemode=zbd --zonesize=64k --name=w --rw=write \
         --size=128k --name=r --stonewall --rw=read --size=1m --write_iolog=after",
    );
    assert_eq!(log("after"), 32, "the blocks that the first job wrote");
}

#[test]
fn zone_resets_are_counted_as_in_fio() {
    let test = "zone_resets_are_counted_as_in_fio";
    let args = "--name=a --filename=x --ioengine=sync --zonemode=zbd --zonesize=64k --rw=write \
                --io_size=2m";
    let resets = |text: &str| {
        let line =
            text.lines().find(|line| line.contains("zone resets")).expect("a line of writes");
        line.rsplit_once("; ").expect("a count").1.to_owned()
    };
    let folder = folder();
    data_file(&folder, "x", 1 << 20);
    let run = bench(&folder, args);
    let ours = resets(&stdout(&run));
    assert_eq!(ours, "16 zone resets");
    if let Some(output) = common::fio(test, &folder, args) {
        assert_eq!(ours, resets(&stdout(&output)));
    }
}
