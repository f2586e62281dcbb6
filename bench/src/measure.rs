//! Runs one command and reads the figures from its report.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Figures of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) iops: f64,
    /// Completion latency, us.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Processor time of the job's threads for each I/O, us.
    pub(crate) cpu_us: f64,
    /// Merges for each I/O, as the disk counted them.
    pub(crate) merged: f64,
    /// Voluntary context switches for each I/O; NaN without a count.
    pub(crate) switches: f64,
    /// System calls of the whole program for each I/O; NaN unless they were counted.
    pub(crate) syscalls: f64,
    /// Durable writes for each sync; NaN without a count.
    pub(crate) shared: f64,
}

/// Builds the program with the profile `dist`, like packages, and returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let examples = "-p forebay --example commit_cost --example service_order";
    for what in ["-p forebay-cli", examples] {
        let words = what.split(' ');
        let status =
            Command::new(&cargo).args(["build", "--profile", "dist"]).args(words).status()?;
        ensure!(status.success(), "cargo build --profile dist {what} failed");
    }
    let me = std::env::current_exe()?;
    let folder = me.parent().and_then(Path::parent).context("a program is in a folder")?;
    Ok(folder.join("dist").join("forebay"))
}

/// Builds the library that `forebay run` preloads, beside the program.
pub(crate) fn build_preloaded() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--profile", "dist", "-p", "forebay-aio"]);
    ensure!(command.status()?.success(), "cargo build --profile dist -p forebay-aio failed");
    Ok(())
}

/// Creates the file to read, filled with data: reads of a hole would not reach the device.
/// `forebay` lays it out as fio does, and undoes that if it is interrupted.
pub(crate) fn lay_out(forebay: &Path, path: &Path, size_mib: u64) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    say(&format!("laying out {} ({size_mib} MiB)", path.display()));
    let arguments = [
        "bench".to_owned(),
        "--name=layout".to_owned(),
        "--rw=read".to_owned(),
        "--bs=1m".to_owned(),
        "--io_size=1m".to_owned(),
        format!("--size={size_mib}m"),
        format!("--filename={}", path.display()),
        "--output-format=json".to_owned(),
    ];
    run(forebay, &arguments).map(drop)
}

/// Returns whether system calls can be counted: perf is installed and permitted to count.
pub(crate) fn can_count() -> bool {
    let arguments = PERF.iter().chain(&["--", "true"]);
    let output = Command::new("perf").args(arguments).output();
    output.is_ok_and(|output| output.status.success() && calls(&output.stderr).is_some())
}

/// Does the same as [`run`], and counts the system calls of the program with perf.
pub(crate) fn run_counted(program: &Path, arguments: &[String]) -> Result<Sample> {
    let mut command = Command::new("perf");
    command.args(PERF).arg("--").arg(program).args(arguments);
    let output = command.output().context("perf: is it installed?")?;
    let (sample, total) = read(program, arguments, &output)?;
    let calls = calls(&output.stderr).context("perf stat: no count of raw_syscalls:sys_enter")?;
    Ok(Sample { syscalls: calls / total, ..sample })
}

/// perf's arguments: this event counts every system call of the process and its threads.
const PERF: [&str; 4] = ["stat", "-x,", "-e", "raw_syscalls:sys_enter"];

/// Returns the count in perf's line `count,,event,...` on standard error.
fn calls(stderr: &[u8]) -> Option<f64> {
    let stderr = String::from_utf8_lossy(stderr);
    let line = stderr.lines().find(|line| line.contains("raw_syscalls:sys_enter"))?;
    line.split(',').next()?.parse().ok()
}

/// Runs a command that prints fio's JSON. Returns the figures of its reads, or else of its writes.
pub(crate) fn run(program: &Path, arguments: &[String]) -> Result<Sample> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("{}: is it installed?", program.display()))?;
    Ok(read(program, arguments, &output)?.0)
}

/// Parses the output of a command. Returns the figures and the number of I/Os.
pub(crate) fn read(program: &Path, arguments: &[String], output: &Output) -> Result<(Sample, f64)> {
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{} {}: {stderr}", program.display(), arguments.join(" "));
    }
    // An engine of fio may print notes first.
    let start = output.stdout.iter().position(|byte| *byte == b'{').unwrap_or(0);
    let report: Value = serde_json::from_slice(&output.stdout[start..])
        .with_context(|| format!("{}: not JSON", program.display()))?;
    let numjobs = arguments.iter().find_map(|argument| argument.strip_prefix("--numjobs="));
    let nr_threads: u32 = numjobs.map_or(Ok(1), str::parse)?;
    sample(&report, nr_threads.into())
        .context("a report without the keys of a job that reads or writes")
}

/// Reads the report of a job with so many threads, which are reported as one.
fn sample(report: &Value, nr_threads: f64) -> Option<(Sample, f64)> {
    let job = report.get("jobs")?.get(0)?;
    // fio reports both, and zeroes for the one that the job lacks.
    let has_ios = |part: &&Value| part["total_ios"].as_u64().is_some_and(|nr| nr > 0);
    let read = ["read", "write"].into_iter().filter_map(|key| job.get(key)).find(has_ios)?;
    let total = read.get("total_ios")?.as_f64()?;
    let runtime_us = read.get("runtime")?.as_f64()? * 1000.0;
    // Percentages of the run time of one thread: the mean of all.
    let busy = nr_threads * (job.get("usr_cpu")?.as_f64()? + job.get("sys_cpu")?.as_f64()?);
    let percentile = |key| {
        let ns = read.get("clat_ns")?.get("percentile")?.get(key)?.as_f64()?;
        Some(ns / 1000.0)
    };
    let disk = report.get("disk_util").and_then(|disks| disks.get(0));
    let layer = report.get("forebay").and_then(|disks| disks.get(0)?.get("jobs")?.get(0));
    let switches = layer.and_then(|job| job.get("voluntary_switches")?.as_f64());
    let syncs = layer.and_then(|job| job.get("syncs")?.as_f64());
    let merges = disk.and_then(|disk| disk.get("read_merges")?.as_f64()).unwrap_or(0.0);
    let sample = Sample {
        iops: read.get("iops")?.as_f64()?,
        p50_us: percentile("50.000000")?,
        p99_us: percentile("99.000000")?,
        cpu_us: busy / 100.0 * runtime_us / total,
        merged: merges / total,
        switches: switches.map_or(f64::NAN, |switches| switches / total),
        syscalls: f64::NAN,
        shared: syncs.map_or(f64::NAN, |syncs| total / syncs),
    };
    Some((sample, total))
}

/// Prints a progress line.
pub(crate) fn say(line: &str) {
    // The line may be lost: standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}
