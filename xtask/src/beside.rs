//! Gates that run concurrently, each as a separate process.
//!
//! Each long gate keeps one processor busy, so they share the machine well. A gate's output goes to
//! a file, and is printed as a whole when the gate has ended: interleaved lines of two gates would
//! be unreadable.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::Outcome;
use crate::command::{root, target};

/// One of our commands, as a step of `ci`.
pub(crate) struct Gate {
    pub(crate) name: &'static str,
    /// Prefix of the gate's lines: its number and name.
    pub(crate) heading: String,
}

/// Runs as many gates at once as there are processors, in this order. After a failure no further
/// gate starts, and running gates finish.
pub(crate) fn run(gates: Vec<Gate>) -> Outcome {
    let nr_cpus = thread::available_parallelism().map_or(1, usize::from);
    let nr_lanes = nr_cpus.min(gates.len()).max(1);
    let begin = |gate: &Gate| start(gate.name, nr_cpus / nr_lanes);
    run_by(gates, nr_lanes, &begin)
}

/// Returns the command of a gate. Alone it may use all processors, otherwise its share.
fn start(name: &str, nr_cpus: usize) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("xtask itself: {error}"))?;
    let mut command = Command::new(program);
    command.arg(name).current_dir(root()).env("RUST_TEST_THREADS", nr_cpus.to_string());
    Ok(command)
}

fn run_by(
    gates: Vec<Gate>,
    nr_lanes: usize,
    begin: &(impl Fn(&Gate) -> Result<Command, String> + Sync),
) -> Outcome {
    let waiting = Mutex::new(gates.into_iter());
    let failures = Mutex::new(Vec::new());
    let is_over = AtomicBool::new(false);
    let lane = || {
        while !is_over.load(Ordering::Relaxed) {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(gate) = next else { return };
            if let Err(message) = begin(&gate).and_then(|command| finish(&gate, command)) {
                is_over.store(true, Ordering::Relaxed);
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(message);
            }
        }
    };
    thread::scope(|scope| (0..nr_lanes).for_each(|_| drop(scope.spawn(lane))));
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Runs a gate to its end, and prints its output.
fn finish(gate: &Gate, mut command: Command) -> Outcome {
    let Gate { name, heading } = gate;
    let alone = format!("cargo xtask {name}");
    println!("{heading}: {alone}: started; its output follows when it has ended");
    let start = Instant::now();
    let log = PathBuf::from(target("ci")).join(format!("{name}.log"));
    let failed = |error| format!("step {name} keeps its output in {}: {error}", log.display());
    fs::create_dir_all(target("ci")).map_err(failed)?;
    let output = File::create(&log).map_err(failed)?;
    command.stdin(Stdio::null()).stdout(output.try_clone().map_err(failed)?).stderr(output);
    let status = command.status().map_err(|error| format!("step {name} cannot run: {error}"))?;
    let text = fs::read(&log).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    let verdict = if status.success() { "passed" } else { "FAILED" };
    let seconds = start.elapsed().as_secs_f64();
    // A single call, so that no line of another gate comes in between.
    println!("{heading}: its output:\n{text}{heading}: {verdict} in {seconds:.1} s");
    if status.success() {
        return Ok(());
    }
    Err(format!("step {name} failed, with {status}; its output is above; alone: {alone}"))
}

#[cfg(test)]
mod tests {
    use super::{Gate, run_by};
    use std::process::Command;

    fn gate(name: &'static str) -> Gate {
        Gate { name, heading: format!("[1/9] {name}") }
    }

    /// A gate that exits with the status at the end of its name.
    fn shell(gate: &Gate) -> Result<Command, String> {
        let (_, status) = gate.name.rsplit_once('-').unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exit {status}")]);
        Ok(command)
    }

    #[test]
    fn a_gate_that_fails_is_named_and_those_after_it_are_not_begun() {
        let gates = ["beside-test-0", "beside-test-3", "beside-test-4"];
        let message = run_by(gates.map(gate).into(), 1, &shell).unwrap_err();
        assert!(message.contains("step beside-test-3 failed, with exit status: 3"), "{message}");
        assert!(message.contains("alone: cargo xtask beside-test-3"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }

    #[test]
    fn one_lane_that_fails_is_enough() {
        let gates = ["beside-lane-0", "beside-lane-1"].map(gate);
        assert!(run_by(gates.into(), 2, &shell).unwrap_err().contains("beside-lane-1 failed"));
        let gates = ["beside-lane-0", "beside-line-0", "beside-last-0"].map(gate);
        assert_eq!(run_by(gates.into(), 2, &shell), Ok(()));
    }
}
