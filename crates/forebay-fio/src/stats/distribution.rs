//! fio's coarse distributions: queue depths in powers of two, latencies in bands.

/// Labels of [`Depths`] in `iodepth_level`.
pub const LEVEL_LABELS: [&str; 7] = ["1", "2", "4", "8", "16", "32", ">=64"];
/// Labels of [`Depths`] in `iodepth_submit` and `iodepth_complete`.
pub const BATCH_LABELS: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];
/// Labels of the bands below a microsecond (nanoseconds), then below a millisecond (microseconds).
pub const BAND_LABELS: [&str; 10] =
    ["2", "4", "10", "20", "50", "100", "250", "500", "750", "1000"];
/// Labels of the bands from a millisecond on (milliseconds).
pub const BAND_LABELS_MS: [&str; 12] =
    ["2", "4", "10", "20", "50", "100", "250", "500", "750", "1000", "2000", ">=2000"];

/// Counts by depth or by batch size, in seven classes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depths([u64; 7]);

impl Depths {
    /// Counts `weight` I/Os that were submitted when `depth` were in flight: 1, 2-3, 4-7, ... 64
    /// and more.
    #[inline]
    pub fn record_level(&mut self, depth: u32, weight: u64) {
        self.0[depth.max(1).ilog2().min(6) as usize] += weight;
    }

    /// Counts one batch: 0, 1-4, 5-8, 9-16, 17-32, 33-64, more.
    #[inline]
    pub fn record_batch(&mut self, len: u32) {
        let class = match len {
            0 => 0,
            1..=4 => 1,
            _ => (len - 1).ilog2().min(6),
        };
        self.0[class as usize] += 1;
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        add(&mut self.0, &other.0);
    }

    /// Returns the sum of the counts.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the percentage of `total` in each class; at least 0.1 if the class is not empty.
    pub fn percents(&self, total: u64) -> [f64; 7] {
        self.0.map(|count| percent(count, total, 0.1))
    }
}

/// Counts of completion latencies in fio's bands: 10 below 1 us, 10 below 1 ms, 12 above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bands([u64; BANDS]);

const BANDS: usize = 32;

/// Lower limits of the bands 1 to 31, in nanoseconds; the one more keeps look-ups inside.
const LIMITS: [u64; BANDS] = {
    let mut limits = [u64::MAX; BANDS];
    let steps = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
    let mut at = 0;
    while at < 30 {
        limits[at] = steps[at % 10] * [1, 1000, 1_000_000][at / 10];
        at += 1;
    }
    limits[30] = 2_000_000_000;
    limits
};

/// The bands of the values with the same highest bit. No power of two holds more than two limits,
/// so the rest is two comparisons.
#[derive(Clone, Copy)]
struct Octave {
    /// The band of the smallest value.
    first: usize,
    /// The last values before the next two limits; `u64::MAX` where there is no limit.
    before: [u64; 2],
}

/// By the highest bit. A table without gaps needs no clamp.
const OCTAVES: [Octave; 64] = {
    let mut octaves = [Octave { first: 0, before: [u64::MAX; 2] }; 64];
    let mut bit = 0;
    while bit < 64 {
        let mut at = 0;
        while at < 31 && LIMITS[at] <= 1 << bit {
            at += 1;
        }
        octaves[bit].first = at;
        if at < 31 {
            octaves[bit].before[0] = LIMITS[at] - 1;
        }
        if at < 30 {
            octaves[bit].before[1] = LIMITS[at + 1] - 1;
        }
        bit += 1;
    }
    octaves
};

impl Bands {
    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0[band_of(ns)] += 1;
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        add(&mut self.0, &other.0);
    }

    /// Returns the percentage of `total` in the bands below 1 us, below 1 ms, and above; at least
    /// 0.01 if the band is not empty.
    pub fn percents(&self, total: u64) -> ([f64; 10], [f64; 10], [f64; 12]) {
        let at = |band: usize| percent(self.0[band], total, 0.01);
        (
            std::array::from_fn(at),
            std::array::from_fn(|band| at(10 + band)),
            std::array::from_fn(|band| at(20 + band)),
        )
    }

    /// Returns the percentage of `total` in the bands below 1 ms and above, where the first band
    /// has all latencies below 2 us.
    pub fn percents_from_us(&self, total: u64) -> ([f64; 10], [f64; 12]) {
        let (_, mut us, ms) = self.percents(total);
        us[0] = percent(self.0[..=10].iter().sum(), total, 0.01);
        (us, ms)
    }
}

impl Default for Bands {
    fn default() -> Self {
        Self([0; BANDS])
    }
}

#[inline]
fn band_of(ns: u64) -> usize {
    // 0 and 1 are in the same band.
    let Octave { first, before } = OCTAVES[(ns | 1).ilog2() as usize];
    // A remainder of the number of bands, so that the count needs no check of its index.
    (first + usize::from(ns > before[0]) + usize::from(ns > before[1])) % BANDS
}

fn add<const N: usize>(counts: &mut [u64; N], more: &[u64; N]) {
    counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
}

fn percent(count: u64, total: u64, at_least: f64) -> f64 {
    match (count, total) {
        (0, _) | (_, 0) => 0.0,
        _ => (count as f64 * 100.0 / total as f64).max(at_least),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_level(depth: u32, label: &str) {
        let mut depths = Depths::default();
        depths.record_level(depth, 1);
        let class = depths.0.iter().position(|&count| count == 1);
        assert_eq!(class.map(|class| LEVEL_LABELS[class]), Some(label), "{depth}");
    }

    #[track_caller]
    fn check_batch(len: u32, class: usize) {
        let mut depths = Depths::default();
        depths.record_batch(len);
        assert_eq!(depths.0[class], 1, "{len}");
    }

    #[test]
    fn levels_are_powers_of_two() {
        for (depth, label) in [(1, "1"), (2, "2"), (3, "2"), (4, "4"), (7, "4"), (8, "8")] {
            check_level(depth, label);
        }
        for (depth, label) in [(31, "16"), (32, "32"), (63, "32"), (64, ">=64"), (5000, ">=64")] {
            check_level(depth, label);
        }
    }

    #[test]
    fn batches_go_up_to_their_label() {
        for (len, class) in [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (16, 3), (17, 4)] {
            check_batch(len, class);
        }
        for (len, class) in [(32, 4), (33, 5), (64, 5), (65, 6), (1000, 6)] {
            check_batch(len, class);
        }
    }

    #[test]
    fn a_class_that_is_not_empty_shows() {
        let mut depths = Depths::default();
        depths.record_level(64, 99_999);
        depths.record_level(1, 1);
        assert_eq!(depths.percents(depths.total())[0], 0.1);
        assert_eq!(depths.percents(0)[0], 0.0);
    }

    #[test]
    fn every_band_begins_at_its_limit() {
        let mut values: Vec<u64> = (0..64).map(|bit| 1 << bit).collect();
        values.extend(LIMITS.iter().flat_map(|&limit| [limit - 1, limit, limit.saturating_add(1)]));
        values.push(0);
        for ns in values {
            let expected = LIMITS[..31].iter().filter(|&&limit| ns >= limit).count();
            assert_eq!(band_of(ns), expected, "{ns}");
        }
    }
}
