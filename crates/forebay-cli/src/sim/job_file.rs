//! The jobs of a file, and their runs: one for each seed, or one for each setting to compare.

use std::path::PathBuf;

use forebay_fio::job::JobList;
use forebay_sim::{JobError, Summary, Violation, run_jobs};

use super::rows::Row;
use super::run::Run;
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
                let run = Run::new(variant, &summary, is_timed);
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
        let runs = summaries.iter().map(|summary| Run::new(variant, summary, is_timed));
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
