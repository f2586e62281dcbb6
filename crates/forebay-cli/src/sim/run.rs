//! One run of a load on a simulated disk, and its figures.

use forebay_fio::job::JobList;
use forebay_fio::stats::Latency;
use forebay_sim::{RecordedLoad, Summary};
use serde_json::{Value, json};

use super::notes::Events;
use super::variants::Variant;

/// The load of runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum LoadOf<'a> {
    /// The jobs of a file.
    Jobs(&'a JobList),
    /// The tasks of a scenario.
    Scenario,
    /// A recorded load.
    Recorded(&'a RecordedLoad),
}

impl<'a> LoadOf<'a> {
    /// Returns the jobs, if it has some.
    pub(super) fn jobs(self) -> Option<&'a JobList> {
        match self {
            LoadOf::Jobs(command) => Some(command),
            LoadOf::Scenario | LoadOf::Recorded(_) => None,
        }
    }

    /// Returns the recorded load, if it is one.
    pub(super) fn recorded(self) -> Option<&'a RecordedLoad> {
        match self {
            LoadOf::Recorded(load) => Some(load),
            LoadOf::Jobs(_) | LoadOf::Scenario => None,
        }
    }
}

/// A run of a load on a disk, and which of its figures are meaningful.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) variant: &'a Variant,
    pub(super) summary: &'a Summary,
    pub(super) load: LoadOf<'a>,
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
    /// Returns a run.
    pub(super) fn new(variant: &'a Variant, summary: &'a Summary, load: LoadOf<'a>) -> Self {
        Run { variant, summary, load }
    }

    /// Returns the latencies of the successful I/Os, without flushes. Those of a recorded load
    /// count from the time at which an I/O was due.
    pub(super) fn latencies(&self) -> Latencies {
        Latencies::of(&self.summary.io_latency())
    }

    /// Returns by how much the I/Os of a recorded load were submitted after they were due.
    pub(super) fn lateness(&self) -> Option<Latencies> {
        self.summary.lateness().as_ref().map(Latencies::of)
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

    /// Returns Jain's index: of the jobs' I/Os, or of the mean speeds of recorded threads. `None`
    /// if some job ends after a fixed size, or there is one thread.
    pub(super) fn fairness(&self) -> Option<f64> {
        match self.load {
            LoadOf::Jobs(command) => {
                // Their shares of the I/Os are comparable.
                let is_timed = command.jobs.iter().all(|job| job.time_based);
                is_timed.then(|| self.summary.fairness())
            }
            LoadOf::Scenario => None,
            LoadOf::Recorded(load) => {
                (load.names().len() > 1).then(|| self.summary.fairness_of_speeds())
            }
        }
    }
}

impl Latencies {
    /// Returns the summary of these latencies.
    pub(super) fn of(Latency { moments, histogram }: &Latency) -> Self {
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

    /// Returns the object of JSON.
    pub(super) fn json(self) -> Value {
        let Latencies { nr, mean, p50, p99, max } = self;
        json!({ "n": nr, "mean": mean, "p50": p50, "p99": p99, "max": max })
    }
}
