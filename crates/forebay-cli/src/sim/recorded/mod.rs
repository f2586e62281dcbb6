//! Recorded loads in virtual time (`--trace`): the I/Os of iologs or of a trace, at their times.

mod read;

use std::path::{Path, PathBuf};

use forebay_fio::iolog::Changes;
use forebay_sim::{JobError, LoadError, RecordedLoad, Summary, Violation, run_recorded};

use super::comparison::Comparison;
use super::run::{LoadOf, Run};
use super::seeds::Seeds;
use super::settings::Tasks;
use super::variants::{self, Variant};
use super::{Args, check_swept, fault_rules, given, report, threads, trace};
use crate::failure::Failure;
use crate::output;

/// The most I/Os of a thread in flight, unless `--iodepth` is given.
const IODEPTH: u32 = 256;

/// A recorded load, and its disks.
#[derive(Debug)]
pub(super) struct Recorded {
    load: RecordedLoad,
    comparison: Comparison,
}

/// Refuses options of recorded loads beside another load.
pub(super) fn refuse_without_trace(args: &Args) -> Result<(), Failure> {
    let given = [
        ("--iodepth", args.iodepth.is_some()),
        ("--replay-no-stall", args.replay_no_stall),
        ("--replay-time-scale", args.replay_time_scale.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Failure::Usage(format!(
            "{option} needs --trace: it changes a recorded load; leave it out"
        ))),
        None => Ok(()),
    }
}

/// Reads the recorded load that the arguments select.
///
/// # Errors
/// The recording cannot be read or simulated, or a setting is wrong.
pub(super) fn plan(args: &Args) -> Result<Recorded, Failure> {
    let given = given(args, Tasks::Jobs)?;
    check_swept(&args.sweep, &given)?;
    let faults = fault_rules(&args.faults)?;
    let mut variants = variants::of(&given, Tasks::Jobs, &args.compare, &args.sweep)?;
    for variant in &mut variants {
        variant.disk.faults.clone_from(&faults);
        variant.disk.is_traced = args.write_trace.is_some();
    }
    if args.replay_no_stall && args.replay_time_scale.is_some() {
        return Err(Failure::Usage(
            "--replay-no-stall ignores the times that --replay-time-scale changes; leave one of \
             the two out"
                .to_owned(),
        ));
    }
    let changes = Changes {
        no_stall: args.replay_no_stall,
        time_scale: args.replay_time_scale.map_or(0, |percent| percent as u32),
        ..Changes::default()
    };
    let threads = read::threads(&args.trace, &changes)?;
    let path = PathBuf::from(names(&args.trace));
    let depth = args.iodepth.map_or(IODEPTH, |depth| depth as u32);
    let load = RecordedLoad::new(threads, depth).map_err(|error| failure(&path, &error))?;
    if args.replay_time_scale.is_some() && !load.is_timed() {
        let why = "the recording has no times; leave the option out";
        return Err(Failure::Usage(format!("--replay-time-scale: {why}")));
    }
    let comparison = Comparison::new(&path, &args.trace, variants, args)?;
    Ok(Recorded { load, comparison })
}

/// Returns the names of the recording.
fn names(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

fn failure(path: &Path, error: &LoadError) -> Failure {
    Failure::Usage(match error {
        LoadError::Disk(JobError::Fault { .. }) => format!("--faults={error}"),
        _ => format!("--trace={}: {error}", path.display()),
    })
}

/// Runs the load on each disk, and prints the results.
pub(super) fn main(args: &Args, recorded: &Recorded, seeds: Seeds) -> Result<(), Failure> {
    let Recorded { load, comparison } = recorded;
    let is_text = !comparison.is_json && !comparison.is_compared(args);
    if let Some(dir) = &args.write_trace {
        trace::prepare(dir)?;
    }
    let run = |variant: &Variant, seed| -> Result<Result<Summary, Box<Violation>>, Failure> {
        let result = run_recorded(load, seed, &variant.disk, None);
        result.map_err(|error| failure(&comparison.path, &error))
    };
    let runs = comparison.run(args, seeds, run, |variant, summary| {
        if let Some(dir) = &args.write_trace {
            trace::write(dir, &variant.device, &summary.traces)?;
        }
        if is_text {
            let run = Run::new(variant, summary, LoadOf::Recorded(load));
            let replay = Seeds::new(summary.seed, 1).replay(args);
            output::stdout(&(report::text(run, &replay) + &threads::table(load, &run)))?;
        }
        Ok(())
    })?;
    comparison.report(args, seeds, &runs, LoadOf::Recorded(load))
}
