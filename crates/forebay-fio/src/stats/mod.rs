//! Figures of a running job: fio's figures per direction, recorded without allocation.
//!
//! The words are fio's. *slat* is the time from just before the submission of an I/O to the commit
//! of its batch, *clat* from there to its reaping, *lat* both together. Times are arguments; this
//! module does not read the clock.

pub mod distribution;
pub mod moments;
pub mod priorities;
pub mod rate;

use std::ops::AddAssign;

use crate::generator::Direction;
use crate::histogram::Histogram;
use crate::measures::Measures;

use self::distribution::{Bands, Depths};
use self::moments::Moments;
use self::priorities::ByPriority;
use self::rate::{RateSamples, WINDOW_NS, Window};

/// Latencies with percentiles, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Latency {
    /// Minimum, maximum, mean and deviation.
    pub moments: Moments,
    /// The histogram for percentiles.
    pub histogram: Histogram,
}

impl Latency {
    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.moments.record(ns);
        self.histogram.record(ns);
    }

    /// Adds the latencies of another.
    pub fn merge(&mut self, other: &Self) {
        self.moments += &other.moments;
        self.histogram.merge(&other.histogram);
    }
}

/// The figures of one direction.
#[derive(Debug, Clone, Default)]
pub struct DirectionStats {
    /// Bytes transferred.
    pub io_bytes: u64,
    /// I/Os completed.
    pub total_ios: u64,
    /// I/Os that ended with an error.
    pub failed_ios: u64,
    /// I/Os that transferred less than requested.
    pub short_ios: u64,
    /// I/Os given up.
    pub drop_ios: u64,
    /// Milliseconds in which this direction was active.
    pub runtime_ms: u64,
    /// Submission latency, ns.
    pub slat: Moments,
    /// Completion latency, ns.
    pub clat: Latency,
    /// Total latency, ns.
    pub lat: Moments,
    /// Submission latencies, if their percentiles are wanted.
    pub slat_histogram: Histogram,
    /// Total latencies, if their percentiles are wanted.
    pub lat_histogram: Histogram,
    /// Completion latencies by priority, or total ones if their percentiles are wanted.
    pub priorities: ByPriority,
    /// Bandwidth samples, KiB/s.
    pub bw: RateSamples,
    /// IOPS samples.
    pub iops: RateSamples,
    window: Window,
}

impl DirectionStats {
    /// Returns bytes per second over the runtime; 0 without a runtime.
    pub fn bytes_per_second(&self) -> u64 {
        let per_second = u128::from(self.io_bytes) * 1000;
        per_second.checked_div(self.runtime_ms.into()).unwrap_or(0) as u64
    }

    /// Returns I/Os per second over the runtime; 0 without a runtime.
    pub fn ios_per_second(&self) -> f64 {
        match self.runtime_ms {
            0 => 0.0,
            ms => self.total_ios as f64 * 1000.0 / ms as f64,
        }
    }

    /// Returns the number of I/Os that have ended, with and without an error. fio's `total_ios`.
    pub fn issued_ios(&self) -> u64 {
        self.total_ios + self.failed_ios
    }

    /// Adds the figures of what was done at the same time.
    fn merge(&mut self, other: &Self) {
        self.io_bytes += other.io_bytes;
        self.total_ios += other.total_ios;
        self.failed_ios += other.failed_ios;
        self.short_ios += other.short_ios;
        self.drop_ios += other.drop_ios;
        self.runtime_ms = self.runtime_ms.max(other.runtime_ms);
        self.slat += &other.slat;
        self.clat.merge(&other.clat);
        self.lat += &other.lat;
        self.slat_histogram.merge(&other.slat_histogram);
        self.lat_histogram.merge(&other.lat_histogram);
        self.priorities.merge(&other.priorities);
        self.bw.add_parallel(&other.bw);
        self.iops.add_parallel(&other.iops);
    }
}

/// Resources that a job used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time on a CPU in user mode, microseconds.
    pub user_us: u64,
    /// Time on a CPU in the kernel, microseconds.
    pub system_us: u64,
    /// Context switches because the thread had to wait.
    pub voluntary_switches: u64,
    /// Context switches because other threads had to run.
    pub involuntary_switches: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Page faults that did not.
    pub minor_faults: u64,
}

impl Usage {
    /// Returns the number of all context switches.
    pub fn context_switches(&self) -> u64 {
        self.voluntary_switches + self.involuntary_switches
    }
}

impl AddAssign<&Self> for Usage {
    fn add_assign(&mut self, other: &Self) {
        self.user_us += other.user_us;
        self.system_us += other.system_us;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.major_faults += other.major_faults;
        self.minor_faults += other.minor_faults;
    }
}

/// The figures of one job, or of several merged ones.
#[derive(Debug, Clone, Default)]
pub struct JobStats {
    /// By [`Direction`].
    pub directions: [DirectionStats; 3],
    /// Flushes (fio: sync), ns.
    pub sync: Latency,
    /// Queue depths at submission, flushes included.
    pub levels: Depths,
    /// Numbers of I/Os submitted at a time.
    pub submits: Depths,
    /// Numbers of I/Os reaped at a time.
    pub completes: Depths,
    /// Completion latencies by band.
    pub bands: Bands,
    /// CPU time, switches and faults.
    pub usage: Usage,
    /// Milliseconds from the job's first I/O to its end; the sum, if several are merged.
    pub job_runtime_ms: u64,
    /// Start of the open rate windows, in the caller's nanoseconds.
    window_start_ns: u64,
}

impl JobStats {
    /// Returns empty figures, with a first rate window from `now_ns` on.
    pub fn new(now_ns: u64) -> Self {
        Self { window_start_ns: now_ns, ..Self::default() }
    }

    /// Counts a committed batch of `len` I/Os, with `depth` in flight when it was committed.
    #[inline]
    pub fn record_submit(&mut self, len: u32, depth: u32) {
        self.submits.record_batch(len);
        self.levels.record_level(depth, len.into());
    }

    /// Counts the submission latency of one I/O.
    #[inline]
    pub fn record_slat(&mut self, direction: Direction, slat_ns: u64) {
        self.directions[direction.index()].slat.record(slat_ns);
    }

    /// Counts one completed I/O of `bytes`: `clat_ns` since its commit, `lat_ns` since its start.
    #[inline(always)]
    pub fn record_complete(&mut self, direction: Direction, bytes: u64, clat_ns: u64, lat_ns: u64) {
        let stats = &mut self.directions[direction.index()];
        stats.io_bytes += bytes;
        stats.total_ios += 1;
        stats.clat.record(clat_ns);
        stats.lat.record(lat_ns);
        self.bands.record(clat_ns);
    }

    /// Counts one completed I/O without latencies.
    #[inline]
    pub fn record_untimed(&mut self, direction: Direction, bytes: u64) {
        let stats = &mut self.directions[direction.index()];
        stats.io_bytes += bytes;
        stats.total_ios += 1;
    }

    /// Returns the figures of all directions as one.
    pub fn mixed(&self) -> DirectionStats {
        let mut mixed = DirectionStats::default();
        self.directions.iter().for_each(|direction| mixed.merge(direction));
        mixed
    }

    /// Removes the figures that the job disabled.
    pub fn forget(&mut self, measures: &Measures) {
        for stats in &mut self.directions {
            if measures.disable_slat {
                (stats.slat, stats.slat_histogram) = (Moments::new(), Histogram::new());
            }
            if measures.disable_clat {
                stats.clat = Latency::default();
            }
            if measures.disable_lat {
                (stats.lat, stats.lat_histogram) = (Moments::new(), Histogram::new());
            }
            let is_total = measures.lat_percentiles;
            if is_total && measures.disable_lat || !is_total && measures.disable_clat {
                stats.priorities = ByPriority::default();
            }
            if measures.disable_bw {
                (stats.bw, stats.iops) = (RateSamples::default(), RateSamples::default());
            }
        }
        if measures.disable_clat {
            self.bands = Bands::default();
        }
    }

    /// Counts one reaped batch of `len` I/Os.
    #[inline]
    pub fn record_reap(&mut self, len: u32) {
        self.completes.record_batch(len);
    }

    /// Counts one flush that took `ns`, with `depth` in flight, itself included.
    pub fn record_sync(&mut self, depth: u32, ns: u64) {
        self.sync.record(ns);
        self.levels.record_level(depth, 1);
    }

    /// Returns when the open rate window ends.
    pub fn window_end_ns(&self) -> u64 {
        self.window_start_ns.saturating_add(WINDOW_NS)
    }

    /// Takes a rate sample of every direction, if a window is over at `now_ns`. Called when
    /// [`window_end_ns`](Self::window_end_ns) has passed, or more often.
    #[inline]
    pub fn tick(&mut self, now_ns: u64) {
        let elapsed = now_ns.saturating_sub(self.window_start_ns);
        if elapsed >= WINDOW_NS {
            self.close_window(now_ns, elapsed);
        }
    }

    /// Returns the number of completed I/Os, without flushes.
    pub fn total_ios(&self) -> u64 {
        self.directions.iter().map(|direction| direction.total_ios).sum()
    }

    /// Returns the number of I/Os that have ended, with and without an error, without flushes.
    pub fn issued_ios(&self) -> u64 {
        self.directions.iter().map(DirectionStats::issued_ios).sum()
    }

    /// Adds the figures of a job that ran at the same time, for `group_reporting`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.directions.iter_mut().zip(&other.directions) {
            mine.merge(theirs);
        }
        self.sync.merge(&other.sync);
        self.levels.merge(&other.levels);
        self.submits.merge(&other.submits);
        self.completes.merge(&other.completes);
        self.bands.merge(&other.bands);
        self.usage += &other.usage;
        self.job_runtime_ms += other.job_runtime_ms;
    }

    #[cold]
    fn close_window(&mut self, now_ns: u64, elapsed_ns: u64) {
        self.window_start_ns = now_ns;
        for stats in &mut self.directions {
            let closed = stats.window.close(stats.io_bytes, stats.total_ios, elapsed_ns);
            if let Some((kib_per_second, ios_per_second)) = closed {
                stats.bw.record(kib_per_second);
                stats.iops.record(ios_per_second);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(ios: u64, clat_ns: u64, runtime_ms: u64) -> JobStats {
        let mut stats = JobStats::new(0);
        for io in 1..=ios {
            stats.record_submit(1, 1);
            stats.record_slat(Direction::Read, 10);
            stats.record_complete(Direction::Read, 4096, clat_ns, clat_ns + 10);
            stats.record_reap(1);
            stats.tick(io * runtime_ms * 1_000_000 / ios);
        }
        stats.directions[0].runtime_ms = runtime_ms;
        stats.job_runtime_ms = runtime_ms;
        stats
    }

    #[test]
    fn rates_are_over_the_runtime() {
        let read = &job(1000, 500, 2000).directions[0];
        assert_eq!(read.ios_per_second(), 500.0);
        assert_eq!(read.bytes_per_second(), 2_048_000);
        assert_eq!(DirectionStats::default().bytes_per_second(), 0);
        assert_eq!(DirectionStats::default().ios_per_second(), 0.0);
    }

    #[test]
    fn a_sample_is_taken_every_half_second() {
        let read = &job(1000, 500, 2000).directions[0];
        assert_eq!((read.iops.count(), read.iops.min(), read.iops.max()), (4, 500, 500));
        assert_eq!((read.bw.count(), read.bw.min(), read.bw.max()), (4, 2000, 2000));
    }

    #[test]
    fn a_group_has_the_sums_and_the_longest_runtime() {
        let mut group = job(1000, 500, 2000);
        group.merge(&job(500, 700, 1000));
        let read = &group.directions[0];
        assert_eq!((read.total_ios, read.io_bytes, read.runtime_ms), (1500, 1500 * 4096, 2000));
        assert_eq!(
            (read.clat.moments.count(), read.clat.moments.min(), read.clat.moments.max()),
            (1500, 500, 700)
        );
        assert_eq!(read.clat.histogram.total(), 1500);
        assert_eq!((group.total_ios(), group.job_runtime_ms), (1500, 3000));
        assert_eq!(group.submits.total(), 1500);
    }

    #[test]
    fn flushes_count_at_their_depth_but_not_as_ios() {
        let mut stats = JobStats::new(0);
        stats.record_sync(8, 70_000);
        assert_eq!(stats.total_ios(), 0);
        assert_eq!(stats.levels.percents(1), [0.0, 0.0, 0.0, 100.0, 0.0, 0.0, 0.0]);
        assert_eq!(stats.sync.moments.count(), 1);
    }
}
