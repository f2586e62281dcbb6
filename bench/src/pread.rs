//! The other side of the figure `threads`: threads that make one `pread` call after another.
//!
//! It runs as a separate program, like any other side of a figure, so both sides are measured from
//! outside. It accepts the options of the other side, and prints the part of the report that
//! [`measure`] reads. Only `runtime`, `filename` and `numjobs` have an effect: it makes random
//! reads of 4 KiB with direct I/O, and for each reads the clock twice and increments one count.
//!
//! [`measure`]: crate::measure

use std::ffi::OsString;
use std::fs::{File, OpenOptions, read_to_string};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;
use serde_json::json;

use crate::process;

/// The first argument that selects this program.
pub(crate) const COMMAND: &str = "pread";

/// Size of a read in bytes, and alignment of its memory.
const BLOCK: usize = 4096;

/// Stack size of a thread in bytes, as in `forebay bench`.
const STACK: usize = 256 << 10;

/// State shared by the threads.
struct Load {
    file: File,
    nr_blocks: u64,
    runtime: Duration,
    /// Start time of all threads. The main thread holds the write lock until they may start.
    start: RwLock<Option<Instant>>,
}

/// Results of a thread.
struct Done {
    latencies: Latencies,
    voluntary_switches: u64,
    runtime: Duration,
}

/// Counts of latencies by bucket: 64 to each power of two.
struct Latencies(Vec<u64>);

/// Runs the threads that the arguments describe, and prints a report.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let arguments: Vec<String> =
        arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let value = |option: &str| {
        let found = arguments.iter().find_map(|argument| argument.strip_prefix(option));
        found.with_context(|| format!("{option}... is needed"))
    };
    let path = value("--filename=")?;
    let nr_threads: u32 = value("--numjobs=")?.parse()?;
    let runtime = Duration::from_secs(value("--runtime=")?.parse()?);
    let direct = OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(direct).open(path);
    let file = file.with_context(|| path.to_owned())?;
    let nr_blocks = file.metadata()?.len() / BLOCK as u64;
    ensure!(nr_blocks > 0, "{path} is shorter than a read; make it longer");
    let load = Load { file, nr_blocks, runtime, start: RwLock::new(None) };
    let all = run(&load, nr_threads)?;
    let cpu = process::cpu_time(std::process::id())?;
    let cpu_of_thread = cpu.as_secs_f64() / all.runtime.as_secs_f64() / f64::from(nr_threads);
    let (total, switches) = (all.latencies.total(), all.voluntary_switches);
    let percentile = |percent| all.latencies.percentile(percent);
    let report = json!({
        "jobs": [{
            "read": {
                "iops": total as f64 / all.runtime.as_secs_f64(),
                "total_ios": total,
                "runtime": all.runtime.as_millis() as u64,
                "clat_ns": { "percentile": {
                    "50.000000": percentile(50), "99.000000": percentile(99),
                } },
            },
            // User and system time together.
            "usr_cpu": 100.0 * cpu_of_thread,
            "sys_cpu": 0.0,
        }],
        "forebay": [{ "jobs": [{ "voluntary_switches": switches }] }],
    });
    std::io::stdout().write_all(report.to_string().as_bytes())?;
    Ok(())
}

/// Runs all threads, and adds up their results.
fn run(load: &Load, nr_threads: u32) -> Result<Done> {
    let mut start = load.start.write().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        let spawn = |seed: u32| {
            let work = move || work(load, seed.into());
            thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work)
        };
        let threads = (0..nr_threads).map(spawn).collect::<Result<Vec<_>, _>>();
        // If a thread could not be started, the others end at once.
        *start = threads.is_ok().then(Instant::now);
        drop(start);
        let threads = threads?;
        let (latencies, runtime) = (Latencies::new(), Duration::ZERO);
        let mut all = Done { latencies, voluntary_switches: 0, runtime };
        for thread in threads {
            let done = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            all.latencies.add(&done.latencies);
            all.voluntary_switches += done.voluntary_switches;
            all.runtime = all.runtime.max(done.runtime);
        }
        Ok(all)
    })
}

fn work(load: &Load, seed: u64) -> Result<Done> {
    let mut memory = vec![0; 2 * BLOCK];
    let first = memory.as_ptr().align_offset(BLOCK);
    let buf = &mut memory[first..][..BLOCK];
    let mut latencies = Latencies::new();
    let mut draws = seed << 32;
    let before = voluntary_switches();
    let start = *load.start.read().unwrap_or_else(PoisonError::into_inner);
    let start = start.context("not all threads could be started")?;
    let mut now = Duration::ZERO;
    while now < load.runtime {
        let block = (u128::from(draw(&mut draws)) * u128::from(load.nr_blocks)) >> 64;
        let issued = start.elapsed();
        load.file.read_exact_at(buf, block as u64 * BLOCK as u64)?;
        now = start.elapsed();
        latencies.record((now - issued).as_nanos() as u64);
    }
    Ok(Done { latencies, voluntary_switches: voluntary_switches() - before, runtime: now })
}

/// Returns the next number of a random sequence. Source: G. Steele et al., "Fast Splittable
/// Pseudorandom Number Generators", 2014 (SplitMix64).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Latencies {
    fn new() -> Latencies {
        Latencies(vec![0; 64 * 59])
    }

    fn record(&mut self, ns: u64) {
        let shift = (ns | 64).ilog2() - 6;
        self.0[((shift as usize) << 6) + (ns >> shift) as usize] += 1;
    }

    fn add(&mut self, other: &Latencies) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, more)| *sum += more);
    }

    fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the lower bound, in ns, of the bucket that contains this percentile.
    fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.total() * percent).div_ceil(100);
        let mut sum = 0;
        let reached = |count: &u64| {
            sum += count;
            sum >= wanted
        };
        let bucket = self.0.iter().position(reached).unwrap_or(0) as u64;
        match bucket >> 6 {
            0 => bucket,
            group => (64 + bucket % 64) << (group - 1),
        }
    }
}

/// Returns the number of voluntary context switches of this thread so far.
fn voluntary_switches() -> u64 {
    let status = read_to_string("/proc/thread-self/status").unwrap_or_default();
    let number = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_near() {
        let mut latencies = Latencies::new();
        (1..=100_000).for_each(|ns| latencies.record(ns));
        for (percent, ns) in [(1, 1000), (50, 50_000), (99, 99_000)] {
            assert!(latencies.percentile(percent).abs_diff(ns) <= ns / 64, "{percent}");
        }
        latencies.record(u64::MAX);
        assert_eq!(latencies.total(), 100_001);
    }
}
