//! Gates that run concurrently, each as a separate process.
//!
//! Each long gate keeps one processor busy, so they share the machine well. A gate that mostly
//! waits, for timeouts and other programs, runs in addition to these, because it would leave
//! processors idle. A gate's output goes to a file, and is printed as a whole when the gate has
//! ended: interleaved lines of two gates would be unreadable.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::Outcome;
use crate::command::{root, target};
use crate::usage::{self, Usage, Watch};

/// One of our commands, as a step of `ci`.
pub(crate) struct Gate {
    pub(crate) name: &'static str,
    /// Whether it mostly waits.
    pub(crate) waits: bool,
    /// Prefix of the gate's lines: its number and name.
    pub(crate) heading: String,
}

/// Runs as many gates at once as there are processors, in this order, and beside them those that
/// mostly wait, one after another. Adds the time of each to `usages`. After a failure no further
/// gate starts, and running gates finish.
pub(crate) fn run(gates: Vec<Gate>, usages: &mut Vec<Usage>) -> Outcome {
    let nr_cpus = thread::available_parallelism().map_or(1, usize::from);
    let nr_lanes = nr_cpus.min(gates.iter().filter(|gate| !gate.waits).count()).max(1);
    let begin = |gate: &Gate| start(gate, nr_cpus, nr_lanes);
    run_by(gates, nr_lanes, usages, &begin)
}

/// Returns the command of a gate. One that waits may use all processors, another one its share.
fn start(gate: &Gate, nr_cpus: usize, nr_lanes: usize) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| format!("xtask itself: {error}"))?;
    let nr_threads = if gate.waits { nr_cpus } else { nr_cpus / nr_lanes };
    let mut command = Command::new(program);
    command.arg(gate.name).current_dir(root()).env("RUST_TEST_THREADS", nr_threads.to_string());
    Ok(command)
}

fn run_by(
    gates: Vec<Gate>,
    nr_lanes: usize,
    usages: &mut Vec<Usage>,
    begin: &(impl Fn(&Gate) -> Result<Command, String> + Sync),
) -> Outcome {
    let (waiting, busy): (Vec<Gate>, Vec<Gate>) = gates.into_iter().partition(|gate| gate.waits);
    let [waiting, busy] = [waiting, busy].map(|gates| Mutex::new(gates.into_iter()));
    let (failures, usages) = (Mutex::new(Vec::new()), Mutex::new(usages));
    let is_over = AtomicBool::new(false);
    let lane = |gates: &Mutex<std::vec::IntoIter<Gate>>| {
        while !is_over.load(Ordering::Relaxed) {
            let next = lock(gates).next();
            let Some(gate) = next else { return };
            match begin(&gate).and_then(|command| finish(&gate, command)) {
                Ok(usage) => lock(&usages).push(usage),
                Err(message) => {
                    is_over.store(true, Ordering::Relaxed);
                    lock(&failures).push(message);
                }
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| lane(&waiting));
        (0..nr_lanes).for_each(|_| drop(scope.spawn(|| lane(&busy))));
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a gate to its end, prints its output, and returns its time.
fn finish(gate: &Gate, mut command: Command) -> Result<Usage, String> {
    let Gate { name, heading, .. } = gate;
    let alone = format!("cargo xtask {name}");
    println!("{heading}: {alone}: started; its output follows when it has ended");
    let watch = Watch::start();
    let log = PathBuf::from(target("ci")).join(format!("{name}.log"));
    let failed = |error| format!("step {name} keeps its output in {}: {error}", log.display());
    fs::create_dir_all(target("ci")).map_err(failed)?;
    let output = File::create(&log).map_err(failed)?;
    command.stdin(Stdio::null()).stdout(output.try_clone().map_err(failed)?).stderr(output);
    let status = command.status().map_err(|error| format!("step {name} cannot run: {error}"))?;
    let text = fs::read(&log).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    let verdict = if status.success() { "passed" } else { "FAILED" };
    // The watch also counts the processor time of other gates that have ended meanwhile.
    let usage = Usage { processor: usage::parse(&text), ..watch.stop(name) };
    let seconds = usage.seconds;
    // A single call, so that no line of another gate comes in between.
    println!("{heading}: its output:\n{text}{heading}: {verdict} in {seconds:.1} s");
    if status.success() {
        return Ok(usage);
    }
    Err(format!("step {name} failed, with {status}; its output is above; alone: {alone}"))
}

#[cfg(test)]
mod tests {
    use super::{Gate, run_by};
    use std::process::Command;

    fn gate(name: &'static str) -> Gate {
        Gate { name, waits: name.contains("waits"), heading: format!("[1/9] {name}") }
    }

    /// A gate that exits with the status at the end of its name.
    fn shell(gate: &Gate) -> Result<Command, String> {
        let (_, status) = gate.name.rsplit_once('-').unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("echo processor time: 1.5 s; exit {status}")]);
        Ok(command)
    }

    #[test]
    fn a_gate_that_fails_is_named_and_those_after_it_are_not_begun() {
        let gates = ["beside-test-0", "beside-test-3", "beside-test-4"];
        let mut usages = Vec::new();
        let message = run_by(gates.map(gate).into(), 1, &mut usages, &shell).unwrap_err();
        assert!(message.contains("step beside-test-3 failed, with exit status: 3"), "{message}");
        assert!(message.contains("alone: cargo xtask beside-test-3"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert_eq!(usages.iter().map(|usage| usage.name).collect::<Vec<_>>(), ["beside-test-0"]);
    }

    #[test]
    fn one_lane_that_fails_is_enough() {
        let run = |gates: &[&'static str]| {
            run_by(gates.iter().copied().map(gate).collect(), 2, &mut Vec::new(), &shell)
        };
        assert!(run(&["beside-lane-0", "beside-lane-1"]).unwrap_err().contains("beside-lane-1"));
        assert!(run(&["beside-lane-0", "beside-waits-2"]).unwrap_err().contains("beside-waits-2"));
        assert_eq!(run(&["beside-lane-0", "beside-line-0", "beside-last-0"]), Ok(()));
    }

    #[test]
    fn the_processor_time_of_a_gate_is_the_time_that_it_prints() {
        let mut usages = Vec::new();
        let gates = ["beside-time-0", "beside-waits-0"].map(gate);
        run_by(gates.into(), 2, &mut usages, &shell).unwrap();
        assert_eq!(usages.iter().map(|usage| usage.processor).collect::<Vec<_>>(), [Some(1.5); 2]);
    }
}
