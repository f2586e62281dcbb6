//! `forebay trace`: sums up a trace.

mod json;
mod summary;
mod text;

use crate::failure::Failure;
use crate::output;
use clap::{Args, Subcommand};
use forebay_trace::directory;
use std::path::PathBuf;
use summary::Summary;

/// The end of `forebay trace report --help`.
const EXAMPLES: &str = "\
Examples:
  forebay bench --trace=t --filename=disk.img --rw=randread --size=1g    write a trace to t
  forebay trace report t               time in each stage, and where the time of the slowest went
  forebay trace report t/disk.img      the same for one disk of several
  blkparse -D t -i disk.img            every record, by blktrace's own program
The stages: plug, until the thread's plug is unplugged; tag, until the request has a tag; scheduler,
until it is issued; device, until it is complete.";

/// Options of `forebay trace`.
#[derive(Args, Debug)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    /// Print how long requests spent in each stage, and where the time of the slowest went
    #[command(after_help = EXAMPLES)]
    Report(ReportArgs),
}

/// Options of `forebay trace report`.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Directory of the trace; or DIR/NAME for one of its disks
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// How many of the slowest I/Os to list
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    slowest: usize,
    /// Print one JSON value
    #[arg(long)]
    json: bool,
}

/// Runs `forebay trace`.
pub(crate) fn main(args: &TraceArgs) -> Result<(), Failure> {
    let TraceCommand::Report(args) = &args.command;
    report(args)
}

fn report(args: &ReportArgs) -> Result<(), Failure> {
    let disks = directory::find(&args.path).map_err(|error| {
        Failure::Run(match error.kind() {
            std::io::ErrorKind::NotFound => format!(
                "{}: no trace found in this directory: record one with forebay bench --trace=DIR",
                args.path.display()
            ),
            _ => format!("{}: cannot read the trace: {error}", args.path.display()),
        })
    })?;
    let summaries = disks
        .iter()
        .map(|(name, paths)| Summary::read(name, paths, args.slowest))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Failure::Run(error.to_string()))?;
    output::stdout(&match args.json {
        true => json::render(&summaries),
        false => summaries.iter().map(text::render).collect::<Vec<_>>().join("\n"),
    })
}
