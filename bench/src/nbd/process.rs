//! What the kernel says a process has used. Source: proc(5).

use anyhow::{Context, Result};
use std::fs::read_to_string;
use std::time::Duration;

/// Processor time of a process, of all its threads, those that have ended too.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    times(&format!("/proc/{pid}/stat"), 13)
}

/// Processor time of the children of ours that have ended and were waited for, and of theirs.
pub(crate) fn cpu_time_of_children() -> Result<Duration> {
    times("/proc/self/stat", 15)
}

/// The sum of the two fields of clock ticks from the `nth` on, counted from 0.
fn times(path: &str, nth: usize) -> Result<Duration> {
    let stat = read_to_string(path).with_context(|| path.to_owned())?;
    // The second field is a name in parentheses, and may have blanks in it.
    let rest = stat.rsplit_once(')').context("a process has a name")?.1;
    let ticks: Vec<u64> = rest
        .split_whitespace()
        .skip(nth - 2)
        .take(2)
        .map_while(|field| field.parse().ok())
        .collect();
    let [user, system] = ticks[..] else { anyhow::bail!("{path} is too short") };
    let a_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64((user + system) as f64 / a_second as f64))
}

/// A process's share of memory: what is its own, and its part of what it shares (PSS), bytes.
pub(crate) fn memory_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let rollup = read_to_string(&path).with_context(|| path.clone())?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path}: no Pss"))? << 10)
}
