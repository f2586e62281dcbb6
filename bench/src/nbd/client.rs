//! The clients, fio's engine `nbd` and `nbdcopy`, and the parsing of their output.

use super::Sample;
use super::loads::Job;
use super::servers::Running;
use crate::process;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long a client may exceed its run time, in s. A server that hangs fails its own run only.
const GRACE_S: u32 = 30;

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// From the server.
    Out,
    /// To the server.
    In,
}

/// Runs fio once.
pub(crate) fn fio(server: &Running, job: &Job, seconds: u32, file: &Path) -> Result<Sample> {
    let size = std::fs::metadata(file)?.len();
    let part = size / u64::from(job.nr_jobs);
    let arguments = [
        "--name=job".to_owned(),
        "--ioengine=nbd".to_owned(),
        format!("--uri={}", server.uri()),
        format!("--rw={}", job.rw),
        format!("--bs={}", job.bs),
        format!("--iodepth={}", job.depth),
        format!("--numjobs={}", job.nr_jobs),
        format!("--size={part}"),
        format!("--offset_increment={part}"),
        format!("--runtime={seconds}"),
        "--time_based".to_owned(),
        "--group_reporting".to_owned(),
        "--norandommap".to_owned(),
        "--output-format=json".to_owned(),
    ];
    let before = server.cpu_time()?;
    let output = run("fio", &arguments, seconds)?;
    let spent = server.cpu_time()?.saturating_sub(before);
    let text = String::from_utf8_lossy(&output.stdout);
    // The engine prints a line about its connection before the report.
    let start = text.find('{').context("fio: no report")?;
    let report: Value = serde_json::from_str(&text[start..]).context("fio: not JSON")?;
    let way = if job.rw.contains("read") { "read" } else { "write" };
    sample(&report, way, job, spent).context("fio: a report without the keys of a job")
}

fn sample(report: &Value, way: &str, job: &Job, spent: Duration) -> Option<Sample> {
    let all = report.get("jobs")?.get(0)?;
    let done = all.get(way)?;
    let total = done.get("total_ios")?.as_f64()?;
    let percentile = |key| {
        let ns = done.get("clat_ns")?.get("percentile")?.get(key)?.as_f64()?;
        Some(ns / 1000.0)
    };
    // fio reports the mean over its jobs, relative to their run time.
    let busy = (all.get("usr_cpu")?.as_f64()? + all.get("sys_cpu")?.as_f64()?) / 100.0;
    let runtime_us = done.get("runtime")?.as_f64()? * 1000.0;
    Some(Sample {
        value: done.get("iops")?.as_f64()?,
        p50_us: percentile("50.000000")?,
        p99_us: percentile("99.000000")?,
        server_us: spent.as_secs_f64() * 1e6 / total,
        client_us: busy * f64::from(job.nr_jobs) * runtime_us / total,
        client_busy: busy,
    })
}

/// Runs `nbdcopy` once over the whole file. An "I/O" is a MiB here.
pub(crate) fn copy(server: &Running, file: &Path, way: Way) -> Result<Sample> {
    let source = file.with_extension("source");
    let size_mib = (std::fs::metadata(file)?.len() >> 20) as f64;
    let arguments = match way {
        Way::Out => [server.uri(), "null:".to_owned()],
        Way::In => {
            if std::fs::metadata(&source).map_or(0, |found| found.len() >> 20) as f64 != size_mib {
                std::fs::copy(file, &source)?;
            }
            [source.display().to_string(), server.uri()]
        }
    };
    let (before, clients) = (server.cpu_time()?, process::cpu_time_of_children()?);
    let start = Instant::now();
    run("nbdcopy", &arguments, 0)?;
    let took = start.elapsed().as_secs_f64();
    let spent = server.cpu_time()?.saturating_sub(before);
    let client = process::cpu_time_of_children()?.saturating_sub(clients);
    Ok(Sample {
        value: size_mib / took,
        p50_us: f64::NAN,
        p99_us: f64::NAN,
        server_us: spent.as_secs_f64() * 1e6 / size_mib,
        client_us: client.as_secs_f64() * 1e6 / size_mib,
        client_busy: f64::NAN,
    })
}

fn run(program: &str, arguments: &[String], seconds: u32) -> Result<Output> {
    let limit = seconds + GRACE_S;
    let output = Command::new("timeout")
        .args(["-k", "5", &limit.to_string(), program])
        .args(arguments)
        .output()
        .context("timeout: is it installed?")?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() != Some(124), "{program} did not end within {limit} s");
        bail!("{program} {}: {}: {}", arguments.join(" "), output.status, stderr.trim());
    }
    Ok(output)
}
