//! The program `forebay`: measures disks through the Forebay block layer, and describes them.
//!
//! - [`mod@bench`]: `forebay bench`, with the options and the report of fio;
//! - [`info`]: `forebay info`, what a disk is and can do;
//! - [`serve`]: `forebay serve`, disks for the network;
//! - [`sim`]: `forebay sim`, the layer in virtual time, with faults, checked;
//! - [`lab`]: `forebay lab`, the published experiments beside what was published;
//! - [`machine`]: what job files need to know of the machine;
//! - [`output`] and [`failure`]: how anything is printed, and how a run ends.
//!
//! Exit codes: 0 if all went well, 1 if the run failed or was interrupted, 2 if what was asked for
//! makes no sense.

#![forbid(unsafe_code)]

mod bench;
mod failure;
mod info;
mod lab;
mod machine;
mod output;
mod serve;
mod sim;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// What `forebay --help` says of disks.
const SPECS: &str = "\
A disk is named by a spec, [driver:]target[?key=value&...]: disk.img, /dev/vdb?direct=on,
ram:2G?req_ns=10100&io_ns=4000, model:hdd, null:1T, fault:disk.img?rule=read:medium:nth=10.";

/// A multi-queue block layer in user space: measure a disk through it, or see what a disk can do.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, after_help = SPECS, max_term_width = 100)]
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
    /// Show what a disk is and can do, and why it cannot do the rest
    Info {
        /// The disk
        spec: String,
        /// Print one JSON value
        #[arg(long)]
        json: bool,
    },
    /// Serve disks to the network, over NBD
    Serve(serve::ServeArgs),
    /// Run a fio job file, or random scenarios, in virtual time on a modelled device, and check all
    Sim(sim::Args),
    /// Run the published experiments, and put the figures beside what was published
    Lab(lab::Args),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                output::stderr(&format!("forebay: {message}\n"));
            }
            failure.exit_code()
        }
    }
}

fn run() -> Result<(), Failure> {
    let mut args = std::env::args_os();
    // What follows `bench` is fio's dialect, in which the order counts: clap never sees it.
    if args.nth(1).is_some_and(|first| first == "bench") {
        return bench::main(args);
    }
    match Cli::try_parse() {
        Ok(Cli { command: Command::Bench { options } }) => bench::main(options.into_iter()),
        Ok(Cli { command: Command::Info { spec, json } }) => info::main(&spec, json),
        Ok(Cli { command: Command::Serve(args) }) => serve::main(&args),
        Ok(Cli { command: Command::Sim(args) }) => sim::main(&args),
        Ok(Cli { command: Command::Lab(args) }) => lab::main(&args),
        Err(mut error) if error.use_stderr() => {
            serve::explain(&mut error, std::env::args_os().nth(1).as_deref());
            output::stderr(&error.render().to_string());
            Err(Failure::Told { usage: true })
        }
        Err(help) => output::stdout(&help.render().to_string()),
    }
}
