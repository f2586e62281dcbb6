//! Result of an experiment: rows with one figure each, next to the published one.

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// The table that the row belongs to.
    pub(super) experiment: &'static str,
    /// The part of the report on that table; not part of the stable output for programs.
    pub(super) part: Part,
    /// The model of the device.
    pub(super) device: &'static str,
    /// The number of jobs (`tags`), tags (`tags-mixed`), I/Os in flight (`run`) or threads
    /// (`flush`).
    pub(super) x: u32,
    /// The name of the figure.
    pub(super) metric: &'static str,
    /// The value of the setting.
    pub(super) policy: &'static str,
    /// The figure.
    pub(super) value: f64,
    /// The published figure, if there is one.
    pub(super) published: Option<f64>,
    /// The allowed deviation.
    pub(super) bound: Option<Bound>,
    /// The explanation of the figure.
    pub(super) note: String,
}

/// A part of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Simulated.
    Virtual,
    /// Simulated, without injected costs.
    VirtualAsItIs,
    /// Simulated, with injected costs.
    VirtualModelled,
    /// Measured with threads.
    Real,
    /// The same, in a report that also has a simulated part.
    RealMeasured,
}

impl Part {
    /// Returns the heading.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Part::Virtual => "virtual time",
            Part::VirtualAsItIs => "virtual time, as it is",
            Part::VirtualModelled => "virtual time, modelled",
            Part::Real => "real time",
            Part::RealMeasured => "real time, measured",
        }
    }

    /// Returns whether the figures were measured on this machine, and not simulated.
    pub(super) const fn is_measured(self) -> bool {
        matches!(self, Part::Real | Part::RealMeasured)
    }
}

/// The result of an experiment.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The rows of all cells that were measured.
    pub(super) rows: Vec<Row>,
    /// The number of cells that a signal prevented.
    pub(super) nr_missing: usize,
}

/// Allowed deviation from a published figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    /// Relative to the published figure.
    Share(f64),
    /// In the unit of the figure.
    Points(f64),
}

/// Deviation from a published figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Deviation {
    /// Relative to the published figure.
    Share(f64),
    /// In the unit of the figure.
    Points(f64),
}

impl Row {
    /// Returns the deviation from the published figure; `None` if there is none.
    pub(super) fn deviation(&self) -> Option<Deviation> {
        let published = self.published?;
        match self.bound {
            Some(Bound::Points(_)) => Some(Deviation::Points(self.value - published)),
            _ if published == 0.0 => None,
            _ => Some(Deviation::Share(self.value / published - 1.0)),
        }
    }

    /// Returns whether the deviation exceeds the bound.
    pub(super) fn is_over(&self) -> bool {
        match (self.bound, self.deviation()) {
            (Some(Bound::Share(bound)), Some(Deviation::Share(off))) => off.abs() > bound,
            (Some(Bound::Points(bound)), Some(Deviation::Points(off))) => off.abs() > bound,
            _ => false,
        }
    }
}

/// The metrics, in the order in which they are shown.
pub(super) mod metric {
    /// Completed I/Os per second.
    pub(in crate::lab) const IOPS: &str = "iops";
    /// Bytes of completed I/Os per second, in units of 1 MiB.
    pub(in crate::lab) const MIB_PER_S: &str = "mib_per_s";
    /// Mean latency of the large I/Os of a mixed load, waits for tags included.
    pub(in crate::lab) const LARGE_MEAN: &str = "large_mean_us";
    /// 99th percentile of that latency.
    pub(in crate::lab) const LARGE_P99: &str = "large_p99_us";
    /// Mean latency of its small I/Os.
    pub(in crate::lab) const SMALL_MEAN: &str = "small_mean_us";
    /// 99th percentile of that latency.
    pub(in crate::lab) const SMALL_P99: &str = "small_p99_us";
    /// Voluntary context switches: the sum of the next three.
    pub(in crate::lab) const SWITCHES: &str = "context_switches_per_s";
    /// Switches of job threads that wait for tags.
    pub(in crate::lab) const TAG_SWITCHES: &str = "tag_wait_switches_per_s";
    /// Switches of job threads that wait for completions, or for anything else except tags.
    pub(in crate::lab) const COMPLETION_SWITCHES: &str = "completion_wait_switches_per_s";
    /// Switches of the worker that runs the queue.
    pub(in crate::lab) const RUN_SWITCHES: &str = "run_queue_switches_per_s";
    /// Factor by which context switches are fewer than with `batch`.
    pub(in crate::lab) const FEWER_SWITCHES: &str = "times_fewer_switches_than_batch";
    /// Wake-ups of threads that then found no tag.
    pub(in crate::lab) const VAIN_WAKES: &str = "vain_wakeups_per_s";
    /// 99th percentile of the time that I/Os waited for their tags.
    pub(in crate::lab) const WAIT_P99: &str = "tag_wait_p99_us";
    /// The longest wait.
    pub(in crate::lab) const WAIT_MAX: &str = "tag_wait_max_us";
    /// The wait of each I/O if all waited equally long.
    pub(in crate::lab) const FAIR_SHARE: &str = "fair_wait_us";
    /// Fairness of the service among jobs (Jain's index).
    pub(in crate::lab) const JAIN: &str = "jain";
    /// The I/Os of the job with the fewest, relative to the mean.
    pub(in crate::lab) const LEAST_SHARE: &str = "least_job_share";
    /// Gain of the new policy over the old one, percent.
    pub(in crate::lab) const GAIN: &str = "gain_percent";
    /// Writes per second, relative to those under `hold`.
    pub(in crate::lab) const IOPS_OF_HOLD: &str = "iops_of_hold";
    /// Writes per second, relative to those of one thread.
    pub(in crate::lab) const IOPS_OF_ONE: &str = "iops_of_1_thread";
    /// The same, computed arithmetically.
    pub(in crate::lab) const CLOSED_FORM: &str = "closed_form";
    /// Median latency of an fsync.
    pub(in crate::lab) const FSYNC_P50: &str = "fsync_p50_us";
    /// 99th percentile of the latency of an fsync.
    pub(in crate::lab) const FSYNC_P99: &str = "fsync_p99_us";
    /// Flushes that threads requested during the measurement.
    pub(in crate::lab) const FLUSHES_ASKED: &str = "flushes_asked";
    /// Flushes issued to the device.
    pub(in crate::lab) const FLUSHES_ISSUED: &str = "flushes_issued";
    /// Flushes that joined another flush.
    pub(in crate::lab) const FLUSHES_JOINED: &str = "flushes_joined";
    /// Flushes that were elided because nothing was dirty.
    pub(in crate::lab) const FLUSHES_ELIDED: &str = "flushes_elided";
    /// Requests that the busy device refused.
    pub(in crate::lab) const REQUEUES: &str = "requeues";
    /// Runs of the queue requested while one was pending, for each I/O.
    pub(in crate::lab) const REDUNDANT: &str = "redundant_runs_per_io";
}

/// Adds rows that compare the context switches of each policy with those of `batch`, if both were
/// measured, next to the ratio of the published figures.
pub(super) fn add_switch_ratios(rows: &mut Vec<Row>) {
    let switches: Vec<Row> =
        rows.iter().filter(|row| row.metric == metric::SWITCHES).cloned().collect();
    for row in &switches {
        let is_same = |other: &&Row| {
            other.policy == "batch"
                && (other.experiment, other.device, other.x) == (row.experiment, row.device, row.x)
        };
        let Some(batch) = switches.iter().find(is_same) else { continue };
        if row.policy == "batch" || row.value == 0.0 {
            continue;
        }
        let published = batch.published.zip(row.published).map(|(before, after)| before / after);
        rows.push(Row {
            metric: metric::FEWER_SWITCHES,
            value: batch.value / row.value,
            published,
            bound: None,
            note: String::new(),
            ..row.clone()
        });
    }
}

#[cfg(test)]
pub(super) fn sample() -> Row {
    Row {
        experiment: "tags",
        part: Part::Virtual,
        device: "hdd",
        x: 72,
        metric: metric::IOPS,
        policy: "batch",
        value: 101.04,
        published: Some(100.0),
        bound: Some(Bound::Share(0.05)),
        note: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_compared_with_those_of_batch_at_the_same_number_of_jobs() {
        let row = |policy, x, value, published| Row {
            metric: metric::SWITCHES,
            policy,
            x,
            value,
            published,
            ..sample()
        };
        let mut rows = vec![
            row("batch", 1, 7.0, None),
            row("batch", 72, 600.0, Some(500.0)),
            row("stash", 72, 200.0, Some(100.0)),
            row("fair", 72, 50.0, None),
            row("fair", 24, 50.0, None),
        ];
        add_switch_ratios(&mut rows);
        let ratios: Vec<_> =
            rows[5..].iter().map(|row| (row.policy, row.x, row.value, row.published)).collect();
        assert_eq!(ratios, [("stash", 72, 3.0, Some(5.0)), ("fair", 72, 12.0, None)]);
        assert!(rows[5..].iter().all(|row| row.metric == metric::FEWER_SWITCHES));
    }

    #[test]
    fn a_deviation_is_in_proportion_or_in_points() {
        let row = sample();
        assert!(
            matches!(row.deviation(), Some(Deviation::Share(off)) if (off - 0.0104).abs() < 1e-9)
        );
        assert!(!row.is_over());
        assert!(Row { value: 94.9, ..row.clone() }.is_over());
        let gain = Row { published: Some(0.0), bound: Some(Bound::Points(10.0)), ..row.clone() };
        assert_eq!(gain.deviation(), Some(Deviation::Points(101.04)));
        assert!(gain.is_over() && !Row { value: -10.0, ..gain }.is_over());
        assert_eq!(Row { published: None, ..row.clone() }.deviation(), None);
        assert!(!Row { bound: None, value: 1.0, ..row }.is_over());
    }
}
