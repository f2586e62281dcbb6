//! The client: `forebay bench` on the server's socket, which polls in every figure.

use super::Sample;
use super::loads::Load;
use super::servers::METRICS;
use crate::servers::{JobReport, Medium, Running};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Longest wait for the metrics of our server.
const METRICS_WAIT: Duration = Duration::from_secs(10);

/// Runs a load once.
pub(crate) fn run(
    forebay: &Path,
    server: &Running,
    load: &Load,
    seconds: u32,
    poll_us: u32,
) -> Result<Sample> {
    let job = &load.work;
    // The server merges, not the client. Each job has a ring of its own.
    let spec = format!(
        "vhost-user:{}?poll_us={poll_us}&nomerges=2&nr_hw_queues={}",
        server.socket().display().to_string().replace(':', "\\:"),
        job.nr_jobs
    );
    let size = if load.medium == Medium::Direct { "100%" } else { "8G" };
    let arguments = [
        "bench".to_owned(),
        "--name=job".to_owned(),
        format!("--filename={spec}"),
        format!("--rw={}", job.rw),
        "--bs=4k".to_owned(),
        format!("--iodepth={}", job.depth),
        format!("--iodepth_batch={}", job.batch),
        format!("--iodepth_batch_complete={}", job.batch),
        format!("--numjobs={}", job.nr_jobs),
        format!("--size={size}"),
        format!("--runtime={seconds}"),
        "--time_based".to_owned(),
        "--group_reporting".to_owned(),
        "--norandommap".to_owned(),
        "--output-format=json".to_owned(),
    ];
    let merged_before = nr_merged(server);
    let before = server.cpu_time()?;
    let output = Command::new(forebay).args(&arguments).output()?;
    let spent = server.cpu_time()?.saturating_sub(before);
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("forebay {}: {}", arguments.join(" "), stderr.trim());
    }
    let report: Value = serde_json::from_slice(&output.stdout).context("forebay: not JSON")?;
    let report = JobReport::of(&report, "read", job.nr_jobs);
    let report = report.context("forebay: a report without the keys of a read job")?;
    let merged = merged_before.zip(nr_merged(server)).map(|(before, now)| now - before);
    Ok(Sample {
        iops: report.iops,
        p50_us: report.p50_us,
        p99_us: report.p99_us,
        server_us: spent.as_secs_f64() * 1e6 / report.nr_ios,
        client_us: report.client_us,
        merged: merged.map_or(f64::NAN, |nr| nr / report.nr_ios),
    })
}

/// Returns the number of reads that our server has merged into other requests. `None` for other
/// servers.
fn nr_merged(server: &Running) -> Option<f64> {
    let mut stream = UnixStream::connect(server.folder().join(METRICS)).ok()?;
    stream.set_read_timeout(Some(METRICS_WAIT)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let lines = text.lines().filter(|line| line.starts_with("forebay_disk_reads_merged_total"));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Some(values.sum())
}
