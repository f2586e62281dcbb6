//! The jobs of a file, and their runs: one for each seed, or one for each setting to compare.

use forebay_fio::job::JobList;
use forebay_sim::{JobError, Summary, Violation, run_jobs};

use super::comparison::Comparison;
use super::run::{LoadOf, Run};
use super::seeds::Seeds;
use super::variants::Variant;
use super::{Args, report, trace};
use crate::failure::Failure;
use crate::output;

/// The jobs of a file, and their disks.
#[derive(Debug)]
pub(super) struct JobFile {
    pub(super) command: JobList,
    pub(super) comparison: Comparison,
}

impl JobFile {
    /// Runs the jobs on a disk.
    fn run(
        &self,
        variant: &Variant,
        seed: u64,
    ) -> Result<Result<Summary, Box<Violation>>, Failure> {
        run_jobs(&self.command.jobs, seed, &variant.disk, None).map_err(|error| match error {
            JobError::Fault { .. } => Failure::Usage(format!("--faults={error}")),
            _ => Failure::Usage(format!("{}: {error}", self.comparison.path.display())),
        })
    }
}

/// Runs the jobs, and prints the results.
pub(super) fn main(args: &Args, file: &JobFile, seeds: Seeds) -> Result<(), Failure> {
    let (comparison, load) = (&file.comparison, LoadOf::Jobs(&file.command));
    let is_text = !comparison.is_json && !comparison.is_compared(args);
    if let Some(dir) = &args.write_trace {
        trace::prepare(dir)?;
    }
    let run = |variant: &Variant, seed| file.run(variant, seed);
    let runs = comparison.run(args, seeds, run, |variant, summary| {
        if let Some(dir) = &args.write_trace {
            let device = args.device.as_deref().unwrap_or("the device of the job file");
            trace::write(dir, device, &summary.traces)?;
        }
        if is_text {
            let run = Run::new(variant, summary, load);
            let replay = Seeds::new(summary.seed, 1).replay(args);
            output::stdout(&report::text(run, &replay))?;
        }
        Ok(())
    })?;
    comparison.report(args, seeds, &runs, load)
}
