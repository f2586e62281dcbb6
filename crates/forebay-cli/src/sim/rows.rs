//! The runs of one setting, one for each seed, and the figures by which settings are compared.

use super::notes::Events;
use super::run::{LoadOf, Run};
use crate::range::Range;

/// The runs of one setting; at least one.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) runs: Vec<Run<'a>>,
}

impl Row<'_> {
    /// Returns the setting.
    pub(super) fn label(&self) -> &str {
        self.runs[0].variant.label()
    }

    /// Returns notes about settings that had no effect in any of the runs.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut events = Events::default();
        self.runs.iter().for_each(|run| events.add(run.summary));
        self.runs[0].variant.notes(&events)
    }

    /// Returns the range of a figure over the seeds; `None` if a run does not have it.
    pub(super) fn range(&self, figure: Figure) -> Option<Range> {
        let values: Option<Vec<f64>> = self.runs.iter().map(|run| figure.value(run)).collect();
        Range::of(values?)
    }
}

/// A figure by which settings are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figure {
    Iops,
    P99,
    /// The 99th percentile of the lateness of a recorded load.
    Late,
    Switches,
    Fairness,
}

impl Figure {
    /// Those of loads whose I/Os have no times.
    pub(super) const ALL: [Self; 4] = [Self::Iops, Self::P99, Self::Switches, Self::Fairness];

    /// Returns those of a load.
    pub(super) fn of(load: LoadOf<'_>) -> &'static [Self] {
        match load {
            LoadOf::Jobs(_) | LoadOf::Scenario => &Self::ALL,
            LoadOf::Recorded(_) => {
                &[Self::Iops, Self::P99, Self::Late, Self::Switches, Self::Fairness]
            }
        }
    }

    /// Returns its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::P99 => "p99 us",
            Self::Late => "late p99 us",
            Self::Switches => "switches/IO",
            Self::Fairness => "fairness",
        }
    }

    /// Returns its name in figures.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::P99 => "latency p99",
            Self::Late => "lateness p99",
            Self::Switches => "context switches per I/O",
            Self::Fairness => "fairness",
        }
    }

    /// Returns whether higher values are better.
    pub(super) fn is_higher_better(self) -> bool {
        matches!(self, Self::Iops | Self::Fairness)
    }

    /// Returns why the runs do not have it.
    pub(super) fn missing(self) -> &'static str {
        match self {
            Self::Iops | Self::P99 | Self::Late => "the device has random latencies",
            Self::Switches => "no I/O succeeded",
            Self::Fairness => "not all jobs are time_based",
        }
    }

    /// Returns its value in a run; `None` if it is meaningless there.
    pub(super) fn value(self, run: &Run<'_>) -> Option<f64> {
        let p99_us = || run.latencies().p99 as f64 / 1e3;
        match self {
            Self::Iops => run.has_times().then(|| run.summary.iops()),
            Self::P99 => run.has_times().then(p99_us),
            Self::Late => {
                let late = run.lateness().filter(|_| run.has_times());
                late.map(|late| late.p99 as f64 / 1e3)
            }
            Self::Switches => run.switches_per_io(),
            Self::Fairness => run.fairness(),
        }
    }

    /// Returns the text of a value in a table.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Iops => format!("{value:.0}"),
            Self::P99 | Self::Late => format!("{value:.1}"),
            Self::Switches | Self::Fairness => format!("{value:.2}"),
        }
    }
}
