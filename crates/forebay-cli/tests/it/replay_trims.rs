//! Replays of logs with trims beside other I/Os.

use std::path::Path;

use serde_json::Value;

use crate::common::{bench, bench_json, folder, stderr};
use crate::trace::tool;

const BLOCK: usize = 4096;
const NR_BLOCKS: usize = 96;

/// The operation of the log on a block. The log has one I/O for each block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Write,
    Trim,
    Read,
}

/// Returns the use of a block. Two trims follow each other, so that slots trim twice, too.
fn use_of(block: usize) -> Use {
    [Use::Write, Use::Trim, Use::Read, Use::Trim, Use::Trim, Use::Write][block % 6]
}

/// Writes a log with an I/O for each block of each file, with a sync in the middle.
fn write_log(path: &Path, files: &[&str]) {
    let mut log = "fio version 3 iolog\n".to_owned();
    for action in ["add", "open"] {
        files.iter().for_each(|file| log += &format!("0 {file} {action}\n"));
    }
    for block in 0..NR_BLOCKS {
        let action = match use_of(block) {
            Use::Write => "write",
            Use::Trim => "trim",
            Use::Read => "read",
        };
        for file in files {
            log += &format!("0 {file} {action} {} {BLOCK}\n", block * BLOCK);
        }
        if block == NR_BLOCKS / 2 {
            log += &format!("0 {} sync 0 0\n", files[0]);
        }
    }
    std::fs::write(path, log).expect("a log");
}

/// Returns the numbers of I/Os of the first job.
fn ios(report: &Value) -> [u64; 4] {
    ["read", "write", "trim", "sync"]
        .map(|kind| report["jobs"][0][kind]["total_ios"].as_u64().expect("a number"))
}

/// Replays a log on files of ones, and checks each block afterwards.
#[track_caller]
fn check_replay(files: &[&str], options: &str, passes: u64) {
    let folder = folder();
    write_log(&folder.path().join("log"), files);
    for file in files {
        std::fs::write(folder.path().join(file), vec![0xff; NR_BLOCKS * BLOCK]).expect("a file");
    }
    let args = format!("--name=a --read_iolog=log --replay_no_stall=1 {options}");
    let report = bench_json(&folder, &args);
    let nr = |of: Use| (0..NR_BLOCKS).filter(|&block| use_of(block) == of).count();
    let expected = [Use::Read, Use::Write, Use::Trim].map(nr);
    let expected = expected.map(|nr| (nr * files.len()) as u64 * passes);
    assert_eq!(ios(&report)[..3], expected, "{options}: {report}");
    assert_eq!(ios(&report)[3], passes, "{options}: {report}");
    for file in files {
        let data = std::fs::read(folder.path().join(file)).expect("a file");
        for (at, block) in data.chunks(BLOCK).enumerate() {
            let is_all = |byte: u8| block.iter().all(|it| *it == byte);
            let is_right = match use_of(at) {
                Use::Write => !is_all(0) && !is_all(0xff),
                Use::Trim => is_all(0),
                Use::Read => is_all(0xff),
            };
            assert!(is_right, "{options}: block {at} of {file}, {:?}", use_of(at));
        }
    }
}

#[test]
fn log_of_reads_writes_trims_and_syncs_is_replayed_by_every_io_method() {
    for options in [
        "",
        "--iodepth=8 --iodepth_batch=4",
        "--iodepth=8 --iodepth_batch=4 --loops=3",
        "--iodepth=8 --serialize_overlap=1",
        "--iodepth=8 --fixedbufs=1",
        "--iodepth=8 --prio=2 --scheduler=mq-deadline",
        // The layer refuses I/Os, which are submitted again.
        "--iodepth=8 --replay_redirect=d?nr_bios=4",
        "--ioengine=psync",
        "--ioengine=psync --prio=2 --scheduler=mq-deadline",
    ] {
        let passes = if options.contains("--loops=3") { 3 } else { 1 };
        check_replay(&["d"], options, passes);
    }
}

#[test]
fn log_with_trims_on_several_files_is_replayed() {
    for options in ["--iodepth=8", "--iodepth=8 --fixedbufs=1", "--ioengine=psync"] {
        check_replay(&["a.img", "b.img", "c.img"], options, 1);
    }
}

#[test]
fn trace_with_trims_does_the_same_ios_as_in_fio() {
    let test = "trace_with_trims_does_the_same_ios_as_in_fio";
    let folder = folder();
    bench_json(
        &folder,
        "--filename=ram:4M --bs=4k --number_ios=60 --trace=t --name=x --rw=randrw --fdatasync=9 \
         --name=y --rw=randtrim --bs=8k",
    );
    let args = "-D t -i ram-4M -d merged.bin -q";
    let Some(_) = tool(folder.path(), test, "blkparse", args) else { return };
    let replay = "--name=r --read_iolog=merged.bin --replay_no_stall=1 --iodepth=4";
    let ours = bench_json(&folder, &format!("{replay} --replay_redirect=ram:4M"));
    // Trims of fio need a block device, or the engine that does nothing.
    std::fs::write(folder.path().join("disk.img"), vec![0; 4 << 20]).expect("a file");
    let args = format!("{replay} --replay_redirect=disk.img --ioengine=null --output-format=json");
    let Some(text) = tool(folder.path(), test, "fio", &args) else { return };
    let theirs: Value = text[text.find("{\n").expect("JSON")..].parse().expect("JSON");
    assert_eq!(ios(&ours), ios(&theirs));
    assert_eq!(ios(&ours)[2], 60, "{ours}");
}

#[test]
fn directions_beside_trims_can_be_left_out() {
    let folder = folder();
    write_log(&folder.path().join("log"), &["d"]);
    let of = |options: &str| {
        let args = format!("--name=a --read_iolog=log --replay_redirect=ram:1M {options}");
        ios(&bench_json(&folder, &args))
    };
    let [reads, writes, trims, syncs] = of("");
    assert!(reads.min(writes).min(trims).min(syncs) > 0);
    assert_eq!(of("--replay_skip=trim"), [reads, writes, 0, syncs]);
    assert_eq!(of("--replay_skip=read,write,sync"), [0, 0, trims, 0]);
    assert_eq!(of("--replay_skip=write"), [reads, 0, trims, syncs]);
    let args = "--readonly --name=a --read_iolog=log --replay_redirect=ram:1M --replay_skip=write";
    let output = bench(&folder, args);
    assert!(stderr(&output).contains("the log changes the disk"), "{}", stderr(&output));
    assert_eq!(of("--readonly --replay_skip=write,trim"), [reads, 0, 0, syncs]);
}

#[test]
fn large_trims_need_no_buffers() {
    let folder = folder();
    let log = "fio version 3 iolog\n0 d trim 0 2147483648\n0 d read 0 4096\n0 d write 4096 512\n";
    std::fs::write(folder.path().join("log"), log).expect("a log");
    // With buffers for the trim, this depth would need 2 TiB.
    let args = "--name=a --read_iolog=log --replay_redirect=null:4G --iodepth=1024";
    assert_eq!(ios(&bench_json(&folder, args))[..3], [1, 1, 1]);
}
