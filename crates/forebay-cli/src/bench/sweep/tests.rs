//! Sweeps: values, jobs, and reports.

use super::point::Latency;
use super::*;

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let sweep = Sweep::parse(text).expect(text);
    assert_eq!(sweep.values, expected, "{text}");
}

#[test]
fn two_points_double_up_to_the_last_number() {
    check("iodepth=1,2,4", &["1", "2", "4"]);
    check("iodepth=1..16", &["1", "2", "4", "8", "16"]);
    check("bs=4k..20k", &["4k", "8k", "16k"]);
    check("bs=512..1k,1m", &["512", "1024", "1m"]);
    check("wake=fair,batch", &["fair", "batch"]);
    check("rate-iops=3..7", &["3", "6"]);
    assert_eq!(Sweep::parse("rate-iops=3,7").map(|it| it.key).as_deref(), Ok("rate_iops"));
}

#[test]
fn wrong_sweeps_are_refused() {
    let form = "expected option=value,value,..., such as iodepth=1,2,4";
    for (text, error) in [
        ("iodepth", form),
        ("=1,2", form),
        ("iodepth=1,,2", form),
        ("iodepth=4", "a sweep needs two values or more"),
        ("iodepth=1,2,1", "the value 1 is given twice"),
        ("iodepth=4..1", "4..1: expected two numbers, the lower one first"),
        ("iodepth=0..8", "0..8: expected two numbers, the lower one first"),
        ("bs=x..8k", "x..8k: expected two numbers, the lower one first"),
    ] {
        assert_eq!(Sweep::parse(text).expect_err(text), error, "{text}");
    }
}

fn command(args: &str) -> JobList {
    match cmdline::parse(args.split_whitespace().map(Into::into)) {
        Ok(Parsed::Run(command)) => *command,
        other => panic!("{args}: {other:?}"),
    }
}

#[test]
fn the_value_replaces_that_of_each_job() {
    let command = command("--filename=ram:1M --name=a --iodepth=4 --numjobs=2 --name=b --rw=write");
    let step = step(&command, "iodepth", "16").expect("jobs");
    assert_eq!(step.command.jobs.iter().map(|job| job.iodepth).collect::<Vec<_>>(), [16, 16]);
    assert_eq!((step.command.jobs[0].numjobs, step.targets.len()), (2, 3));
}

#[test]
fn keys_of_the_layer_are_set_in_the_disk() {
    let command = command("--filename=ram:1M --name=a");
    let spec = |key, value| {
        let step = step(&command, key, value).expect(key);
        step.targets[0].spec.to_string()
    };
    assert!(spec("wake", "batch").contains("wake=batch"));
    assert!(spec("req_ns", "500").contains("req_ns=500"));
}

#[test]
fn options_that_are_none_of_a_job_are_refused() {
    let command = command("--filename=ram:1M --name=a");
    for key in ["output_format", "name", "latency_target"] {
        assert!(step(&command, key, "1").is_err(), "{key}");
    }
}

fn points() -> Vec<Point> {
    let point = |value: &str, iops: f64, p50: f64| Point {
        value: value.to_owned(),
        iops,
        bytes_per_s: iops * 4096.0,
        latency: Some(Latency { mean: p50, p50, p99: p50 * 4.0, p999: p50 * 9.0 }),
        cpu_ns: 800.0,
    };
    vec![point("1", 9000.0, 1e5), point("8", 60_000.0, 1.2e5), point("64", 90_000.0, 7e5)]
}

fn about() -> About<'static> {
    About {
        key: "iodepth",
        load: "rw=randread, bs=4k".to_owned(),
        disks: "ram:1M".to_owned(),
        machine: "a machine".to_owned(),
        command: "forebay bench --name=a".to_owned(),
    }
}

#[test]
fn each_value_has_a_row_and_a_labelled_point() {
    let text = charts::text(&about(), &points());
    let row: Vec<_> = text
        .lines()
        .find(|line| line.contains("90k"))
        .expect("a row")
        .split("  ")
        .filter(|cell| !cell.is_empty())
        .map(str::trim)
        .collect();
    assert_eq!(
        row,
        ["64", "90k", "369 MB/s", "700 \u{b5}s", "700 \u{b5}s", "2.8 ms", "6.3 ms", "800 ns"]
    );
    let svg = charts::throughput_and_latency(&about(), &points()).svg(Theme::Auto);
    for value in ["1", "8", "64"] {
        assert!(svg.contains(&format!("\">{value}</text>")), "{value}: {svg}");
    }
    assert!(svg.contains("Latency at each throughput, for values of iodepth"), "{svg}");
}

#[test]
fn the_page_has_the_table_and_three_pictures() {
    let html = charts::page(&about(), &points());
    assert_eq!(html.matches("<svg ").count(), 3);
    assert!(html.contains("<td>2.8 ms</td>") && html.contains("a machine"), "{html}");
    // Words are no numbers, so there is only one picture.
    let mut named = points();
    named[0].value = "fair".to_owned();
    assert_eq!(charts::page(&about(), &named).matches("<svg ").count(), 1);
}

#[test]
fn missing_latencies_are_dashes() {
    let mut points = points();
    points.iter_mut().for_each(|point| point.latency = None);
    assert!(charts::text(&about(), &points).contains("  -  "), "no latencies");
    assert!(!charts::page(&about(), &points).contains("NaN"));
    let json = point::json("iodepth", &points);
    assert!(json.contains("\"clat_ns\": null") && json.contains("\"sweep\": \"iodepth\""));
}

#[test]
fn the_swept_option_is_not_part_of_the_load() {
    assert_eq!(without_key("rw=read, bs=4k, iodepth=1", "iodepth"), "rw=read, bs=4k");
    assert_eq!(without_key("rw=read, bs=4k", "wake"), "rw=read, bs=4k");
}
