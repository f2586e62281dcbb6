//! Logs of histograms: read by fio's own program, and beside those of fio.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::common::{self, bench_json, folder, skip_without, stderr, stdout};

/// fio's reader of these logs, as Debian's package fio installs it.
const READER: &str = "/usr/share/doc/fio/fio-histo-log-pctiles.py.gz";

const JOB: &str = "--name=a --ioengine=null --rw=randrw --rate_iops=500 --runtime=1 --size=1g \
                   --time_based --write_hist_log --log_hist_msec=300";

/// Returns the rows of a log.
fn rows(folder: &TempDir, name: &str) -> Vec<Vec<u64>> {
    let text = std::fs::read_to_string(folder.path().join(name)).expect(name);
    let row = |line: &str| line.split(", ").map(|field| field.parse().expect(line)).collect();
    text.lines().map(row).collect()
}

/// Returns the number of I/Os in the rows of a direction.
fn sum(rows: &[Vec<u64>], direction: u64) -> u64 {
    rows.iter().filter(|row| row[1] == direction).map(|row| row[3..].iter().sum::<u64>()).sum()
}

#[test]
fn each_io_is_in_one_row() {
    let folder = folder();
    let report = bench_json(&folder, JOB);
    let rows = rows(&folder, "a_clat_hist.1.log");
    for (at, direction) in [(0, "read"), (1, "write")] {
        let ios = report["jobs"][0][direction]["total_ios"].as_u64().expect("a count");
        assert_eq!(sum(&rows, at), ios, "{direction}");
    }
    let times: Vec<_> = rows.iter().map(|row| row[0]).collect();
    assert!(times.is_sorted() && times.len() >= 6, "{times:?}");
    assert!(rows.iter().all(|row| row[2] == 4096 && row.len() == 3 + 1856));
    bench_json(&folder, &format!("{JOB} --gtod_reduce=1"));
    assert!(self::rows(&folder, "a_clat_hist.1.log").is_empty(), "no latency is measured");
}

#[test]
fn rows_and_names_are_those_of_fio() {
    let test = "rows_and_names_are_those_of_fio";
    for (options, name) in [
        ("--numjobs=2 --thread", "x_clat_hist.2.log"),
        ("--log_hist_coarseness=4 --per_job_logs=0 --bs=8k", "x_clat_hist.log"),
    ] {
        let args = format!("{} {options}", JOB.replace("write_hist_log", "write_hist_log=x"));
        let (their_folder, our_folder) = (folder(), folder());
        let Some(_) = common::fio(test, &their_folder, &args) else { return };
        bench_json(&our_folder, &args);
        let (theirs, ours) = (rows(&their_folder, name), rows(&our_folder, name));
        // The bytes of the I/O, and the number of columns.
        let form = |rows: &[Vec<u64>]| (rows[0][2], rows[0].len());
        assert_eq!(form(&ours), form(&theirs), "{options}");
        // fio leaves out the end of the job.
        assert!(ours.len() >= theirs.len(), "{options}: {} {}", ours.len(), theirs.len());
    }
}

/// Unpacks fio's reader. `None` if a program is missing.
fn reader(test: &str, folder: &TempDir) -> Option<String> {
    if !Path::new(READER).exists() {
        skip_without("fio-histo-log-pctiles.py", test);
        return None;
    }
    let mut gunzip =
        Command::new("gunzip").args(["-c", READER]).stdout(Stdio::piped()).spawn().ok()?;
    let mut text = String::new();
    gunzip.stdout.take()?.read_to_string(&mut text).ok()?;
    assert!(gunzip.wait().expect("it ends").success(), "gunzip failed");
    let path = folder.path().join("reader.py");
    std::fs::write(&path, text).expect("a file");
    Some(path.display().to_string())
}

#[test]
fn reader_of_fio_finds_all_ios_and_their_latency() {
    let test = "reader_of_fio_finds_all_ios_and_their_latency";
    let folder = folder();
    let Some(reader) = reader(test, &folder) else { return };
    // Each I/O takes about as long as the delay.
    let args = "--name=a --filename=fault:ram:1M?rule=read:delay=2ms --rw=read --bs=4k --size=1M \
                --write_hist_log=h --log_hist_msec=200";
    let report = bench_json(&folder, args);
    let output = Command::new("python3")
        .arg(reader)
        .args(["--percentiles", "50", "--time-quantum", "10", "--output-unit", "usec"])
        .arg("h_clat_hist.1.log")
        .current_dir(folder.path())
        .output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => return skip_without("python3", test),
        output => output.expect("python3 can be run"),
    };
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let last = text.lines().rfind(|line| !line.is_empty()).expect("a line");
    let fields: Vec<f64> = last.split(',').map(|it| it.trim().parse().expect(last)).collect();
    let [_, samples, median] = fields[..] else { panic!("{text}") };
    // The reader divides an interval among its quanta, and rounds.
    let ios = report["jobs"][0]["read"]["total_ios"].as_f64().expect("a count");
    assert!((ios - samples).abs() <= 3.0, "{samples} of {ios}: {text}");
    let ns = report["jobs"][0]["read"]["clat_ns"]["percentile"]["50.000000"].as_f64();
    let us = ns.expect("a percentile") / 1000.0;
    assert!((us / median - 1.0).abs() < 0.05, "{median} instead of {us}: {text}");
}
