//! One run: a child process, its output, and the CPU time of the whole process.
//!
//! The CPU time is read after the child has exited and before it is reaped. It then includes all
//! threads, even kernel workers, which the figures of the jobs' threads would miss. Its unit is a
//! clock tick of 10 ms, so a run should take seconds.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::bench::stop::Stop;

/// Polling interval for the child: short enough for the user, too long to affect the measurement.
const POLL: Duration = Duration::from_millis(50);

/// How long a child may take to exit after a signal.
const GRACE: Duration = Duration::from_secs(10);

/// Result of a child.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// User and system time.
    pub(super) cpu: Duration,
    /// Whether a signal stopped it early.
    pub(super) was_stopped: bool,
}

/// Runs `program`, and calls `tick` periodically. If a signal arrives, forwards it to the child,
/// and waits for the child.
pub(super) fn run(
    program: &OsStr,
    arguments: &[impl AsRef<OsStr>],
    stop: &Stop,
    tick: impl FnMut(),
) -> io::Result<Ended> {
    use std::os::unix::process::CommandExt;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A keyboard interrupt then reaches only this process, which forwards it once: a second one
        // would kill the child before its report.
        .process_group(0)
        .spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let out = scope.spawn(|| text(out));
        let err = scope.spawn(|| text(err));
        let waited = wait(&child, stop, tick);
        if waited.is_err() {
            // The child's pipes close, so the readers end.
            kill_process_group(Pid::from_child(&child), Signal::KILL)?;
        }
        let status = child.wait()?;
        let (cpu, was_stopped) = waited?;
        let join = |reader: thread::ScopedJoinHandle<'_, String>| {
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok(Ended { status, stdout: join(out), stderr: join(err), cpu, was_stopped })
    })
}

/// Waits until the child has exited, without reaping it.
fn wait(child: &Child, stop: &Stop, mut tick: impl FnMut()) -> io::Result<(Duration, bool)> {
    let pid = Pid::from_child(child);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let mut told: Option<Instant> = None;
    while waitid(WaitId::Pid(pid), options)?.is_none() {
        match told {
            None if stop.is_set() => {
                // The signal goes to the whole group, because perf waits for its own child.
                kill_process_group(pid, Signal::INT)?;
                told = Some(Instant::now());
            }
            Some(at) if at.elapsed() > GRACE => kill_process_group(pid, Signal::KILL)?,
            _ => {}
        }
        tick();
        thread::sleep(POLL);
    }
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    Ok((cpu(&stat), told.is_some()))
}

/// Returns the user and system time of a process and its children from its `stat` line (proc(5)).
fn cpu(stat: &str) -> Duration {
    // The second field, the name in parentheses, may contain anything, so the code parses the rest.
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    // Fields 14 to 17; field 3 comes first here.
    let ticks = behind_name.split_whitespace().skip(14 - 3).take(4);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64)
}

fn text(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    // If the output is incomplete, parsing the report fails and reports that.
    let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, stop: &Stop) -> Ended {
        run(OsStr::new("sh"), &["-c", script], stop, || {}).expect("sh")
    }

    #[test]
    fn output_and_exit_status_of_a_child_are_kept() {
        let ended = sh("echo out; echo err >&2; exit 3", &Stop::default());
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!((ended.status.code(), ended.was_stopped), (Some(3), false));
    }

    #[test]
    fn its_processor_time_is_that_of_all_of_it() {
        let loop_in_a_child = "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; true";
        let ended = sh(loop_in_a_child, &Stop::default());
        assert!(ended.cpu >= Duration::from_millis(10), "{:?}", ended.cpu);
        let stat = "24163 (a) b) R 1 2 3 4 -1 5 102 0 7 0 100 20 3 4 20 0 1 0 336164";
        let ticks = 127.0 / clock_ticks_per_second() as f64;
        assert_eq!(cpu(stat), Duration::from_secs_f64(ticks));
    }

    #[test]
    fn a_signal_ends_it() {
        let ended = sh("sleep 60", &Stop::set());
        assert!(ended.was_stopped);
        assert!(!ended.status.success());
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let error = run(OsStr::new("/nowhere/at/all"), &[""; 0], &Stop::default(), || {});
        assert_eq!(error.expect_err("nothing").kind(), io::ErrorKind::NotFound);
    }
}
