//! Runs of a job file: one for each seed, or one for each setting to compare.

use std::path::PathBuf;

use forebay_fio::job::JobList;
use forebay_fio::stats::Latency;
use forebay_sim::{JobError, Summary, Violation, run_jobs};

use super::rows::Row;
use super::seeds::Seeds;
use super::svg::{self, About};
use super::variants::Variant;
use super::{Args, json, report, settings, table};
use crate::failure::Failure;
use crate::output;

/// The jobs of a file, and their disks.
#[derive(Debug)]
pub(super) struct JobFile {
    pub(super) path: PathBuf,
    pub(super) command: JobList,
    /// The disks on which to run the jobs, at least one.
    pub(super) variants: Vec<Variant>,
    /// Whether the report is JSON.
    pub(super) is_json: bool,
    /// The file of the figure.
    pub(super) svg: Option<PathBuf>,
}

impl JobFile {
    /// Returns whether all jobs run for a fixed time, so that their shares of the I/Os are
    /// comparable.
    fn is_timed(&self) -> bool {
        self.command.jobs.iter().all(|job| job.time_based)
    }

    /// Runs the jobs on a disk.
    fn run(
        &self,
        variant: &Variant,
        seed: u64,
    ) -> Result<Result<Summary, Box<Violation>>, Failure> {
        run_jobs(&self.command.jobs, seed, &variant.disk, None).map_err(|error| match error {
            JobError::Fault { .. } => Failure::Usage(format!("--faults={error}")),
            _ => Failure::Usage(format!("{}: {error}", self.path.display())),
        })
    }
}

/// A run of the jobs on a disk, and which of its figures are meaningful.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) variant: &'a Variant,
    pub(super) summary: &'a Summary,
    is_timed: bool,
}

/// Latencies of I/Os, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latencies {
    pub(super) nr: u64,
    pub(super) mean: f64,
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

impl Run<'_> {
    /// Returns the latencies of the successful I/Os, without flushes.
    pub(super) fn latencies(&self) -> Latencies {
        let Latency { moments, histogram } = self.summary.io_latency();
        // A percentile is the middle of a range of values, of which the maximum may be lower.
        let percentiles = histogram.percentiles(&[50.0, 99.0]);
        let at = |nth: usize| percentiles.get(nth).map_or(0, |&ns| ns.min(moments.max()));
        Latencies {
            nr: moments.count(),
            mean: moments.mean(),
            p50: at(0),
            p99: at(1),
            max: moments.max(),
        }
    }

    /// Returns whether the device models latencies, so that speeds are meaningful.
    pub(super) fn has_times(&self) -> bool {
        self.variant.disk.device.has_times()
    }

    /// Returns the voluntary context switches per I/O; `None` if no I/O succeeded.
    pub(super) fn switches_per_io(&self) -> Option<f64> {
        (self.summary.nr_ios() > 0).then(|| self.summary.switches_per_io())
    }

    /// Returns Jain's index of the jobs' I/Os; `None` if some job ends after a fixed size.
    pub(super) fn fairness(&self) -> Option<f64> {
        self.is_timed.then(|| self.summary.fairness())
    }
}

/// Runs the jobs, and prints the results.
pub(super) fn main(args: &Args, file: &JobFile, seeds: Seeds) -> Result<(), Failure> {
    let is_timed = file.is_timed();
    let is_compared = file.variants.len() > 1 || args.sweep.is_some();
    let mut summaries = Vec::new();
    for variant in &file.variants {
        let mut of_variant = Vec::new();
        let run = |seed| file.run(variant, seed);
        let outcome = seeds.for_each(args, run, |summary| {
            if !is_compared && !file.is_json {
                let run = Run { variant, summary: &summary, is_timed };
                let replay = Seeds::new(summary.seed, 1).replay(args);
                output::stdout(&report::text(run, &replay))?;
            }
            of_variant.push(summary);
            Ok(())
        });
        outcome.map_err(|failure| match &variant.name {
            Some(name) => failure.with_context(&format!("{name}: ")),
            None => failure,
        })?;
        summaries.push((variant, of_variant));
    }
    let rows = summaries.iter().map(|(variant, summaries)| {
        let runs = summaries.iter().map(|summary| Run { variant, summary, is_timed });
        Row { runs: runs.collect() }
    });
    let rows: Vec<_> = rows.collect();
    if file.is_json {
        output::stdout(&match is_compared {
            true => json::of_rows(&file.command, &rows),
            false => json::of_runs(&file.command, &rows[0].runs),
        })?;
    } else if is_compared {
        let replay = seeds.replay(args);
        output::stdout(&format!("{}replay with: {replay}\n", table::render(&rows)))?;
    }
    // After the results, which a failure must not lose.
    if let Some(path) = &file.svg {
        let about = About {
            load: file.path.display().to_string(),
            nr_seeds: seeds.nr(),
            key: args.sweep.as_deref().and_then(|text| Some(settings::pair(text).ok()?.0)),
        };
        std::fs::write(path, svg::render(&about, &rows)).map_err(|error| {
            Failure::Run(format!("--svg={}: cannot write the figure: {error}", path.display()))
        })?;
    }
    Ok(())
}
