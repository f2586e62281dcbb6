//! Report of a job, in the JSON of fio, which `forebay bench` prints too.

use serde_json::Value;

/// Figures of all clients of a job together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobReport {
    pub(crate) iops: f64,
    pub(crate) nr_ios: f64,
    /// Completion latency, us.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Processor time of the clients for each I/O, us.
    pub(crate) client_us: f64,
    /// The share of a processor that each client used, 0 to 1.
    pub(crate) client_busy: f64,
}

impl JobReport {
    /// Returns the figures of a direction, `read` or `write`, of a job with `nr_jobs` clients.
    /// `None`: the report lacks them.
    pub(crate) fn of(report: &Value, direction: &str, nr_jobs: u32) -> Option<JobReport> {
        let job = report.get("jobs")?.get(0)?;
        let done = job.get(direction)?;
        let nr_ios = done.get("total_ios")?.as_f64()?;
        let percentile = |key| {
            let ns = done.get("clat_ns")?.get("percentile")?.get(key)?.as_f64()?;
            Some(ns / 1000.0)
        };
        // The mean over the clients, relative to their run time.
        let client_busy = (job.get("usr_cpu")?.as_f64()? + job.get("sys_cpu")?.as_f64()?) / 100.0;
        let runtime_us = done.get("runtime")?.as_f64()? * 1000.0;
        Some(JobReport {
            iops: done.get("iops")?.as_f64()?,
            nr_ios,
            p50_us: percentile("50.000000")?,
            p99_us: percentile("99.000000")?,
            client_us: client_busy * f64::from(nr_jobs) * runtime_us / nr_ios,
            client_busy,
        })
    }
}
