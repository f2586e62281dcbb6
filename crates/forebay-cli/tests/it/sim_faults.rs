//! `forebay sim --faults`: each effect of a rule, and the rules that are refused.

use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{folder, forebay, stderr, stdout};

fn sim(folder: &TempDir, job: &str, args: &[&str]) -> Output {
    std::fs::write(folder.path().join("job.fio"), format!("[a]\n{job}\n")).expect("a file");
    forebay(folder).args(["sim", "job.fio", "--seed", "3"]).args(args).output().expect("it runs")
}

/// Returns the JSON of a run with this rule.
#[track_caller]
fn run(job: &str, device: &str, rule: &str) -> Value {
    let output = sim(&folder(), job, &["--device", device, "--faults", rule, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{rule}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn failed_requests_are_counted_by_rule_and_status() {
    let value = run("rw=randread\nsize=1m", "nvme", "read:medium:nth=8");
    let layer = &value["forebay"][0];
    let rules = serde_json::json!([{ "rule": "read:medium:nth=8", "injected": 32 }]);
    assert_eq!((&layer["faults"], &layer["failed_bios"]["medium"]), (&rules, &32.into()));
    assert_eq!(
        (&value["jobs"][0]["read"]["total_ios"], &layer["retries"]),
        (&224.into(), &0.into())
    );

    let args = ["--faults", "read:io:range=0+4k", "--faults", "read:medium:range=8k+4k"];
    let text = stdout(&sim(&folder(), "rw=read\nsize=1m\niodepth=8\niodepth_batch=8", &args));
    assert!(text.contains("bios         : 256, 2 failed (1 io, 1 medium)\n"), "{text}");
    // The merged request fails, and so does the read that is retried alone.
    assert!(text.contains("faults       : 2 by read:io:range=0+4k\n"), "{text}");
    let replay = "--faults read:io:range=0+4k --faults read:medium:range=8k+4k --seed 3\n";
    assert!(text.ends_with(replay), "{text}");
}

#[test]
fn short_transfers_are_completed_by_the_layer() {
    for device in ["nvme", "fixed"] {
        let value = run("rw=randrw\nbs=64k\nsize=4m", device, "read+write:short=10k:nth=4");
        let layer = &value["forebay"][0];
        assert!(number(&layer["faults"][0]["injected"]) > 10.0, "{layer}");
        assert_eq!(layer["failed_bios"], serde_json::json!({}), "the rest is sent again");
        let job = &value["jobs"][0];
        let bytes = number(&job["read"]["io_bytes"]) + number(&job["write"]["io_bytes"]);
        assert_eq!(bytes, f64::from(4 << 20), "{device}");
    }
}

#[test]
fn delays_are_added_to_the_time_of_the_device() {
    for device in ["nvme", "fixed"] {
        let job = "rw=randread\nsize=64k";
        let mean =
            |rule: &str| number(&run(job, device, rule)["jobs"][0]["read"]["lat_ns"]["mean"]);
        let late = mean("read:delay=1ms") - mean("write:delay=1ms");
        assert!((999_000.0..1_001_000.0).contains(&late), "{device}: {late}");
    }
    // The flushes of a device with a cache.
    let value = run("rw=write\nsize=64k\nfsync=4", "sata", "flush:delay=5ms");
    assert!(number(&value["jobs"][0]["sync"]["lat_ns"]["min"]) > 5e6);
}

#[test]
fn busy_device_delays_requests_and_fails_none() {
    let value = run("rw=randread\nsize=1m\niodepth=8", "nvme", "any:busy:rate=0.5");
    let layer = &value["forebay"][0];
    assert!(number(&layer["requeues"]) > 50.0, "{layer}");
    assert_eq!(layer["failed_bios"], serde_json::json!({}));
}

#[test]
fn jobs_end_when_the_device_is_gone() {
    let job = "rw=randread\nsize=1m\ntime_based\nruntime=1h\niodepth=4";
    let value = run(job, "nvme", "any:offline:after=100");
    assert_eq!(value["jobs"][0]["read"]["total_ios"], 99);
    let failed = value["forebay"][0]["failed_bios"].as_object().expect("statuses");
    assert_eq!(failed.keys().collect::<Vec<_>>(), ["offline"]);
}

/// Runs a read at a time, of which the fifth hits the rule, with a time limit of 30 ms.
fn run_with_time_limit(rule: &str, more: &[&str]) -> Value {
    let limit = ["--json", "--device", "fixed", "--set", "io_timeout_ms=30"];
    let args = [&limit[..], &["--faults", rule], more].concat();
    let output = sim(&folder(), "rw=randread\nsize=1m\nnumber_ios=20", &args);
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)))
}

#[test]
fn request_that_hangs_ends_exactly_with_its_time_limit() {
    let value = run_with_time_limit("read:hang:nth=5", &[]);
    let layer = &value["forebay"][0];
    assert_eq!(layer["faults"][0]["injected"], 4);
    assert_eq!((&layer["timeouts"], &layer["failed_bios"]["timeout"]), (&4.into(), &4.into()));
    let late = &layer["late_requests"];
    assert_eq!((&late["cancelled"], &late["given_up"]), (&4.into(), &0.into()));
    assert_eq!((&late["first"][0]["op"], &late["first"][0]["len"]), (&"read".into(), &4096.into()));
    assert_eq!(layer["device_gone"], false);
    // Sixteen reads of 80 us, and four that take 30 ms, with a few steps of the task each.
    let time_ns = number(&layer["virtual_time_ns"]);
    assert!((121_280_000.0..121_380_000.0).contains(&time_ns), "{time_ns}");
}

#[test]
fn device_that_cancels_nothing_is_gone_after_the_grace_period() {
    let value = run_with_time_limit("read:delay=1s:nth=5", &["--set", "io_timeout_grace_ms=20"]);
    let layer = &value["forebay"][0];
    let late = &layer["late_requests"];
    assert_eq!((&late["awaited"], &late["given_up"]), (&1.into(), &1.into()));
    assert_eq!(layer["device_gone"], true);
    // A job's memory is borrowed, so its read ends with the device's own result (H2, H4).
    let failed = layer["failed_bios"].as_object().expect("statuses");
    assert_eq!(failed.keys().collect::<Vec<_>>(), ["offline"]);
    assert!(number(&layer["virtual_time_ns"]) > 1e9);
    let job = "rw=randread\nsize=1m\nnumber_ios=20\nio_timeout_ms=30\nio_timeout_grace_ms=20";
    let text = stdout(&sim(&folder(), job, &["--faults", "read:delay=1s:nth=5"]));
    for line in [
        "  timeouts     : 1 over the time limit, 0 cancelled, 0 bios ended early\n",
        "  late         : read of 4096 bytes at ",
        "  device       : gone at the end: new I/O ends with offline",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn same_seed_injects_the_same_faults() {
    let once = |seed: &str| {
        let args = ["--faults", "any:io:rate=0.1", "--seed", seed];
        let folder = folder();
        std::fs::write(folder.path().join("job.fio"), "[a]\nrw=randread\nsize=1m\n")
            .expect("a file");
        stdout(&forebay(&folder).args(["sim", "job.fio"]).args(args).output().expect("it runs"))
    };
    assert_eq!(once("3"), once("3"));
    assert_ne!(once("3").lines().nth(2), once("4").lines().nth(2), "the rate follows the seed");
}

#[test]
fn rules_without_an_effect_in_the_simulator_are_refused_by_name() {
    for (args, message) in [
        (&["--faults", "read:oops"][..], "--faults=read:oops: expected a status such as io"),
        (
            &["--faults", "read:io:rate=2"],
            "rate=2: expected rate=P with a number from 0 to 1, not 'rate=2'",
        ),
        (&["--faults", "flush:lie"], "--faults=flush:lie: not simulated: the checkers would"),
        (&["--faults", "read:hang"], "--faults=read:hang: expected io_timeout_ms: without a time"),
        (&["--faults", "write:nofua"], "--faults=write:nofua: not simulated: the checkers would"),
        (&["--faults", "write:writeback=io"], "not simulated: it needs a file: use write_back"),
        (&["--faults", "read:again"], "--faults=read:again: not simulated: only the layer itself"),
        (
            &["--device", "nvme", "--faults", "flush:io"],
            "--faults=flush:io: expected a disk with a volatile cache; flushes do not reach this",
        ),
        (
            &["--sweep", "device=sata,hdd", "--faults", "flush:io"],
            "device=hdd: --faults=flush:io: expected a disk with a volatile cache",
        ),
        (&["--faults", "read:io:range=1g+4k"], "expected a range that begins before the end"),
    ] {
        let output = sim(&folder(), "rw=read\nsize=1m", args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(message), "{args:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}
