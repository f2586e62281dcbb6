//! Runs the clones, one thread each: they start together, and a progress line shows their work. A
//! `stonewall` divides jobs into stages, which run one after another.
//!
//! There may be thousands of clones. So stacks are small, and each clone allocates everything it
//! needs before the start, from which all clones measure their time.

use std::io::IsTerminal;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay::Disk;
use forebay_fio::generator::files::Files;
use forebay_fio::generator::varied::Varied;
use forebay_fio::generator::{Generator, Region};
use forebay_fio::job::{Eta, JobList};
use forebay_fio::verify::Stamp;

use super::filling::Filling;
use super::gauge::{Display, Gauge};
use super::open::{self, Opened};
use super::outcome::{DiskOutcome, Outcome, Outcomes};
use super::plan::{self, Target};
use super::removal::Removal;
use super::replay::Replayed;
use super::status::Status;
use super::steady::Detections;
use super::stop::Stop;
use super::together::{self, Together};
use super::trace;
use super::worker::{Task, Worker};
use super::zones::Zones;
use super::{early_end, note};
use super::{placement, priority};
use crate::failure::Failure;
use crate::output;

/// Polling interval of the main thread while it waits.
const POLL: Duration = Duration::from_millis(100);

/// Stack size of a clone's thread in bytes, unless `RUST_MIN_STACK` overrides it. Most of a stack
/// is never touched, but a thousand stacks of the default size take 2 GiB of address space.
const STACK: usize = 256 << 10;

/// Runs all clones to their end, stage by stage. If a disk cannot be opened, no clone starts. After
/// a signal no further stage begins. With `has_series` each clone records its rates over time.
pub(super) fn run(
    command: &JobList,
    targets: &[Target],
    filling: &Filling,
    stop: &Stop,
    has_series: bool,
    show: &mut dyn FnMut(Outcomes),
) -> Result<Outcomes, Failure> {
    let opened = open::open(&command.jobs, targets)?;
    open::notes(&command.jobs, targets, &opened).iter().for_each(note);
    let trace = trace::begin(command.run.trace.as_deref(), &opened.disks)?;
    let mut outcomes = run_on(&opened, command, targets, filling, stop, has_series, show)?;
    // The results are printed even if the trace could not be written.
    if let Err(error) = trace::end(trace)
        && let Some(first) = outcomes.clones.first_mut()
    {
        first.report.error.get_or_insert(error);
    }
    Ok(outcomes)
}

/// Does the same on open disks.
pub(super) fn run_on(
    opened: &Opened,
    command: &JobList,
    targets: &[Target],
    filling: &Filling,
    stop: &Stop,
    has_series: bool,
    show: &mut dyn FnMut(Outcomes),
) -> Result<Outcomes, Failure> {
    let chance = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let gauges: Vec<_> = plan::clones(targets).map(|_| Gauge::default()).collect();
    let together = Together::new(&command.jobs);
    let zones = Zones::new(&command.jobs, targets);
    let removal = Removal::new(&command.jobs, targets);
    let run = Run {
        command,
        targets,
        opened,
        filling,
        gauges: &gauges,
        together: &together,
        zones: &zones,
        removal: &removal,
        chance,
        stop,
        has_series,
    };
    let mut outcomes = Vec::with_capacity(gauges.len());
    let mut first_target = 0;
    let stage = |target: &Target| command.jobs[target.job].stage;
    for of_stage in targets.chunk_by(|a, b| stage(a) == stage(b)) {
        if outcomes.is_empty() || !stop.ends_stages() {
            let stage = Stage {
                targets: first_target..first_target + of_stage.len(),
                first_clone: outcomes.len(),
            };
            first_target += of_stage.len();
            // An intermediate report includes the results of earlier stages.
            let before: Vec<Outcome> =
                outcomes.iter().flatten().map(Outcome::without_logs).collect();
            let mut show = |clones: Vec<Outcome>| {
                let before = before.iter().map(Outcome::without_logs);
                let clones = before.chain(clones).collect();
                show(Outcomes { clones, disks: look_at(&opened.disks) });
            };
            let ended = run.stage(stage, &mut show)?;
            let unfinished =
                ended.iter().flatten().filter_map(|clone| Some((clone.job, clone.unfinished?)));
            early_end::notes(&command.jobs, unfinished).iter().for_each(note);
            outcomes.extend(ended);
            filling.cut(command.jobs[of_stage[0].job].stage);
        }
    }
    let disks = look_at(&opened.disks);
    Ok(Outcomes { clones: outcomes.into_iter().flatten().collect(), disks })
}

/// The targets of a stage.
#[derive(Debug, Clone)]
struct Stage {
    targets: Range<usize>,
    /// The number of its first clone among all clones.
    first_clone: usize,
}

/// Returns the current state of the disks.
fn look_at(disks: &[Disk]) -> Vec<DiskOutcome> {
    let outcome = |disk: &Disk| DiskOutcome { info: disk.info().clone(), stats: disk.stats() };
    disks.iter().map(outcome).collect()
}

/// Parameters shared by all stages.
#[derive(Debug, Clone, Copy)]
struct Run<'a> {
    command: &'a JobList,
    targets: &'a [Target],
    opened: &'a Opened,
    filling: &'a Filling,
    gauges: &'a [Gauge],
    together: &'a Together,
    zones: &'a Zones,
    removal: &'a Removal<'a>,
    chance: u64,
    stop: &'a Stop,
    has_series: bool,
}

impl Run<'_> {
    /// Returns the part of each target of a stage.
    fn regions(&self, stage: &Stage) -> Vec<Region> {
        let regions = &self.opened.regions[stage.targets.clone()];
        if stage.first_clone == 0 {
            return regions.to_vec();
        }
        let targets = self.targets[stage.targets.clone()].iter().zip(regions);
        let part = |(target, &region): (&Target, &Region)| {
            self.filling.part(&self.command.jobs[target.job], target, region)
        };
        targets.map(part).collect()
    }

    /// Runs these clones together.
    fn stage(
        &self,
        stage: Stage,
        show: &mut dyn FnMut(Vec<Outcome>),
    ) -> Result<Vec<Option<Outcome>>, Failure> {
        let (jobs, targets) = (&self.command.jobs, &self.targets[stage.targets.clone()]);
        let nr_clones = plan::clones(targets).count();
        let regions = self.regions(&stage);
        let gauges = &self.gauges[stage.first_clone..stage.first_clone + nr_clones];
        // An earlier stage has filled the page cache too.
        self.opened.cache.invalidate(jobs, targets);
        let gate = Gate::default();
        let (sender, events) = mpsc::channel();
        let mut outcomes: Vec<Option<Outcome>> = gauges.iter().map(|_| None).collect();
        thread::scope(|scope| {
            let mut threads = Vec::with_capacity(nr_clones);
            let mut first = stage.targets.start;
            for (at, (targets, gauge)) in plan::clones(targets).zip(gauges).enumerate() {
                let (sender, gate) = (sender.clone(), &gate);
                let files = first..first + targets.len();
                let of_stage = first - stage.targets.start..files.end - stage.targets.start;
                first = files.end;
                let task = Task {
                    job: &jobs[targets[0].job],
                    jobs,
                    together: self.together,
                    targets,
                    disks: &self.opened.disks,
                    cache: &self.opened.cache,
                    owners: &self.opened.owners[files],
                    regions: &regions[of_stage],
                    zones: self.zones,
                    at,
                    stream: (stage.first_clone + at) as u64,
                    chance: self.chance,
                    stop: self.stop,
                    gauge,
                    status: self.command.run.status_interval,
                    has_series: self.has_series,
                };
                let removal = self.removal;
                let work = move || run_clone(task, removal, gate, &sender);
                match builder().spawn_scoped(scope, work) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        // Threads that were already started wait at the gate, and the scope waits
                        // for them.
                        gate.open(None);
                        return Err(cannot_start(nr_clones, threads.len(), &error));
                    }
                }
            }
            drop(sender);
            let start = await_ready(&events, &threads).then(Instant::now);
            gate.open(start);
            if start.is_some() {
                let eta = is_shown(self.command.run.eta);
                let display = Display::new(eta, self.command.run.eta_newline, jobs, targets);
                let status = Status::new(self.command, targets, show);
                let end = |outcome: &Outcome| {
                    together::end_others(jobs, targets, gauges, outcome, self.stop);
                };
                let mut steady = Detections::new(jobs, targets);
                let running = Running { stop: self.stop, gauges, has_ended: &end };
                await_finished(&events, &mut outcomes, running, (display, status), &mut steady);
                for (clone, outcome) in outcomes.iter_mut().enumerate() {
                    if let Some(outcome) = outcome {
                        outcome.report.steady = steady.window_of(clone);
                    }
                }
            }
            // The scope does not wait for thread-local destructors, in which the layer frees its
            // per-thread state.
            for thread in threads {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            Ok(())
        })?;
        Ok(outcomes)
    }
}

fn builder() -> thread::Builder {
    match std::env::var_os("RUST_MIN_STACK") {
        Some(_) => thread::Builder::new(),
        None => thread::Builder::new().stack_size(STACK),
    }
}

fn cannot_start(asked: usize, started: usize, error: &std::io::Error) -> Failure {
    Failure::Run(format!(
        "only {started} of {asked} threads could be started: {error}; lower --numjobs, or raise \
         the limit (ulimit -u, ulimit -v, the container's pids)"
    ))
}

/// Waits until every thread is ready. Returns `false` if one has panicked.
fn await_ready(events: &Receiver<Event>, threads: &[ScopedJoinHandle<'_, ()>]) -> bool {
    let mut left = threads.len();
    while left > 0 {
        match events.recv_timeout(POLL) {
            Ok(Event::Ready) => left -= 1,
            // Until the gate opens, only a panic ends a thread.
            Err(RecvTimeoutError::Timeout) if !threads.iter().any(|t| t.is_finished()) => {}
            _ => return false,
        }
    }
    true
}

/// The clones of a stage while they run.
#[derive(Clone, Copy)]
struct Running<'a> {
    stop: &'a Stop,
    gauges: &'a [Gauge],
    /// Called when a clone has ended.
    has_ended: &'a dyn Fn(&Outcome),
}

/// Collects the results of the clones, and shows their progress.
fn await_finished(
    events: &Receiver<Event>,
    outcomes: &mut [Option<Outcome>],
    Running { stop, gauges, has_ended }: Running<'_>,
    (mut display, mut status): (Display, Status<'_>),
    steady: &mut Detections,
) {
    let started = Instant::now();
    let mut told_signal = false;
    let mut left = outcomes.len();
    while left > 0 {
        match events.recv_timeout(POLL) {
            Ok(Event::Finished(at, outcome)) => {
                has_ended(&outcome);
                outcomes[at] = Some(*outcome);
                left -= 1;
            }
            Ok(Event::Ready) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if stop.is_set() && !told_signal {
            told_signal = true;
            display.clear();
            output::stderr("\nforebay: stopped early by a signal\n");
        }
        if left > 0 && status.is_due(started.elapsed()) {
            display.clear();
            status.show(gauges, outcomes);
        }
        display.update(gauges, started.elapsed());
        steady.update(started.elapsed(), gauges);
    }
    display.clear();
}

/// Returns whether a progress line is shown.
pub(super) fn is_shown(eta: Eta) -> bool {
    match eta {
        Eta::Always => true,
        Eta::Never => false,
        Eta::Auto => std::io::stderr().is_terminal(),
    }
}

/// A gate at which all clones wait until every one is ready, or one has failed to start.
#[derive(Debug, Default)]
struct Gate {
    verdict: Mutex<Option<Option<Instant>>>,
    told: Condvar,
}

impl Gate {
    /// Opens the gate: the clones start work at `start`, or return if it is `None`.
    fn open(&self, start: Option<Instant>) {
        *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(start);
        self.told.notify_all();
    }

    /// Waits until the gate opens. Returns the start time, or `None` if the clones must not start.
    fn wait(&self) -> Option<Instant> {
        let verdict = self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = self.told.wait_while(verdict, |verdict| verdict.is_none());
        verdict.unwrap_or_else(PoisonError::into_inner).flatten()
    }
}

/// A message from a clone's thread.
#[derive(Debug)]
enum Event {
    Ready,
    Finished(usize, Box<Outcome>),
}

/// Runs a clone on this thread.
fn run_clone(task: Task<'_>, removal: &Removal<'_>, gate: &Gate, sender: &mpsc::Sender<Event>) {
    let job = task.targets[0].job;
    let workload = task.job.workload(task.regions[0], task.stream, task.chance);
    let stamp = Stamp { seed: task.job.randseed, generation: task.chance };
    let stamps = task.targets.iter().map(|target| stamp.of_file(target.place)).collect();
    let _running = task.together.running(job);
    let placed = placement::place(task.job, task.stream)
        .and_then(|()| priority::set_for_thread(task.job, task.targets));
    let mut worker = Worker::new(&task, stamps);
    if let Err(error) = placed {
        worker.fail(error);
    }
    // Stream types with a loop each: jobs without varied I/O or several files do not pay for it.
    let ops = match (&task.job.recording, &workload.variety, task.regions) {
        (Some(recording), ..) => Ops::Replayed(Replayed::new(recording)),
        (None, None, [_]) => Ops::Plain(Generator::new(&workload)),
        (None, Some(_), [_]) => {
            Ops::Varied(Box::new(Varied::on(&workload, &task.zones.of(&task.targets[0]))))
        }
        (None, _, regions) => Ops::Files(files(&task, regions)),
    };
    // Jobs without a delay begin together: none of them ends before another one begins.
    let mut has_begun = task.job.control.wait_for.is_none() && task.job.start_delay.is_zero();
    if has_begun {
        removal.clone_begins(job);
    }
    // Sending fails only if the main thread has panicked; then nothing is left to do.
    let _ = sender.send(Event::Ready);
    let Some(start) = gate.wait() else { return };
    let quit = || task.stop.is_set() || task.gauge.is_quit();
    let start = task.together.wait(task.jobs, job, start, quit);
    worker.await_start(start);
    if !has_begun && !quit() {
        removal.clone_begins(job);
        has_begun = true;
    }
    match ops {
        Ops::Plain(ops) => worker.run(ops),
        Ops::Varied(ops) => worker.run(*ops),
        Ops::Files(ops) => worker.run(ops),
        Ops::Replayed(ops) => worker.run(ops),
    }
    let zones = task.zones.of(&task.targets[0]);
    zones.close(task.stream);
    let mut outcome = task.outcome(worker.finish());
    outcome.report.nr_zone_resets = zones.nr_resets(task.stream);
    removal.clone_ended(job, has_begun);
    let _ = sender.send(Event::Finished(task.at, Box::new(outcome)));
}

/// The stream of I/Os of a clone.
#[derive(Debug)]
enum Ops {
    Plain(Generator),
    Varied(Box<Varied>),
    Files(Files),
    Replayed(Replayed),
}

/// Returns the stream over several files.
fn files(task: &Task<'_>, regions: &[Region]) -> Files {
    let job = task.job;
    let workload = |&region: &Region| job.workload(region, task.stream, task.chance);
    let workloads: Vec<_> = regions.iter().map(workload).collect();
    Files::new(&workloads, &job.files.service, job.files.openfiles, job.io_bytes(regions))
}
