//! The program `forebay`: measures, describes, serves and simulates disks.
//!
//! - [`mod@bench`]: `forebay bench`, with the options and the report of fio;
//! - [`info`]: `forebay info`, the limits, settings and features of a disk;
//! - [`serve`]: `forebay serve`, disks over NBD and vhost-user-blk; [`control`]: `forebay ctl` and
//!   `forebay control`, a running server;
//! - [`top`]: `forebay top`, the disks of a process while it runs;
//! - [`trace`]: `forebay trace`, traces of a running server, and where the time of requests went;
//! - [`run`]: `forebay run`, programs that use libaio, on the layer;
//! - [`sim`]: `forebay sim`, the layer in virtual time, with faults and checks;
//! - [`calibrate`]: `forebay calibrate`, a model of a device from measurements;
//! - [`lab`]: `forebay lab`, the published experiments beside the published figures;
//! - [`help`]: `forebay help`, the topics; [`usage`], [`mod@number`]: errors of the command line;
//! - [`manual`]: `forebay man` and `forebay completions`, from the tables of the help;
//! - [`words`]: words that shells complete as values;
//! - [`version`]: the long form of `forebay --version`;
//! - [`machine`]: the machine as job files see it; [`experiments`]: settings for experiments;
//! - [`fio_report`], [`counters`] and [`figure`]: parts of reports that `bench` and `sim` share;
//! - [`file_id`]: the identity of a file that has several names;
//! - [`output`], [`table`] and [`failure`]: printing, and exit codes; [`mod@range`]: medians.
//!
//! Exit codes: 0 for success, 1 for a failed or interrupted run, 2 for wrong usage.

#![deny(unsafe_code)]

mod bench;

mod calibrate;
mod completed_values;
mod control;
mod counters;
mod descriptors;
mod experiments;
mod failure;
mod figure;
mod file_id;
mod fio_report;
mod help;
mod info;
mod lab;
mod machine;
mod manual;
mod number;
#[cfg(test)]
mod option_examples;
mod output;
mod range;
mod recording;
mod run;
mod serve;
mod sim;
mod table;
mod top;
mod trace;
mod usage;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::Failure;

/// The end of `forebay --help`.
const NOTES: &str = "\
A disk is named by a spec, [driver:]target[?key=value&...]: disk.img, /dev/vdb?direct=on,
ram:2G?req_ns=10100&io_ns=4000, model:hdd, null:1T, fault:disk.img?rule=read:medium:nth=10.

More help: forebay help specs (disks), policies (settings of the layer), report (output of bench).";

/// A multi-queue block layer in user space: measure disks, serve them over NBD, and simulate them.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, long_version = version::long(), after_help = NOTES)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure a disk, with fio's options and report (see: forebay bench --help)
    #[command(disable_help_flag = true)]
    Bench {
        /// Options of fio, such as --name=job1 --rw=randread --filename=disk.img, and job files
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
        options: Vec<OsString>,
    },
    /// Show the limits, settings and features of a disk
    Info {
        /// The disk
        spec: String,
        /// Print one JSON value
        #[arg(long)]
        json: bool,
    },
    /// Serve disks over NBD, and to virtual machines (vhost-user-blk)
    Serve(Box<serve::ServeArgs>),
    /// Manage a running server: exports, limits, settings, certificates, log, shutdown
    Ctl(control::CtlArgs),
    /// Show and change the limits of a running server: an older form of `forebay ctl limits`
    #[command(hide = true)]
    Control(control::ControlArgs),
    /// Watch the disks, exports and owners of a process: rates, latencies, waits, merges, flushes
    Top(top::TopArgs),
    /// Run a program that uses libaio, unmodified, on the layer
    Run(run::Args),
    /// Run a fio job file, a recorded load or random scenarios in virtual time, and check every
    /// rule of the layer
    Sim(sim::Args),
    /// Measure a disk, and print a model file of it, for sim and for disks of the driver model
    Calibrate(calibrate::Args),
    /// Run the published experiments, and compare the figures with the published ones
    Lab(lab::Args),
    /// Record a trace of a running server, or sum one up: how long requests spent in each stage
    Trace(trace::TraceArgs),
    /// Print the help of a command, or of a topic: specs, policies, report
    Help {
        /// A command or a topic
        #[arg(value_name = "COMMAND|TOPIC")]
        words: Vec<String>,
    },
    /// Print a manual page (forebay man bench | man -l -), or write all of them
    Man(manual::Args),
    /// Print the script that completes commands, options and values in a shell
    Completions(manual::completions::Args),
}

fn main() -> ExitCode {
    match run(std::env::args_os().collect()) {
        Ok(code) => code,
        Err(failure) => {
            output::stderr(&failure.text());
            failure.exit_code()
        }
    }
}

/// Runs the command line, which begins with the program's name.
fn run(args: Vec<OsString>) -> Result<ExitCode, Failure> {
    // In fio's dialect the order of options matters, so clap does not parse them.
    if args.get(1).is_some_and(|first| first == "bench") {
        return bench::main(args.into_iter().skip(2)).map(|()| ExitCode::SUCCESS);
    }
    let done = match Cli::try_parse_from(&args) {
        Ok(Cli { command: Command::Run(args) }) => return run::main(&args),
        Ok(Cli { command: Command::Bench { options } }) => bench::main(options.into_iter()),
        Ok(Cli { command: Command::Info { spec, json } }) => info::main(&spec, json),
        Ok(Cli { command: Command::Serve(args) }) => return serve::main(&args),
        Ok(Cli { command: Command::Ctl(args) }) => control::ctl(&args),
        Ok(Cli { command: Command::Control(args) }) => control::main(&args),
        Ok(Cli { command: Command::Top(args) }) => top::main(&args),
        Ok(Cli { command: Command::Trace(args) }) => trace::main(&args),
        Ok(Cli { command: Command::Sim(args) }) => sim::main(&args),
        Ok(Cli { command: Command::Calibrate(args) }) => calibrate::main(&args),
        Ok(Cli { command: Command::Lab(args) }) => lab::main(&args),
        Ok(Cli { command: Command::Man(args) }) => manual::main(&args),
        Ok(Cli { command: Command::Completions(args) }) => manual::completions::main(&args),
        Ok(Cli { command: Command::Help { words } }) => {
            let commands = Cli::command();
            let commands: Vec<_> =
                commands.get_subcommands().map(|command| command.get_name().to_owned()).collect();
            help::main(&words, &commands, |command| {
                let flag = OsString::from("--help");
                let words = args.iter().take(1).chain(command).chain([&flag]);
                run(words.cloned().collect()).map(drop)
            })
        }
        Err(error) if error.use_stderr() => {
            Err(run::missing_dashes(&args).unwrap_or_else(|| usage::failure::<Cli>(error, args)))
        }
        Err(help) => output::stdout(&help.render().to_string()),
    };
    done.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests;
