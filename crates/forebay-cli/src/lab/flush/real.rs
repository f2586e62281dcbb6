//! The cells in real time: threads with blocking calls, on disks of the driver `model`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use forebay::{Buf, Disk, Histogram};
use forebay_fio::random::Xoshiro256;
use forebay_sim::lab::{FlushCounts, FsyncTask, FsyncTasks};

use super::{BLOCK_BYTES, Cell, FEW_THREADS, Figures, RANGE_BYTES, THREADS, cells, rows};
use crate::bench::stop::Stop;
use crate::failure::Failure;
use crate::lab::real::{Progress, sleep};
use crate::lab::rows::{Outcome, Part};
use crate::output;

/// Every run writes the same offsets.
const SEED: u64 = 1;

/// Duration of the warm-up, which is not measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// Default duration of a cell's measurement, s.
const SECONDS: u64 = 5;

/// Runs the cells: those with few threads, or all. After a signal, returns the results so far.
pub(in crate::lab) fn run(is_full: bool, seconds: Option<u64>) -> Result<Outcome, Failure> {
    let time = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let cells: Vec<_> = cells(if is_full { &THREADS } else { &FEW_THREADS }).collect();
    let stop = Stop::on_signals()?;
    let took = WARM_UP + time;
    let mut progress = Progress::new(cells.len(), took * cells.len() as u32);
    output::stderr(&progress.announcement());
    let mut all = Vec::new();
    for &cell in &cells {
        if stop.is_set() {
            break;
        }
        progress.begin(cell.name(), took);
        let measured = measure(cell, time, &stop, &mut || progress.tick());
        progress.clear();
        progress.end();
        all.extend(measured?);
    }
    Ok(Outcome { rows: rows(Part::Real, &all), nr_missing: cells.len() - all.len() })
}

/// State shared by the threads of a cell and the thread that watches them.
struct Board {
    tasks: Mutex<FsyncTasks>,
    /// Whether completed I/Os are counted. Relaxed, like the others: they publish no other data.
    is_measuring: AtomicBool,
    is_over: AtomicBool,
    nr_writes: AtomicU64,
}

/// Measures a cell. Returns `None` if a signal arrives before half of it is done.
fn measure(
    cell: Cell,
    time: Duration,
    stop: &Stop,
    tick: &mut dyn FnMut(),
) -> Result<Option<Figures>, Failure> {
    let disk = Disk::open(&spec(&cell)).map_err(|error| Failure::open("", &error))?;
    let board = Board {
        tasks: Mutex::new(FsyncTasks::new(cell.shape)),
        is_measuring: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
        nr_writes: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        let (board, disk) = (&board, &disk);
        let threads: Vec<_> =
            (0..cell.nr_threads).map(|id| scope.spawn(move || work(disk, board, id))).collect();
        let is_warm = sleep(WARM_UP, stop, tick);
        let before = FlushCounts::of(&disk.stats().queue);
        board.is_measuring.store(true, Ordering::Relaxed);
        let started = Instant::now();
        let is_whole = is_warm && sleep(time, stop, tick);
        let ran = started.elapsed();
        board.is_measuring.store(false, Ordering::Relaxed);
        let counts = FlushCounts::of(&disk.stats().queue).since(before);
        board.is_over.store(true, Ordering::Relaxed);
        let mut fsyncs = Histogram::default();
        for thread in threads {
            let of_thread = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            fsyncs.add(&of_thread?);
        }
        let is_enough = is_whole || is_warm && ran >= time / 2;
        let iops = board.nr_writes.load(Ordering::Relaxed) as f64 / ran.as_secs_f64();
        Ok(is_enough.then_some(Figures { cell, iops, fsyncs, counts }))
    })
}

fn spec(cell: &Cell) -> String {
    let elide = if cell.side.elide { "on" } else { "off" };
    format!("model:sata?data=off&flush={}&elide={elide}", cell.side.flush.name())
}

/// Runs one thread. Returns the latencies of its fsyncs, ns.
fn work(disk: &Disk, board: &Board, id: u32) -> Result<Histogram, Failure> {
    let mut random = Xoshiro256::new(SEED, id.into());
    let buf = Buf::new(BLOCK_BYTES as usize);
    let mut fsyncs = Histogram::default();
    let mut last = None;
    while !board.is_over.load(Ordering::Relaxed) {
        let task = board.tasks.lock().unwrap_or_else(PoisonError::into_inner).next(last);
        let begun = Instant::now();
        let result = match task {
            FsyncTask::Write => {
                let start = random.below(RANGE_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
                disk.write_at(&buf, start).map(|_| ())
            }
            FsyncTask::Fsync => disk.flush(),
        };
        result.map_err(|error| Failure::Run(format!("the disk failed: {error}")))?;
        match task {
            _ if !board.is_measuring.load(Ordering::Relaxed) => {}
            FsyncTask::Write => {
                board.nr_writes.fetch_add(1, Ordering::Relaxed);
            }
            FsyncTask::Fsync => fsyncs.record(begun.elapsed().as_nanos() as u64),
        }
        last = Some(task);
    }
    Ok(fsyncs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(nth: usize, ms: u64, stop: &Stop) -> Option<Figures> {
        let cell = cells(&[3]).nth(nth).expect("a cell");
        measure(cell, Duration::from_millis(ms), stop, &mut || ()).expect("a disk")
    }

    #[test]
    fn threads_write_and_flush_and_are_counted() {
        for nth in 0..8 {
            // A busy machine may not schedule any thread during a short cell.
            let mut figures = [400, 2_000, 10_000]
                .into_iter()
                .map(|ms| measured(nth, ms, &Stop::default()).expect("no signal"));
            let figures = figures
                .find(|figures| figures.iops > 0.0 && figures.fsyncs.count() > 0)
                .expect("writes and flushes within 10 s");
            let name = figures.cell.name();
            let FlushCounts { asked, issued, joined, elided, .. } = figures.counts;
            assert!(asked.abs_diff(issued + joined + elided) <= 3 && issued > 0, "{name}");
        }
    }

    #[test]
    fn after_a_signal_little_is_nothing() {
        assert!(measured(0, 400, &Stop::set()).is_none());
    }
}
