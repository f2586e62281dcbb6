//! The clients, fio's engine `nbd` and `nbdcopy`, and the parsing of their output.

use super::loads::Job;
use super::{Sample, uri};
use crate::process;
use crate::servers::{JobReport, Running};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

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
        format!("--uri={}", uri(server)),
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
    let direction = if job.rw.contains("read") { "read" } else { "write" };
    let report = JobReport::of(&report, direction, job.nr_jobs);
    let report = report.context("fio: a report without the keys of a job")?;
    Ok(Sample {
        value: report.iops,
        p50_us: report.p50_us,
        p99_us: report.p99_us,
        server_us: spent.as_secs_f64() * 1e6 / report.nr_ios,
        client_us: report.client_us,
        client_busy: report.client_busy,
    })
}

/// Runs `nbdcopy` once over the whole file. An "I/O" is a MiB here.
pub(crate) fn copy(server: &Running, file: &Path, way: Way) -> Result<Sample> {
    let source = file.with_extension("source");
    let size_mib = (std::fs::metadata(file)?.len() >> 20) as f64;
    let arguments = match way {
        Way::Out => [uri(server), "null:".to_owned()],
        Way::In => {
            if std::fs::metadata(&source).map_or(0, |found| found.len() >> 20) as f64 != size_mib {
                std::fs::copy(file, &source)?;
            }
            [source.display().to_string(), uri(server)]
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
