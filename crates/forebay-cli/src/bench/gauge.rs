//! Progress: counters that each clone sets, and the progress line made of them.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use forebay_fio::job::Job;
use forebay_fio::measures::Units;
use forebay_fio::report::ErrorCount;
use forebay_fio::report::eta::{Progress, state_letter};
use forebay_fio::stats::{DirectionStats, JobStats};

use super::plan::{self, Target};
use crate::output::ProgressLine;

/// The interval between two updates of the line, as in fio.
const PERIOD: Duration = Duration::from_secs(1);

/// The counters of one clone. One thread writes them, and another only displays them, so they need
/// no order.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    bytes: [AtomicU64; 3],
    ios: [AtomicU64; 3],
    phase: AtomicU8,
    /// Whether the clone is to end, because another one has ended.
    quit: AtomicBool,
    /// The same counts, with the time at which the clone has set them.
    counts: Mutex<Counts>,
    /// The figures of the last status interval.
    snapshot: Mutex<Option<Box<Snapshot>>>,
}

/// Counts of a clone.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    ios: u64,
    bytes: u64,
    /// The time of the clone, ns.
    at_ns: u64,
}

impl Counts {
    /// Returns I/Os and bytes per second since earlier counts. `None` if the counts have restarted,
    /// or if the clone has published none since.
    pub(super) fn since(&self, earlier: &Self) -> Option<[f64; 2]> {
        let ios = self.ios.checked_sub(earlier.ios)?;
        let bytes = self.bytes.checked_sub(earlier.bytes)?;
        let elapsed_ns = self.at_ns.checked_sub(earlier.at_ns).filter(|&ns| ns > 0)?;
        let rate = |count: u64| count as f64 * 1e9 / elapsed_ns as f64;
        Some([rate(ios), rate(bytes)])
    }
}

/// The figures of a clone that runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    pub(super) stats: JobStats,
    pub(super) errors: ErrorCount,
    /// How long the clone has run, ns.
    pub(super) elapsed_ns: u64,
}

/// The phase of a clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Its workload.
    Work,
    /// Verification: reading back.
    Verify,
    /// Finished.
    Done,
}

impl Gauge {
    /// Ends the clone after the I/Os in flight.
    pub(super) fn quit(&self) {
        self.quit.store(true, Ordering::Relaxed);
    }

    /// Returns whether the clone is to end.
    #[inline]
    pub(super) fn is_quit(&self) -> bool {
        self.quit.load(Ordering::Relaxed)
    }

    /// Returns the counts that were published last.
    pub(super) fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the clone has ended.
    pub(super) fn is_done(&self) -> bool {
        self.phase() == Phase::Done
    }

    /// Publishes the counters of `stats` at this time of the clone.
    pub(super) fn set(&self, stats: &JobStats, at_ns: u64) {
        let sum = |of: fn(&DirectionStats) -> u64| stats.directions.iter().map(of).sum();
        let counts = Counts { ios: sum(|it| it.total_ios), bytes: sum(|it| it.io_bytes), at_ns };
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        for (at, direction) in stats.directions.iter().enumerate() {
            self.bytes[at].store(direction.io_bytes, Ordering::Relaxed);
            self.ios[at].store(direction.total_ios, Ordering::Relaxed);
        }
    }

    /// Publishes the figures for a report while the clone runs.
    pub(super) fn post(&self, snapshot: Snapshot) {
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(snapshot));
    }

    /// Returns the figures published last; empty ones if there are none yet.
    pub(super) fn snapshot(&self) -> Snapshot {
        let snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        snapshot.as_deref().cloned().unwrap_or_default()
    }

    /// Publishes the phase of the clone.
    pub(super) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Work,
            1 => Phase::Verify,
            _ => Phase::Done,
        }
    }

    fn sums(&self) -> [(u64, u64); 3] {
        std::array::from_fn(|at| {
            (self.bytes[at].load(Ordering::Relaxed), self.ios[at].load(Ordering::Relaxed))
        })
    }
}

/// The progress line on standard error.
#[derive(Debug)]
pub(super) struct Display {
    shown: bool,
    letters: Vec<char>,
    /// The units of the last job, as in fio.
    units: Units,
    /// The time at which the jobs end, if all of them are time-based.
    runtime: Option<Duration>,
    last: Duration,
    last_sums: [(u64, u64); 3],
    /// The interval at which a new line is started, and the time of the next.
    newline: Option<Duration>,
    next_newline: Duration,
    line: ProgressLine,
}

impl Display {
    pub(super) fn new(
        shown: bool,
        newline: Option<Duration>,
        jobs: &[Job],
        targets: &[Target],
    ) -> Self {
        let timed = |target: &Target| {
            let job = &jobs[target.job];
            let before = job.start_delay.saturating_add(job.ramp_time);
            job.runtime.filter(|_| job.time_based).map(|time| time.saturating_add(before))
        };
        let heads = || plan::clones(targets).map(|clone| &clone[0]);
        let runtimes: Option<Vec<_>> = heads().map(timed).collect();
        Self {
            shown,
            letters: heads().map(|target| state_letter(jobs[target.job].rw)).collect(),
            units: heads().last().map(|it| jobs[it.job].measures.units).unwrap_or_default(),
            runtime: runtimes.and_then(|runtimes| runtimes.into_iter().max()),
            last: Duration::ZERO,
            last_sums: [(0, 0); 3],
            newline,
            next_newline: newline.unwrap_or_default(),
            line: ProgressLine::default(),
        }
    }

    /// Updates the line, if it is time.
    pub(super) fn update(&mut self, gauges: &[Gauge], elapsed: Duration) {
        if !self.shown || elapsed < self.last + PERIOD {
            return;
        }
        let text = self.progress(gauges, elapsed).render();
        self.line.show(&text);
        if let Some(every) = self.newline.filter(|_| elapsed >= self.next_newline) {
            self.line.keep();
            self.next_newline = elapsed + every;
        }
    }

    /// Removes the line.
    pub(super) fn clear(&mut self) {
        self.line.clear();
    }

    fn progress(&mut self, gauges: &[Gauge], elapsed: Duration) -> Progress {
        let mut sums = [(0, 0); 3];
        for gauge in gauges {
            for (sum, more) in sums.iter_mut().zip(gauge.sums()) {
                *sum = (sum.0 + more.0, sum.1 + more.1);
            }
        }
        let seconds = (elapsed - self.last).as_secs_f64();
        // At the end of a ramp the counters restart.
        let per_second =
            |new: u64, old: u64| (new.checked_sub(old).unwrap_or(new) as f64 / seconds) as u64;
        let last = std::mem::replace(&mut self.last_sums, sums);
        let rates = std::array::from_fn(|at| {
            (per_second(sums[at].0, last[at].0), per_second(sums[at].1, last[at].1))
        });
        self.last = elapsed;
        let phases = gauges.iter().map(Gauge::phase);
        let states: Vec<_> = self
            .letters
            .iter()
            .zip(phases)
            .map(|(&letter, phase)| match phase {
                Phase::Work => letter,
                Phase::Verify => 'V',
                Phase::Done => '_',
            })
            .collect();
        Progress {
            jobs: states.iter().filter(|&&state| state != '_').count() as u32,
            states,
            percent: self
                .runtime
                .map(|runtime| (elapsed.as_secs_f64() * 100.0 / runtime.as_secs_f64()).min(100.0)),
            rates,
            units: self.units,
            seconds_left: self.runtime.map(|runtime| runtime.saturating_sub(elapsed).as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_fio::cmdline::{Parsed, parse};

    use crate::bench::plan::plan;

    #[test]
    fn counts_that_were_not_published_again_have_no_rate() {
        let counts = |ios, at_ns| Counts { ios, bytes: ios * 512, at_ns };
        let second = 1_000_000_000;
        let earlier = counts(100, second);
        assert_eq!(earlier.since(&earlier), None, "the clone waits for an I/O");
        assert_eq!(counts(100, 3 * second).since(&earlier), Some([0.0, 0.0]), "no I/O has ended");
        assert_eq!(counts(300, 3 * second).since(&earlier), Some([100.0, 51_200.0]));
        assert_eq!(counts(10, 2 * second).since(&earlier), None, "a ramp has ended");
    }

    #[test]
    fn a_ramp_is_part_of_the_time_and_its_end_no_leap() {
        let args = "--name=a --filename=null:1M --time_based --runtime=2 --ramp_time=2";
        let Ok(Parsed::Run(command)) = parse(args.split(' ').map(Into::into)) else {
            panic!("{args}")
        };
        let targets = plan(&command.jobs).expect("a plan");
        let mut display = Display::new(true, None, &command.jobs, &targets);
        let gauge = Gauge::default();
        let mut after = |seconds, ios| {
            gauge.ios[0].store(ios, Ordering::Relaxed);
            display.progress(std::slice::from_ref(&gauge), Duration::from_secs(seconds))
        };
        assert_eq!(after(1, 1000).percent, Some(25.0));
        assert_eq!(after(3, 500).rates[0].1, 250, "the counters began anew");
    }
}
