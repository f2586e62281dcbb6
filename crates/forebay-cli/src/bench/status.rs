//! `status-interval`: the whole report while the jobs run.
//!
//! Each clone publishes a copy of its figures when an interval is over, because only the clone may
//! read them while it works. The main thread collects the copies a moment later. A clone that waits
//! for an I/O all that time is reported with its earlier figures.

use std::time::Duration;

use forebay_fio::job::JobList;
use forebay_fio::report::JobReport;

use super::gauge::{Gauge, Snapshot};
use super::outcome::Outcome;
use super::plan::{self, Target};

/// The delay after an interval until the copies are collected.
const GRACE: Duration = Duration::from_millis(50);

/// The schedule of the reports.
pub(super) struct Status<'a> {
    every: Option<Duration>,
    next: Duration,
    command: &'a JobList,
    targets: &'a [Target],
    show: &'a mut dyn FnMut(Vec<Outcome>),
}

impl<'a> Status<'a> {
    /// Returns the schedule of the command; `show` prints a report.
    pub(super) fn new(
        command: &'a JobList,
        targets: &'a [Target],
        show: &'a mut dyn FnMut(Vec<Outcome>),
    ) -> Self {
        let every = command.run.status_interval;
        Self { every, next: every.unwrap_or_default() + GRACE, command, targets, show }
    }

    /// Returns whether a report is due after `elapsed`. The next interval starts then.
    pub(super) fn is_due(&mut self, elapsed: Duration) -> bool {
        let Some(every) = self.every.filter(|_| elapsed >= self.next) else { return false };
        self.next = elapsed + every;
        true
    }

    /// Prints a report: final figures of clones that have ended, published ones of the others.
    pub(super) fn show(&mut self, gauges: &[Gauge], outcomes: &[Option<Outcome>]) {
        let clones = plan::clones(self.targets).zip(gauges).zip(outcomes);
        let clones = clones.map(|((targets, gauge), outcome)| match outcome {
            Some(ended) => ended.without_logs(),
            None => self.running(targets, gauge),
        });
        let clones = clones.collect();
        (self.show)(clones);
    }

    fn running(&self, targets: &[Target], gauge: &Gauge) -> Outcome {
        let target = &targets[0];
        let job = &self.command.jobs[target.job];
        let Snapshot { stats, errors, elapsed_ns } = gauge.snapshot();
        Outcome {
            job: target.job,
            clone: target.clone,
            disks: plan::disks_of(targets),
            report: JobReport {
                name: job.name.clone(),
                jobs: 1,
                pid: std::process::id(),
                iodepth: job.iodepth,
                measures: job.measures.clone(),
                stats,
                target: job.control.target,
                errors: job.control.on_error.counts().then_some(errors),
                ..JobReport::default()
            },
            tag_waits: None,
            logs: None,
            series: None,
            lateness: None,
            unfinished: None,
            elapsed_ns,
        }
    }
}
