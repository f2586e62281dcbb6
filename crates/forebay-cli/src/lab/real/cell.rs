//! One cell in real time: a disk of the driver `model`, its jobs as threads, and snapshots of their
//! work before and after the measurement.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use forebay::{Disk, Histogram, Op};

use super::job::{self, Board, Work};
use crate::bench::stop::Stop;
use crate::failure::Failure;

/// Stack size of a job's thread in bytes: there may be two thousand, and most of a stack is
/// untouched.
const STACK: usize = 256 << 10;

/// Polling interval of the watching thread.
const POLL: Duration = Duration::from_millis(100);

/// The cell to measure.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    /// The disk.
    pub(super) spec: String,
    pub(super) nr_jobs: u32,
    pub(super) work: Work,
    pub(super) warm_up: Duration,
    pub(super) run: Duration,
}

/// The figures of a cell.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) run: Duration,
    /// Blocks that the disk has read, even those that a job has not reaped because it waits for a
    /// tag.
    pub(super) nr_ios: f64,
    /// Number of reads that each job has reaped.
    pub(super) ios_of_jobs: Vec<u64>,
    pub(super) nr_tag_sleeps: u64,
    /// Sleeps of job threads, for any reason.
    pub(super) nr_sleeps: u64,
    pub(super) nr_vain_wakes: u64,
    /// Turns that were requested while another was pending or running.
    pub(super) nr_redundant_runs: u64,
    pub(super) waits: Histogram,
}

/// Measures a cell, and calls `tick` periodically. Returns `None` if a signal arrives before enough
/// was measured.
pub(super) fn measure(
    cell: &Cell,
    stop: &Stop,
    tick: &mut dyn FnMut(),
) -> Result<Option<Measured>, Failure> {
    let disk = Disk::open(&cell.spec).map_err(|error| Failure::open("", &error))?;
    let board = Board::new(cell.nr_jobs);
    thread::scope(|scope| {
        let mut jobs = Vec::new();
        for id in 0..cell.nr_jobs {
            let (disk, board, work) = (&disk, &board, cell.work);
            let builder = thread::Builder::new().stack_size(STACK);
            match builder.spawn_scoped(scope, move || job::run(disk, work, board, id)) {
                Ok(job) => jobs.push(job),
                Err(error) => {
                    board.is_over.store(true, Ordering::Relaxed);
                    return Err(Failure::Run(format!(
                        "only {id} of {} threads could be started: {error}; \
                         raise the limit (ulimit -u, the container's pids)",
                        cell.nr_jobs
                    )));
                }
            }
        }
        let is_warm = sleep(cell.warm_up, stop, tick);
        let before = look(&disk, &board);
        board.is_measuring.store(true, Ordering::Relaxed);
        let started = Instant::now();
        let is_whole = is_warm && sleep(cell.run, stop, tick);
        let run = started.elapsed();
        let after = look(&disk, &board);
        let late = board.waits();
        board.is_over.store(true, Ordering::Relaxed);
        let mut waits = Histogram::default();
        late.into_iter().for_each(|waited_ns| waits.record(waited_ns));
        for job in jobs {
            waits.add(&job.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        // Half of a cell is meaningful; less is not.
        let is_enough = is_whole || is_warm && run >= cell.run / 2;
        let ios = after.ios.iter().zip(&before.ios).map(|(after, before)| after - before);
        Ok(is_enough.then(|| Measured {
            run,
            nr_ios: (after.nr_bytes - before.nr_bytes) as f64 / cell.work.block_bytes as f64,
            ios_of_jobs: ios.collect(),
            nr_tag_sleeps: after.nr_tag_sleeps - before.nr_tag_sleeps,
            nr_sleeps: after.nr_sleeps.saturating_sub(before.nr_sleeps),
            nr_vain_wakes: after.nr_vain_wakes - before.nr_vain_wakes,
            nr_redundant_runs: after.nr_redundant_runs - before.nr_redundant_runs,
            waits,
        }))
    })
}

/// A snapshot of the work done so far.
struct Looked {
    ios: Vec<u64>,
    nr_bytes: u64,
    nr_tag_sleeps: u64,
    nr_sleeps: u64,
    nr_vain_wakes: u64,
    nr_redundant_runs: u64,
}

fn look(disk: &Disk, board: &Board) -> Looked {
    let stats = disk.stats();
    let count = |name| stats.queue.emulation.get(name).unwrap_or(0);
    Looked {
        ios: board.ios(),
        nr_bytes: stats.queue.op(Op::Read).bytes,
        nr_tag_sleeps: count("tag_sleeps"),
        nr_sleeps: board.voluntary_switches(),
        nr_vain_wakes: count("vain_wakeups"),
        nr_redundant_runs: stats.skipped_runs,
    }
}

/// Sleeps while the jobs work. Returns `false` if a signal has arrived.
pub(in crate::lab) fn sleep(time: Duration, stop: &Stop, tick: &mut dyn FnMut()) -> bool {
    let started = Instant::now();
    while let Some(left) = time.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
        if stop.is_set() {
            return false;
        }
        thread::sleep(left.min(POLL));
        tick();
    }
    !stop.is_set()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(wake: &str, parts: u32) -> Cell {
        let spec = format!("model:virtio-ram?data=off&nr_hw_queues=1&queue_depth=4&wake={wake}");
        let work = Work { depth: 4, block_bytes: 8192, parts, nr_places: 1000 };
        let (warm_up, run) = (Duration::from_millis(20), Duration::from_millis(200));
        Cell { spec, nr_jobs: 3, work, warm_up, run }
    }

    #[test]
    fn jobs_that_want_more_tags_than_there_are_read_and_are_counted() {
        for (wake, parts) in [("batch", 2), ("single", 2), ("fair", 1)] {
            let cell = cell(wake, parts);
            let measured = measure(&cell, &Stop::default(), &mut || ());
            let measured = measured.expect("a disk").expect("no signal");
            assert!(measured.nr_ios > 0.0, "{wake}");
            assert!(measured.ios_of_jobs.iter().sum::<u64>() > 0, "{wake}");
            assert_eq!(measured.nr_tag_sleeps == 0, wake == "fair", "{wake}");
            // Under `fair`, threads also sleep while they wait for completions.
            assert!(measured.nr_sleeps > 0, "{wake}");
            assert!(measured.waits.count() > 0 && measured.waits.max() > 0, "{wake}");
        }
    }

    #[test]
    fn after_a_signal_little_is_nothing() {
        let measured = measure(&cell("fair", 1), &Stop::set(), &mut || ());
        assert!(measured.expect("a disk").is_none());
    }
}
