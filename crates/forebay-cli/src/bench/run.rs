//! Running the clones: a thread each, started together, with a progress line while they work.

use std::io::IsTerminal;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay::Disk;
use forebay_fio::cmdline::CommandLine;
use forebay_fio::generator::{Generator, Region};
use forebay_fio::job::{Eta, Job};
use forebay_fio::report::JobReport;
use forebay_fio::verify::Stamp;

use super::gauge::{Display, Gauge};
use super::open::open;
use super::outcome::{Layer, Outcome};
use super::plan::Target;
use super::stop::Stop;
use super::worker::Worker;
use crate::failure::Failure;
use crate::output;

/// How often the main thread looks around while it waits.
const POLL: Duration = Duration::from_millis(100);

/// Runs all clones to their end. A clone whose disk cannot be opened keeps all of them from
/// starting.
pub(super) fn run(
    command: &CommandLine,
    targets: &[Target],
    stop: &Stop,
) -> Result<Vec<Outcome>, Failure> {
    let chance = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let gauges: Vec<_> = targets.iter().map(|_| Gauge::default()).collect();
    let gate = Gate::default();
    let (sender, events) = mpsc::channel();
    let mut outcomes: Vec<Option<Outcome>> = targets.iter().map(|_| None).collect();
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(targets.len());
        for (stream, (target, gauge)) in targets.iter().zip(&gauges).enumerate() {
            let (sender, gate) = (sender.clone(), &gate);
            let task = Task {
                job: &command.jobs[target.job],
                target,
                stream: stream as u64,
                chance,
                stop,
                gauge,
            };
            let work = move || task.run(gate, &sender);
            match thread::Builder::new().spawn_scoped(scope, work) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // Those that run already wait at the gate, and the scope for them.
                    gate.open(false);
                    return Err(cannot_start(targets.len(), threads.len(), &error));
                }
            }
        }
        drop(sender);
        let ready = await_ready(&events, &threads);
        gate.open(matches!(ready, Ok(true)));
        if ready? {
            let eta = is_shown(command.run.eta);
            let display = Display::new(eta, &command.jobs, targets);
            await_finished(&events, &mut outcomes, stop, display, &gauges);
        }
        Ok(())
    })?;
    Ok(outcomes.into_iter().flatten().collect())
}

fn cannot_start(asked: usize, started: usize, error: &std::io::Error) -> Failure {
    Failure::Run(format!(
        "{asked} threads were asked for, and only {started} could be started: {error}; lower \
         --numjobs, or raise the limit (ulimit -u, ulimit -v, the container's pids)"
    ))
}

/// Waits until every thread has opened its disk. `false` if one has panicked, which the scope
/// passes on.
fn await_ready(
    events: &Receiver<Event>,
    threads: &[ScopedJoinHandle<'_, ()>],
) -> Result<bool, Failure> {
    let mut left = threads.len();
    let mut result = Ok(true);
    while left > 0 {
        match events.recv_timeout(POLL) {
            Ok(Event::Ready(ready)) => {
                left -= 1;
                result = result.and_then(|all| ready.map(|()| all));
            }
            // Until the gate opens, nothing but a panic ends a thread.
            Err(RecvTimeoutError::Timeout) if !threads.iter().any(|t| t.is_finished()) => {}
            _ => return result.map(|_| false),
        }
    }
    result
}

/// Collects what came of the clones, and shows how far they are.
fn await_finished(
    events: &Receiver<Event>,
    outcomes: &mut [Option<Outcome>],
    stop: &Stop,
    mut display: Display,
    gauges: &[Gauge],
) {
    let started = Instant::now();
    let mut told_signal = false;
    let mut left = outcomes.len();
    while left > 0 {
        match events.recv_timeout(POLL) {
            Ok(Event::Finished(at, outcome)) => {
                outcomes[at] = Some(*outcome);
                left -= 1;
            }
            Ok(Event::Ready(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if stop.is_set() && !told_signal {
            told_signal = true;
            display.clear();
            output::stderr("\nforebay: ending early, on a signal\n");
        }
        display.update(gauges, started.elapsed());
    }
    display.clear();
}

fn is_shown(eta: Eta) -> bool {
    match eta {
        Eta::Always => true,
        Eta::Never => false,
        Eta::Auto => std::io::stderr().is_terminal(),
    }
}

/// Where all clones wait until every disk is open, or one is known not to be.
#[derive(Debug, Default)]
struct Gate {
    verdict: Mutex<Option<bool>>,
    told: Condvar,
}

impl Gate {
    /// Lets everybody go: to work, or home.
    fn open(&self, to_work: bool) {
        *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(to_work);
        self.told.notify_all();
    }

    /// Waits for that. Says whether it is to work.
    fn wait(&self) -> bool {
        let verdict = self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = self.told.wait_while(verdict, |verdict| verdict.is_none());
        verdict.unwrap_or_else(PoisonError::into_inner).unwrap_or(false)
    }
}

/// What a thread tells.
#[derive(Debug)]
enum Event {
    Ready(Result<(), Failure>),
    Finished(usize, Box<Outcome>),
}

/// A clone of a job that is to run on a thread of its own.
#[derive(Debug, Clone, Copy)]
struct Task<'a> {
    job: &'a Job,
    target: &'a Target,
    stream: u64,
    chance: u64,
    stop: &'a Stop,
    gauge: &'a Gauge,
}

impl Task<'_> {
    fn run(self, gate: &Gate, sender: &mpsc::Sender<Event>) {
        let opened = open(self.job, self.target);
        let (disk, ready) = match opened {
            Ok(opened) => (Some(opened), Ok(())),
            Err(failure) => (None, Err(failure)),
        };
        // Nobody listens only if the main thread has panicked; then nothing is left to do.
        let _ = sender.send(Event::Ready(ready));
        if !gate.wait() {
            return;
        }
        let Some((disk, region)) = disk else { return };
        let outcome = self.work(&disk, region);
        let _ = sender.send(Event::Finished(self.stream as usize, Box::new(outcome)));
    }

    fn work(&self, disk: &Disk, region: Region) -> Outcome {
        let workload = self.job.workload(region, self.stream, self.chance);
        let stamp = Stamp { seed: self.job.randseed, generation: self.chance };
        let mut worker = Worker::new(self.job, disk, region, stamp, self.stop, self.gauge);
        worker.run(Generator::new(&workload));
        let (stats, error, elapsed_ns) = worker.finish();
        Outcome {
            job: self.target.job,
            clone: self.target.clone,
            report: JobReport {
                name: self.job.name.clone(),
                jobs: 1,
                pid: std::process::id(),
                error,
                iodepth: self.job.iodepth,
                stats,
                ..JobReport::default()
            },
            layer: Layer { info: disk.info().clone(), stats: disk.stats(), elapsed_ns },
        }
    }
}
