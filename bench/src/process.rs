//! Resource usage of a process, as reported by the kernel. Source: proc(5).

use anyhow::{Context, Result};
use std::fs::read_to_string;
use std::time::Duration;

/// Returns the CPU time of a process, including all its threads, even ended ones.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    times(&format!("/proc/{pid}/stat"), 13)
}

/// Returns the CPU time of our reaped children and their descendants.
pub(crate) fn cpu_time_of_children() -> Result<Duration> {
    times("/proc/self/stat", 15)
}

/// Returns the sum of two consecutive clock-tick fields, starting at the `nth`, counted from 0.
fn times(path: &str, nth: usize) -> Result<Duration> {
    let stat = read_to_string(path).with_context(|| path.to_owned())?;
    let ticks = sum_of_two(&stat, nth).with_context(|| format!("{path}: too short"))?;
    let a_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64(ticks as f64 / a_second as f64))
}

fn sum_of_two(stat: &str, nth: usize) -> Option<u64> {
    // The second field is a name in parentheses. It may contain spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(nth - 2);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Returns a process's memory in bytes: private memory plus its share of shared memory (PSS).
pub(crate) fn memory_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let rollup = read_to_string(&path).with_context(|| path.clone())?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path}: no Pss"))? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 485 0 0 0 50 62 3 4 20 0 9 0 555";
        assert_eq!(sum_of_two(stat, 13), Some(112));
        assert_eq!(sum_of_two(stat, 15), Some(7));
        assert_eq!(sum_of_two("7 (a) S 1", 13), None);
    }

    #[test]
    fn this_process_has_memory_and_the_time_of_others_is_not_its_own() {
        let me = std::process::id();
        assert!(memory_bytes(me).unwrap() > 64 << 10);
        assert!(cpu_time(me).unwrap() < Duration::from_secs(3600));
    }
}
