//! `bench --compare`: with the real fio, with a fake fio, with other devices, and the options that
//! are refused before any run.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{
    bench, bench_until, data_file, folder, forebay, json, skip_without, stderr, stdout,
};

/// Runs a comparison with a script as fio, which answers `--version` and otherwise executes `run`.
fn with_fio(folder: &TempDir, version: &str, run: &str, args: &str) -> Output {
    let bin = folder.path().join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    let script = format!("#!/bin/sh\ncase $1 in --version) echo {version};; *) {run};; esac\n");
    std::fs::write(bin.join("fio"), script).expect("a script");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(bin.join("fio"), mode).expect("a mode");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", bin.display());
    let mut command = forebay(folder);
    command.env("PATH", path).arg("bench").args(args.split_whitespace());
    command.output().expect("it can be run")
}

#[track_caller]
fn metric<'a>(report: &'a Value, name: &str) -> &'a Value {
    let metrics = report["metrics"].as_array().expect("a list");
    metrics.iter().find(|metric| metric["metric"] == name).expect(name)
}

#[test]
fn the_real_fio_does_the_same_job() {
    let test = "the_real_fio_does_the_same_job";
    if Command::new("fio").arg("--version").output().is_err() {
        return skip_without("fio", test);
    }
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    let args = "--name=a --filename=disk.img --rw=randread --iodepth=4 --numjobs=2 --compare=fio \
                --compare-pairs=2 --compare-format=json";
    let output = bench(&folder, args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = json(&output);
    assert_eq!((&report["pairs"], &report["pairs_asked"]), (&2.into(), &2.into()));
    assert!(report["b"]["title"].as_str().is_some_and(|title| title.starts_with("fio-")));
    for name in ["iops", "bw_mib_per_s", "clat_mean_us", "clat_p50_us", "clat_p999_us"] {
        for side in ["a", "b"] {
            let values = metric(&report, name)[side]["values"].as_array().expect("a list");
            assert_eq!(values.len(), 2, "{name}");
            assert!(values.iter().all(|v| v.as_f64().is_some_and(|v| v > 0.0)), "{name} {side}");
        }
    }
    assert_eq!(metric(&report, "iops")["verdict"], "undecided");
}

#[test]
fn the_same_device_with_other_keys_is_another_side() {
    let folder = folder();
    let args = "--name=a --filename=ram:1M --compare=?plug=none --compare-pairs=1 --output=out.svg";
    for (format, begins) in [("text", "1 pair of runs, "), ("markdown", "# Comp"), ("svg", "<svg ")]
    {
        let output = bench(&folder, &format!("{args} --compare-format={format}"));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!((stdout(&output), stderr(&output)), (String::new(), String::new()), "{format}");
        let text = std::fs::read_to_string(folder.path().join("out.svg")).expect("a file");
        assert!(text.starts_with(begins), "{text}");
        assert!(text.contains("ram:1M?plug=none"), "{text}");
    }
}

/// A report with more I/Os per second than any device can do.
const FAST: &str = r#"printf '{\n"jobs": [{"ctx": 1, "read": {"total_ios": 9, "iops": 1e15,
    "bw_bytes": 1e15, "clat_ns": {"mean": 1e-9}}, "write": {"total_ios": 0},
    "trim": {"total_ios": 0}}]}\n'"#;

#[test]
fn worse_result_fails_only_if_requested() {
    let folder = folder();
    let args = "--name=a --filename=null:1M --compare=fio";
    let output = with_fio(&folder, "fio-3.33", FAST, args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let iops = text.lines().find(|line| line.starts_with("  IOPS ")).expect("a line");
    assert!(iops.ends_with("  worse"), "{text}");
    assert!(text.contains("\nNOTE: fio's engine null completes an I/O in the call"), "{text}");
    let output = with_fio(&folder, "fio-3.33", FAST, &format!("{args} --compare-fail"));
    assert_eq!((output.status.code(), stderr(&output)), (Some(1), String::new()));
    assert!(stdout(&output).contains("  worse\n"));
}

#[test]
fn a_fio_that_is_missing_old_or_fails_is_said() {
    let folder = folder();
    let args = "--name=a --filename=null:1M --compare=fio";
    let mut command = forebay(&folder);
    let output = command.env("PATH", "/nowhere").arg("bench").args(args.split(' ')).output();
    let output = output.expect("it can be run");
    let message = "forebay: --compare=fio: no program fio in PATH; install it (apt install fio, \
                   dnf install fio), or compare with another spec\n";
    assert_eq!((stderr(&output).as_str(), output.status.code()), (message, Some(1)));

    let output = with_fio(&folder, "fio-2.1", "exit 0", args);
    assert!(stderr(&output).contains("fio-2.1 is too old: 3.0 or newer is needed"));

    let output = with_fio(&folder, "fio-3.33", "echo no such engine >&2; exit 3", args);
    let message = "forebay: --compare: fio: failed (exit status: 3): no such engine; command: fio \
                   --thread --name=a --ioengine=null --rw=read --bs=4096 --size=1048576 \
                   --group_reporting\n";
    assert_eq!((stderr(&output).as_str(), output.status.code()), (message, Some(1)));
    assert_eq!(stdout(&output), "");

    let output = with_fio(&folder, "fio-3.33", "echo hello", args);
    assert!(
        stderr(&output).contains("fio: no JSON report in the output, which begins: \"hello\";")
    );
}

#[test]
fn the_other_device_is_refused_before_the_first_run() {
    let folder = folder();
    let check = |args: &str, code: i32, message: &str| {
        let output = bench(&folder, &format!("--name=a --rw=write {args}"));
        assert!(stderr(&output).starts_with(message), "{args}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(code), "{args}");
        let files = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(files, 0, "{args}: something was laid out");
    };
    let here = "--filename=disk.img --size=1m";
    check(
        &format!("{here} --compare=ram:4k"),
        1,
        "forebay: --compare=ram:4k: a: offset 0 + size 1048576 is beyond the end",
    );
    check(
        &format!("{here} --compare=spdk"),
        2,
        "forebay: --compare=spdk: unknown side 'spdk'; expected fio, a device spec such as ",
    );
    check(
        &format!("{here} --compare=?plugg=none"),
        2,
        "forebay: --compare=?plugg=none: a: unknown key `plugg` for driver `file`; did you mean",
    );
    check(
        "--filename=ram:1M --compare=fio",
        2,
        "forebay: --compare=fio: a: fio has no device like ram:1M; compare with another",
    );
}

#[test]
fn several_groups_or_logs_are_refused_before_the_first_run() {
    let folder = folder();
    let check = |args: &str, message: &str| {
        let args = format!("--filename=disk.img --size=1m --name=a --rw=write {args}");
        let output = bench(&folder, &format!("{args} --compare=?plug=none"));
        let said = stderr(&output);
        assert!(said.starts_with(&format!("forebay: --compare: {message}")), "{said}");
        assert_eq!(output.status.code(), Some(2), "{args}");
        let files = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(files, 0, "{args}: something was laid out");
    };
    check("--name=b --stonewall", "b: it starts another group (stonewall, ");
    check("--name=b --new_group", "b: it starts another group (stonewall, ");
    check("--write_lat_log=x", "a: each run would overwrite the logs ");
}

#[test]
fn comparison_of_a_job_with_itself_is_refused() {
    let folder = folder();
    let check = |args: &str, with: &str| {
        let output = bench(&folder, &format!("--name=a {args} --compare={with}"));
        let message = format!(
            "forebay: --compare={with}: both sides would run the same jobs on the same disks: the \
             keys have no effect or are those of side A; leave them out, or give other values\n"
        );
        assert_eq!((stderr(&output), output.status.code()), (message, Some(2)), "{args}");
    };
    check("--filename=ram:1M --plug=none", "?plug=none");
    check("--filename=ram:1M?nomerges=1&plug=none --queue_depth=3", "?nomerges=1&queue_depth=3");
    check("--filename=x --ioengine=null --size=1m", "?direct=on");
    check("--filename=ram:1M --plug=none", "ram:1M?plug=none");
    // Without a key, the comparison shows how much equal runs differ.
    let args = "--name=a --filename=ram:1M --compare=ram:1M --compare-pairs=1";
    let output = bench(&folder, args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn options_that_a_comparison_cannot_honour_are_refused() {
    let folder = folder();
    let check = |args: &str, message: &str| {
        let output = bench(&folder, &format!("{args} --name=a --filename=ram:1M --compare=ram:2M"));
        let message = format!("forebay: --compare: {message}\n");
        assert_eq!((stderr(&output), output.status.code()), (message, Some(2)), "{args}");
    };
    let no_reports = "a comparison prints one report at its end; leave it out";
    check("--status-interval=1", &format!("--status-interval has no effect: {no_reports}"));
    let no_line = "the progress line of a comparison stays in place; leave it out";
    check("--eta-newline=1", &format!("--eta-newline has no effect: {no_line}"));
    check(
        "--output-format=json+",
        "--output-format=json+ has no effect: a comparison has no histograms; use \
         --compare-format=json",
    );
    check(
        "--output-format=normal,json",
        "--output-format with several formats has no effect: a comparison is printed in one; use \
         --compare-format",
    );
    check(
        "--output-format=json --compare-format=svg",
        "--output-format=json contradicts --compare-format; leave out one of them",
    );
}

#[test]
fn options_of_the_report_without_effect_are_noted() {
    let names = ["percentile_list=75", "clat_percentiles=0", "lat_percentiles=1"];
    let names = names.into_iter().chain(["slat_percentiles=1", "unified_rw_reporting=mixed"]);
    for option in names {
        let args = format!(
            "--name=a --filename=ram:1M --{option} --compare=?plug=none --compare-pairs=1 \
             --compare-format=json"
        );
        let output = bench(&folder(), &args);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let name = option.split('=').next().expect("a name");
        let note = format!(
            "forebay: --compare: a: --{name} has no effect: the metrics of a comparison are fixed\n"
        );
        assert_eq!(stderr(&output), note);
        let p50 = &json(&output);
        let p50 = &metric(p50, "clat_p50_us")["b"]["median"];
        assert!(p50.as_f64().is_some_and(|p50| p50 > 0.0), "{option}: {p50}");
    }
}

#[test]
fn options_without_effect_on_the_other_side_are_noted() {
    let folder = folder();
    data_file(&folder, "disk.img", 1 << 20);
    let args = "--name=a --filename=disk.img --fixedbufs=1 --compare=ram:1M --compare-pairs=1";
    let output = bench(&folder, args);
    assert_eq!(
        stderr(&output),
        "forebay: --compare=ram:1M: a: --fixedbufs has no effect on ram:1M: only disks on a file \
         or block device have an io_uring\n"
    );
}

/// Returns the report of one side with reads and, if `writes` is not 0, writes.
fn report_of(reads: u32, writes: u32) -> String {
    let of = |ios: u32| {
        format!(
            r#"{{"total_ios": {ios}, "iops": {ios}, "bw_bytes": {ios}, "clat_ns": {{"mean": 1,
            "percentile": {{"50.000000": 1, "99.000000": 1, "99.900000": 1}}}}}}"#
        )
    };
    format!(
        "printf '{{\\n\"jobs\": [{{\"ctx\": 1, \"read\": {}, \"write\": {}, \"trim\": {}}}]}}\\n'",
        of(reads),
        of(writes),
        of(0)
    )
}

#[test]
fn direction_without_io_on_our_side_fails_the_comparison() {
    let args = "--name=a --filename=null:1M --rw=read --compare=fio --compare-fail \
                --compare-format=json";
    let output = with_fio(&folder(), "fio-3.33", &report_of(9, 9), args);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let report = json(&output);
    let rows = report["metrics"].as_array().expect("a list");
    let write = |name: &str| {
        let is_it = |row: &&Value| row["metric"] == name && row["direction"] == "write";
        rows.iter().find(is_it).expect("a row")
    };
    assert_eq!(write("iops")["verdict"], "worse");
    assert_eq!(write("iops")["ratio"]["median"], 0.0);
    assert_eq!(write("clat_p99_us")["verdict"], "undecided");
}

#[test]
fn the_form_of_the_report_does_not_keep_jobs_from_being_compared() {
    let args = "--name=a --filename=ram:1M --rw=randrw --unified_rw_reporting=mixed \
                --percentile_list=75 --compare=?plug=none --compare-pairs=1 --compare-format=json";
    let output = bench(&folder(), args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = json(&output);
    let values = &metric(&report, "clat_p50_us")["a"]["values"];
    assert!(values[0].as_f64().is_some_and(|p50| p50 > 0.0), "{values}");
}

#[test]
fn a_signal_ends_a_comparison_with_the_pairs_that_there_are() {
    let folder = folder();
    let args = "--name=a --filename=null:1M --time_based --runtime=100ms --compare=?plug=none \
                --compare-pairs=1000";
    let child = bench_until(&folder, args, "pair 2 of 1000: B");
    let kill = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill").success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("forebay: stopped early by a signal: "), "{said}");
    assert!(stdout(&output).contains(" of 1000 pairs are complete."), "{}", stdout(&output));
}
