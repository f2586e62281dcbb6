//! The speed of the simulator, in processor time of one core: `cargo xtask simspeed`.
//!
//! `speed seeds NR [FIRST]` runs random scenarios with all checkers on, those that the gates run
//! too. `speed job NR` runs a job of fio with NR I/Os: four clones, each with 32 in flight, in
//! batches of 8. `speed histories ONE_OF` runs one in ONE_OF of the short histories, with a crash
//! after each event.
//!
//! Times are processor time, not elapsed time, so other programs on the machine disturb them less.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool")]

use forebay_core::{MergeKind, Op};
use forebay_fio::cmdline::{Parsed, parse};
use forebay_sim::histories::{Scope, Setting, explore};
use forebay_sim::{DeviceSpec, JobDisk, Options, Summary, run_jobs, run_seed};
use std::ffi::OsString;
use std::fs;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = words.iter().skip(1).filter_map(|word| word.parse().ok()).collect();
    let outcome = match (words.first().map(String::as_str), &numbers[..]) {
        (Some("seeds"), &[nr]) => seeds(0, nr),
        (Some("seeds"), &[nr, first]) => seeds(first, nr),
        (Some("job"), &[nr]) => job(nr),
        (Some("histories"), &[one_of]) if one_of > 0 => histories(one_of),
        _ => {
            Err("usage: speed seeds NR [FIRST] | speed job NR | speed histories ONE_OF".to_owned())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs random scenarios, and prints what a bio does in them.
fn seeds(first: u64, nr: u64) -> Result<(), String> {
    let clock = Clock::start()?;
    let mut sums = Sums::default();
    for seed in first..first + nr {
        let summary =
            run_seed(seed, &Options::default()).map_err(|violation| violation.to_string())?;
        sums.add(&summary);
    }
    sums.report(&format!("seeds {first} to {}", first + nr - 1), clock.seconds()?);
    Ok(())
}

/// Runs a job of fio, and prints what a bio does in it.
fn job(nr: u64) -> Result<(), String> {
    let job = "--name=job --rw=randrw --bs=4k --size=64m --iodepth=32 --iodepth_batch=8 --fsync=64 \
               --iodepth_batch_complete_min=8 --numjobs=4";
    let words = job.split_whitespace().map(str::to_owned);
    let words = words.chain([format!("--number_ios={}", nr.div_ceil(4))]);
    let Ok(Parsed::Run(command)) = parse(words.map(OsString::from)) else {
        return Err("the job is not valid".to_owned());
    };
    let device: DeviceSpec = "nvme".parse().map_err(|_| "there is no device nvme".to_owned())?;
    let clock = Clock::start()?;
    let run = run_jobs(&command.jobs, 1, &JobDisk::new(device), None);
    let run = run.map_err(|error| error.to_string())?;
    let summary = run.map_err(|violation| violation.to_string())?;
    let seconds = clock.seconds()?;
    let mut sums = Sums::default();
    sums.add(&summary);
    sums.report("job on nvme", seconds);
    Ok(())
}

/// Runs some of the histories of three bios under all settings.
fn histories(one_of: u64) -> Result<(), String> {
    let clock = Clock::start()?;
    let scope = Scope { one_of, ..Scope::all(3) };
    let found = explore(&scope, &Setting::all()).map_err(|fault| fault.to_string())?;
    let seconds = clock.seconds()?;
    println!("histories of {scope}: {found}, hash {:016x}", found.hash);
    report("crash points", found.nr_crash_points as f64 / seconds * 60.0, "minute");
    Ok(())
}

fn report(what: &str, rate: f64, period: &str) {
    println!("  {:8.3} million {what} per {period} of one core", rate / 1e6);
}

/// Sums over runs.
#[derive(Default)]
struct Sums {
    nr_bios: u64,
    nr_crash_points: u64,
    hash: u64,
    /// With their names, in the order of the report.
    others: Vec<(&'static str, u64)>,
}

impl Sums {
    fn add(&mut self, summary: &Summary) {
        self.nr_bios += summary.nr_bios;
        self.nr_crash_points += summary.nr_crash_points;
        self.hash = self.hash.rotate_left(1) ^ summary.hash;
        let stats = &summary.stats;
        let merges: u64 = MergeKind::ALL.iter().map(|&kind| stats.merges(kind)).sum();
        let others = [
            ("steps", summary.nr_steps),
            ("sleeps", summary.nr_sleeps),
            ("turns", stats.turns),
            ("turns that did nothing", stats.empty_turns),
            ("commands", stats.issued),
            ("merges", merges),
            ("parts cut off", stats.splits),
            ("flushes requested", stats.flushes_asked),
            ("flushes issued", stats.flushes_issued),
            ("waits for tags", stats.tag_waits),
            ("requeues", stats.requeues),
            ("retries", stats.retries),
            ("reads", stats.op(Op::Read).bios),
            ("blocks read", summary.nr_blocks_read),
            ("blocks promised", summary.nr_promises),
            ("failures", summary.tally.nr_failed),
        ];
        self.others.resize(others.len(), ("", 0));
        for ((name, sum), (of, nr)) in self.others.iter_mut().zip(others) {
            *name = of;
            *sum += nr;
        }
    }

    fn report(&self, load: &str, seconds: f64) {
        let nr_bios = self.nr_bios as f64;
        println!("{load}: {nr_bios} bios, hash {:016x}", self.hash);
        for (name, sum) in &self.others {
            println!("  {:8.3} {name} per bio", *sum as f64 / nr_bios);
        }
        report("bios", nr_bios / seconds, "second");
        report("crash points", self.nr_crash_points as f64 / seconds * 60.0, "minute");
    }
}

/// The processor time of this program, which has one thread.
struct Clock {
    start_ns: u64,
}

impl Clock {
    fn start() -> Result<Clock, String> {
        Ok(Clock { start_ns: processor_ns()? })
    }

    /// Returns the seconds since the start.
    fn seconds(&self) -> Result<f64, String> {
        Ok((processor_ns()? - self.start_ns) as f64 / 1e9)
    }
}

/// Returns how long the thread has run, as the scheduler of Linux counts it.
fn processor_ns() -> Result<u64, String> {
    const PATH: &str = "/proc/thread-self/schedstat";
    let text = fs::read_to_string(PATH).map_err(|error| format!("{PATH}: {error}"))?;
    let ns = text.split_whitespace().next().and_then(|word| word.parse().ok());
    ns.ok_or_else(|| format!("{PATH}: no time in {text:?}"))
}
