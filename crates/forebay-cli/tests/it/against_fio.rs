//! The JSON beside that of the real fio for the same jobs, if fio is installed: the same keys in
//! the same order, the same types, and the same values where the job decides them.

use std::io::ErrorKind;
use std::process::Command;

use crate::common::{bench_json, folder, skip_without, stderr};
use serde_json::Value;
use tempfile::TempDir;

/// fio's JSON; `None` if it is not installed.
#[track_caller]
fn fio_json(test: &str, folder: &TempDir, args: &str) -> Option<Value> {
    let output = Command::new("fio")
        .args(args.split_whitespace())
        .args(["--output-format=json", "--output=fio.json"])
        .current_dir(folder.path())
        .output();
    match output {
        Ok(output) => assert!(output.status.success(), "{test}: fio: {}", stderr(&output)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skip_without("fio", test);
            return None;
        }
        Err(error) => panic!("{test}: fio: {error}"),
    }
    let text = std::fs::read_to_string(folder.path().join("fio.json")).expect("fio's JSON");
    let start = text.find("{\n").expect("a JSON value");
    Some(text[start..].parse().expect("fio's JSON"))
}

/// The paths of all values with their types, in order.
fn paths(value: &Value) -> Vec<String> {
    fn walk(path: &str, value: &Value, out: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                object.iter().for_each(|(key, value)| walk(&format!("{path}/{key}"), value, out));
            }
            Value::Array(list) => {
                list.iter().for_each(|value| walk(&format!("{path}[]"), value, out));
            }
            Value::Number(number) if number.is_f64() => out.push(format!("{path}: float")),
            Value::Number(_) => out.push(format!("{path}: integer")),
            Value::String(_) => out.push(format!("{path}: string")),
            other => out.push(format!("{path}: {other}")),
        }
    }
    let mut out = Vec::new();
    walk("", value, &mut out);
    out
}

fn take_disks(report: &mut Value) -> Vec<Value> {
    match report.as_object_mut().expect("an object").remove("disk_util") {
        Some(Value::Array(disks)) => disks,
        _ => Vec::new(),
    }
}

/// fio names the device below the file, if it finds one, and adds what that is made of; the layer
/// names the file.
#[track_caller]
fn compare_disks(test: &str, mut theirs: Vec<Value>, ours: Vec<Value>) {
    for disk in theirs.iter_mut().filter_map(Value::as_object_mut) {
        disk.retain(|key, _| !key.starts_with("aggr_"));
    }
    assert!(!ours.is_empty(), "{test}: disk_util");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(paths(ours), paths(theirs), "{test}: disk_util");
    }
}

#[track_caller]
fn check(test: &str, args: &str) {
    let folder = folder();
    let Some(mut theirs) = fio_json(test, &folder, args) else { return };
    let mut ours = bench_json(&folder, args);
    assert!(ours.as_object_mut().expect("an object").remove("forebay").is_some());
    compare_disks(test, take_disks(&mut theirs), take_disks(&mut ours));
    assert_eq!(paths(&ours), paths(&theirs), "{test}");
    assert_eq!(ours.get("global options"), theirs.get("global options"), "{test}");
    let jobs = |report: &Value| report["jobs"].as_array().expect("a list").clone();
    for (ours, theirs) in jobs(&ours).iter().zip(jobs(&theirs)) {
        for key in ["jobname", "groupid", "error", "eta", "job options", "latency_depth"] {
            assert_eq!(ours[key], theirs[key], "{test}: {key}");
        }
        // In a mixed job chance decides, and each has its own.
        if !args.contains("randrw") {
            assert_eq!(ours["sync"]["total_ios"], theirs["sync"]["total_ios"], "{test}: sync");
            assert_eq!(ours["sync"]["lat_ns"]["N"], theirs["sync"]["lat_ns"]["N"], "{test}: sync");
        }
        for direction in ["read", "write", "trim"] {
            if !args.contains("randrw") {
                for key in ["io_bytes", "io_kbytes", "total_ios", "short_ios", "drop_ios"] {
                    let (ours, theirs) = (&ours[direction][key], &theirs[direction][key]);
                    assert_eq!(ours, theirs, "{test}: {direction}/{key}");
                }
            }
        }
    }
}

#[test]
fn reads() {
    check(
        "reads",
        "--name=a --rw=read --size=2m --ioengine=libaio --iodepth=8 --iodepth_batch=4 \
         --iodepth_batch_complete=4 --filename=disk.img",
    );
}

#[test]
fn random_reads_of_two_jobs_with_defaults() {
    check(
        "random_reads_of_two_jobs_with_defaults",
        "--bs=8k --size=2m --ioengine=io_uring --name=a --rw=randread --name=b --rw=randread \
         --iodepth=4 --randseed=7",
    );
}

#[test]
fn a_mix() {
    check("a_mix", "--name=a --rw=randrw --size=2m --ioengine=libaio --filename=disk.img");
}

#[test]
fn writes_with_flushes() {
    check(
        "writes_with_flushes",
        "--name=a --rw=write --size=2m --fsync=16 --ioengine=libaio --filename=disk.img",
    );
}

#[test]
fn deep_writes_with_flushes_and_a_last_one() {
    check(
        "deep_writes_with_flushes_and_a_last_one",
        "--name=a --rw=randwrite --size=2m --fsync=10 --end_fsync=1 --iodepth=8 --iodepth_batch=4 \
         --ioengine=libaio --filename=disk.img",
    );
}

#[test]
fn clones_in_a_group() {
    check(
        "clones_in_a_group",
        "--name=a --rw=read --size=1m --numjobs=2 --group_reporting --thread --ioengine=libaio",
    );
}

#[test]
fn blocking_calls_of_two_threads() {
    check(
        "blocking_calls_of_two_threads",
        "--name=a --rw=read --size=1m --numjobs=2 --thread --ioengine=psync --filename=disk.img",
    );
}

#[test]
fn blocking_writes_with_flushes() {
    check(
        "blocking_writes_with_flushes",
        "--name=a --rw=write --size=1m --fsync=16 --end_fsync=1 --ioengine=sync",
    );
}

#[test]
fn time_based_reads() {
    // The number of I/Os is chance; only the shape is compared.
    let test = "time_based_reads";
    let args = "--name=a --rw=read --size=1m --runtime=1s --time_based --ioengine=libaio \
                --filename=disk.img";
    let folder = folder();
    let Some(mut theirs) = fio_json(test, &folder, args) else { return };
    let mut ours = bench_json(&folder, args);
    ours.as_object_mut().expect("an object").remove("forebay");
    compare_disks(test, take_disks(&mut theirs), take_disks(&mut ours));
    assert_eq!(paths(&ours), paths(&theirs));
}
