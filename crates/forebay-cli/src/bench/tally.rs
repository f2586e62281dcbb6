//! State of a clone, independent of how it does its I/O: figures, checks, flushes, and the error
//! that ended it.

mod failures;
pub(super) mod pauses;
mod rate_check;

use forebay::cold_path;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use forebay::Disk;
use forebay_fio::data::Contents;
use forebay_fio::generator::{Direction, Op};
use forebay_fio::iolog::Act;
use forebay_fio::job::Job;
use forebay_fio::latency_target::Search;
use forebay_fio::logs::{Logs, Sample};
use forebay_fio::report::JobError;
use forebay_fio::stats::{JobStats, Usage};
use forebay_fio::verify::{Format, Stamp};

use self::failures::Failures;
use self::pauses::Pauses;
use self::rate_check::RateCheck;
use super::gauge::{Gauge, Snapshot};
use super::replay::{Lateness, LogWriter};
use super::series::Series;
use super::stop::Stop;
use super::together::FlowShare;
use super::usage;
use super::written::Written;

/// The state of a clone.
#[derive(Debug)]
pub(super) struct Tally<'a> {
    pub(super) job: &'a Job,
    /// The disk of each file.
    pub(super) disks: Vec<&'a Disk>,
    pub(super) gauge: &'a Gauge,
    pub(super) stop: &'a Stop,
    /// The logs, if the job writes any.
    pub(super) logs: Option<Box<Logs>>,
    /// The rates over time, if pictures are wanted.
    pub(super) series: Option<Box<Series>>,
    /// How late I/Os were submitted, in a replay.
    pub(super) lateness: Option<Box<Lateness>>,
    /// The log of all I/Os, if the job writes one.
    pub(super) log_writer: Option<Box<LogWriter>>,
    /// Work between submissions, if the job has options for it.
    pub(super) pauses: Option<Box<Pauses>>,
    /// The part of the clone in its flow, if it has one.
    pub(super) flow: Option<FlowShare>,
    /// The check of `rate_min`, if the job has one.
    rate_check: Option<Box<RateCheck>>,
    /// Whether work may be due before the next submission.
    pub(super) is_pause_due: bool,
    /// Whether each write gets new data, or its buffer is scrambled.
    pub(super) fills: bool,
    /// The data of writes, if each write gets data by options of its own.
    pub(super) contents: Option<RefCell<Box<Contents>>>,
    /// Whether the buffer of each write is scrambled.
    pub(super) scrambles: bool,
    /// The number of writes whose buffers were scrambled.
    pub(super) nr_scrambled: Cell<u64>,
    /// Whether an I/O's end needs more work than counting.
    pub(super) is_watchful: bool,
    /// The stamp of the blocks in each file.
    pub(super) stamps: Vec<Stamp>,
    /// The format of verified blocks.
    pub(super) format: Format,
    /// The number of the clone among all, from 1 on.
    pub(super) thread: u16,
    /// The number of the next verified write.
    pub(super) numbers: Cell<u16>,
    /// Which data reads must find.
    pub(super) check: Check,
    /// The blocks to read back.
    pub(super) written: Option<Written>,
    /// Start of the clone's time, by the layer's clock, ns.
    origin_ns: u64,
    /// The time of the last clock reading, ns since the start.
    pub(super) now_ns: u64,
    /// Reaps until the next clock reading, and the interval between readings, in reaps. Both are
    /// unused if every reap reads the clock.
    reads_left: u32,
    reads_between: u32,
    /// When the gauge is next updated, and the earliest time at which that or a rate sample is due,
    /// ns.
    show_ns: u64,
    tick_ns: u64,
    /// The latest end of the phase, ns since the start.
    end_ns: u64,
    /// Whether the workload ended early because it reached its goal.
    pub(super) is_finished: bool,
    /// The end of the ramp; `u64::MAX` if it has ended or there is none.
    ramp_ns: u64,
    /// When figures are next published for a report, and the interval, ns; `u64::MAX` for never.
    status_ns: u64,
    status_every_ns: u64,
    /// The earliest time at which anything other than I/O is due.
    event_ns: u64,
    /// Start of the measured figures, ns since the start: the start of the phase, or the end of the
    /// ramp.
    pub(super) phase_ns: u64,
    /// The same over all phases.
    pub(super) measured_ns: u64,
    /// The counts of I/Os before the phase, by direction.
    pub(super) ios_before: [u64; 3],
    /// The number of I/Os that ended before the phase, including failed ones, in all directions.
    issued_before: u64,
    /// The thread's resource usage when the measurement began.
    pub(super) usage: Usage,
    pub(super) stats: JobStats,
    /// The first bad block, and the number of further ones.
    pub(super) mismatch: Option<(String, u64)>,
    /// The search for a depth, if the job has a latency target.
    pub(super) search: Option<Box<Search>>,
    /// The error that ends the job.
    pub(super) error: Option<JobError>,
    /// All errors.
    pub(super) failures: Failures,
}

/// The data that a read must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    Nothing,
    /// Any block that is intact and in its place.
    Whole,
    /// A block that this run wrote.
    Ours,
}

impl<'a> Tally<'a> {
    /// Returns an empty state.
    pub(super) fn new(
        job: &'a Job,
        disks: Vec<&'a Disk>,
        stop: &'a Stop,
        gauge: &'a Gauge,
        stamps: Vec<Stamp>,
        thread: u16,
        status: Option<Duration>,
    ) -> Self {
        let status_ns = status.map_or(u64::MAX, ns);
        Self {
            job,
            disks,
            gauge,
            stop,
            logs: Logs::new(&job.logs, &job.measures),
            series: None,
            lateness: None,
            log_writer: None,
            pauses: None,
            flow: None,
            rate_check: RateCheck::new(job),
            is_pause_due: false,
            fills: job.verify
                || job.checks.refill_buffers
                || job.generates_data()
                || job.scrambles(),
            contents: None,
            scrambles: job.scrambles(),
            nr_scrambled: Cell::new(0),
            is_watchful: false,
            stamps,
            format: job.format(),
            thread,
            numbers: Cell::new(0),
            check: Check::Nothing,
            written: None,
            origin_ns: forebay::now_ns(),
            now_ns: 0,
            reads_left: 1,
            reads_between: 1,
            show_ns: 0,
            tick_ns: 0,
            end_ns: u64::MAX,
            is_finished: false,
            ramp_ns: if job.ramp_time.is_zero() { u64::MAX } else { ns(job.ramp_time) },
            status_ns,
            status_every_ns: status_ns,
            event_ns: u64::MAX,
            phase_ns: 0,
            measured_ns: 0,
            ios_before: [0; 3],
            issued_before: 0,
            usage: usage::of_this_thread(),
            stats: JobStats::new(0),
            mismatch: None,
            search: job.control.target.search(job.iodepth).map(Box::new),
            error: None,
            failures: Failures::default(),
        }
    }

    /// Sets the start of the clone's time.
    pub(super) fn begin_at(&mut self, start: Instant) {
        self.origin_ns = forebay::now_ns().saturating_sub(ns(start.elapsed()));
        self.now_ns = 0;
    }

    /// Reads the layer's own clock, which costs a few nanoseconds.
    #[inline]
    pub(super) fn read_clock(&mut self) -> u64 {
        // The start lies in the past, except for the small difference between the two clocks.
        self.now_ns = forebay::now_ns().saturating_sub(self.origin_ns);
        self.now_ns
    }

    /// Converts a time since the start to the layer's clock.
    #[inline]
    pub(super) fn layer_ns(&self, at_ns: u64) -> u64 {
        self.origin_ns + at_ns
    }

    /// Reads the clock; if no I/O is timed, only occasionally.
    #[inline]
    pub(super) fn read_clock_for<const TIMED: bool>(&mut self) -> u64 {
        if TIMED { self.read_clock() } else { self.read_clock_seldom() }
    }

    /// Reads the clock occasionally: about every millisecond, at any I/O rate.
    #[inline]
    pub(super) fn read_clock_seldom(&mut self) -> u64 {
        self.reads_left -= 1;
        if self.reads_left == 0 { self.read_clock_now() } else { self.now_ns }
    }

    #[cold]
    fn read_clock_now(&mut self) -> u64 {
        const EVERY_NS: u64 = 1_000_000;
        /// Bounds the delay until a device that becomes slow is noticed.
        const MAX: u32 = 1024;
        let before_ns = self.now_ns;
        let passed_ns = self.read_clock() - before_ns;
        let twice = self.reads_between * 2;
        let half = self.reads_between / 2;
        self.reads_between = if passed_ns < EVERY_NS { twice } else { half }.clamp(1, MAX);
        self.reads_left = self.reads_between;
        self.now_ns
    }

    /// Starts a phase, which ends at `end_ns` at the latest.
    pub(super) fn begin_phase(&mut self, end_ns: u64) {
        self.end_ns = end_ns;
        self.event_ns = self.next_event_ns();
        self.phase_ns = self.now_ns;
        self.ios_before = std::array::from_fn(|at| self.stats.directions[at].total_ios);
        self.issued_before = self.issued_ios();
    }

    /// Returns whether no I/O has ended in this phase, with or without an error.
    pub(super) fn has_idle_phase(&self) -> bool {
        self.issued_ios() == self.issued_before
    }

    fn issued_ios(&self) -> u64 {
        self.stats.directions.iter().map(|direction| direction.issued_ios()).sum()
    }

    /// Limits the phase to a window, until `end_ns` at the latest.
    pub(super) fn begin_window(&mut self, end_ns: u64) {
        self.end_ns = end_ns;
        self.event_ns = self.next_event_ns();
    }

    /// Returns the latest end of the phase.
    pub(super) fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Returns whether the phase is over. Also handles other events that are due.
    #[inline]
    pub(super) fn is_over(&mut self) -> bool {
        self.error.is_some()
            || (self.now_ns >= self.event_ns && self.meet_event())
            || self.stop.is_set()
            || self.gauge.is_quit()
    }

    /// Ends the phase, and the workload with it: its aim is reached.
    #[cold]
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
        (self.end_ns, self.event_ns) = (0, 0);
    }

    pub(super) fn event_ns(&self) -> u64 {
        self.event_ns
    }

    #[cold]
    fn meet_event(&mut self) -> bool {
        if self.now_ns >= self.ramp_ns {
            self.end_ramp();
        }
        if self.now_ns >= self.status_ns {
            self.status_ns = self.now_ns.saturating_add(self.status_every_ns);
            let (stats, errors) = (self.figures(), self.failures.count().clone());
            self.gauge.post(Snapshot { stats, errors, elapsed_ns: self.now_ns });
        }
        if let Some(logs) = &mut self.logs
            && self.now_ns >= logs.window_end_ns()
        {
            logs.close_window(self.now_ns, false);
        }
        self.check_rate();
        self.event_ns = self.next_event_ns();
        self.now_ns >= self.end_ns || self.error.is_some()
    }

    /// Adds the time since the start of the phase to the runtime of each direction with I/O.
    pub(super) fn add_runtimes(&self, stats: &mut JobStats) {
        let runtime_ms = (self.now_ns - self.phase_ns).div_ceil(1_000_000).max(1);
        for (direction, before) in stats.directions.iter_mut().zip(self.ios_before) {
            if direction.total_ios > before {
                direction.runtime_ms += runtime_ms;
            }
        }
    }

    /// Returns the current figures, in the middle of a phase.
    fn figures(&self) -> JobStats {
        let mut stats = self.stats.clone();
        self.add_runtimes(&mut stats);
        stats.usage = usage::between(&self.usage, &usage::of_this_thread());
        stats.job_runtime_ms = ((self.now_ns - self.measured_ns) / 1_000_000).max(1);
        stats.forget(&self.job.measures);
        stats
    }

    fn next_event_ns(&self) -> u64 {
        let log_ns = self.logs.as_ref().map_or(u64::MAX, |logs| logs.window_end_ns());
        let rate_ns = self.rate_check.as_ref().map_or(u64::MAX, |check| check.at_ns());
        self.end_ns.min(self.ramp_ns).min(log_ns).min(self.status_ns).min(rate_ns)
    }

    /// Ends the ramp: all counts restart.
    fn end_ramp(&mut self) {
        self.ramp_ns = u64::MAX;
        self.restart_figures();
        if let Some(logs) = &mut self.logs {
            logs.restart(self.now_ns);
        }
        if let Some(series) = &mut self.series {
            series.restart(self.now_ns);
        }
    }

    /// Restarts the counts and the time that they cover.
    pub(super) fn restart_figures(&mut self) {
        self.stats = JobStats::new(self.now_ns);
        self.usage = usage::of_this_thread();
        (self.phase_ns, self.measured_ns) = (self.now_ns, self.now_ns);
        self.ios_before = [0; 3];
        self.issued_before = 0;
    }

    /// Does the work between I/Os that depends on the time. It is called at every reap, and is
    /// usually two comparisons.
    #[inline]
    pub(super) fn tick(&mut self) {
        if self.now_ns >= self.tick_ns {
            self.sample();
        }
        if self.is_watchful {
            self.make_room();
        }
    }

    /// Takes rate samples, and updates the gauge at intervals that are shorter than a terminal
    /// needs.
    #[cold]
    fn sample(&mut self) {
        const EVERY_NS: u64 = 50_000_000;
        self.stats.tick(self.now_ns);
        if self.now_ns >= self.show_ns {
            self.show_ns = self.now_ns + EVERY_NS;
            self.gauge.set(&self.stats, self.now_ns);
        }
        self.tick_ns = self.show_ns.min(self.stats.window_end_ns());
    }

    /// Allocates space for log entries, while no I/O is being timed.
    #[inline(never)]
    fn make_room(&mut self) {
        if let Some(logs) = &mut self.logs {
            logs.make_room(self.job.iodepth as usize);
        }
    }

    /// Returns whether the ramp is in progress.
    pub(super) fn is_in_ramp(&self) -> bool {
        self.ramp_ns != u64::MAX
    }

    /// Records an I/O that succeeded. It took `clat_ns` from its commit and `lat_ns` from its
    /// start, if it is `TIMED`. `ioprio` returns its priority, as in `ioprio_set(2)`, and `block`
    /// its memory.
    #[inline(always)]
    pub(super) fn end<'b, const TIMED: bool>(
        &mut self,
        op: Op,
        moved: u64,
        [clat_ns, lat_ns]: [u64; 2],
        ioprio: impl FnOnce() -> u16,
        block: impl FnOnce() -> &'b [u8],
    ) {
        if moved == 0 {
            cold_path();
            if op.direction != Direction::Trim {
                return self.fail_empty(op);
            }
        }
        match TIMED {
            true => self.stats.record_complete(op.direction, moved, clat_ns, lat_ns),
            false => self.stats.record_untimed(op.direction, moved),
        }
        if moved < op.len.into() {
            self.stats.directions[op.direction.index()].short_ios += 1;
        }
        if self.is_watchful {
            self.watch(op, moved, [clat_ns, lat_ns], ioprio(), block());
        }
    }

    /// Does work at the end of an I/O that only some jobs need.
    #[inline(never)]
    fn watch(
        &mut self,
        op: Op,
        moved: u64,
        [clat_ns, lat_ns]: [u64; 2],
        ioprio: u16,
        block: &[u8],
    ) {
        if let Some(logs) = &mut self.logs {
            let (now_ns, has_slat) = (self.now_ns, !self.job.is_blocking());
            logs.record(op, moved, Sample { now_ns, clat_ns, lat_ns, has_slat, ioprio });
        }
        if let Some(series) = &mut self.series {
            series.record(op.direction, self.now_ns, moved, clat_ns);
        }
        if self.job.measures.lat_percentiles {
            self.stats.directions[op.direction.index()].lat_histogram.record(lat_ns);
        }
        if let Some(search) = &mut self.search {
            search.record(lat_ns);
        }
        if self.job.priorities.are_several() {
            let ns = if self.job.measures.lat_percentiles { lat_ns } else { clat_ns };
            self.stats.directions[op.direction.index()].priorities.record(ioprio, ns);
        }
        let max_ns = self.job.max_latency_ns[op.direction.index()];
        // As in fio, latencies that are not measured have no limit.
        if max_ns > 0 && lat_ns > max_ns && !self.job.measures.disable_lat {
            self.fail_slow(op, lat_ns, max_ns);
        }
        if op.direction == Direction::Write
            && let Some(written) = &mut self.written
        {
            written.insert(op);
        }
        if self.check != Check::Nothing && op.direction == Direction::Read {
            self.check_block(op, block, moved);
        }
    }

    /// Makes a sync of a file for `fsync` or `fdatasync` and counts it, with `in_flight` I/Os
    /// beside it.
    pub(super) fn periodic_sync(&mut self, sync: Sync, file: u16, in_flight: u32) {
        let start_ns = self.read_clock();
        if let Some(log) = &mut self.log_writer {
            log.sync(start_ns, file, sync.act());
        }
        if self.sync(sync, file) {
            let ns = self.read_clock() - start_ns;
            self.stats.record_sync(in_flight + 1, ns);
        }
    }

    /// Makes a sync of each file.
    pub(super) fn sync_all(&mut self, sync: Sync) {
        for file in 0..self.disks.len() {
            self.sync(sync, file as u16);
        }
    }

    /// Makes a sync of a file. Returns whether it succeeded.
    fn sync(&mut self, sync: Sync, file: u16) -> bool {
        let disk = self.disks[usize::from(file)];
        let (name, result) = match sync {
            Sync::Data => ("flush", disk.flush()),
            Sync::All => ("fsync", disk.fsync()),
        };
        if let Err(error) = result {
            self.fail_sync(name, file, error);
            return false;
        }
        true
    }
}

/// Kind of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    /// Data and the metadata needed to read it back: `fdatasync`.
    Data,
    /// Everything: `fsync`.
    All,
}

impl Sync {
    /// Returns its name in logs.
    fn act(self) -> Act {
        match self {
            Self::Data => Act::Datasync,
            Self::All => Act::Sync,
        }
    }
}

/// Returns a time in nanoseconds, saturated at `u64::MAX`.
pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
