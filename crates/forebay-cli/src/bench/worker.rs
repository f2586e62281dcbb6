//! One clone at work: its workload, a last flush, and reading back.
//!
//! Source: fio's HOWTO, the options `end_fsync`, `verify`, `do_verify`. How the I/O is done is
//! [`queued`](super::queued) or [`calls`](super::calls).

use std::time::{Duration, Instant};

use forebay::Disk;
use forebay_fio::generator::{Direction, Op, Region};
use forebay_fio::job::Job;
use forebay_fio::report::JobError;
use forebay_fio::stats::moments::Moments;
use forebay_fio::stats::{JobStats, Usage};
use forebay_fio::verify::Stamp;

use super::calls::Calls;
use super::gauge::{Gauge, Phase};
use super::queued::Queued;
use super::stop::Stop;
use super::tally::{Check, Tally};
use super::usage;
use super::written::Written;

/// A clone of a job on its thread.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    tally: Tally<'a>,
    way: Way,
    usage: Usage,
}

/// How the I/O is done.
#[derive(Debug)]
enum Way {
    Queued(Box<Queued>),
    Calls(Calls),
}

/// What a worker leaves.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) stats: JobStats,
    /// The first error.
    pub(super) error: Option<JobError>,
    /// How long those of its bios waited for a tag that had to, ns; not known of blocking calls.
    pub(super) tag_waits: Option<Moments>,
    pub(super) elapsed_ns: u64,
}

impl<'a> Worker<'a> {
    /// Makes everything ready for [`Worker::run`].
    pub(super) fn new(
        job: &'a Job,
        disk: &'a Disk,
        region: Region,
        stamp: Stamp,
        stop: &'a Stop,
        gauge: &'a Gauge,
    ) -> Self {
        let writes = job.rw.has(Direction::Write);
        let reads = job.rw.has(Direction::Read);
        let way = match job.is_blocking() {
            true => Way::Calls(Calls::new(job, disk)),
            false => Way::Queued(Box::new(Queued::new(job, disk))),
        };
        let tally = Tally {
            job,
            disk,
            gauge,
            stop,
            writes_since_flush: 0,
            stamp,
            check: if job.verify && reads && !writes { Check::Whole } else { Check::Nothing },
            written: (job.verify && job.do_verify && writes).then(|| Written::none(region, job.bs)),
            start: Instant::now(),
            now_ns: 0,
            stats: JobStats::new(0),
            error: None,
        };
        Self { tally, way, usage: usage::of_this_thread() }
    }

    /// Does the whole job: its workload, a last flush, and reading back. All times count from
    /// `start` on, which is the same for all clones.
    pub(super) fn run(&mut self, start: Instant, mut ops: impl Iterator<Item = Op>) {
        self.tally.start = start;
        let job = self.tally.job;
        let end_ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let flush = job.end_fsync && job.rw.has(Direction::Write);
        self.phase(&mut ops, job.runtime.map_or(u64::MAX, end_ns), flush);
        let Some(written) = self.tally.written.take() else { return };
        if written.is_empty() || self.tally.is_over(u64::MAX) {
            return;
        }
        self.tally.gauge.enter(Phase::Verify);
        self.tally.check = Check::Ours;
        self.tally.writes_since_flush = 0;
        self.phase(&mut written.reads(), u64::MAX, false);
    }

    /// What came of it.
    pub(super) fn finish(mut self) -> Finished {
        let elapsed_ns = self.tally.read_clock();
        self.tally.gauge.enter(Phase::Done);
        let tag_waits = match &self.way {
            Way::Queued(queued) => Some(queued.tag_waits()),
            Way::Calls(_) => None,
        };
        let Tally { mut stats, error, .. } = self.tally;
        stats.usage = usage::between(&self.usage, &usage::of_this_thread());
        stats.job_runtime_ms = (elapsed_ns / 1_000_000).max(1);
        Finished { stats, error, tag_waits, elapsed_ns }
    }

    /// Runs I/Os until there are no more, or until `end_ns` after the start; then flushes, if that
    /// is wanted. The runtime is that of both, as in fio.
    fn phase(&mut self, ops: &mut impl Iterator<Item = Op>, end_ns: u64, flush: bool) {
        let tally = &mut self.tally;
        let begin_ns = tally.now_ns;
        let before: [u64; 3] = std::array::from_fn(|at| tally.stats.directions[at].total_ios);
        match &mut self.way {
            Way::Queued(queued) => queued.run(tally, ops, end_ns),
            Way::Calls(calls) => calls.run(tally, ops, end_ns),
        }
        if flush && tally.error.is_none() {
            // fio does not count this one.
            tally.flush();
        }
        let runtime_ms = (tally.read_clock() - begin_ns).div_ceil(1_000_000).max(1);
        for (direction, before) in tally.stats.directions.iter_mut().zip(before) {
            if direction.total_ios > before {
                direction.runtime_ms += runtime_ms;
            }
        }
    }
}
