//! Sweeps, and the pictures and pages of `bench` and `lab`.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::common::{forebay, stderr, stdout};

/// Runs the program in this folder; it must succeed. Returns its output.
#[track_caller]
fn run(folder: &TempDir, args: &str) -> String {
    let output = forebay(folder).args(args.split_whitespace()).output().expect("it can be run");
    assert!(output.status.success(), "{args}: {}", stderr(&output));
    stdout(&output)
}

/// Returns the messages of a command that is refused.
#[track_caller]
fn refused(args: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let output = forebay(&folder).args(args.split_whitespace()).output().expect("it can be run");
    assert_eq!(output.status.code(), Some(2), "{args}: {}", stdout(&output));
    stderr(&output)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const SHORT: &str = "--eta=never --name=a --rw=randread --runtime=100ms --time_based";

#[test]
fn a_sweep_has_a_row_for_each_value_and_a_picture() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = "--filename=model:nvme?data=off --sweep iodepth=1..4 --svg s.svg --html s.html";
    let text = run(&folder, &format!("bench {SHORT} {args}"));
    let values: Vec<_> = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("iodepth"))
        .skip(1)
        .map_while(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(values, ["1", "2", "4"], "{text}");
    let svg = read(&folder.path().join("s.svg"));
    assert!(svg.starts_with("<svg ") && svg.contains(">p99</text>"), "{svg}");
    let html = read(&folder.path().join("s.html"));
    assert_eq!(html.matches("<svg ").count(), 3);
}

#[test]
fn a_sweep_of_a_key_of_the_layer_is_printed_for_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = "--filename=ram:1M --sweep=wake=fair,batch --output-format=json";
    let text = run(&folder, &format!("bench {SHORT} {args}"));
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["sweep"], "wake");
    let points = json["points"].as_array().expect("points");
    let values: Vec<_> = points.iter().map(|point| point["value"].as_str()).collect();
    assert_eq!(values, [Some("fair"), Some("batch")]);
    assert!(points.iter().all(|point| point["iops"].as_f64().is_some_and(|it| it > 0.0)), "{text}");
}

#[test]
fn a_run_has_its_latencies_and_rates_over_time_on_one_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = run(
        &folder,
        "bench --eta=never --filename=ram:1M --runtime=300ms --time_based --svg pictures \
         --html page.html --name=a --rw=randrw --name=b --rw=read --ioengine=sync",
    );
    let html = read(&folder.path().join("page.html"));
    assert_eq!(html.matches("<svg ").count(), 5);
    for name in ["a read", "a write", "b read"] {
        assert!(html.contains(&format!(">{name}</text>")), "{name}");
    }
    assert!(html.contains("<pre") && report.contains("Run status"), "{report}");
    let mut names: Vec<_> = fs::read_dir(folder.path().join("pictures"))
        .expect("a folder")
        .map(|entry| entry.expect("a file").file_name().into_string().expect("a name"))
        .collect();
    names.sort();
    let expected = [
        "bandwidth.svg",
        "iops.svg",
        "latency-distribution.svg",
        "latency-p99.svg",
        "latency-percentiles.svg",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_run_without_latencies_has_only_its_rates() {
    let folder = tempfile::tempdir().expect("a folder");
    run(&folder, &format!("bench {SHORT} --filename=ram:1M --gtod_reduce=1 --html page.html"));
    let html = read(&folder.path().join("page.html"));
    assert!(html.contains("IOPS over time") && !html.contains("NaN"), "{html}");
    assert!(!html.contains("Distribution of the latency"), "{html}");
}

#[test]
fn pictures_and_sweeps_that_cannot_be_made_are_refused_before_the_run() {
    let jobs = format!("bench {SHORT} --filename=ram:1M");
    for (args, expected) in [
        ("--sweep iodepth=1,x", "--iodepth=x: not a whole number"),
        ("--sweep output=a,b", "--sweep=output=a: the option applies to the whole run"),
        ("--sweep nosuch=1,2", "--sweep=nosuch=1: a: unknown key `nosuch`"),
        (
            "--sweep iodept=1,2",
            "--sweep=iodept=1: not an option of bench (did you mean iodepth?), so it is taken as a \
             key of the disk: a: unknown key `iodept`",
        ),
        ("--sweep bs=4k,8k --write_bw_log=x", "each run would overwrite the logs"),
        ("--sweep bs=4k,8k --output-format=json+", "printed as normal or as json"),
        ("--sweep bs=4k,8k --compare=fio", "--sweep cannot be combined with --compare"),
        ("--html=a --compare=fio", "--html cannot be combined with --compare"),
    ] {
        let message = refused(&format!("{jobs} {args}"));
        assert!(message.contains(expected), "{args}: {message}");
    }
}

#[test]
fn a_path_that_cannot_be_written_is_an_error_before_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = "bench --name=a --filename=ram:1M --runtime=60 --time_based --html nosuch/a.html";
    let output = forebay(&folder).args(args.split_whitespace()).output().expect("it can be run");
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("there is no folder nosuch: create it first"), "{message}");
}

#[test]
fn file_and_folder_of_figures_are_not_mistaken_for_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("d")).expect("a folder");
    for (args, message) in [
        ("--sweep iodepth=1,2 --svg sv", "sv: the name does not end in .svg; this run has one"),
        (
            "--sweep iodepth=1,2 --svg d",
            "d: it is a folder; this run has one figure: expected a file",
        ),
        ("--svg sv.svg", "sv.svg: the name ends in .svg; this run has several figures"),
    ] {
        let args = format!("bench {SHORT} --filename=ram:1M {args}");
        let output = forebay(&folder).args(args.split_whitespace()).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{args}");
        let text = stderr(&output);
        assert!(text.starts_with(&format!("forebay: --svg={message}")), "{text}");
    }
    assert!(["sv", "sv.svg"].iter().all(|name| !folder.path().join(name).exists()));
}

#[test]
fn experiments_have_curves_for_light_and_dark_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    run(&folder, "lab flush --svg d --html page.html");
    let svg = |name: &str| read(&folder.path().join("d").join(name));
    let light = svg("flush-each-sata-iops-of-hold.svg");
    let dark = svg("flush-each-sata-iops-of-hold-dark.svg");
    assert!(light.contains(">tail, published</text>"), "{light}");
    assert!(light != dark && !dark.contains("prefers-color-scheme"), "{dark}");
    let html = read(&folder.path().join("page.html"));
    assert!(html.contains("<h2>flush-each</h2>") && html.contains("<h2>flush-100</h2>"), "{html}");
}
