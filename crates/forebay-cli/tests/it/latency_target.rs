//! The search for the depth that keeps to a latency.

use std::process::Command;

use serde_json::Value;

use crate::common::{bench, bench_json, folder, json, skip_without, stderr, stdout};

/// Runs a program on an NBD server that does one read after another, each in 1 ms. Returns its
/// report; `None` without the server.
fn on_serial_device(program: &str) -> Option<Value> {
    let job = "--name=a --ioengine=nbd --rw=randread --size=64m --iodepth=64 --time_based \
               --runtime=30 --latency_target=20ms --latency_window=200ms --latency_percentile=50 \
               --output-format=json";
    let output = Command::new("nbdkit")
        .args(["--threads=1", "-U", "-", "--filter=delay", "memory", "64M", "rdelay=1ms"])
        .args(["--run", &format!("{program} {job} --uri=nbd+unix:///?socket=$unixsocket")])
        .current_dir(folder().path())
        .output()
        .ok()?;
    let text = stdout(&output);
    let start = text.find("{\n")?;
    Some(text[start..].parse().expect("JSON"))
}

/// With `depth` reads in flight each takes at least `depth` ms, and the server and the machine add
/// to that.
#[test]
fn depth_on_a_serial_device_is_the_target_divided_by_its_time_as_in_fio() {
    let test = "depth_on_a_serial_device_is_the_target_divided_by_its_time_as_in_fio";
    let ours = format!("{} bench", env!("CARGO_BIN_EXE_forebay"));
    let Some(ours) = on_serial_device(&ours) else { return skip_without("nbdkit", test) };
    let Some(theirs) = on_serial_device("fio") else {
        return skip_without("fio with its engine nbd", test);
    };
    for report in [&ours, &theirs] {
        let job = &report["jobs"][0];
        let depth = job["latency_depth"].as_i64().expect("a depth");
        // A deeper one cannot keep to it. On a busy machine the result may be lower.
        assert!((2..=20).contains(&depth), "{depth}");
        assert!(job["read"]["runtime"].as_i64() < Some(20_000));
        assert_eq!(job["latency_target"], 20_000_000);
        assert_eq!(job["latency_window"], 200_000);
        assert_eq!(job["latency_percentile"].as_f64(), Some(50.0));
    }
    // The figures are those of this depth alone, so few I/Os had fewer beside them.
    let job = &ours["jobs"][0];
    let depth = job["latency_depth"].as_u64().expect("a depth");
    let levels = job["iodepth_level"].as_object().expect("levels");
    let deep = levels[&format!("{}", 1 << depth.ilog2())].as_f64();
    assert!(deep > Some(75.0), "{depth}: {levels:?}");
}

#[test]
fn target_that_every_depth_meets_leads_to_iodepth() {
    for (more, depth) in [
        ("--iodepth=6", 6),
        ("--iodepth=6 --numjobs=2 --group_reporting", 6),
        ("--iodepth=6 --iodepth_batch=4 --iodepth_low=5 --iodepth_batch_complete=3", 6),
        ("--iodepth=6 --rate_iops=5000", 6),
        ("--ioengine=psync", 1),
        ("--iodepth=6 --filename=x:y --size=128k", 6),
    ] {
        let args = format!(
            "--name=a --filename=ram:1M --rw=randrw --time_based --runtime=60 \
             --latency_target=10s --latency_window=20ms {more}"
        );
        let report = bench_json(&folder(), &args);
        let job = &report["jobs"][0];
        assert_eq!(job["latency_depth"], depth, "{more}");
        assert!(job["read"]["runtime"].as_i64() < Some(30_000), "{more}");
    }
}

#[test]
fn target_that_cannot_be_met_is_noted_and_ends_a_job_that_may_not_exceed_it() {
    let args = "--name=a --filename=fault:ram:1M?rule=read:delay=1ms --rw=randread --iodepth=8 \
                --time_based --runtime=100ms --latency_window=10ms --output-format=json";
    let output = bench(&folder(), &format!("{args} --latency_target=500"));
    let text = stderr(&output);
    assert!(text.contains("--latency_target=500us even at a depth of 1; raise it"), "{text}");
    assert!(!text.contains("is missed even at depth 1"), "the reason is given once: {text}");
    assert_eq!(
        (output.status.code(), json(&output)["jobs"][0]["error"].as_i64()),
        (Some(1), Some(110))
    );
    let output = bench(&folder(), &format!("{args} --latency_target=500 --latency_percentile=99"));
    let output_of_zero = bench(&folder(), &format!("{args} --latency_target=0"));
    assert!(stderr(&output_of_zero).contains("--latency_window has no effect without"));
    let report = json(&output);
    assert_eq!((output.status.code(), &report["jobs"][0]["latency_depth"]), (Some(0), &1.into()));
    assert_eq!(stderr(&output), "forebay: a: the latency target is missed even at depth 1\n");
    let longer = format!("{args} --latency_target=10s --latency_window=90ms");
    let text = stderr(&bench(&folder(), &longer));
    assert!(text.contains("before the depth for the latency target was found"), "{text}");
}

#[test]
fn unreached_depth_is_reported() {
    let args = "--name=a --filename=ram:1M --rw=randread --iodepth=8 --time_based --runtime=60 \
                --latency_target=10s --latency_window=20ms --output-format=json";
    let output = bench(&folder(), &format!("{args} --thinktime=1ms --thinktime_blocks=2"));
    assert_eq!(json(&output)["jobs"][0]["latency_depth"], 8);
    let text = stderr(&output);
    let peak = text.strip_prefix("forebay: a: only ").and_then(|rest| rest.split(' ').next());
    let peak: u32 = peak.and_then(|peak| peak.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    assert!((1..8).contains(&peak), "{text}");
    assert!(text.ends_with(&format!("was not tested beyond depth {peak}\n")), "{text}");
    assert_eq!(stderr(&bench(&folder(), args)), "", "without pauses the depth is reached");
}

#[test]
fn job_that_runs_on_uses_its_time_and_verifies_its_blocks() {
    let args = "--name=a --filename=ram:1M --rw=randwrite --verify=crc32c --iodepth=8 --time_based \
                --runtime=300ms --latency_target=10s --latency_window=10ms";
    for (more, is_long) in [("", false), ("--latency_run=1", true)] {
        let report = bench_json(&folder(), &format!("{args} {more}"));
        let job = &report["jobs"][0];
        assert_eq!(job["latency_depth"], 8, "{more}");
        assert_eq!(job["job_runtime"].as_i64() >= Some(150), is_long, "{more}: {report}");
        assert!(job["read"]["total_ios"].as_i64() > Some(0), "{more}");
    }
}
