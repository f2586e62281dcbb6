//! `forebay lab`: reruns the published experiments, next to the published figures.
//!
//! - [`published`]: the tables, as data;
//! - [`virtual_time`]: the experiments in the simulator, and their loads;
//! - [`real`]: the same with threads, in real time;
//! - [`mixed`]: split reads beside small ones, in virtual time;
//! - [`flush`]: the experiment on flushes, in both;
//! - [`rows`], [`notes`], [`report`]: figures, explanations, and output; [`pictures`], with
//!   [`stories`]: the same as curves;
//! - [`constants`]: the rows that the models were fitted to.

#[cfg(test)]
mod bounds;
mod constants;
mod flush;
mod mixed;
mod notes;
mod pictures;
mod published;
mod real;
mod report;
mod rows;
mod stories;
mod virtual_time;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use crate::failure::Failure;
use crate::figure::files;
use crate::number;
use crate::output;
use report::Format;
use rows::Outcome;

/// The end of `--help`: how to read the figures.
const FIGURES: &str = "\
Figures are printed beside the published ones. A deviation with a ! is over its bound, and a note
below the tables gives the reason. Bounds: iops of tags, 5 % on hdd and with reads of 4 KiB, else
2 %; gain_percent of run, 10 points; iops_of_hold of flush, 0.1; others have none. Context switches
are all voluntary ones, two for each sleep: of job threads that wait for tags or completions, and of
the worker that runs the queue. Tag waits are those of I/Os, also under fair, where no thread sleeps
for a tag. jain is Jain's fairness index: 1 if all jobs got the same, 1/n if one job got everything.
Behind a deviation, fitted means that a constant of the model was fitted to the published figure;
such a row confirms nothing. All other rows in virtual time are predictions. Below the tables, each
constant states the rows that it was fitted to.
In rows of flush, iops are writes, and counts are those of the measured time, 20 s in virtual time.

wake=stash starves most jobs: see least_job_share and jain. The settings marked (before), stash
and single are for experiments only: forebay help policies.

Published in 2020 (tags: \"blk-mq: provide more tags for woken-up process when tag allocation is
busy\") and in 2019 (run: \"blk-mq: avoid repeatedly scheduling the same work to run hardware
queue\") on the mailing list linux-block, and in 2011 on linux-kernel (flush: \"block: hold queue if
flush is running for non-queueable flush drive\"). In rows of run, a note that begins with modelled
means that the cost of queueing was injected.";

/// The arguments after `lab`.
#[derive(Debug, ClapArgs)]
#[command(after_help = FIGURES, args_conflicts_with_subcommands = true)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    experiment: Option<Experiment>,
    /// Without a command, all experiments run in virtual time.
    #[command(flatten)]
    pictures: Pictures,
}

#[derive(Debug, ClapArgs)]
struct Pictures {
    /// Draw the curves into this folder: NAME.svg for light pages, NAME-dark.svg for dark ones
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write a page of the curves
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Pictures {
    /// Checks that the files can be written, before the experiments take minutes.
    fn prepare(&self) -> Result<(), Failure> {
        self.html.iter().try_for_each(|path| files::prepare_file("--html", path))?;
        self.svg.iter().try_for_each(|path| files::prepare_folder("--svg", path))
    }

    fn draw(&self, rows: &[rows::Row]) -> Result<(), Failure> {
        if let Some(folder) = &self.svg {
            files::write_pairs(folder, &pictures::charts(rows, title))?;
        }
        match &self.html {
            Some(path) => files::write("--html", path, &pictures::page(rows, title)),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// Many jobs that compete for too few tags: wake=batch (before), stash (after), single and fair
    /// (Forebay's), on hdd, ssd-sas and nvme
    #[command(after_help = FIGURES)]
    Tags {
        #[command(flatten)]
        options: Options,
        /// All cells: more numbers of jobs, and with --real also the reads of 4 KiB (half an hour)
        #[arg(long)]
        full: bool,
        /// Only the tables of this device
        #[arg(long, value_name = "NAME")]
        device: Option<Device>,
    },
    /// 8 jobs whose completions request a run of the queue: run_queue=always (before), dedupe
    /// (after), on virtio-ram; without and with the published cost of a request, injected
    #[command(after_help = FIGURES)]
    Run {
        #[command(flatten)]
        options: Options,
    },
    /// Threads that write 16 KiB at random places and call fsync, after each write or as fileio of
    /// sysbench does: flush=tail (before), requeue, hold (after), and hold with elide=on, on sata
    #[command(after_help = FIGURES)]
    Flush {
        #[command(flatten)]
        options: Options,
        /// With --real: also 64 threads
        #[arg(long, requires = "real")]
        full: bool,
    },
}

#[derive(Debug, ClapArgs)]
struct Options {
    /// In virtual time (default): takes seconds (tags: minutes), and the figures are the same in
    /// every run
    #[arg(long, conflicts_with = "real")]
    sim: bool,
    /// In real time, with threads on modelled disks (tags: 1 and 72 jobs, 6 minutes and 1.1 GiB of
    /// memory; run: a minute; flush: 1 and 16 threads, a minute and a half)
    #[arg(long)]
    real: bool,
    /// Time to measure each cell after its warm-up in seconds, 1 to 3600 [default: tags: 25 s for
    /// hdd, after 10 s, and 4 s for others; run: 1 s, ten times for each depth; flush: 5 s]
    #[arg(long, value_name = "S", requires = "real", conflicts_with = "sim")]
    #[arg(value_parser = number::parse::<1, 3600>)]
    seconds: Option<u64>,
    /// Print a JSON array of rows
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print tables in Markdown
    #[arg(long)]
    markdown: bool,
    #[command(flatten)]
    pictures: Pictures,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Device {
    Hdd,
    SsdSas,
    Nvme,
}

impl Device {
    fn name(self) -> &'static str {
        match self {
            Self::Hdd => "hdd",
            Self::SsdSas => "ssd-sas",
            Self::Nvme => "nvme",
        }
    }
}

impl Options {
    fn format(&self) -> Format {
        match (self.json, self.markdown) {
            (true, _) => Format::Json,
            (false, true) => Format::Markdown,
            (false, false) => Format::Text,
        }
    }
}

/// Runs an experiment, and prints its figures.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let Some(experiment) = &args.experiment else {
        return all(&args.pictures);
    };
    let (Experiment::Tags { options, .. }
    | Experiment::Run { options }
    | Experiment::Flush { options, .. }) = experiment;
    options.pictures.prepare()?;
    let outcome = match experiment {
        Experiment::Tags { options, full, device } => tags(options, *full, *device)?,
        Experiment::Run { options } => run(options)?,
        Experiment::Flush { options, full } => flush(options, *full)?,
    };
    output::stdout(&report::print(&outcome.rows, options.format(), title))?;
    options.pictures.draw(&outcome.rows)?;
    match outcome.nr_missing {
        0 => Ok(()),
        nr => Err(Failure::Run(format!("interrupted: {nr} cells were not measured"))),
    }
}

/// Runs all experiments in virtual time, and draws their curves.
fn all(pictures: &Pictures) -> Result<(), Failure> {
    pictures.prepare()?;
    let mut rows = virtual_time::tags(false, None);
    rows.extend(mixed::rows(None));
    rows.extend(virtual_time::run());
    rows.extend(flush::virtual_time());
    pictures.draw(&rows)
}

fn tags(options: &Options, full: bool, device: Option<Device>) -> Result<Outcome, Failure> {
    let device = device.map(Device::name);
    if let (false, true, Some(name)) = (options.real, full, device)
        && !virtual_time::has_more_cells(name)
    {
        return Err(Failure::Usage(format!(
            "--full: all cells of {name} are simulated already; use --real --full to measure more, \
             or omit --full"
        )));
    }
    match options.real {
        true => real::tags(full, device, options.seconds),
        false => {
            let rows = virtual_time::tags(full, device).into_iter();
            Ok(whole(rows.chain(mixed::rows(device)).collect()))
        }
    }
}

fn run(options: &Options) -> Result<Outcome, Failure> {
    if options.real { real::run(options.seconds) } else { Ok(whole(virtual_time::run())) }
}

fn flush(options: &Options, full: bool) -> Result<Outcome, Failure> {
    match options.real {
        true => flush::real(full, options.seconds),
        false => Ok(whole(flush::virtual_time())),
    }
}

/// Returns an outcome of rows in virtual time, which is never interrupted.
fn whole(rows: Vec<rows::Row>) -> Outcome {
    Outcome { rows, nr_missing: 0 }
}

/// Returns the heading of an experiment on a device.
fn title(experiment: &'static str, device: &'static str) -> String {
    if experiment == "run" {
        return format!("run: {device}, 8 jobs, random reads of 4 KiB");
    }
    if experiment == mixed::NAME {
        return format!("{experiment}: {device}, 12 jobs read 1 MiB and 12 jobs 4 KiB, few tags");
    }
    if let Some(title) = flush::title(experiment) {
        return title;
    }
    let all = published::TAGS.iter().chain([&published::ROTATION]).chain(&published::SMALL);
    let mut all = all.filter(|table| (table.experiment, table.device) == (experiment, device));
    let Some(table) = all.next() else { return format!("{experiment}: {device}") };
    let reads = match table.block_bytes {
        4096 => "random reads of 4 KiB",
        _ => "random reads of 1 MiB in requests of 256 KiB",
    };
    let (depth, nr_tags) = (table.depth, table.nr_tags);
    let more = match experiment == published::ROTATION.experiment {
        true => " with seeks by distance and rotational latency",
        false => "",
    };
    format!("{experiment}: {device}{more}, {reads}, {depth} in flight in all, {nr_tags} tags")
}
