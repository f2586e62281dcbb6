//! I/O priorities of jobs. I/Os of different priorities do not merge, so the number of requests
//! shows the priorities that the layer got, at any speed.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{self, bench, bench_json, folder, skip_without, stderr};

/// Returns the number of requests of one batch of 32 adjacent reads.
fn requests(args: &str) -> u64 {
    let args = format!(
        "--name=a --filename=ram:128k --scheduler=mq-deadline --rw=read --bs=4k --iodepth=32 \
         --iodepth_batch=32 {args}"
    );
    let report: Value = bench_json(&folder(), &args);
    report["forebay"][0]["requests"]["read"].as_u64().unwrap_or_else(|| panic!("{report}"))
}

#[test]
fn adjacent_reads_merge_unless_their_priorities_differ() {
    assert_eq!(requests(""), 1);
    assert_eq!(requests("--prioclass=1 --prio=3"), 1);
    assert_eq!(requests("--prioclass=3 --cmdprio_percentage=100"), 1);
    assert_eq!(requests("--cmdprio_percentage=0,100"), 1, "the percentage of writes");
    let mixed = requests("--cmdprio_percentage=50");
    assert!(mixed > 5, "{mixed}");
    assert_eq!(requests("--cmdprio_percentage=50"), mixed, "the seed determines the priorities");
    let same = "--prioclass=3 --prio=2 --cmdprio_percentage=50 --cmdprio_class=3 --cmdprio=2";
    assert_eq!(requests(same), 1);
}

#[test]
fn blocking_calls_with_priorities_verify_what_they_wrote() {
    let args = "--name=a --ioengine=psync --filename=ram:1M --rw=randwrite --verify=crc32c \
                --cmdprio_percentage=30 --scheduler=mq-deadline";
    let report = bench_json(&folder(), args);
    assert_eq!(report["jobs"][0]["write"]["total_ios"], 256, "{report}");
    assert_eq!(report["jobs"][0]["read"]["total_ios"], 256, "{report}");
    let trims = "--name=a --ioengine=sync --filename=ram:1M --rw=trim --prio=2 \
                 --scheduler=mq-deadline";
    assert_eq!(bench_json(&folder(), trims)["jobs"][0]["trim"]["total_ios"], 256);
}

#[test]
fn priorities_without_a_scheduler_that_orders_by_them_are_noted() {
    let output = bench(&folder(), "--name=a --filename=ram:1M --prioclass=1");
    let note =
        "forebay: a: its I/O priorities have no effect on ram:1M: only scheduler=mq-deadline";
    assert!(stderr(&output).contains(note), "{}", stderr(&output));
}

#[test]
fn threads_of_a_job_on_a_file_have_its_priority_and_memory_policy() {
    let test = "threads_of_a_job_on_a_file_have_its_priority_and_memory_policy";
    let is_traceable = |output: Output| output.status.success();
    let mut trial = Command::new("strace");
    if !trial.args(["-qq", "-e", "trace=none", "true"]).output().is_ok_and(is_traceable) {
        return skip_without("strace", test);
    }
    let calls = |args: &str| {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "calls", "-e", "trace=ioprio_set,set_mempolicy"]);
        strace.arg(env!("CARGO_BIN_EXE_forebay")).args(["bench", "--name=a", "--size=64k"]);
        let folder = folder();
        let output = strace.args(args.split(' ')).current_dir(folder.path()).output();
        let output = output.expect("strace runs");
        assert!(output.status.success(), "{args}: {}", stderr(&output));
        let calls = std::fs::read_to_string(folder.path().join("calls")).expect("a trace");
        (calls, stderr(&output))
    };
    for engine in ["", "--ioengine=libaio", "--ioengine=psync"] {
        let (calls, note) = calls(format!("--filename=f --prio=3 --numjobs=2 {engine}").trim());
        let of_threads = calls.matches("IOPRIO_WHO_PROCESS, 0, ").count();
        let values = calls.matches("IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 3)").count();
        assert_eq!((of_threads, values), (2, 2), "{engine}: {calls}");
        assert!(note.contains("only the kernel uses --prio and --prioclass"), "{note}");
    }
    assert!(!calls("--filename=ram:64k --prio=3").0.contains("ioprio_set"));
    assert!(!calls("--filename=f --cmdprio_percentage=5").0.contains("ioprio_set"));
    if std::path::Path::new("/sys/devices/system/node/node0").exists() {
        let (calls, _) = calls("--filename=ram:64k --numa_mem_policy=interleave:0");
        assert!(calls.contains("set_mempolicy(MPOL_INTERLEAVE, [0x00000000000001], 65"), "{calls}");
    }
}

/// Returns the pairs of size and priority in a log, without repetitions.
fn logged(folder: &TempDir) -> BTreeSet<(u64, String)> {
    let text = std::fs::read_to_string(folder.path().join("p_clat.1.log")).expect("a log");
    let pair = |line: &str| {
        let fields: Vec<_> = line.split(", ").collect();
        (fields[3].parse().expect(line), fields[4].to_owned())
    };
    text.lines().map(pair).collect()
}

#[test]
fn logged_priorities_are_those_of_fio() {
    let test = "logged_priorities_are_those_of_fio";
    let base = "--name=a --rw=randread --direct=1 --ioengine=libaio --iodepth=4 --size=4m \
                --filename=disk.img --write_lat_log=p --randrepeat=1";
    for options in [
        "",
        "--log_prio=1",
        "--log_prio=1 --prio=5",
        "--log_prio=1 --prioclass=2 --prio=4",
        "--log_prio=1 --cmdprio_percentage=50 --cmdprio_class=2 --cmdprio=3",
        "--log_prio=1 --prio=7 --cmdprio_percentage=50 --cmdprio_class=3 --cmdprio=2",
        "--prio=7 --cmdprio_percentage=50 --cmdprio_class=3 --cmdprio=2",
        "--log_prio=1 --bssplit=4k/40:8k/60 --cmdprio_bssplit=4k/100:8k/0 --cmdprio_class=2",
        "--log_prio=1 --bssplit=4k/40:8k/60 --prio=6 --cmdprio_bssplit=4k/25/2/1:4k/75/3/2",
    ] {
        let args = format!("{base} {options}");
        let (their_folder, our_folder) = (folder(), folder());
        let Some(_) = common::fio(test, &their_folder, &args) else { return };
        bench_json(&our_folder, &args);
        assert_eq!(logged(&our_folder), logged(&their_folder), "{options}");
    }
}

#[test]
fn real_time_io_is_marked_in_logs_of_any_engine() {
    for engine in ["", "--ioengine=psync"] {
        let args = format!(
            "--name=a --filename=ram:1M --rw=randread {engine} --write_lat_log=p \
             --scheduler=mq-deadline --cmdprio_percentage=50"
        );
        let folder = folder();
        bench_json(&folder, &args);
        let both = [(4096, "0".to_owned()), (4096, "1".to_owned())];
        assert_eq!(logged(&folder), BTreeSet::from(both), "{engine}");
    }
}

#[test]
fn examples_of_fio_for_priorities_are_accepted() {
    let test = "examples_of_fio_for_priorities_are_accepted";
    for name in ["cmdprio-bssplit.fio", "cmdprio-percentage.fio"] {
        let path = format!("/usr/share/doc/fio/examples/{name}");
        if !std::path::Path::new(&path).exists() {
            return skip_without("fio-examples", test);
        }
        let output = bench(&folder(), &format!("--parse-only {path}"));
        assert_eq!((stderr(&output).as_str(), output.status.code()), ("", Some(0)), "{name}");
    }
}
