//! Rates and latencies of a clone over time, for pictures.
//!
//! Time is divided into windows of equal length. A run of unknown length has at most [`WINDOWS`]:
//! when they are full, each two become one. So the memory is bounded, and is allocated before the
//! first I/O.

use forebay_fio::generator::Direction;

/// The largest number of windows; even.
const WINDOWS: usize = 120;

/// The length of the first windows, ns.
const FIRST_NS: u64 = 50_000_000;

/// Buckets for each power of two: a percentile is at most 1/16 too high.
const PARTS_BITS: u32 = 4;
const PARTS: usize = 1 << PARTS_BITS;

/// Powers of two up to about a minute.
const BUCKETS: usize = (36 - PARTS_BITS as usize + 1) * PARTS;

/// The rates and latencies of one or more clones.
#[derive(Debug, Clone)]
pub(super) struct Series {
    /// The length of a window.
    window_ns: u64,
    /// When the first window begins.
    start_ns: u64,
    /// The end of the last I/O.
    end_ns: u64,
    /// By direction; empty if the job has none.
    windows: [Vec<Window>; 3],
}

/// The I/Os that ended in a window.
#[derive(Debug, Clone)]
struct Window {
    ios: u64,
    bytes: u64,
    latencies: Box<[u32; BUCKETS]>,
}

/// The figures of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moment {
    /// The middle of the window, seconds.
    pub(super) at_s: f64,
    /// I/Os per second.
    pub(super) iops: f64,
    /// Bytes per second.
    pub(super) bytes_per_s: f64,
    /// 99th percentile of the completion latency, ns; `None` if no I/O ended.
    pub(super) p99_ns: Option<f64>,
}

impl Window {
    fn new() -> Self {
        Self { ios: 0, bytes: 0, latencies: Box::new([0; BUCKETS]) }
    }

    fn clear(&mut self) {
        (self.ios, self.bytes) = (0, 0);
        self.latencies.fill(0);
    }

    fn add(&mut self, other: &Self) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        for (mine, more) in self.latencies.iter_mut().zip(other.latencies.iter()) {
            *mine = mine.saturating_add(*more);
        }
    }

    fn p99_ns(&self) -> Option<f64> {
        let total: u64 = self.latencies.iter().map(|&count| u64::from(count)).sum();
        let mut left = total - total / 100;
        let bucket = self.latencies.iter().position(|&count| {
            left = left.saturating_sub(count.into());
            left == 0
        });
        bucket.filter(|_| total > 0).map(upper_bound)
    }
}

impl Series {
    /// Returns empty windows for these directions.
    pub(super) fn new(has: impl Fn(Direction) -> bool) -> Self {
        let windows = Direction::ALL.map(|direction| match has(direction) {
            true => (0..WINDOWS).map(|_| Window::new()).collect(),
            false => Vec::new(),
        });
        Self { window_ns: FIRST_NS, start_ns: 0, end_ns: 0, windows }
    }

    /// Forgets all I/Os. Windows begin at `now_ns`.
    pub(super) fn restart(&mut self, now_ns: u64) {
        (self.start_ns, self.end_ns) = (now_ns, now_ns);
        self.windows.iter_mut().flatten().for_each(Window::clear);
    }

    /// Counts an I/O.
    pub(super) fn record(&mut self, direction: Direction, now_ns: u64, bytes: u64, clat_ns: u64) {
        self.end_ns = self.end_ns.max(now_ns);
        let passed = now_ns.saturating_sub(self.start_ns);
        while passed / self.window_ns >= WINDOWS as u64 {
            self.coarsen();
        }
        let at = (passed / self.window_ns) as usize;
        let Some(window) = self.windows[direction.index()].get_mut(at) else { return };
        window.ios += 1;
        window.bytes += bytes;
        let count = &mut window.latencies[bucket_of(clat_ns)];
        *count = count.saturating_add(1);
    }

    /// Makes one window of each two.
    fn coarsen(&mut self) {
        self.window_ns *= 2;
        for windows in &mut self.windows {
            for at in 0..windows.len() / 2 {
                windows.swap(at, 2 * at);
                let (before, after) = windows.split_at_mut(2 * at + 1);
                if let Some(second) = after.first() {
                    before[at].add(second);
                }
            }
            let half = windows.len() / 2;
            windows[half..].iter_mut().for_each(Window::clear);
        }
    }

    /// Adds the windows of a clone that ran at the same time.
    pub(super) fn merge(&mut self, mut other: Self) {
        while self.window_ns < other.window_ns {
            self.coarsen();
        }
        while other.window_ns < self.window_ns {
            other.coarsen();
        }
        self.end_ns = self.end_ns.max(other.end_ns - other.start_ns + self.start_ns);
        for (mine, theirs) in self.windows.iter_mut().zip(other.windows) {
            if mine.is_empty() {
                *mine = theirs;
                continue;
            }
            mine.iter_mut().zip(&theirs).for_each(|(mine, theirs)| mine.add(theirs));
        }
    }

    /// Returns the figures of a direction, window by window. A last window that is shorter than
    /// half of the others is left out, because its rates are uncertain.
    pub(super) fn moments(&self, direction: Direction) -> Vec<Moment> {
        let windows = &self.windows[direction.index()];
        let whole = self.window_ns as f64;
        let run = (self.end_ns - self.start_ns) as f64;
        let mut moments = Vec::new();
        for (at, window) in windows.iter().enumerate() {
            let start = at as f64 * whole;
            let length = (run - start).min(whole);
            if length < whole / 2.0 && (at > 0 || length <= 0.0) {
                break;
            }
            let per_s = |count: u64| count as f64 * 1e9 / length;
            moments.push(Moment {
                at_s: (start + length / 2.0) / 1e9,
                iops: per_s(window.ios),
                bytes_per_s: per_s(window.bytes),
                p99_ns: window.p99_ns(),
            });
        }
        moments
    }
}

fn bucket_of(ns: u64) -> usize {
    let ns = ns.max(1);
    let power = ns.ilog2();
    let bucket = match power.checked_sub(PARTS_BITS) {
        None => ns as usize,
        Some(shift) => (shift as usize) * PARTS + (ns >> shift) as usize,
    };
    bucket.min(BUCKETS - 1)
}

/// Returns the largest latency of a bucket.
fn upper_bound(bucket: usize) -> f64 {
    match bucket {
        0..PARTS => bucket as f64,
        _ => {
            let shift = bucket / PARTS - 1;
            let part = bucket - shift * PARTS;
            (((part as u64 + 1) << shift) - 1) as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn reads() -> Series {
        Series::new(|direction| direction == Direction::Read)
    }

    #[test]
    fn a_bucket_holds_latencies_within_a_sixteenth() {
        for ns in [1, 15, 16, 17, 31, 32, 1000, 123_456, 40_000_000, 30_000_000_000] {
            let bound = upper_bound(bucket_of(ns));
            let ns = ns as f64;
            assert!(bound >= ns && bound <= ns * (1.0 + 1.0 / 16.0), "{ns}: {bound}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn rates_are_those_of_each_window() {
        let mut series = reads();
        for at in 0..200 {
            series.record(Direction::Read, at * MS, 4096, 1000);
        }
        series.record(Direction::Read, 200 * MS, 4096, 1_000_000);
        let moments = series.moments(Direction::Read);
        assert_eq!(moments.len(), 4);
        assert_eq!((moments[0].iops, moments[0].bytes_per_s), (1000.0, 4_096_000.0));
        assert!((moments[1].at_s - 0.075).abs() < 1e-9);
        assert!(moments[1].p99_ns.is_some_and(|ns| (1000.0..1100.0).contains(&ns)));
        assert!(series.moments(Direction::Write).is_empty());
    }

    #[test]
    fn long_runs_have_longer_windows_and_lose_no_io() {
        let mut series = reads();
        for at in 0..100_000 {
            series.record(Direction::Read, at * MS, 512, 1000);
        }
        let moments = series.moments(Direction::Read);
        assert!((60..=WINDOWS).contains(&moments.len()), "{}", moments.len());
        let total: u64 = series.windows[0].iter().map(|window| window.ios).sum();
        assert_eq!(total, 100_000);
        assert!(moments.iter().all(|it| (it.iops - 1000.0).abs() < 2.0), "{moments:?}");
    }

    #[test]
    fn clones_are_added_window_by_window() {
        let (mut short, mut long) = (reads(), reads());
        for at in 0..1000 {
            short.record(Direction::Read, at * MS, 512, 1000);
        }
        for at in 0..10_000 {
            long.record(Direction::Read, at * MS, 512, 9000);
        }
        short.merge(long);
        let moments = short.moments(Direction::Read);
        assert!((moments[0].iops - 2000.0).abs() < 2.0, "{:?}", moments[0]);
        let last = moments.last().expect("a window");
        assert!((last.iops - 1000.0).abs() < 20.0 && last.at_s > 9.0, "{last:?}");
    }

    #[test]
    fn the_ramp_is_forgotten_and_idle_windows_have_no_latency() {
        let mut series = reads();
        series.record(Direction::Read, 10 * MS, 512, 1000);
        series.restart(100 * MS);
        series.record(Direction::Read, 260 * MS, 512, 1000);
        let moments = series.moments(Direction::Read);
        assert_eq!(moments.iter().map(|it| it.iops).collect::<Vec<_>>(), [0.0, 0.0, 0.0]);
        assert_eq!(moments[0].p99_ns, None);
    }
}
