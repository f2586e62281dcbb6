//! The measurement: both sides in turn, pair by pair.
//!
//! Before the pairs each side warms up. In the warm-up, perf counts the system calls of a run, if
//! it is permitted to; it does so only there, because counting takes time. A run that ends at once
//! measures the cost of starting the program: fio calibrates a clock for a tenth of a second, which
//! is not part of an I/O. So CPU time per I/O is the difference between a full run and a run that
//! ends at once, in CPU time as well as in I/Os.

use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, Instant};

use forebay_fio::sample::Sample;

use super::child::{self, Ended};
use super::progress::Progress;
use super::side::Side;
use crate::bench::stop::Stop;
use crate::failure::Failure;

/// The longest warm-up.
const WARM_UP: Duration = Duration::from_secs(1);

/// The limit of a run that ends at once.
const AT_ONCE: Duration = Duration::from_millis(1);

/// perf's arguments: the event counts every system call of a process and its threads.
const PERF: [&str; 4] = ["stat", "-x,", "-e", "raw_syscalls:sys_enter"];

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Run {
    pub(super) sample: Sample,
    /// CPU time of the whole process, us.
    pub(super) cpu_us: f64,
}

/// Measurements before the pairs.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Before {
    /// CPU time of a run that ends at once, us.
    pub(super) start_cpu_us: f64,
    /// I/Os of that run.
    pub(super) start_ios: u64,
    /// System calls for each I/O of the whole process, if perf could count them.
    pub(super) syscalls: Option<f64>,
}

/// A measurement.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Measurements before the pairs, for A and B.
    pub(super) before: [Before; 2],
    /// The pairs, A and B.
    pub(super) pairs: Vec<[Run; 2]>,
    /// Whether a signal stopped the measurement.
    pub(super) was_stopped: bool,
}

/// Runs the sides in turn, `nr_pairs` times each, each run no longer than `limit`.
pub(super) fn measure(
    sides: &[Side; 2],
    nr_pairs: usize,
    limit: Option<Duration>,
    stop: &Stop,
    progress: &mut Progress,
) -> Result<Measured, Failure> {
    let mut measured = Measured::default();
    let counts = can_count();
    // A run that a signal ends is dropped, with its pair.
    for (side, before) in sides.iter().zip(&mut measured.before) {
        progress.enter(format!("warming up: {}", side.name));
        match warm_up(side, counts, stop, progress)? {
            Some(found) => *before = found,
            None => return Ok(Measured { was_stopped: true, ..measured }),
        }
    }
    for nth in 0..nr_pairs {
        let mut runs = [None, None];
        // The order alternates, so that an effect of the first run on the second cancels out.
        for at in if nth.is_multiple_of(2) { [0, 1] } else { [1, 0] } {
            let what = format!("pair {} of {nr_pairs}: {}", nth + 1, ["A", "B"][at]);
            progress.enter(format!("{what}, {}", sides[at].name));
            let started = Instant::now();
            match run(&sides[at], limit, stop, progress)? {
                Some(run) => runs[at] = Some(run),
                None => return Ok(Measured { was_stopped: true, ..measured }),
            }
            progress.took(started.elapsed(), 2 * nr_pairs);
        }
        if let [Some(a), Some(b)] = runs {
            measured.pairs.push([a, b]);
        }
    }
    Ok(measured)
}

fn warm_up(
    side: &Side,
    counts: bool,
    stop: &Stop,
    progress: &mut Progress,
) -> Result<Option<Before>, Failure> {
    let counted = |limit, progress: &mut Progress| {
        Ok::<_, Failure>(match counts {
            true => {
                run_counted(side, limit, stop, progress)?.map(|(run, calls)| (run, Some(calls)))
            }
            false => run(side, Some(limit), stop, progress)?.map(|run| (run, None)),
        })
    };
    // The first run lays out missing files, which must not be counted.
    if run(side, Some(AT_ONCE), stop, progress)?.is_none() {
        return Ok(None);
    }
    let Some((warm, warm_calls)) = counted(WARM_UP, progress)? else { return Ok(None) };
    let Some((short, short_calls)) = counted(AT_ONCE, progress)? else { return Ok(None) };
    let Some(start) = run(side, Some(AT_ONCE), stop, progress)? else { return Ok(None) };
    let ios = warm.sample.total_ios().saturating_sub(short.sample.total_ios());
    let calls = warm_calls.zip(short_calls).map(|(warm, short)| warm.saturating_sub(short));
    Ok(Some(Before {
        start_cpu_us: start.cpu_us,
        start_ios: start.sample.total_ios(),
        syscalls: calls.filter(|_| ios > 0).map(|calls| calls as f64 / ios as f64),
    }))
}

/// Runs a side once. Returns `None` if a signal ended the run.
fn run(
    side: &Side,
    limit: Option<Duration>,
    stop: &Stop,
    progress: &mut Progress,
) -> Result<Option<Run>, Failure> {
    let ended = start(side.program(), &side.arguments(limit), side, stop, progress)?;
    read(side, &ended)
}

/// Runs a side once under perf. Returns the number of system calls as well.
fn run_counted(
    side: &Side,
    limit: Duration,
    stop: &Stop,
    progress: &mut Progress,
) -> Result<Option<(Run, u64)>, Failure> {
    let mut arguments: Vec<OsString> = PERF.iter().map(Into::into).collect();
    arguments.extend(["--".into(), side.program().clone()]);
    arguments.extend(side.arguments(Some(limit)).into_iter().map(OsString::from));
    let ended = start(&"perf".into(), &arguments, side, stop, progress)?;
    let Some(run) = read(side, &ended)? else { return Ok(None) };
    let calls = calls(&ended.stderr).ok_or_else(|| {
        Failure::Run(format!("--compare: no count in the output of perf: {}", ended.stderr.trim()))
    })?;
    Ok(Some((run, calls)))
}

fn start(
    program: &OsString,
    arguments: &[impl AsRef<std::ffi::OsStr>],
    side: &Side,
    stop: &Stop,
    progress: &mut Progress,
) -> Result<Ended, Failure> {
    child::run(program, arguments, stop, || progress.tick())
        .map_err(|error| Failure::Run(format!("--compare: cannot run {}: {error}", side.name)))
}

fn read(side: &Side, ended: &Ended) -> Result<Option<Run>, Failure> {
    if ended.was_stopped {
        return Ok(None);
    }
    let fail = |reason: String| {
        Err(Failure::Run(format!(
            "--compare: {}: {reason}; command: {}",
            side.name,
            side.command(None)
        )))
    };
    if !ended.status.success() {
        return fail(format!("failed ({}): {}", ended.status, last_words(ended)));
    }
    match Sample::parse(&ended.stdout) {
        Ok(sample) if sample.total_ios() == 0 => fail("no I/O was done".to_owned()),
        Ok(sample) => Ok(Some(Run { sample, cpu_us: ended.cpu.as_secs_f64() * 1e6 })),
        Err(error) => fail(error.to_string()),
    }
}

/// Returns the reason of a failed run: its standard error, or else its output before any report.
fn last_words(ended: &Ended) -> String {
    let is_perfs = |line: &&str| line.contains(PERF[3]);
    let lines = |text: &str| {
        let lines = text.trim().lines().filter(|line| !is_perfs(line));
        lines.take_while(|line| *line != "{").take(8).collect::<Vec<_>>().join("\n")
    };
    let words = [lines(&ended.stderr), lines(&ended.stdout)];
    words.into_iter().find(|words| !words.is_empty()).unwrap_or("no message".to_owned())
}

/// Returns whether system calls can be counted: perf is installed and is permitted to.
fn can_count() -> bool {
    let arguments = PERF.iter().chain(&["--", "true"]);
    let output = Command::new("perf").args(arguments).output();
    output.is_ok_and(|output| {
        output.status.success() && calls(&String::from_utf8_lossy(&output.stderr)).is_some()
    })
}

/// Returns the count in perf's line `count,,event,...`.
fn calls(stderr: &str) -> Option<u64> {
    let line = stderr.lines().find(|line| line.contains("raw_syscalls:sys_enter"))?;
    line.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfs_count_is_read() {
        let line = "forebay: a note\n1234,,raw_syscalls:sys_enter,1000,100.00,,\n";
        assert_eq!(calls(line), Some(1234));
        assert_eq!(calls("<not counted>,,raw_syscalls:sys_enter,0,0.00,,\n"), None);
        assert_eq!(calls("perf: no\n"), None);
    }
}
