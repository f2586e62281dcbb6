//! Detection of a steady state while jobs run: it ends them.
//!
//! Source: fio's HOWTO and fio 3.33. With `group_reporting` the sum over the clones of a group
//! counts, otherwise each clone by itself. The main thread takes a sample each second. A rate is
//! the difference of two counts of a clone, divided by the time between them as the clone has
//! measured it, so a late sample is still exact.

use std::time::Duration;

use forebay_fio::job::Job;
use forebay_fio::steadystate::Window;

use super::gauge::{Counts, Gauge};
use super::plan::{self, Target};
use crate::failure::Failure;

/// The interval between samples.
const PERIOD: Duration = Duration::from_secs(1);

/// How late a sample may be without delaying the next one: more than the interval at which the main
/// thread polls, so that samples do not drift.
const SLACK: Duration = Duration::from_millis(250);

/// The detections of a stage.
#[derive(Debug)]
pub(super) struct Detections(Vec<Detection>);

/// The detection of a clone or a group.
#[derive(Debug)]
struct Detection {
    window: Window,
    /// The clones, by their numbers in the stage.
    clones: Vec<usize>,
    /// The counts of each clone at the last sample; `None` before the first.
    last: Option<Vec<Counts>>,
    /// When the next sample is due, since the start of the stage.
    next: Duration,
    is_over: bool,
}

/// Refuses groups whose jobs have different options.
pub(super) fn check(jobs: &[Job]) -> Result<(), Failure> {
    for (at, job) in jobs.iter().enumerate() {
        let grouped =
            |other: &&Job| other.group_reporting && job.group_reporting && other.group == job.group;
        let other = jobs[..at]
            .iter()
            .filter(grouped)
            .find(|other| other.control.steady != job.control.steady);
        if let Some(other) = other {
            return Err(Failure::Usage(format!(
                "{}: --steadystate and its options differ from those of {}, and --group_reporting \
                 makes one detection for both; give them the same values, or use --new_group",
                job.name, other.name
            )));
        }
    }
    Ok(())
}

impl Detections {
    /// Returns the detections for the clones of a stage.
    pub(super) fn new(jobs: &[Job], targets: &[Target]) -> Self {
        let mut all: Vec<(Option<u32>, Detection)> = Vec::new();
        for (at, clone) in plan::clones(targets).enumerate() {
            let job = &jobs[clone[0].job];
            let Some(window) = job.control.steady.window() else { continue };
            let before = [job.start_delay, job.ramp_time, job.control.steady.ramp];
            let next = before.into_iter().fold(Duration::ZERO, Duration::saturating_add);
            let group = job.group_reporting.then_some(job.group);
            match all.iter_mut().find(|(other, _)| group.is_some() && *other == group) {
                Some((_, detection)) => {
                    detection.clones.push(at);
                    detection.next = detection.next.max(next);
                }
                None => {
                    let clones = vec![at];
                    let detection = Detection { window, clones, last: None, next, is_over: false };
                    all.push((group, detection));
                }
            }
        }
        Self(all.into_iter().map(|(_, detection)| detection).collect())
    }

    /// Takes the samples that are due, and ends the clones that are in a steady state.
    pub(super) fn update(&mut self, elapsed: Duration, gauges: &[Gauge]) {
        for detection in &mut self.0 {
            if !detection.is_over && elapsed >= detection.next {
                // After a delay of this process, samples that were missed are left out, and the
                // next one has a full interval.
                let is_late = elapsed > detection.next + SLACK;
                detection.next = PERIOD + if is_late { elapsed } else { detection.next };
                detection.sample(gauges);
            }
        }
    }

    /// Returns the samples of a clone, by its number in the stage.
    pub(super) fn window_of(&self, clone: usize) -> Option<Window> {
        let mut own = self.0.iter().filter(|detection| detection.clones.contains(&clone));
        own.next().map(|detection| detection.window.clone())
    }
}

impl Detection {
    fn sample(&mut self, gauges: &[Gauge]) {
        if self.clones.iter().any(|&clone| gauges[clone].is_done()) {
            // Its rate would fall by that of the clone.
            self.is_over = true;
            return;
        }
        let counts: Vec<_> = self.clones.iter().map(|&clone| gauges[clone].counts()).collect();
        let Some(last) = self.last.replace(counts) else { return };
        let counts = self.last.iter().flatten().zip(&last);
        let Some(rates) = counts.map(|(now, then)| now.since(then)).collect::<Option<Vec<_>>>()
        else {
            // A ramp has ended meanwhile, or a clone waits for an I/O. The next sample includes the
            // time of that wait.
            return;
        };
        let sum = |at: usize| rates.iter().map(|rate| rate[at]).sum();
        if self.window.add(sum(0), sum(1)) {
            self.is_over = true;
            self.clones.iter().for_each(|&clone| gauges[clone].quit());
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_fio::cmdline::{Parsed, parse};
    use forebay_fio::stats::JobStats;

    use super::*;
    use crate::bench::plan::plan;

    /// Shows counts of a clone after this time.
    fn show(gauge: &Gauge, seconds: f64, ios: u64) {
        let mut stats = JobStats::default();
        (stats.directions[0].total_ios, stats.directions[0].io_bytes) = (ios, ios * 4096);
        gauge.set(&stats, (seconds * 1e9) as u64);
    }

    fn detections(args: &str) -> (Detections, Vec<Gauge>) {
        let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else {
            panic!("{args}")
        };
        let targets = plan(&command.jobs).expect(args);
        let gauges = plan::clones(&targets).map(|_| Gauge::default()).collect();
        (Detections::new(&command.jobs, &targets), gauges)
    }

    #[test]
    fn late_sample_has_the_rate_of_its_time() {
        let args = "--name=a --filename=null:1M --ss=iops:1% --ss_dur=2 --ss_ramp=1 --ramp_time=1";
        let (mut detections, gauges) = detections(args);
        for (seconds, ios, is_steady) in
            [(1.9, 500, false), (2.0, 1000, false), (3.08, 2080, false), (4.03, 3030, true)]
        {
            show(&gauges[0], seconds, ios);
            detections.update(Duration::from_secs_f64(seconds), &gauges);
            assert_eq!(gauges[0].is_quit(), is_steady, "{seconds}");
        }
        let window = detections.window_of(0).expect("a detection");
        assert!(window.iops().all(|iops| (iops - 1000.0).abs() < 1e-6), "{window:?}");
    }

    #[test]
    fn samples_after_a_delay_of_the_process_have_full_intervals() {
        let args = "--name=a --filename=null:1M --ss=iops:1% --ss_dur=9";
        let (mut detections, gauges) = detections(args);
        let mut sampled = Vec::new();
        // The process is stopped from 1.1 s to 3.7 s.
        let polls = (0..=11_u32).chain(37..=60);
        for tenths in polls {
            let seconds = f64::from(tenths) / 10.0;
            show(&gauges[0], seconds, u64::from(tenths) * 100);
            let nr_before = detections.0[0].window.iops().count();
            detections.update(Duration::from_secs_f64(seconds), &gauges);
            if detections.0[0].window.iops().count() > nr_before {
                sampled.push(tenths);
            }
        }
        assert_eq!(sampled, [10, 37, 47, 57]);
    }

    #[test]
    fn clone_that_waits_for_an_io_has_no_sample_and_then_its_mean() {
        let args = "--name=a --filename=null:1M --ss=iops:1% --ss_dur=9";
        let (mut detections, gauges) = detections(args);
        // One I/O takes from 1 s to 3 s, and the clone publishes nothing meanwhile.
        for (seconds, published, ios) in [(0, 0.0, 0), (1, 1.0, 100), (2, 1.0, 100), (3, 3.0, 101)]
        {
            show(&gauges[0], published, ios);
            detections.update(Duration::from_secs(seconds), &gauges);
        }
        let window = detections.window_of(0).expect("a detection");
        assert_eq!(window.iops().collect::<Vec<_>>(), [100.0, 0.5]);
    }

    #[test]
    fn group_has_one_detection_and_clones_without_one_have_their_own() {
        let args = "--name=a --filename=null:1M --numjobs=2 --ss=iops:1% --ss_dur=1";
        for (args, nr) in [(args.to_owned(), 2), (format!("{args} --group_reporting"), 1)] {
            let (mut detections, gauges) = detections(&args);
            assert_eq!(detections.0.len(), nr);
            for seconds in 0..3_u32 {
                show(&gauges[0], seconds.into(), u64::from(seconds) * 100);
                show(&gauges[1], seconds.into(), u64::from(seconds) * 50);
                detections.update(Duration::from_secs(seconds.into()), &gauges);
            }
            assert!(gauges.iter().all(Gauge::is_quit));
            let rate = detections.window_of(1).expect("a detection").iops().next();
            assert_eq!(rate, Some(if nr == 1 { 150.0 } else { 50.0 }));
        }
    }

    #[test]
    fn groups_with_different_options_are_refused() {
        let args = "--filename=null:1M --group_reporting --name=a --ss_dur=2 --name=b --ss_dur=3";
        let jobs = |args: &str| match parse(args.split(' ').map(Into::into)) {
            Ok(Parsed::Run(command)) => command.jobs,
            other => panic!("{args}: {other:?}"),
        };
        let error = check(&jobs(args)).expect_err("two durations").to_string();
        assert!(error.starts_with("b: --steadystate and its options differ from those of a"));
        check(&jobs(&args.replace("--name=b", "--name=b --new_group"))).expect("two groups");
        check(&jobs(&args.replace("--group_reporting ", ""))).expect("clones by themselves");
    }
}
