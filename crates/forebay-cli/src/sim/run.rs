//! One run of a load on a simulated disk, and its figures.

use forebay_fio::stats::Latency;
use forebay_sim::Summary;

use super::notes::Events;
use super::variants::Variant;

/// A run of the load on a disk, and which of its figures are meaningful.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) variant: &'a Variant,
    pub(super) summary: &'a Summary,
    is_timed: bool,
}

/// Latencies of I/Os, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latencies {
    pub(super) nr: u64,
    pub(super) mean: f64,
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

impl<'a> Run<'a> {
    /// Returns a run. `is_timed`: all jobs run for a fixed time, so that their shares of the I/Os
    /// are comparable.
    pub(super) fn new(variant: &'a Variant, summary: &'a Summary, is_timed: bool) -> Self {
        Run { variant, summary, is_timed }
    }

    /// Returns the latencies of the successful I/Os, without flushes.
    pub(super) fn latencies(&self) -> Latencies {
        let Latency { moments, histogram } = self.summary.io_latency();
        // A percentile is the middle of a range of values, of which the maximum may be lower.
        let percentiles = histogram.percentiles(&[50.0, 99.0]);
        let at = |nth: usize| percentiles.get(nth).map_or(0, |&ns| ns.min(moments.max()));
        Latencies {
            nr: moments.count(),
            mean: moments.mean(),
            p50: at(0),
            p99: at(1),
            max: moments.max(),
        }
    }

    /// Returns notes about settings that had no effect in this run.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut events = Events::default();
        events.add(self.summary);
        self.variant.notes(&events)
    }

    /// Returns whether the device models latencies, so that speeds are meaningful.
    pub(super) fn has_times(&self) -> bool {
        self.variant.disk.device.has_times()
    }

    /// Returns the voluntary context switches per I/O; `None` if no I/O succeeded.
    pub(super) fn switches_per_io(&self) -> Option<f64> {
        (self.summary.nr_ios() > 0).then(|| self.summary.switches_per_io())
    }

    /// Returns Jain's index of the jobs' I/Os; `None` if some job ends after a fixed size.
    pub(super) fn fairness(&self) -> Option<f64> {
        self.is_timed.then(|| self.summary.fairness())
    }
}
