//! The client: `forebay bench` on the server's socket, which polls in every figure.

use super::Sample;
use super::loads::{Load, Medium};
use super::servers::Running;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Runs a load once.
pub(crate) fn run(
    forebay: &Path,
    server: &Running,
    load: &Load,
    seconds: u32,
    poll_us: u32,
) -> Result<Sample> {
    // The server merges, not the client. Each job has a ring of its own.
    let spec = format!(
        "vhost-user:{}?poll_us={poll_us}&nomerges=2&nr_hw_queues={}",
        server.socket().display().to_string().replace(':', "\\:"),
        load.nr_jobs
    );
    let size = if load.medium == Medium::Direct { "100%" } else { "8G" };
    let arguments = [
        "bench".to_owned(),
        "--name=job".to_owned(),
        format!("--filename={spec}"),
        format!("--rw={}", load.rw),
        "--bs=4k".to_owned(),
        format!("--iodepth={}", load.depth),
        format!("--iodepth_batch={}", load.batch),
        format!("--iodepth_batch_complete={}", load.batch),
        format!("--numjobs={}", load.nr_jobs),
        format!("--size={size}"),
        format!("--runtime={seconds}"),
        "--time_based".to_owned(),
        "--group_reporting".to_owned(),
        "--norandommap".to_owned(),
        "--output-format=json".to_owned(),
    ];
    let merged_before = server.nr_merged();
    let before = server.cpu_time()?;
    let output = Command::new(forebay).args(&arguments).output()?;
    let spent = server.cpu_time()?.saturating_sub(before);
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("forebay {}: {}", arguments.join(" "), stderr.trim());
    }
    let report: Value = serde_json::from_slice(&output.stdout).context("forebay: not JSON")?;
    let mut sample =
        sample(&report, load, spent).context("forebay: a report without the keys of a read job")?;
    if let (Some(before), Some(now)) = (merged_before, server.nr_merged()) {
        sample.merged = (now - before) / sample.nr_ios;
    }
    Ok(sample)
}

fn sample(report: &Value, load: &Load, spent: Duration) -> Option<Sample> {
    let job = report.get("jobs")?.get(0)?;
    let read = job.get("read")?;
    let nr_ios = read.get("total_ios")?.as_f64()?;
    let percentile = |key| {
        let ns = read.get("clat_ns")?.get("percentile")?.get(key)?.as_f64()?;
        Some(ns / 1000.0)
    };
    // The mean over the jobs, relative to their run time.
    let busy = (job.get("usr_cpu")?.as_f64()? + job.get("sys_cpu")?.as_f64()?) / 100.0;
    let runtime_us = read.get("runtime")?.as_f64()? * 1000.0;
    Some(Sample {
        iops: read.get("iops")?.as_f64()?,
        nr_ios,
        p50_us: percentile("50.000000")?,
        p99_us: percentile("99.000000")?,
        server_us: spent.as_secs_f64() * 1e6 / nr_ios,
        client_us: busy * f64::from(load.nr_jobs) * runtime_us / nr_ios,
        merged: f64::NAN,
    })
}
