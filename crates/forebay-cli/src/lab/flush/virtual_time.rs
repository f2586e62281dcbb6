//! The cells in virtual time.

use forebay_sim::lab::measure_flushes;

use super::{Cell, Figures, THREADS, cells, rows};
use crate::lab::rows::{Part, Row};

/// Runs all cells.
pub(in crate::lab) fn run() -> Vec<Row> {
    let all: Vec<_> = cells(&THREADS).map(measure).collect();
    rows(Part::Virtual, &all)
}

pub(super) fn measure(cell: Cell) -> Figures {
    let measured = measure_flushes(&cell.load());
    let iops = measured.iops();
    Figures { cell, iops, fsyncs: measured.fsyncs, counts: measured.counts }
}
