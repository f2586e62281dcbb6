//! `forebay lab flush`: threads that make durable writes, on a disk that cannot queue a flush with
//! other requests.
//!
//! - [`virtual_time`], [`real`]: the cells and their measurement;
//! - here: the list of cells, and the rows computed from them.

#[cfg(test)]
mod bounds;
mod real;
mod virtual_time;

use forebay::{FlushPolicy, Histogram};
use forebay_sim::lab::{Costs, FlushCounts, FlushLoad, FsyncShape};

use super::published;
use super::rows::{Bound, Part, Row, metric};
use super::virtual_time::{by_metric, device};
pub(super) use real::run as real;
pub(super) use virtual_time::run as virtual_time;

/// Numbers of threads.
const THREADS: [u32; 3] = [1, 16, 64];

/// The same in real time, without `--full`.
const FEW_THREADS: [u32; 2] = [1, 16];

/// The two load shapes, with a description of each.
pub(super) const SHAPES: [(&str, FsyncShape, &str); 2] = [
    ("flush-each", FsyncShape::EachWrite, "an fsync after each"),
    (
        "flush-100",
        FsyncShape::AllFiles { nr_writes: 100, nr_files: 128 },
        "after each 100 of all threads an fsync for each of 128 files",
    ),
];

/// The flush policy, and whether flushes are elided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Side {
    name: &'static str,
    flush: FlushPolicy,
    elide: bool,
}

/// The policies: before, without the hold, after, and one without published figures.
const SIDES: [Side; 4] = [
    Side { name: "tail", flush: FlushPolicy::Tail, elide: false },
    Side { name: "requeue", flush: FlushPolicy::Requeue, elide: false },
    HOLD,
    Side { name: "hold+elide", flush: FlushPolicy::Hold, elide: true },
];

const HOLD: Side = Side { name: "hold", flush: FlushPolicy::Hold, elide: false };

/// Default size of fileio's writes and of its files.
const BLOCK_BYTES: u64 = 16 << 10;
const RANGE_BYTES: u64 = 2 << 30;

/// How often a thread is late, and by how much, ns: one tick of a kernel with HZ=1000.
pub(super) const LATE_PER_MILLION: u32 = 1000;
pub(super) const LATE_NS: u64 = 1_000_000;

/// One cell.
#[derive(Debug, Clone, Copy)]
struct Cell {
    experiment: &'static str,
    shape: FsyncShape,
    side: Side,
    nr_threads: u32,
}

/// The figures of a cell.
#[derive(Debug)]
struct Figures {
    cell: Cell,
    iops: f64,
    fsyncs: Histogram,
    counts: FlushCounts,
}

/// Returns all cells with these numbers of threads.
fn cells(threads: &'static [u32]) -> impl Iterator<Item = Cell> {
    SHAPES.into_iter().flat_map(move |(experiment, shape, _)| {
        SIDES.into_iter().flat_map(move |side| {
            threads.iter().map(move |&nr_threads| Cell { experiment, shape, side, nr_threads })
        })
    })
}

impl Cell {
    fn name(&self) -> String {
        let Cell { experiment, side, nr_threads, .. } = self;
        format!("{experiment} sata, {}, threads={nr_threads}", side.name)
    }

    /// Returns the load in virtual time.
    fn load(&self) -> FlushLoad {
        const S: u64 = 1_000_000_000;
        FlushLoad {
            device: device("sata"),
            nr_threads: self.nr_threads,
            shape: self.shape,
            block_bytes: BLOCK_BYTES,
            range_bytes: RANGE_BYTES,
            flush: self.side.flush,
            elide: self.side.elide,
            costs: Costs::default(),
            late_per_million: LATE_PER_MILLION,
            late_ns: LATE_NS,
            warm_up_ns: S,
            run_ns: 20 * S,
            seed: super::virtual_time::SEED,
        }
    }
}

/// Returns the rows of the measured figures, all in one part.
fn rows(part: Part, all: &[Figures]) -> Vec<Row> {
    let of = |experiment| all.iter().filter(move |it| it.cell.experiment == experiment);
    let rows = |experiment| {
        let rows = of(experiment).flat_map(|figures| rows_of(part, figures, all));
        by_metric(rows.collect())
    };
    SHAPES.into_iter().flat_map(|(experiment, ..)| rows(experiment)).collect()
}

fn rows_of(part: Part, figures: &Figures, all: &[Figures]) -> Vec<Row> {
    let Figures { cell, iops, fsyncs, counts } = figures;
    let row = |metric, value| Row {
        experiment: cell.experiment,
        part,
        device: "sata",
        x: cell.nr_threads,
        metric,
        policy: cell.side.name,
        value,
        published: None,
        bound: None,
        note: String::new(),
    };
    let us = |per_million| fsyncs.percentile(per_million) as f64 / 1e3;
    let count = |nr: u64| nr as f64;
    let mut rows = vec![row(metric::IOPS, *iops)];
    let other = |nr_threads, side: Side| {
        let is_it = |it: &&Figures| {
            let Cell { experiment, side: of_it, nr_threads: nr, .. } = it.cell;
            (experiment, of_it, nr) == (cell.experiment, side, nr_threads)
        };
        all.iter().find(is_it).map(|it| it.iops)
    };
    if let Some(hold) = other(cell.nr_threads, HOLD).filter(|_| cell.side != HOLD) {
        rows.push(of_hold(row(metric::IOPS_OF_HOLD, iops / hold)));
    }
    if let Some(one) = other(1, cell.side) {
        rows.push(row(metric::IOPS_OF_ONE, iops / one));
        rows.extend(
            closed_form(cell).map(|ratio| Row {
                note: CLOSED_FORM.to_owned(),
                ..row(metric::CLOSED_FORM, ratio)
            }),
        );
    }
    rows.extend([
        row(metric::FSYNC_P50, us(500_000)),
        row(metric::FSYNC_P99, us(990_000)),
        row(metric::FLUSHES_ASKED, count(counts.asked)),
        row(metric::FLUSHES_ISSUED, count(counts.issued)),
        row(metric::FLUSHES_JOINED, count(counts.joined)),
        row(metric::FLUSHES_ELIDED, count(counts.elided)),
        row(metric::REQUEUES, count(counts.requeues)),
    ]);
    rows
}

/// The note on rows of arithmetic.
const CLOSED_FORM: &str = "arithmetic: with n threads at the disk (32 at most), w for a write and \
     its extent, and f for a clean flush, n writes take n w + 2 f (hold), n w + f (hold+elide) or \
     n (w + f) (tail); one thread also has two wake-ups for each";

/// Returns the row of the ratio to hold, with the published figure.
fn of_hold(row: Row) -> Row {
    let is_published = row.policy == "tail" && row.x == published::FLUSH_THREADS;
    if !is_published {
        return row;
    }
    let bound = Some(Bound::Points(published::FLUSH_BOUND));
    let row = Row { published: Some(published::FLUSH_TAIL_OF_HOLD), bound, ..row };
    let note = match row.experiment {
        _ if !row.is_over() => "",
        "flush-100" => {
            "the fsyncs of a round follow each other without a write between them, so all but the \
             first find a clean cache, whatever goes first; the publication does not say which of \
             the two ways to call fsync was measured"
        }
        _ => {
            "not exactly one write went between two flushes; their number depends on how soon \
             woken threads run"
        }
    };
    Row { note: note.to_owned(), ..row }
}

/// Returns the writes per second in units of those of one thread, by arithmetic.
fn closed_form(cell: &Cell) -> Option<f64> {
    let of = |nr_threads| Cell { nr_threads, ..*cell }.load().closed_form();
    Some(of(cell.nr_threads)? / of(1)?)
}

/// Returns the heading of an experiment.
pub(super) fn title(experiment: &str) -> Option<String> {
    let (_, _, what) = SHAPES.into_iter().find(|(name, ..)| *name == experiment)?;
    Some(format!("{experiment}: sata, random writes of 16 KiB over 2 GiB, {what}"))
}
