//! The reports beside those of the real fio, if it is installed: the same JSON keys with the same
//! types, and the same shapes of text lines.

#[path = "../../forebay/tests/support/skip.rs"]
mod skip;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use forebay_fio::generator::Direction;
use forebay_fio::report::{DiskUtil, JobReport, Report, json, normal};
use forebay_fio::stats::JobStats;
use serde_json::Value;

/// The output of fio, in both formats.
struct Outcome {
    json: Value,
    text: String,
}

/// Runs fio on a small file. `None` without fio: then the test is skipped.
fn run_fio(test: &str, args: &[&str]) -> Option<Outcome> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("data");
    let json_path = dir.path().join("out.json");
    let run = |format: &str, output: &Path| {
        Command::new("fio")
            .args(["--name=job1", "--size=1m", "--ioengine=libaio", "--iodepth=4"])
            .arg(format!("--filename={}", file.display()))
            .arg(format!("--output-format={format}"))
            .arg(format!("--output={}", output.display()))
            .args(args)
            .status()
    };
    let text_path = dir.path().join("out.txt");
    for (format, path) in [("json", &json_path), ("normal", &text_path)] {
        match run(format, path) {
            Ok(status) => assert!(status.success(), "{test}: fio ended with {status}"),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                skip::skip(test, "fio is not installed");
                return None;
            }
            Err(error) => panic!("{test}: fio: {error}"),
        }
    }
    let json = std::fs::read_to_string(&json_path).expect("fio's JSON");
    // fio may print a line or two in front of the value.
    let start = json.find("{\n").expect("a JSON value");
    Some(Outcome {
        json: json[start..].parse().expect("fio's JSON"),
        text: std::fs::read_to_string(&text_path).expect("fio's text"),
    })
}

/// Returns a report with figures for these directions.
fn our_report(directions: &[Direction], flushes: bool) -> Report {
    let mut stats = JobStats::new(0);
    for io in 0..512_u64 {
        for &direction in directions {
            stats.record_submit(1, 4);
            stats.record_slat(direction, 500 + io % 7);
            stats.record_complete(direction, 4096, 9_000 + io * 50, 9_500 + io * 50);
            stats.record_reap(1);
        }
        if flushes {
            stats.record_sync(1, 80_000 + io);
        }
    }
    for direction in directions {
        stats.directions[direction.index()].runtime_ms = 12;
    }
    stats.job_runtime_ms = 12;
    let job = JobReport { name: "job1".to_owned(), jobs: 1, stats, ..JobReport::default() };
    Report {
        version: "forebay-test".to_owned(),
        jobs: vec![job],
        disk_util: vec![DiskUtil { name: "data".to_owned(), ..DiskUtil::default() }],
        ..Report::default()
    }
}

/// Collects the paths at which two values have different keys or types.
fn compare(path: &str, theirs: &Value, ours: &Value, differences: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            let keys: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
            for key in keys {
                let path = format!("{path}/{key}");
                match (theirs.get(key), ours.get(key)) {
                    (Some(theirs), Some(ours)) => compare(&path, theirs, ours, differences),
                    (Some(_), None) => differences.push(format!("{path}: only fio has it")),
                    _ => differences.push(format!("{path}: only we have it")),
                }
            }
            let shared = |key: &&String| theirs.contains_key(*key) && ours.contains_key(*key);
            let order = |map: &serde_json::Map<String, Value>| {
                map.keys().filter(shared).cloned().collect::<Vec<_>>()
            };
            if order(theirs) != order(ours) {
                differences.push(format!("{path}: the keys are in another order"));
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            for (theirs, ours) in theirs.iter().zip(ours) {
                compare(&format!("{path}[]"), theirs, ours, differences);
            }
        }
        _ if kind(theirs) == kind(ours) => {}
        _ => differences.push(format!("{path}: {} in fio, {} here", kind(theirs), kind(ours))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Replaces every number of a line by `#`, and prefixes and units of time by a common one.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for c in line.chars() {
        match c {
            '0'..='9' | '.' if shape.ends_with('#') => {}
            '0'..='9' => shape.push('#'),
            'k' | 'M' | 'G' if shape.ends_with('#') => {}
            ' ' if shape.ends_with('=') || shape.ends_with('[') => {}
            _ => shape.push(c),
        }
    }
    for unit in ["#KiB", "#iB", "#B"] {
        shape = shape.replace(unit, "#bytes");
    }
    shape = shape.replace("(nsec)", "(unit)").replace("(usec)", "(unit)");
    if let Some(at) = shape.find("pid=#: ") {
        shape.truncate(at);
    }
    shape
}

/// Returns the lines whose shape does not depend on the figures.
fn shapes(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| {
        line.starts_with(' ') && !line.contains(" bw ( ") && !line.contains(" iops  ")
    });
    let lines = lines.filter(|line| !line.starts_with("  lat (") && !line.starts_with("     | "));
    lines
        .map(shape)
        .map(|line| match line.find("=#/#, merge") {
            Some(at) => format!("  disk: ios{}", &line[at..]),
            None => line,
        })
        .collect()
}

#[track_caller]
fn check(test: &str, args: &[&str], directions: &[Direction], flushes: bool) {
    let Some(theirs) = run_fio(test, args) else {
        return;
    };
    let ours = our_report(directions, flushes);
    let mut our_json = json::value(&ours, false);
    // These depend on what was given, and where the file lies, not on the format.
    our_json["jobs"][0]["job options"] = theirs.json["jobs"][0]["job options"].clone();
    if theirs.json.get("disk_util").is_none() {
        our_json.as_object_mut().expect("an object").remove("disk_util");
    }
    let mut differences = Vec::new();
    compare("", &theirs.json, &our_json, &mut differences);
    assert_eq!(differences, ["/forebay: only we have it"], "{test}");

    let (mut theirs, mut ours) = (shapes(&theirs.text), shapes(&normal::render(&ours)));
    for lines in [&mut theirs, &mut ours] {
        lines.retain(|line| !line.starts_with("  disk: "));
    }
    assert_eq!(theirs, ours, "{test}");
}

#[test]
fn a_read_job() {
    check("a_read_job", &["--rw=read"], &[Direction::Read], false);
}

#[test]
fn a_mixed_job() {
    check("a_mixed_job", &["--rw=randrw"], &[Direction::Read, Direction::Write], false);
}

#[test]
fn a_job_with_flushes() {
    check("a_job_with_flushes", &["--rw=write", "--fsync=8"], &[Direction::Write], true);
}
