//! The effects of the options of each job file, as far as a user would notice them.
//!
//! Times have wide bounds: a loaded machine may be slow. A lower bound on a time is strict, because
//! a job does not end before its `runtime`.

use std::collections::BTreeMap;
use std::ops::Range;

use super::results::{Job, Moved, Results};
use crate::common::{Io, ios};

const MIB: u64 = 1 << 20;

/// The files that fio runs too, and quickly: its blocking trims of a file fail, it polls only a
/// device that supports polling, and it has no memory of huge pages here.
pub(super) const BESIDE_FIO: [&str; 7] = ["03", "04", "05", "06", "07", "11", "13"];

/// Checks the effects of the file with this number.
pub(super) fn check(number: &str, run: &Results) {
    match number {
        "01" => stages(run),
        "02" => database(run),
        "03" => mail_spool(run),
        "04" => object_store(run),
        "05" => photo_archive(run),
        "06" => burn_in(run),
        "07" => latency_logs(run),
        "08" => nvme(run),
        "09" => qualification(run),
        "10" => neighbours(run),
        "11" => record(run),
        "12" => replay(run),
        "13" => memory_mapped(run),
        other => panic!("no checks for the file {other}"),
    }
    for (at, (name, _)) in run.names().iter().enumerate() {
        assert_eq!(run.job(at).error, 0, "{number}: {name}");
    }
}

/// Compares what the options determine with fio's run of the file.
pub(super) fn compare(number: &str, ours: &Results, theirs: &Results) {
    assert_eq!(ours.names(), theirs.names(), "{number}");
    // fio's own files, and those whose sizes depend on times.
    let is_data = |name: &str| !name.ends_with(".json") && !name.ends_with(".state");
    let is_log = |name: &str| name.ends_with(".log") || name.ends_with(".iolog");
    let files = |run: &Results| -> BTreeMap<String, u64> {
        let files = run.files.iter().filter(|(name, _)| is_data(name));
        files.map(|(name, &size)| (name.clone(), if is_log(name) { 0 } else { size })).collect()
    };
    assert_eq!(files(ours), files(theirs), "{number}");
    match number {
        "04" => assert_eq!(ours.all_moved(), theirs.all_moved()),
        "05" => assert_eq!(ours.all_moved()[0], theirs.all_moved()[0]),
        "06" => {
            let bytes = |run: &Results| run.all_moved()[0].map(|moved| moved.bytes);
            assert_eq!(bytes(ours), bytes(theirs));
        }
        "07" => {
            for name in ours.files.keys().filter(|name| is_log(name)) {
                let columns = |run: &Results| run.text(name).lines().map(nr_columns).max();
                assert_eq!(columns(ours), columns(theirs), "{name}");
            }
        }
        _ => {}
    }
}

fn nr_columns(line: &str) -> usize {
    line.split(", ").count()
}

#[track_caller]
fn check_range(value: f64, range: Range<f64>) {
    assert!(range.contains(&value), "{value} is not in {range:?}");
}

/// Checks that a job of 300 or 500 ms took that long, and that all its I/Os have `bs` bytes.
#[track_caller]
fn check_timed(job: &Job, part: &str, ms: u64, bs: u64) {
    let Moved { bytes, ios } = job.moved(part);
    assert_eq!(bytes, ios * bs, "{}", job.name);
    assert!(ios > 0, "{}", job.name);
    // The clock of the report starts with the first I/O.
    check_range(job.runtime_ms(part) as f64, ms as f64 * 0.8..ms as f64 * 20.0);
}

#[track_caller]
fn check_size(run: &Results, name: &str, size: u64) {
    assert_eq!(run.files.get(name), Some(&size), "{name}: {:?}", run.files);
}

fn stages(run: &Results) {
    assert_eq!(run.names(), [("fill", 0), ("mixed", 1), ("trim", 2)]);
    let [fill, mixed, trim] = [0, 1, 2].map(|at| run.job(at));
    assert_eq!(fill.moved("write"), Moved { bytes: 16 * MIB, ios: 64 });
    check_timed(mixed, "read", 500, 4096);
    check_range(mixed.read_share(), 0.6..0.8);
    assert_eq!(trim.moved("trim"), Moved { bytes: 16 * MIB, ios: 256 });
    // The trims came last: no data is left.
    check_size(run, "stages.img", 16 * MIB);
    let data = std::fs::read(run.folder.join("stages.img")).expect("the file");
    assert!(data == vec![0; 16 << 20], "data after the trims");
}

fn database(run: &Results) {
    assert_eq!(run.names(), [("data", 0), ("wal", 1)]);
    let [data, wal] = [0, 1].map(|at| run.job(at));
    check_range(data.read_share(), 0.6..0.95);
    let (reads, writes) = (data.moved("read"), data.moved("write"));
    // The mean of bssplit is 12 KiB.
    let mean = (reads.bytes + writes.bytes) as f64 / (reads.ios + writes.ios) as f64;
    check_range(mean / 1024.0, 9.0..16.0);
    check_timed(wal, "write", 500, 4096);
    assert!(wal.moved("write").ios.abs_diff(wal.nr_syncs()) <= 1, "a sync for each write");
    assert_eq!(data.nr_syncs(), 0);
    check_size(run, "tables.db", 32 * MIB);
    check_size(run, "wal.log", 8 * MIB);
}

fn mail_spool(run: &Results) {
    assert_eq!(run.names(), [("deliver", 0), ("deliver", 0), ("fetch", 1), ("fetch", 1)]);
    for at in 0..4 {
        let (part, largest) = if at < 2 { ("write", 8192) } else { ("read", 4096) };
        let Moved { bytes, ios } = run.job(at).moved(part);
        // Each of 50 files has 4 to 64 KiB.
        assert!((50 * 4096..=50 * 65_536).contains(&bytes), "{bytes}");
        assert!((4096 * ios..=largest * ios).contains(&bytes), "{bytes} in {ios}");
    }
    // `unlink` has removed all files, which were in a directory for each clone.
    assert!(run.files.keys().all(|name| !name.starts_with("spool")), "{:?}", run.files);
    for clone in
        ["spool-a/deliver.0.", "spool-b/deliver.1.", "spool-a/fetch.0.", "spool-b/fetch.1."]
    {
        assert_eq!(run.disks.iter().filter(|disk| disk.contains(clone)).count(), 50, "{clone}");
    }
}

fn object_store(run: &Results) {
    assert_eq!(run.names(), [("client", 0), ("client", 0)]);
    for clone in 0..2 {
        assert_eq!(run.job(clone).moved("write"), Moved { bytes: 16 * MIB, ios: 16 });
        assert!(run.job(clone).at_depth("8") > 0.0);
        for file in 0..4 {
            let name = format!("objects/client-{clone}-object-{file}");
            check_size(run, &name, 4 * MIB);
            let data = std::fs::read(run.folder.join(&name)).expect(&name);
            assert!(data.chunks(4096).all(|block| block.iter().any(|&byte| byte != 0)), "{name}");
        }
    }
    assert_eq!(run.files.len(), 8);
}

fn photo_archive(run: &Results) {
    assert_eq!(run.names(), [("backup", 0), ("web", 0)]);
    assert_eq!(run.job(0).moved("read"), Moved { bytes: 5 * MIB, ios: 40 });
    check_timed(run.job(1), "read", 500, 16_384);
    (0..20).for_each(|file| check_size(run, &format!("photos/photo-{file}.jpg"), 256 << 10));
    assert_eq!(run.disks.len(), 20, "both jobs use the same files");
}

fn burn_in(run: &Results) {
    let [reads, writes, _] = run.all_moved()[0];
    assert_eq!(reads, writes, "each block is verified");
    assert_eq!(writes.bytes, 16 * MIB);
    // Blocks have 4 to 64 KiB.
    assert!((16 * MIB / 65_536..16 * MIB / 4096).contains(&writes.ios), "{writes:?}");
    check_size(run, "burn-in.img", 16 * MIB);
    assert_eq!(run.files.len(), 1, "no dump: {:?}", run.files);
}

fn latency_logs(run: &Results) {
    check_timed(run.job(0), "read", 500, 4096);
    let Some(shown) = run.job(0).value["read"]["clat_ns"]["percentile"].as_object() else {
        panic!("no percentiles")
    };
    assert!(shown.keys().eq(["50.000000", "90.000000", "99.000000", "99.900000", "99.990000"]));
    let logs = ["bw", "clat", "clat_hist", "iops", "lat", "slat"].map(|kind| {
        let text = run.text(&format!("chart_{kind}.log"));
        // A line for each 100 ms of 500 ms.
        assert!((1..=7).contains(&text.lines().count()), "{kind}: {text}");
        text
    });
    let values = |log: &str| -> Vec<u64> {
        let value = |line: &str| line.split(", ").nth(1).and_then(|value| value.parse().ok());
        log.lines().map(|line| value(line).expect("a value")).collect()
    };
    // KiB/s, at 4 KiB for each I/O.
    for (bw, iops) in values(&logs[0]).into_iter().zip(values(&logs[3])) {
        assert!(bw.abs_diff(iops * 4) <= 4, "{bw} {iops}");
    }
    check_size(run, "logs.img", 16 * MIB);
}

fn nvme(run: &Results) {
    assert_eq!(run.names(), [("qd1", 0), ("qd128", 1)]);
    (0..2).for_each(|at| check_timed(run.job(at), "read", 300, 4096));
    check_range(run.job(0).at_depth("1"), 99.9..100.1);
    check_range(run.job(1).at_depth(">=64"), 30.0..100.1);
    // Batches of 16 to 32.
    let part = |batch: &str| run.job(1).value["iodepth_submit"][batch].as_f64().expect("a part");
    check_range(part("16") + part("32"), 30.0..100.1);
    for option in ["hipri", "registerfiles", "mem"] {
        assert!(run.messages.contains(&format!(": {option} is ignored: ")), "{}", run.messages);
    }
}

fn qualification(run: &Results) {
    assert_eq!(run.names(), [("precondition", 0), ("target", 1)]);
    let [precondition, target] = [0, 1].map(|at| &run.job(at).value);
    assert_eq!(precondition["steadystate"]["ss"], "iops:10.000000%");
    assert_eq!(precondition["steadystate"]["duration"], 1);
    assert_eq!(target["latency_target"], 20_000_000);
    assert_eq!(target["latency_window"], 100_000);
    let depth = target["latency_depth"].as_u64().expect("a depth");
    assert!((1..=64).contains(&depth), "{depth}");
    for (at, part) in [(0, "write"), (1, "read")] {
        let Moved { bytes, ios } = run.job(at).moved(part);
        assert!(ios > 0 && bytes == ios * 4096, "{part}: {bytes} {ios}");
    }
}

fn neighbours(run: &Results) {
    let [interactive, batch] = [0, 1].map(|at| run.job(at));
    check_timed(interactive, "read", 500, 4096);
    check_range(interactive.at_depth("1"), 99.9..100.1);
    check_timed(batch, "write", 500, MIB);
    // 64 MiB/s; after a pause, the job may catch up.
    let seconds = batch.runtime_ms("write") as f64 / 1000.0;
    let rate = batch.moved("write").bytes as f64 / seconds / MIB as f64;
    check_range(rate, 2.0..80.0);
}

fn record(run: &Results) {
    let log = ios(&run.text("load.iolog"));
    assert_eq!(log.len(), 200);
    let [reads, writes, _] = run.all_moved()[0];
    assert_eq!((reads, writes), (recorded(&log, "read"), recorded(&log, "write")));
    let small = log.iter().filter(|(.., len)| *len == 4096).count();
    // As in fio, an I/O ends before a block that another one has visited.
    assert!(log.iter().all(|(.., len)| len.is_multiple_of(4096) && *len <= 32_768), "{log:?}");
    // 60 % of the I/Os of bssplit.
    check_range(small as f64, 80.0..160.0);
    check_size(run, "recorded.img", 8 * MIB);
}

/// Returns what a log of I/Os moves in a direction.
fn recorded(log: &[Io], part: &str) -> Moved {
    let of_part = log.iter().filter(|(action, ..)| action == part);
    let bytes: Vec<_> = of_part.map(|&(_, _, len)| len).collect();
    Moved { bytes: bytes.iter().sum(), ios: bytes.len() as u64 }
}

/// Checks the replay of the log of file 11.
fn replay(run: &Results) {
    assert_eq!(run.names(), [("as-recorded", 0), ("fastest", 1)]);
    let text = run.text("load.iolog");
    let log = ios(&text);
    for (job, moved) in run.all_moved().into_iter().enumerate() {
        for (part, moved) in ["read", "write"].into_iter().zip(moved) {
            assert_eq!(moved, recorded(&log, part), "{job}: {part}");
        }
    }
    let time = |line: &str| line.split(' ').next().and_then(|time| time.parse::<u64>().ok());
    let last_ms = text.lines().filter_map(time).max().expect("a time") / 1000;
    let took_ms = run.job(0).value["job_runtime"].as_u64().expect("a time");
    assert!(took_ms + 5 >= last_ms, "replayed in {took_ms} ms of {last_ms}");
}

fn memory_mapped(run: &Results) {
    let job = run.job(0);
    check_timed(job, "read", 500, 4096);
    check_timed(job, "write", 500, 4096);
    check_range(job.read_share(), 0.8..0.97);
    // `mi` is 1000 * 1000 with kb_base=1000.
    check_size(run, "index.img", 16_000_000);
}
