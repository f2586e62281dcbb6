//! `forebay trace`: records a trace of a running server, and sums up traces.

mod json;
mod record;
mod summary;
mod text;

use crate::descriptors::raise_nr_descriptors;
use crate::failure::Failure;
use crate::output;
use clap::{Args, Subcommand};
use forebay_trace::directory;
use record::RecordArgs;
use std::path::PathBuf;
use summary::Summary;

/// The end of `forebay trace --help`.
const RECORD_EXAMPLES: &str = "\
Examples:
  forebay serve disk.img --control run/control     a server that can be traced
  forebay trace run/control --for 10               record all I/O of 10 seconds
  forebay trace run/control --output t             until Ctrl-C, to the new directory t
  forebay trace report t                           where the time of the requests went
The user must be that of the server, or root. The trace belongs to the user who records, and a
confined server needs no further rights. If this command cannot write as fast as the server records,
records are lost, and counted; the I/O is not delayed.";

/// The end of `forebay trace report --help`.
const EXAMPLES: &str = "\
Examples:
  forebay bench --trace=t --filename=disk.img --rw=randread --size=1g    write a trace to t
  forebay trace report t               time in each stage, and where the time of the slowest went
  forebay trace report t/disk.img      the same for one disk of several
  blkparse -D t -i disk.img            every record, by blktrace's own program
  blkparse -D t -i disk.img -d m.bin   all records of the disk in one file
  forebay trace report m.bin           its report
The stages: plug, until the thread's plug is unplugged; limit, until the limits of its owner release
the request; flush, until the flush before the data is done, plus the flush after the data that
makes a FUA write durable; tag, until the request has a tag; queue, until it is issued; driver,
until it is complete. forebay top and the metrics show plug, tag (with flush waits before the data),
queue and driver. A flush has no stages, but a time.";

/// Options of `forebay trace`.
#[derive(Args, Debug)]
#[command(after_help = RECORD_EXAMPLES, arg_required_else_help = true)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(disable_help_subcommand = true)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    command: Option<TraceCommand>,
    #[command(flatten)]
    record: RecordArgs,
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
    /// Directory of the trace; DIR/NAME for one of its disks; or a file of blkparse -d
    #[arg(value_name = "PATH")]
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
    match &args.command {
        Some(TraceCommand::Report(args)) => report(args),
        None => record::main(&args.record),
    }
}

fn report(args: &ReportArgs) -> Result<(), Failure> {
    // All files of a disk are open at once; each context and traced thread may have one.
    raise_nr_descriptors();
    let disks = directory::find(&args.path).map_err(|error| {
        let path = args.path.display();
        let numbers = directory::numbers(&args.path, "").unwrap_or_default();
        Failure::Run(match (error.kind(), numbers.last()) {
            (std::io::ErrorKind::NotFound, Some(last)) => {
                format!(
                    "{path}: traces are in numbered directories: name one, such as {path}/{last}"
                )
            }
            (std::io::ErrorKind::NotFound, None) => {
                let place = if args.path.is_dir() { " in this directory" } else { "" };
                format!(
                    "{path}: no trace found{place}: give the directory of a trace, DIR/NAME for \
                     one of its disks, or a file of blkparse -d; forebay bench --trace=DIR \
                     records one"
                )
            }
            _ => format!("{path}: cannot read the trace: {error}"),
        })
    })?;
    let summaries = disks
        .iter()
        .map(|(name, paths)| Summary::read(name, paths, args.slowest))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::Run)?;
    output::stdout(&match args.json {
        true => json::render(&summaries),
        false => summaries.iter().map(text::render).collect::<Vec<_>>().join("\n"),
    })
}
