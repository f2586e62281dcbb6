//! Zones beside those of fio, if it is installed: the same offsets in the logs of both programs.

use crate::common::{self, Io, bench, data_file, folder, forebay, ios, stderr, stdout};

fn arguments(options: &str) -> String {
    format!("--name=a --filename=x --write_iolog=log --ioengine=sync {options}")
}

/// Runs the options with both programs on a file of 1 MiB. Returns the I/Os of fio, if it is
/// installed, and ours.
fn run(test: &str, options: &str) -> Option<[Vec<Io>; 2]> {
    common::ios_beside_fio(test, &arguments(options))
}

/// Runs all option sets concurrently.
fn run_all(test: &str, mode: &str, options: &[&str], check: impl Fn(&str, [Vec<Io>; 2]) + Sync) {
    let args: Vec<_> =
        options.iter().map(|options| arguments(&format!("--zonemode={mode} {options}"))).collect();
    common::all_beside_fio(test, &args, check);
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

/// fio wraps backward I/O at the end of `size`, outside of its zone, so only the first I/O of each
/// zone is the same.
#[test]
fn backward_io_in_zones_stays_inside_of_them() {
    let options = [
        "--rw=write:-8k --offset=512k --size=128k --zonesize=64k --zoneskip=64k",
        "--rw=read:-8k --size=256k --zonesize=64k --zoneskip=64k",
    ];
    let test = "backward_io_in_zones_stays_inside_of_them";
    for options in options {
        let args = arguments(&format!("--zonemode=strided {options}"));
        let folder = folder();
        data_file(&folder, "x", 1 << 20);
        let run = bench(&folder, &args);
        assert_eq!(run.status.code(), Some(0), "{test}: {}", stderr(&run));
        let log = std::fs::read_to_string(folder.path().join("log")).expect("a log");
        let first = if options.contains("--offset") { 512 << 10 } else { 0 };
        let ios = ios(&log);
        assert!(ios.len() >= 32, "{options}: {ios:?}");
        for (nth, (_, offset, len)) in ios.iter().enumerate() {
            // A zone takes 16 I/Os.
            let start = first + (nth as u64 / 16) * (128 << 10);
            let zone = start..=start + (64 << 10);
            assert!(zone.contains(offset) && zone.contains(&(offset + len)), "{options}: {ios:?}");
        }
        assert_eq!(ios[1].1, first + (56 << 10), "{options}: it continues at the end of its zone");
    }
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
        "--rw=write --zonesize=64k --zonecapacity=48k --io_size=100%",
        "--rw=write --zonesize=64k --size=4z --offset=2z --io_size=3z",
        "--rw=write:-8k --zonesize=64k --size=128k",
        "--rw=write:-8k --zonesize=64k --zonecapacity=48k --size=256k --offset=512k",
        "--rw=read:-8k --zonesize=64k --size=256k --read_beyond_wp=1",
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
    // The zones are also empty if the only job that writes belongs to a later stage.
    let jobs = ["--name=r --rw=read", "--name=w --stonewall --rw=write"];
    for (jobs, has_warning) in
        [(jobs.join(" "), true), (jobs.join(" ").replace("--stonewall", ""), false)]
    {
        let messages = run_ours(&format!(
            "--filename=x --ioengine=sync --zonemode=zbd --zonesize=64k --size=128k {jobs}"
        ));
        assert_eq!(messages.contains("use --read_beyond_wp=1 to"), has_warning, "{messages}");
    }
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
fn sequential_reads_of_written_zones_are_those_of_fio() {
    let test = "sequential_reads_of_written_zones_are_those_of_fio";
    let jobs = [
        "--size=256k --name=w --rw=write --name=r --rw=read --bs=24k",
        "--size=512k --zonecapacity=48k --name=w --rw=write --name=r --rw=read",
        "--name=w --rw=write --size=128k --name=r --rw=read --size=1m --io_size=1m",
        "--name=w --rw=write --size=128k --name=r --rw=read --size=1m --io_size=100%",
        "--name=w --rw=write --size=128k --name=r --rw=read --size=8z --offset=1z",
    ];
    let all = jobs.map(|jobs| {
        format!(
            "--filename=x --ioengine=sync --zonemode=zbd --zonesize=64k {jobs} --stonewall \
             --write_iolog=log"
        )
    });
    common::all_beside_fio(test, &all, |args, [theirs, ours]| {
        assert!(theirs.len() >= 8, "{args}");
        assert_eq!(ours, theirs, "{args}");
    });
}

/// Runs jobs on zones of 64 KiB. Returns the bytes that each has read and written, and the
/// messages.
fn run_zoned(args: &str) -> (Vec<[u64; 2]>, String) {
    let args = format!("--bs=4k --ioengine=psync --zonemode=zbd --zonesize=64k {args}");
    let folder = folder();
    let run = bench(&folder, &format!("{args} --output-format=json"));
    assert_eq!(run.status.code(), Some(0), "{args}: {}", stderr(&run));
    let report = common::json(&run);
    let jobs = report["jobs"].as_array().expect("jobs");
    let bytes = |job: &serde_json::Value| {
        ["read", "write"].map(|part| job[part]["io_bytes"].as_u64().expect("bytes"))
    };
    (jobs.iter().map(bytes).collect(), stderr(&run))
}

/// fio 3.33 ends these jobs after a few I/Os, without a message.
#[test]
fn mixed_jobs_transfer_all_their_bytes() {
    for options in [
        "--rw=rw",
        "--rw=randrw --bs=16k,4k",
        "--rw=randrw --bs=4k,16k",
        "--rw=rw:-8k --zonecapacity=48k",
    ] {
        let (jobs, messages) = run_zoned(&format!("--name=a --filename=ram:1M {options}"));
        let [reads, writes] = jobs[0];
        assert!(reads + writes >= 1 << 20 && reads > 1 << 17, "{options}: {reads} + {writes}");
        assert!(!messages.contains("ended early"), "{options}: {messages}");
    }
    let clones = "--rw=randrw --numjobs=4 --size=1m --offset_increment=1m";
    let (jobs, messages) = run_zoned(&format!("--name=a --filename=ram:4M {clones}"));
    assert_eq!(jobs.iter().map(|[reads, writes]| reads + writes).collect::<Vec<_>>(), [1 << 20; 4]);
    assert!(!messages.contains("ended early"), "{messages}");
}

#[test]
fn backward_reads_of_written_zones_transfer_all_their_bytes() {
    let (jobs, messages) = run_zoned(
        "--filename=ram:1M --warnings-fatal --zonecapacity=48k --name=w --rw=write --name=r \
         --stonewall --rw=read:-8k",
    );
    assert_eq!(jobs, [[0, 768 << 10], [1 << 20, 0]]);
    assert!(!messages.contains("ended early"), "{messages}");
}

#[test]
fn zones_of_an_ended_job_do_not_count_as_open() {
    let (jobs, messages) = run_zoned(
        "--filename=ram:1M --max_open_zones=1 --rw=randwrite --size=512k --name=a --io_size=32k \
         --name=b --stonewall --offset=512k",
    );
    assert_eq!(jobs, [[0, 32 << 10], [0, 512 << 10]]);
    assert!(!messages.contains("ended early"), "{messages}");
}

#[test]
fn note_says_why_a_job_on_zones_ended_early() {
    let (jobs, messages) = run_zoned(
        "--filename=ram:1M --name=w --rw=write --size=128k --name=r --stonewall --rw=read",
    );
    assert_eq!(jobs, [[0, 128 << 10], [128 << 10, 0]]);
    let note = "forebay: r: ended early, with 917504 bytes left: its zones have no more data to \
                read; ";
    assert!(messages.contains(note) && messages.contains("--read_beyond_wp=1"), "{messages}");
    assert!(!messages.contains("w: ended early"), "{messages}");
    let (jobs, messages) = run_zoned(
        "--filename=ram:1M --name=w --rw=write --size=192k --io_size=188k --name=r --stonewall \
         --rw=read --size=192k --bs=64k",
    );
    assert_eq!(jobs, [[0, 188 << 10], [128 << 10, 0]]);
    assert!(messages.contains("r: ended early, with 65536 bytes left: "), "{messages}");
    let (jobs, messages) = run_zoned(
        "--filename=ram:1M --name=a --rw=write --numjobs=4 --size=256k --offset_increment=256k \
         --max_open_zones=2 --rate_iops=25 --time_based --runtime=1",
    );
    assert_eq!(jobs.iter().filter(|bytes| **bytes == [0, 0]).count(), 2, "{jobs:?}");
    let start = "forebay: a: 2 of 4 clones ended early, with ";
    let (_, note) = messages.split_once(start).unwrap_or_else(|| panic!("no note: {messages}"));
    // A loaded machine may start both clones late.
    let left = note.split_once(" ms of the time left: ").and_then(|(ms, _)| ms.parse().ok());
    assert!(left.is_some_and(|ms: u32| (1..=1000).contains(&ms)), "{messages}");
    assert!(note.contains("raise --max_open_zones"), "{messages}");
}

#[test]
fn loops_end_with_a_pass_that_can_do_no_io() {
    let (jobs, messages) =
        run_zoned("--filename=ram:1M --name=r --rw=read --size=64k --loops=4000000000");
    assert_eq!(jobs, [[0, 0]]);
    let bytes = 4_000_000_000_u64 << 16;
    let note = format!("r: ended early, with {bytes} bytes left: ");
    assert!(messages.contains(&note), "{messages}");
    let (jobs, messages) = run_zoned(
        "--filename=ram:1M --size=128k --name=w --rw=write --io_size=64k --name=r --stonewall \
         --rw=read --loops=3",
    );
    assert_eq!(jobs[1], [3 << 16, 0]);
    assert!(messages.contains("r: ended early, with 196608 bytes left: "), "{messages}");
}

#[test]
fn loops_go_on_after_a_pass_whose_ios_have_all_failed() {
    let (jobs, messages) = run_zoned(
        "--filename=fault:ram:1M?rule=read:io --size=128k --name=w --rw=write --io_size=64k \
         --name=r --stonewall --rw=read --loops=3 --continue_on_error=all",
    );
    assert_eq!(jobs, [[0, 1 << 16], [0, 0]]);
    assert!(messages.contains("forebay: r: 48 errors did not end the job"), "{messages}");
    assert!(messages.contains("r: ended early, with 196608 bytes left: "), "{messages}");
}

#[test]
fn io_of_several_sizes_stays_in_a_disk_with_strided_zones() {
    let folder = folder();
    let test = "io_of_several_sizes_stays_in_a_disk_with_strided_zones";
    for options in ["--rw=rw", "--rw=randrw --norandommap"] {
        let run = bench(
            &folder,
            &format!(
                "--name=a --filename=ram:1M --ioengine=psync {options} --bs=4k,16k \
                 --zonemode=strided --zonesize=48k --zoneskip=12k --io_size=8m"
            ),
        );
        assert_eq!(run.status.code(), Some(0), "{test}: {options}: {}", stderr(&run));
    }
}

#[test]
fn offset_as_a_percentage_is_rounded_up_to_a_block_as_in_fio() {
    let test = "offset_as_a_percentage_is_rounded_up_to_a_block_as_in_fio";
    let both = run(test, "--rw=read --bs=12k --offset=10% --size=192k");
    if let Some([theirs, ours]) = both {
        assert_eq!(ours[0].1, 108 << 10, "{ours:?}");
        assert_eq!(ours, theirs);
    }
}

#[test]
fn region_that_is_not_whole_zones_is_rounded_with_a_note() {
    let (jobs, messages) =
        run_zoned("--filename=ram:1M --name=a --rw=write --offset=100k --size=500k");
    assert_eq!(jobs, [[0, 448 << 10]]);
    let note = "forebay: a: region rounded to whole zones of 65536 bytes (--zonesize): its offset \
                102400 up to 131072, and its end 614400 down to 589824\n";
    assert!(messages.contains(note), "{messages}");
}

#[test]
fn zones_without_a_size_pass_parse_only_and_fail_on_a_file() {
    let folder = folder();
    let args = "--name=a --filename=x --rw=write --size=1m --zonemode=zbd";
    let parsed = bench(&folder, &format!("{args} --parse-only"));
    assert_eq!((parsed.status.code(), stderr(&parsed).as_str()), (Some(0), ""));
    let run = bench(&folder, args);
    let text = "forebay: a: --zonemode=zbd needs --zonesize: its zones are emulated";
    assert_eq!(run.status.code(), Some(1), "{}", stderr(&run));
    assert!(stderr(&run).contains(text), "{}", stderr(&run));
    assert!(!folder.path().join("x").exists(), "the layout was not undone");
    std::fs::write(folder.path().join("job.fio"), "[a]\nsize=1m\nzonemode=zbd\n").expect("a file");
    let simulated = forebay(&folder).args(["sim", "job.fio"]).output().expect("a run");
    let text = "job.fio:3:1: zonemode=zbd: not simulated: sim has no zones with write pointers";
    assert!(stderr(&simulated).contains(text), "{}", stderr(&simulated));
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
