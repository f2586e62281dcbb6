//! Histograms of completion latencies, one for each interval and direction: `write_hist_log`,
//! `log_hist_msec`, `log_hist_coarseness`.
//!
//! Source: fio's HOWTO, and the files that fio 3.33 writes. A line has the milliseconds at the end
//! of the interval, the direction, the bytes of the last I/O, and the count of each bucket of
//! [`Histogram`]. fio leaves out the end of the job, if that is shorter than an interval; here it
//! has a line, so that each I/O is counted.

use std::fmt::Write;

use super::intervals::Intervals;
use crate::generator::Op;
use crate::histogram::{BUCKETS, Histogram};

/// The largest coarseness: one count stands for this power of two of buckets.
pub(crate) const COARSENESS_MAX: u64 = 6;

/// The lines of a log, and the interval that is open.
#[derive(Debug, Clone)]
pub(super) struct HistogramLog {
    intervals: Intervals,
    coarseness: u32,
    rows: Vec<Row>,
    /// By direction: the latencies of the interval, and the bytes of the last I/O.
    open: [(Histogram, u32); 3],
    start_ns: u64,
}

/// A line. Most buckets are empty, so only the others are stored.
#[derive(Debug, Clone)]
struct Row {
    ms: u64,
    direction: u8,
    bytes: u32,
    /// Pairs of bucket and count.
    counts: Vec<(u16, u64)>,
}

impl HistogramLog {
    pub(super) fn new(every_ms: u64, coarseness: u8) -> Self {
        Self {
            intervals: Intervals::new(every_ms),
            coarseness: coarseness.into(),
            rows: Vec::new(),
            open: Default::default(),
            start_ns: 0,
        }
    }

    /// Removes all lines. Times count from `now_ns` on.
    pub(super) fn restart(&mut self, now_ns: u64) {
        self.rows.clear();
        self.open = Default::default();
        self.start_ns = now_ns;
        self.intervals.restart(now_ns);
    }

    pub(super) fn record(&mut self, op: Op, clat_ns: u64) {
        let (histogram, bytes) = &mut self.open[op.direction.index()];
        histogram.record(clat_ns);
        *bytes = op.len;
    }

    /// Returns the end of the open interval; `u64::MAX` if there are no intervals.
    pub(super) fn interval_end_ns(&self) -> u64 {
        self.intervals.end_ns()
    }

    /// Closes the interval, and adds a line for each direction with I/O in it.
    pub(super) fn close(&mut self, now_ns: u64) {
        if !self.intervals.are_on() {
            return;
        }
        let ms = (now_ns - self.start_ns) / 1_000_000;
        for (direction, (histogram, bytes)) in (0..).zip(&mut self.open) {
            let counts: Vec<_> = histogram.take();
            if !counts.is_empty() {
                self.rows.push(Row { ms, direction, bytes: *bytes, counts });
            }
        }
        self.intervals.next(now_ns);
    }

    /// Returns the text of the log.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut counts = vec![0; BUCKETS.div_ceil(1 << self.coarseness)];
        for row in &self.rows {
            counts.fill(0);
            for &(bucket, count) in &row.counts {
                counts[usize::from(bucket) >> self.coarseness] += count;
            }
            // Writing into a String does not fail.
            let _ = write!(text, "{}, {}, {}", row.ms, row.direction, row.bytes);
            for count in &counts {
                let _ = write!(text, ", {count}");
            }
            text.push('\n');
        }
        text
    }
}
