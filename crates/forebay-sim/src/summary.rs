//! Summary of a run that broke no rule.

use crate::lab::jain;
use crate::late::Late;
use crate::runtime::thread::Ended;
use crate::stages::TraceOfSource;
use crate::task::figures::CloneFigures;
use crate::trace::{Kind, NR_KINDS};
use forebay_core::{BlockStatus, Histogram, MergeKind, QueueStats, UnplugCause};
use forebay_fio::stats::Latency;

/// Summary of one run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The seed.
    pub seed: u64,
    /// The hash over all events.
    pub hash: u64,
    /// The number of steps of all tasks.
    pub nr_steps: u64,
    /// The virtual time that these steps took, ns. It stands for the time of processors.
    pub busy_ns: u64,
    /// Voluntary context switches: how often a task went to sleep in a wait.
    pub nr_sleeps: u64,
    /// The virtual time at the end, ns.
    pub now_ns: u64,
    /// Bios that have ended. Each of them was checked.
    pub nr_bios: u64,
    /// Blocks that were read and checked.
    pub nr_blocks_read: u64,
    /// Events at which the values that a crash may leave in some unflushed block were compared with
    /// the legal ones. Each event counts once; events that compare nothing do not count.
    pub nr_crash_points: u64,
    /// Written blocks that the layer promised to be durable.
    pub nr_promises: u64,
    /// Results of the tasks' bios.
    pub tally: Tally,
    /// The fault rules of the disk, and the number of commands that each of them changed.
    pub faults: Vec<(String, u64)>,
    /// Requests over their time limit.
    pub late: Late,
    /// The device counts as gone at the end.
    pub is_device_gone: bool,
    /// The layer's statistics.
    pub stats: Box<QueueStats>,
    /// Runs that were left to the holder of the token.
    pub skipped_runs: u64,
    /// The trace, one list for each hardware context and each task; empty unless the disk asks for
    /// it ([`JobDisk::is_traced`](crate::JobDisk::is_traced)).
    pub traces: Vec<TraceOfSource>,
    pub(crate) counts: [u64; NR_KINDS],
}

impl Summary {
    pub(crate) fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }
}

/// Figures of a run, in virtual time.
impl Summary {
    /// Returns the number of successful bios, flushes excluded.
    pub fn nr_ios(&self) -> u64 {
        self.tally.ios_of_tasks.iter().sum()
    }

    /// Returns successful bios per second.
    pub fn iops(&self) -> f64 {
        self.nr_ios() as f64 / self.seconds()
    }

    /// Returns the throughput in 1,000,000 bytes per second.
    pub fn mb_per_s(&self) -> f64 {
        self.tally.bytes as f64 / 1e6 / self.seconds()
    }

    /// Returns the number of bios that merged with others.
    pub fn nr_merges(&self) -> u64 {
        MergeKind::ALL.iter().map(|&kind| self.stats.merges(kind)).sum()
    }

    /// Returns the voluntary context switches for each successful bio.
    pub fn switches_per_io(&self) -> f64 {
        self.nr_sleeps as f64 / (self.nr_ios() as f64).max(1.0)
    }

    /// Returns the latencies of the successful I/Os of jobs, ns, without flushes. Without jobs,
    /// those of all I/Os of the tasks. Percentiles are within 1/128 of the exact value. See also
    /// [`CloneFigures::latency`].
    pub fn io_latency(&self) -> Latency {
        if self.tally.clones.is_empty() {
            return self.tally.fio_latency.clone();
        }
        let mut latency = Latency::default();
        self.tally.clones.iter().for_each(|clone| latency.merge(&clone.latency()));
        latency
    }

    /// Returns the fairness index of the tasks' bios ([`jain`]).
    pub fn fairness(&self) -> f64 {
        jain(&self.tally.ios_of_tasks)
    }

    /// Returns by how much the I/Os of a recorded load were submitted after they were due, ns;
    /// `None` for another load.
    pub fn lateness(&self) -> Option<Latency> {
        let mut of_threads = self.tally.clones.iter().filter_map(|it| it.lateness.as_deref());
        let mut all = of_threads.next()?.clone();
        of_threads.for_each(|lateness| all.merge(lateness));
        Some(all)
    }

    /// Returns the fairness index of the tasks' mean speeds ([`jain`]): the I/Os of a job's clone,
    /// or of a recorded thread, by the sum of their latencies. The number of I/Os of a
    /// recorded thread is fixed, so a thread that suffers differs from others by its waits alone.
    pub fn fairness_of_speeds(&self) -> f64 {
        let speeds = self.tally.clones.iter().filter_map(|clone| {
            let directions = clone.stats.directions.iter();
            let (nr, total_ns) = directions.fold((0, 0.0), |(nr, total_ns), direction| {
                let (count, mean_ns) = (direction.lat.count(), direction.lat.mean());
                (nr + count, total_ns + count as f64 * mean_ns)
            });
            // A thread of syncs alone has no speed. The scale keeps the digits of slow ones.
            (nr > 0).then(|| (nr as f64 * 1e18 / total_ns.max(1.0)) as u64)
        });
        jain(&speeds.collect::<Vec<_>>())
    }

    fn seconds(&self) -> f64 {
        (self.now_ns as f64 / 1e9).max(1e-9)
    }
}

/// Results of the tasks' bios.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The time from submit to reap, ns, without flushes.
    pub latency: Histogram,
    /// The same with finer buckets, those of fio.
    pub fio_latency: Latency,
    /// The time from submit to reap of flushes, ns.
    pub flush_latency: Histogram,
    /// The bytes that bios moved.
    pub bytes: u64,
    /// The number of failed bios.
    pub nr_failed: u64,
    /// Successful bios of each task, flushes excluded.
    pub ios_of_tasks: Vec<u64>,
    /// fio's figures of each clone of a job, in the order in which the clones ended.
    pub clones: Vec<CloneFigures>,
    /// The crash points that the scenario asks for, in the order of their times.
    pub crash_points: Vec<CrashPoint>,
    failed_of_status: [u64; BlockStatus::ALL.len()],
}

/// The effect that a power failure would have at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPoint {
    /// The time, ns.
    pub at_ns: u64,
    /// The blocks that were written by then.
    pub nr_written: u64,
    /// Those of them whose contents after the power failure are not certain.
    pub nr_unsure: u64,
}

impl Ended {
    /// Returns the number of bytes moved. Data of which no byte was moved is an I/O error, as in
    /// fio: the end of the device lies before it.
    pub(crate) fn moved(&self) -> Result<u64, BlockStatus> {
        match self.result {
            Ok(0) if self.len > 0 => Err(BlockStatus::Io),
            result => result,
        }
    }
}

impl Tally {
    /// Adds the bios that a task reaped.
    pub(crate) fn add(&mut self, task: usize, ended: &mut Vec<Ended>) {
        if self.ios_of_tasks.len() <= task {
            self.ios_of_tasks.resize(task + 1, 0);
        }
        for ended in ended.drain(..) {
            match ended.len {
                0 => self.flush_latency.record(ended.latency_ns),
                _ => {
                    self.latency.record(ended.latency_ns);
                    self.fio_latency.record(ended.latency_ns);
                }
            }
            match ended.moved() {
                Ok(moved) => {
                    self.bytes += moved;
                    self.ios_of_tasks[task] += u64::from(ended.len > 0);
                }
                Err(status) => {
                    self.nr_failed += 1;
                    self.failed_of_status[status as usize] += 1;
                }
            }
        }
    }

    /// Returns the statuses with which bios failed, and how many failed with each.
    pub fn failures(&self) -> impl Iterator<Item = (BlockStatus, u64)> + '_ {
        let counted =
            BlockStatus::ALL.into_iter().map(|it| (it, self.failed_of_status[it as usize]));
        counted.filter(|(_, nr)| *nr > 0)
    }
}

/// Counts of the events that one or more runs produced. A simulator that never produces an event
/// tests nothing about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    counts: Vec<(&'static str, u64)>,
}

impl Reached {
    /// Adds a run.
    pub fn add(&mut self, summary: &Summary) {
        let of_run = summary.reached();
        if self.counts.is_empty() {
            self.counts = of_run;
            return;
        }
        self.counts.iter_mut().zip(of_run).for_each(|((_, sum), (_, nr))| *sum += nr);
    }

    /// Returns each kind of event, and how often it happened.
    pub fn counts(&self) -> &[(&'static str, u64)] {
        &self.counts
    }
}

impl Summary {
    fn reached(&self) -> Vec<(&'static str, u64)> {
        let stats = &self.stats;
        let kinds = [
            ("refusals", Kind::Refuse),
            ("runs left to the holder", Kind::Skip),
            ("busy answers", Kind::Busy),
            ("refused commands", Kind::Fail),
            ("leaders", Kind::Lead),
            ("followers", Kind::Follow),
            ("batons", Kind::Baton),
            ("kicks", Kind::Kick),
            ("waits for tags of the budget", Kind::Charge),
            ("tasks that wait for tags of a context", Kind::Lack),
            ("tasks woken for them", Kind::TagWake),
            ("numbers of tags changed", Kind::Resize),
            ("schedulers changed", Kind::Scheduler),
            ("gates opened", Kind::Open),
            ("freezes given up", Kind::Strand),
            ("devices revived", Kind::Revive),
            ("losses acknowledged", Kind::Acknowledge),
            ("runs by the worker", Kind::Work),
            ("calls that tasks make", Kind::OwnCall),
            ("calls withdrawn", Kind::Withdraw),
            ("owners changed", Kind::Owner),
            ("failed write-backs", Kind::WriteBackError),
            ("syncs of other programs after one", Kind::SyncElsewhere),
            ("syncs that report one", Kind::SyncError),
            ("errors that a check of the place found", Kind::PlaceError),
        ];
        let mut counts: Vec<_> =
            kinds.iter().map(|&(name, kind)| (name, self.count(kind))).collect();
        counts.extend(MergeKind::ALL.map(|kind| (kind.name(), stats.merges(kind))));
        counts.extend(UnplugCause::ALL.map(|cause| (cause.name(), stats.unplugs(cause))));
        counts.extend([
            ("splits", stats.splits),
            ("requeues", stats.requeues),
            ("retries", stats.retries),
            ("overtaken", stats.overtaken),
            ("waits for tags", stats.tag_waits),
            ("waits for limits of owners", stats.limit_waits),
            ("vain wake-ups for tags", stats.emulation.get("vain_wakeups").unwrap_or(0)),
            ("empty turns", stats.empty_turns),
            ("flushes issued", stats.flushes_issued),
            ("flushes joined", stats.flushes_joined),
            ("flushes elided", stats.flushes_elided),
            ("flushes refused", stats.flushes_refused),
            ("crash points", self.nr_crash_points),
            ("writes promised to be durable", self.nr_promises),
            ("failed bios", self.tally.nr_failed),
            ("requests over their time limit", stats.timeouts),
            ("devices given up", self.late.nr_given_up),
        ]);
        counts
    }
}
