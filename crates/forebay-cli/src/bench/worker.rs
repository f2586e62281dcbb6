//! One clone's run: its workload, a final flush, and reading back.
//!
//! Source: fio's HOWTO, the options `end_fsync`, `loops`, `startdelay`, `verify`, `do_verify`.
//! [`queued`](super::queued) and [`calls`](super::calls) do the I/O.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay::{Disk, Owner};
use forebay_fio::generator::{Direction, Op, Region, Stream};
use forebay_fio::job::Job;
use forebay_fio::latency_target::{Search, Step};
use forebay_fio::logs::Logs;
use forebay_fio::report::{ErrorCount, JobError, JobReport};
use forebay_fio::stats::JobStats;
use forebay_fio::stats::moments::Moments;
use forebay_fio::verify::Stamp;

use super::cache::PageCache;
use super::calls::Calls;
use super::contents::contents;
use super::early_end::Unfinished;
use super::gauge::{Gauge, Phase};
use super::outcome::Outcome;
use super::plan::{self, Target};
use super::priority::Prioritiser;
use super::queued::Queued;
use super::replay::{Lateness, LogWriter};
use super::series::Series;
use super::stop::Stop;
use super::tally::pauses::Pauses;
use super::tally::{Check, Sync, Tally, ns};
use super::together::Together;
use super::usage;
use super::written::Written;
use super::zones::Zones;
use crate::output;

/// A clone of a job, to be run on its own thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) job: &'a Job,
    /// All jobs.
    pub(super) jobs: &'a [Job],
    pub(super) together: &'a Together,
    /// Its targets, one for each file.
    pub(super) targets: &'a [Target],
    /// All disks of the run.
    pub(super) disks: &'a [Disk],
    pub(super) cache: &'a PageCache,
    /// For each file, the owner of its I/O, if it has limits or a weight.
    pub(super) owners: &'a [Option<Owner>],
    /// The part of each file.
    pub(super) regions: &'a [Region],
    /// The write pointers of emulated zones.
    pub(super) zones: &'a Zones,
    /// Index within the stage.
    pub(super) at: usize,
    /// Number among all clones.
    pub(super) stream: u64,
    pub(super) chance: u64,
    pub(super) stop: &'a Stop,
    pub(super) gauge: &'a Gauge,
    pub(super) status: Option<Duration>,
    /// Whether it records its rates over time.
    pub(super) has_series: bool,
}

impl<'a> Task<'a> {
    /// Returns the disk of each file, with the owner of the I/O on it.
    fn disks(&self) -> impl Iterator<Item = (&'a Disk, Option<&'a Owner>)> {
        let disks = self.targets.iter().map(|target| &self.disks[target.disk]);
        disks.zip(self.owners.iter().map(Option::as_ref))
    }

    /// Returns the outcome of the clone, from what its worker measured.
    pub(super) fn outcome(&self, finished: Finished) -> Outcome {
        let Finished { stats, error, errors, depth, elapsed_ns, .. } = finished;
        Outcome {
            job: self.targets[0].job,
            clone: self.targets[0].clone,
            disks: plan::disks_of(self.targets),
            report: JobReport {
                name: self.job.name.clone(),
                jobs: 1,
                pid: std::process::id(),
                error,
                errors: self.job.control.on_error.counts().then_some(errors),
                iodepth: depth,
                target: self.job.control.target,
                measures: self.job.measures.clone(),
                stats,
                ..JobReport::default()
            },
            tag_waits: finished.tag_waits,
            logs: finished.logs,
            series: finished.series,
            lateness: finished.lateness,
            unfinished: finished.unfinished,
            elapsed_ns,
        }
    }
}

/// A clone of a job, on its thread.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    tally: Tally<'a>,
    method: IoMethod,
    together: &'a Together,
    stream: u64,
    /// The paths of the files whose page cache is used.
    cached: Vec<PathBuf>,
    cache: &'a PageCache,
    /// The work that is left, if no emulated zone accepted the next I/O.
    unfinished: Option<Unfinished>,
}

/// The I/O method.
#[derive(Debug)]
enum IoMethod {
    Queued(Box<Queued>),
    Calls(Calls),
}

/// The result of a worker.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) stats: JobStats,
    /// The first error.
    pub(super) error: Option<JobError>,
    /// All errors.
    pub(super) errors: ErrorCount,
    /// The depth at the end.
    pub(super) depth: u32,
    /// Tag waits of the bios that had to wait, ns; unknown for blocking calls.
    pub(super) tag_waits: Option<Moments>,
    pub(super) elapsed_ns: u64,
    /// The log entries.
    pub(super) logs: Option<Box<Logs>>,
    /// The rates over time.
    pub(super) series: Option<Box<Series>>,
    /// How late the I/Os of a replay were.
    pub(super) lateness: Option<Box<Lateness>>,
    /// The work that is left, if no emulated zone accepted the next I/O.
    pub(super) unfinished: Option<Unfinished>,
}

impl<'a> Worker<'a> {
    /// Allocates everything for [`Worker::run`].
    pub(super) fn new(task: &Task<'a>, stamps: Vec<Stamp>) -> Self {
        let &Task { job, together, regions, stop, gauge, stream, status, .. } = task;
        let log_writer = job.replay.write.as_ref().map(|path| {
            let used: Vec<_> = task.targets.iter().filter_map(Target::path).collect();
            LogWriter::create(path, task.targets.iter().map(Target::name_in_log).collect(), &used)
        });
        let cached = task.targets.iter().filter(|target| !target.is_direct());
        let cached = cached.filter_map(Target::path).collect();
        let priorities = Prioritiser::new(job, stream, task.chance);
        let disks: Vec<_> = task.disks().collect();
        let method = match job.is_blocking() {
            true => IoMethod::Calls(Calls::new(job, &disks, priorities)),
            false => IoMethod::Queued(Box::new(Queued::new(job, &disks, priorities))),
        };
        let thread = (stream as u16).wrapping_add(1);
        let disks = disks.into_iter().map(|(disk, _)| disk).collect();
        let mut tally = Tally::new(job, disks, stop, gauge, stamps, thread, status);
        match log_writer.transpose() {
            Ok(log) => tally.log_writer = log,
            Err(error) => tally.error = Some(error),
        }
        let contents = contents(job, task.jobs, stream, task.chance);
        tally.contents = contents.map(|contents| RefCell::new(Box::new(contents)));
        if task.has_series {
            tally.series = Some(Box::new(Series::new(|direction| job.rw.has(direction))));
        }
        if job.verify && job.do_verify && job.rw.has(Direction::Write) {
            tally.written = Some(Written::none(regions, job));
        }
        Self { tally, method, together, stream, cached, cache: task.cache, unfinished: None }
    }

    /// Records an error, with which the job ends before its first I/O.
    pub(super) fn fail(&mut self, error: JobError) {
        self.tally.error.get_or_insert(error);
    }

    /// Waits for the delay of the job. All its times count from the end of the delay, as in fio, or
    /// from `start`, which is the same for all clones.
    pub(super) fn await_start(&mut self, start: Instant) {
        self.tally.begin_at(start);
        let delay = self.tally.job.start_delay;
        if !delay.is_zero() {
            self.tally.sleep_until(ns(delay));
            self.tally.begin_at(Instant::now());
        }
    }

    /// Runs the whole job, once per loop: its workload, a final flush, and reading back.
    pub(super) fn run(&mut self, ops: impl Stream + Clone) {
        let job = self.tally.job;
        self.tally.usage = usage::of_this_thread();
        let end_ns = job.runtime.map_or(u64::MAX, |time| ns(time.saturating_add(job.ramp_time)));
        for nr in 1..=job.loops {
            let mut ops = ops.clone();
            self.pass(&mut ops, end_ns);
            if self.tally.is_finished || self.tally.is_over() || self.tally.mismatch.is_some() {
                break;
            }
            if let Some(end) = ops.early_end().filter(|_| self.tally.has_idle_phase()) {
                // The next passes would do no I/O either.
                let left = job.loops - nr;
                self.unfinished = self.unfinished.map(|it| it.and_passes(left, end.left_bytes));
                break;
            }
        }
    }

    /// Runs the workload, and reads back.
    fn pass(&mut self, ops: &mut impl Stream, end_ns: u64) {
        let job = self.tally.job;
        let (writes, reads) = (job.rw.has(Direction::Write), job.rw.has(Direction::Read));
        let flush = job.end_fsync && writes;
        self.tally.gauge.enter(Phase::Work);
        self.tally.pauses = Pauses::new(job, self.stream, self.tally.now_ns);
        self.tally.check =
            if job.verify && reads && !writes { Check::Whole } else { Check::Nothing };
        if job.checks.only {
            // An earlier run has written the data that the workload would write.
            if let Some(written) = &mut self.tally.written {
                ops.filter(|op| op.direction == Direction::Write).for_each(|op| written.insert(op));
            }
        } else {
            self.tally.resume_rate_check();
            self.tally.flow = self.together.share(job);
            self.phase(ops, end_ns, flush);
            self.record_early_end(ops, end_ns);
            // The others share the I/Os while this clone reads back, or has ended.
            self.tally.flow = None;
        }
        if self.tally.error.is_some() || self.tally.stop.is_set() {
            return;
        }
        let Some(mut written) = self.tally.written.take_if(|written| !written.is_empty()) else {
            return;
        };
        self.tally.gauge.enter(Phase::Verify);
        self.tally.suspend_rate_check();
        // The depth stays as it is.
        let search = self.tally.search.take();
        self.tally.check = if job.checks.only { Check::Whole } else { Check::Ours };
        // Reads must come from the device, so cached data have to be written to it first.
        if !self.cached.is_empty() && !job.checks.only && !flush {
            self.tally.sync_all(Sync::Data);
        }
        self.cached.iter().for_each(|path| self.cache.forget(path));
        self.tally.pauses = None;
        self.phase(&mut written.reads().peekable(), u64::MAX, false);
        written.clear();
        self.tally.written = Some(written);
        self.tally.search = search;
    }

    /// Records the work that is left, if the stream has ended early, and nothing else ends the job.
    fn record_early_end(&mut self, ops: &impl Stream, end_ns: u64) {
        let Some(end) = ops.early_end() else { return };
        let Tally { error, stop, gauge, now_ns, .. } = &self.tally;
        if error.is_none() && !stop.is_set() && !gauge.is_quit() && *now_ns < end_ns {
            let time = Duration::from_nanos(end_ns - now_ns);
            self.unfinished = Some(Unfinished::after(self.unfinished, end, time));
        }
    }

    /// Returns the outcome.
    pub(super) fn finish(mut self) -> Finished {
        self.tally.end_checks();
        let elapsed_ns = self.tally.read_clock();
        self.tally.gauge.enter(Phase::Done);
        // A job that another one's error stopped before its first I/O has no figures.
        let has_figures = self.tally.stats.directions.iter().any(|part| part.total_ios > 0);
        if self.tally.is_in_ramp() && has_figures && self.tally.error.is_none() {
            // As in fio: these figures are better than none.
            output::stderr(&format!(
                "forebay: {}: the job ended within its ramp_time; its figures are those of the \
                ramp\n",
                self.tally.job.name
            ));
        }
        let search = self.tally.search.take();
        if let Some(search) = &search {
            self.note_search(search);
        }
        let depth = search.map_or(self.tally.job.iodepth, |search| search.depth());
        let tag_waits = match &self.method {
            IoMethod::Queued(queued) => Some(queued.tag_waits()),
            IoMethod::Calls(_) => None,
        };
        if let Some(log) = self.tally.log_writer.take()
            && let Err(error) = log.finish(elapsed_ns)
        {
            self.tally.error.get_or_insert(error);
        }
        let Tally {
            job,
            mut stats,
            error,
            failures,
            usage,
            measured_ns,
            mut logs,
            series,
            lateness,
            ..
        } = self.tally;
        let errors = failures.into_count();
        stats.usage = usage::between(&usage, &usage::of_this_thread());
        stats.job_runtime_ms = ((elapsed_ns - measured_ns) / 1_000_000).max(1);
        if let Some(logs) = &mut logs {
            logs.close_window(elapsed_ns, true);
        }
        stats.forget(&job.measures);
        Finished {
            stats,
            error,
            errors,
            depth,
            tag_waits,
            elapsed_ns,
            logs,
            series,
            lateness,
            unfinished: self.unfinished,
        }
    }

    /// Prints that a search has no result, or did not test it.
    fn note_search(&self, search: &Search) {
        let (name, depth) = (&self.tally.job.name, search.depth());
        let peak = match &self.method {
            IoMethod::Queued(queued) => queued.peak(),
            IoMethod::Calls(_) => 1,
        };
        let text = match (search.is_hopeless(), search.is_unfinished()) {
            // The error of the job says so.
            (true, _) if self.tally.error.is_some() => return,
            (true, _) => "the latency target is missed even at depth 1".to_owned(),
            (_, true) => format!(
                "the job ended before the depth for the latency target was found; the figures are \
                 those of depth {depth}"
            ),
            _ if peak < depth => format!(
                "only {peak} in flight at depth {depth}, because pauses or rates limit the job: \
                 the latency target was not tested beyond depth {peak}"
            ),
            _ => return,
        };
        output::stderr(&format!("forebay: {name}: {text}\n"));
    }

    /// Runs I/Os until there are no more, or until `end_ns` after the start; then flushes if
    /// `flush` is set. As in fio, the runtime includes the flush.
    fn phase(&mut self, ops: &mut impl Stream, end_ns: u64, flush: bool) {
        let backlog = Some(self.tally.job.checks.backlog).filter(|&backlog| backlog > 0);
        let tally = &mut self.tally;
        tally.is_pause_due = tally.flow.is_some() && tally.pauses.is_some();
        tally.is_watchful = tally.written.is_some()
            || tally.check != Check::Nothing
            || tally.job.measures.lat_percentiles
            || tally.job.priorities.are_several()
            || tally.job.max_latency_ns != [0; 3]
            || tally.search.is_some()
            || tally.logs.is_some()
            || tally.series.is_some();
        if let Some(recording) = &tally.job.recording {
            tally.begin_replay(recording);
        }
        tally.begin_phase(end_ns);
        if let IoMethod::Queued(queued) = &mut self.method {
            queued.forget_next();
        }
        match backlog.filter(|_| tally.written.is_some()) {
            Some(backlog) => self.run_with_backlog(ops, backlog),
            None if self.tally.search.is_some() => self.run_with_target(ops),
            None => self.run_ops(ops),
        }
        let tally = &mut self.tally;
        if tally.job.recording.is_some() && !tally.is_over() {
            tally.end_replay();
        }
        if flush && tally.error.is_none() {
            // fio does not count this flush.
            tally.sync_all(Sync::All);
        }
        tally.read_clock();
        tally.gauge.set(&tally.stats, tally.now_ns);
        let mut stats = std::mem::take(&mut tally.stats);
        tally.add_runtimes(&mut stats);
        tally.stats = stats;
    }

    /// Runs I/Os until there are no more or the phase is over.
    fn run_ops(&mut self, ops: &mut impl Stream) {
        let tally = &mut self.tally;
        match (&mut self.method, tally.job.is_timed()) {
            (IoMethod::Queued(queued), true) => queued.run::<true, _>(tally, ops),
            (IoMethod::Queued(queued), false) => queued.run::<false, _>(tally, ops),
            (IoMethod::Calls(calls), true) => calls.run::<true>(tally, ops),
            (IoMethod::Calls(calls), false) => calls.run::<false>(tally, ops),
        }
    }

    /// Runs I/Os in windows, each at one depth, until the depth for the latency target is found.
    fn run_with_target(&mut self, ops: &mut impl Stream) {
        let end_ns = self.tally.end_ns();
        let window_ns = ns(self.tally.job.control.target.window);
        loop {
            let Some(search) = &self.tally.search else { return };
            if let IoMethod::Queued(queued) = &mut self.method {
                queued.set_depth(search.depth());
            }
            let until_ns = self.tally.read_clock().saturating_add(window_ns).min(end_ns);
            self.tally.begin_window(until_ns);
            self.run_ops(ops);
            self.tally.begin_window(end_ns);
            // Without more I/Os, or at the end of the time, the last figures are those to report.
            if self.tally.now_ns < until_ns || self.tally.is_over() {
                return;
            }
            // Nothing of a ramp counts, and the search begins after it.
            let is_in_ramp = self.tally.is_in_ramp();
            let Some(search) = &mut self.tally.search else { return };
            if is_in_ramp {
                search.restart_window();
                continue;
            }
            match search.end_window() {
                Step::Restart => self.tally.restart_figures(),
                Step::Found => return self.tally.finish(),
                Step::Missed => {
                    let target = self.tally.job.control.target.target;
                    return self.tally.fail_target(target.unwrap_or_default());
                }
                Step::Continue => {}
            }
        }
    }

    /// Runs I/Os, and reads written blocks back after each `backlog` writes.
    fn run_with_backlog(&mut self, ops: &mut impl Stream, backlog: u64) {
        let batch = match self.tally.job.checks.backlog_batch {
            0 => backlog,
            batch => batch,
        };
        loop {
            let mut some = UpTo { ops, writes: backlog };
            self.run_ops(&mut some);
            if some.writes > 0 || self.tally.is_over() {
                return;
            }
            let Some(written) = &mut self.tally.written else { return };
            let reads = written.take(batch);
            let check = std::mem::replace(&mut self.tally.check, Check::Ours);
            let pauses = self.tally.pauses.take();
            let is_pause_due = std::mem::take(&mut self.tally.is_pause_due);
            self.run_ops(&mut reads.into_iter().peekable());
            let tally = &mut self.tally;
            (tally.check, tally.pauses, tally.is_pause_due) = (check, pauses, is_pause_due);
        }
    }
}

/// A stream that ends after a number of writes.
#[derive(Debug)]
struct UpTo<'a, S> {
    ops: &'a mut S,
    /// The writes that are left.
    writes: u64,
}

impl<S> UpTo<'_, S> {
    fn count(&mut self, op: Option<Op>) -> Option<Op> {
        self.writes -= u64::from(op.is_some_and(|op| op.direction == Direction::Write));
        op
    }
}

impl<S: Stream> Iterator for UpTo<'_, S> {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        if self.writes == 0 {
            return None;
        }
        let op = self.ops.next();
        self.count(op)
    }
}

impl<S: Stream> Stream for UpTo<'_, S> {
    fn direction(&mut self) -> Option<Direction> {
        if self.writes == 0 { None } else { self.ops.direction() }
    }

    fn possible_direction(&self, direction: Direction) -> Direction {
        self.ops.possible_direction(direction)
    }

    fn next_as(&mut self, direction: Direction) -> Option<Op> {
        let op = self.ops.next_as(direction);
        self.count(op)
    }
}
