//! Reports of `forebay sim`: JSON, tables over several seeds, and figures.

use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{folder, forebay, stderr, stdout};

/// Two clones that are reported as one, and a job that ends after a fixed size.
const JOBS: &str = "[global]\nbs=4k\nsize=16m\nio_size=512k\niodepth=8\niodepth_batch=8\n\
                    iodepth_batch_complete=8\n\
                    filename=model:nvme\n[a]\nrw=write\nfsync=16\nnumjobs=2\ngroup_reporting\n\
                    [b]\nrw=read\n";

fn sim(folder: &TempDir, args: &str) -> Output {
    std::fs::write(folder.path().join("job.fio"), JOBS).expect("a file");
    let args = args.split_whitespace();
    forebay(folder).args(["sim", "job.fio", "--seed", "3"]).args(args).output().expect("it runs")
}

/// Returns standard output, all of which is one JSON value.
fn json(folder: &TempDir, args: &str) -> Value {
    let output = sim(folder, &format!("--json {args}"));
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    serde_json::from_str(&stdout(&output)).expect("JSON")
}

#[test]
fn json_has_the_keys_of_fio_for_each_job_and_the_figures_of_the_layer() {
    let folder = folder();
    let value = json(&folder, "");
    let jobs = value["jobs"].as_array().expect("jobs");
    let names: Vec<_> = jobs.iter().map(|job| job["jobname"].as_str().expect("a name")).collect();
    assert_eq!(names, ["a", "b"], "the clones of the first job are one group");
    let (a, b) = (&jobs[0], &jobs[1]);
    assert_eq!((&a["write"]["total_ios"], &b["read"]["total_ios"]), (&256.into(), &128.into()));
    assert_eq!((&a["write"]["io_bytes"], &a["read"]["io_bytes"]), (&(1 << 20).into(), &0.into()));
    assert_eq!(a["sync"]["total_ios"], 16);
    assert_eq!(a["job options"]["fsync"], "16");
    assert_eq!(value["global options"]["iodepth"], "8");
    let lat = |of: &str| b["read"][of]["mean"].as_f64().expect("a mean");
    assert!((lat("slat_ns") + lat("clat_ns") - lat("lat_ns")).abs() < 1.0, "{b}");
    assert_eq!(b["iodepth_submit"]["8"], 100.0, "{b}");

    let [layer] = &value["forebay"].as_array().expect("a list")[..] else { panic!("one device") };
    assert_eq!((&layer["seed"], &layer["device"]), (&3.into(), &"nvme".into()));
    // The latencies of the layer are those of all jobs.
    let moments = ["read", "write"].map(|of| jobs.iter().map(move |job| &job[of]["lat_ns"]));
    let longest = moments.into_iter().flatten().map(|lat| lat["max"].as_u64().expect("a time"));
    assert_eq!(layer["latency_ns"]["max"].as_u64(), longest.max());
    let p99 = layer["latency_ns"]["p99"].as_u64().expect("a time");
    assert!(p99 > layer["latency_ns"]["p50"].as_u64().expect("a time"), "{layer}");
    assert_eq!(layer["latency_ns"]["n"], 384);
    assert_eq!(layer["policy"]["wake"], "fair");
    assert_eq!((&layer["fairness"], &layer["setting"]), (&Value::Null, &Value::Null));
    assert_eq!(layer["bios"]["flush"], 16);
    assert_eq!(layer["flush_latency_ns"]["n"], 16);
    let switches: u64 = jobs.iter().map(|job| job["ctx"].as_u64().expect("a number")).sum();
    assert_eq!(layer["voluntary_switches"], switches);
    let ios_per_s = 384e9 / layer["virtual_time_ns"].as_f64().expect("a time");
    assert!((layer["iops"].as_f64().expect("IOPS") - ios_per_s).abs() < 1.0, "{layer}");
    assert!(layer["merges"]["back"].as_u64() > Some(100), "{layer}");
}

#[test]
fn json_of_the_same_seed_has_the_same_bytes() {
    let folder = folder();
    assert_eq!(stdout(&sim(&folder, "--json")), stdout(&sim(&folder, "--json")));
}

#[test]
fn json_of_several_runs_has_a_row_for_each() {
    let folder = folder();
    let value = json(&folder, "--compare plug=none --compare device=hdd");
    assert!(value.get("jobs").is_none(), "each row has its own");
    let rows = value["forebay"].as_array().expect("rows");
    let settings: Vec<_> = rows.iter().map(|row| row["setting"].as_str()).collect();
    assert_eq!(settings, [None, Some("plug=none"), Some("device=hdd")]);
    assert_eq!(rows[1]["policy"]["plug"], "none");
    assert!(rows.iter().all(|row| row["jobs"].as_array().is_some_and(|jobs| jobs.len() == 2)));
    let seeds = json(&folder, "--seeds 2");
    let seeds: Vec<_> = seeds["forebay"].as_array().expect("rows").iter().collect();
    assert_eq!((&seeds[0]["seed"], &seeds[1]["seed"]), (&3.into(), &4.into()));
}

#[test]
fn json_names_the_statuses_of_failed_bios() {
    let folder = folder();
    let value = json(&folder, "--device flaky:fail=100000");
    let failed = value["forebay"][0]["failed_bios"].as_object().expect("statuses");
    assert!(failed.contains_key("io") && failed.contains_key("medium"), "{failed:?}");
    assert_eq!(value["jobs"][0]["error"], 5, "EIO");
    assert_eq!(value["forebay"][0]["iops"], Value::Null, "the latencies are random");
}

#[test]
fn several_seeds_of_a_setting_have_a_median_and_a_range() {
    let folder = folder();
    let args = "--compare plug=none --seeds 3";
    let text = stdout(&sim(&folder, args));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    let heading: Vec<_> = lines[0].split("  ").map(str::trim).filter(|it| !it.is_empty()).collect();
    assert_eq!(heading, ["setting", "IOPS", "p99 us", "switches/IO", "fairness"], "{text}");
    let again = "replay with: forebay sim job.fio --compare plug=none --seed 3 --seeds 3";
    assert_eq!(lines[3], again);

    let value = json(&folder, args);
    let [base, plug] = &value["forebay"].as_array().expect("rows")[..] else { panic!("two rows") };
    assert_eq!(plug["setting"], "plug=none");
    let runs = base["seeds"].as_array().expect("runs");
    let mut iops: Vec<_> = runs.iter().map(|run| run["iops"].as_f64().expect("IOPS")).collect();
    iops.sort_by(f64::total_cmp);
    let range = ["min", "median", "max"].map(|key| base["iops"][key].as_f64().expect("IOPS"));
    assert_eq!(range[..], iops[..]);
    assert!(range[0] < range[2], "the seeds interleave the threads differently: {range:?}");
    let [min, median, max] = range.map(|iops| format!("{iops:.0}"));
    assert!(lines[1].contains(&format!("{median} ({min}..{max})")), "{text}");
    assert_eq!(base["fairness"], Value::Null);
    let p99 = |value: &Value| value["latency_ns"]["p99"].clone();
    let mut of_runs: Vec<_> = runs.iter().map(|run| p99(run).as_f64().expect("ns")).collect();
    of_runs.sort_by(f64::total_cmp);
    let range = ["min", "median", "max"].map(|key| p99(base)[key].as_f64().expect("ns"));
    assert!(range.iter().zip(&of_runs).all(|(a, b)| (a - b).abs() < 0.5), "{range:?} {of_runs:?}");
}

/// Returns the figure that a run writes.
fn figure(folder: &TempDir, args: &str) -> String {
    let output = sim(folder, &format!("{args} --svg figure.svg"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("setting "), "the table is printed as well");
    std::fs::read_to_string(folder.path().join("figure.svg")).expect("a figure")
}

#[test]
fn figure_of_a_sweep_has_a_line_over_the_values() {
    let folder = folder();
    let svg = figure(&folder, "--sweep queue_depth=1,2,4 --seeds 3");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    let count = |what: &str| svg.matches(what).count();
    for name in ["IOPS", "latency p99", "context switches per I/O"] {
        assert!(svg.contains(&format!("<tspan class=\"name\">{name}</tspan>")), "{svg}");
    }
    // Three panels with three dots each, joined by two lines, and a label for each value.
    assert_eq!((count("<circle"), count("class=\"join\""), count(">2</text>") >= 3), (9, 6, true));
    assert_eq!(count(">queue_depth</text>"), 3, "the key is the name of the axis");
    assert!(svg.contains("Median of 3 seeds"), "{svg}");
    assert!(svg.contains("Not shown: fairness, because not all jobs are time_based."), "{svg}");
}

#[test]
fn figure_of_a_comparison_has_bars_and_a_list_of_long_names() {
    let folder = folder();
    let svg = figure(&folder, "--compare plug=none --compare device=nvme:latency_ns=90000");
    let count = |what: &str| svg.matches(what).count();
    assert_eq!((count("<rect class=\"a\""), count("<circle")), (9, 0), "{svg}");
    assert_eq!(count(">3  device=nvme:latency_ns=90000</text>"), 1, "{svg}");
    let svg = figure(&folder, "--sweep device=hdd,nvme");
    assert!(svg.contains("log scale") && svg.contains(">hdd</text>"), "{svg}");
    assert_eq!(svg.matches("class=\"join\"").count(), 0, "devices have no order: {svg}");
}

#[test]
fn figure_needs_runs_to_compare() {
    let folder = folder();
    let output = sim(&folder, "--svg figure.svg");
    assert_eq!(output.status.code(), Some(2));
    let why = "forebay: --svg=figure.svg: a figure compares several runs; give --compare or \
               --sweep too\n";
    assert_eq!(stderr(&output), why);
    let output = sim(&folder, "--compare plug=none --svg none/figure.svg");
    assert_eq!(output.status.code(), Some(1));
    let why = "forebay: --svg=none/figure.svg: cannot write the figure: there is no folder none: \
               create it first\n";
    assert_eq!(stderr(&output), why);
    assert!(stdout(&output).starts_with("setting "), "the results are printed all the same");
}
