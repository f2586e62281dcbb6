//! Steady state: `steadystate`, `steadystate_duration`, `steadystate_ramp_time`.
//!
//! Source: fio's HOWTO and fio 3.33. A rate is sampled once a second. A job is steady if in the
//! last samples either none is further from their mean than a limit, or the slope of their
//! least-squares line is below it. This module reads no clock.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::parse_bytes;

/// The measure of a criterion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Criterion {
    /// Whether bandwidth counts, instead of IOPS.
    pub bandwidth: bool,
    /// Whether the slope counts, instead of the largest deviation from the mean.
    pub slope: bool,
}

impl Criterion {
    /// Returns the criterion of a word of fio.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        let all = [(false, false), (false, true), (true, false), (true, true)];
        let mut all = all.into_iter().map(|(bandwidth, slope)| Self { bandwidth, slope });
        all.find(|criterion| criterion.word() == word)
    }

    /// Returns fio's word for it.
    pub fn word(self) -> &'static str {
        match (self.bandwidth, self.slope) {
            (false, false) => "iops",
            (false, true) => "iops_slope",
            (true, false) => "bw",
            (true, true) => "bw_slope",
        }
    }
}

/// The limit of a criterion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// Its measure.
    pub criterion: Criterion,
    /// The largest value of a steady job.
    pub value: f64,
    /// Whether the value is a percentage of the mean.
    pub percent: bool,
}

impl Default for Limit {
    /// fio's default, `iops_slope:0.01%`.
    fn default() -> Self {
        let criterion = Criterion { bandwidth: false, slope: true };
        Self { criterion, value: 0.01, percent: true }
    }
}

impl Limit {
    /// Parses `criterion:limit`, with a percent sign behind a percentage.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (word, limit) = text.split_once(':').unwrap_or((text, ""));
        let criterion = Criterion::from_word(word)
            .ok_or_else(|| format!("unknown criterion '{}'", crate::errors::Short(word)))?;
        if limit.is_empty() {
            return Err(format!("{word} needs a limit, as in {word}:5%"));
        }
        let percent = limit.ends_with('%');
        let number = limit.strip_suffix('%').unwrap_or(limit).parse::<f64>().ok();
        // A limit that is no percentage may have a unit, as sizes have.
        let with_unit = || parse_bytes(limit).ok().filter(|_| !percent).map(|value| value as f64);
        // Rust also parses `inf` and `nan`.
        match number.filter(|number| number.is_finite()).or_else(with_unit) {
            Some(value) if value >= 0.0 => Ok(Self { criterion, value, percent }),
            Some(_) => Err(format!("{limit} is not a valid limit: expected 0 or more")),
            None => Err(format!("'{}' is not a number", crate::errors::Short(limit))),
        }
    }
}

/// The options of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SteadyOptions {
    /// `steadystate`.
    pub limit: Option<Limit>,
    /// `steadystate_duration`: the window, in samples of one second; 0 for no detection.
    pub samples: u32,
    /// `steadystate_ramp_time`: the time before the first sample.
    pub ramp: Duration,
}

impl SteadyOptions {
    /// Returns the window of a job with these options; `None` if it has no detection.
    pub fn window(&self) -> Option<Window> {
        let limit = self.limit.unwrap_or_default();
        (self.samples > 0).then(|| Window { limit, size: self.samples, samples: VecDeque::new() })
    }

    /// Returns the name of an option that has no effect without `steadystate_duration`.
    pub(crate) fn without_effect(&self) -> Option<&'static str> {
        match (self.samples, self.limit, self.ramp.is_zero()) {
            (0, Some(_), _) => Some("steadystate"),
            (0, None, false) => Some("steadystate_ramp_time"),
            _ => None,
        }
    }
}

/// The last samples of a job or a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    limit: Limit,
    size: u32,
    /// I/Os and bytes per second.
    samples: VecDeque<[f64; 2]>,
}

impl Window {
    /// Adds the rates of a second. Returns whether the state is steady.
    pub fn add(&mut self, iops: f64, bytes_per_second: f64) -> bool {
        if self.samples.len() == self.size as usize {
            self.samples.pop_front();
        }
        self.samples.push_back([iops, bytes_per_second]);
        self.is_attained()
    }

    /// Returns the limit.
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// Returns the length of the full window, in seconds.
    pub fn seconds(&self) -> u32 {
        self.size
    }

    /// Returns the samples of IOPS.
    pub fn iops(&self) -> impl Iterator<Item = f64> + '_ {
        self.samples.iter().map(|sample| sample[0])
    }

    /// Returns the samples of bandwidth, bytes per second.
    pub fn bandwidth(&self) -> impl Iterator<Item = f64> + '_ {
        self.samples.iter().map(|sample| sample[1])
    }

    /// Returns whether the window is full and keeps to the limit.
    pub fn is_attained(&self) -> bool {
        self.samples.len() == self.size as usize && self.is_within_limit()
    }

    /// Returns whether the measure is below the limit. As in fio, no measure is below 0.
    fn is_within_limit(&self) -> bool {
        self.measured().abs() < self.limit.value
    }

    /// Returns the value to compare with the limit, in its unit.
    pub fn measured(&self) -> f64 {
        let value = if self.limit.criterion.slope { self.slope() } else { self.max_deviation() };
        let mean = mean(self.judged());
        match self.limit.percent {
            true if mean > 0.0 => value / mean * 100.0,
            _ => value,
        }
    }

    /// Returns the largest difference from the mean; 0 if the slope counts.
    pub fn max_deviation(&self) -> f64 {
        let mean = mean(self.judged());
        match self.limit.criterion.slope {
            true => 0.0,
            false => self.judged().map(|sample| (sample - mean).abs()).fold(0.0, f64::max),
        }
    }

    /// Returns the slope of the least-squares line per second; 0 if the deviation counts.
    pub fn slope(&self) -> f64 {
        let nr = self.samples.len() as f64;
        if !self.limit.criterion.slope || self.samples.len() < 2 {
            return 0.0;
        }
        let (mean_y, mean_x) = (mean(self.judged()), (nr - 1.0) / 2.0);
        let points = || self.judged().enumerate().map(|(x, y)| (x as f64 - mean_x, y - mean_y));
        let squares: f64 = points().map(|(x, _)| x * x).sum();
        points().map(|(x, y)| x * y).sum::<f64>() / squares
    }

    /// Returns the samples of the criterion.
    fn judged(&self) -> impl Iterator<Item = f64> + '_ {
        let at = usize::from(self.limit.criterion.bandwidth);
        self.samples.iter().map(move |sample| sample[at])
    }
}

/// Returns the mean; 0 if there are no samples.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (nr, sum) = values.fold((0_u32, 0.0), |(nr, sum), value| (nr + 1, sum + value));
    if nr == 0 { 0.0 } else { sum / f64::from(nr) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(limit: &str, samples: u32, rates: &[f64]) -> Window {
        let limit = Some(Limit::parse(limit).expect(limit));
        let options = SteadyOptions { limit, samples, ramp: Duration::ZERO };
        let mut window = options.window().expect("a duration");
        rates.iter().for_each(|&iops| {
            window.add(iops, iops * 4096.0);
        });
        window
    }

    /// The figures that fio 3.33 printed for these samples.
    #[test]
    fn deviation_and_slope_are_those_of_fio() {
        let iops = window("iops:10%", 4, &[2000.0, 2001.0, 2001.0, 2001.0]);
        assert!(iops.is_attained());
        assert_eq!((iops.max_deviation(), iops.slope()), (0.75, 0.0));
        assert!((iops.measured() - 0.037486).abs() < 1e-6);
        let mut slope = window("bw_slope:1000", 3, &[]);
        for bw in [8_196_561.0, 8_196_100.0, 8_196_096.0] {
            slope.add(2001.0, bw);
        }
        assert_eq!((slope.slope(), slope.measured(), slope.is_attained()), (-232.5, -232.5, true));
        let spread = window("iops:0.01%", 3, &[51.0, 51.0, 68.0]);
        assert!((spread.max_deviation() - 11.333_333).abs() < 1e-6);
        assert!((spread.measured() - 20.0).abs() < 1e-9 && !spread.is_attained());
    }

    #[test]
    fn only_the_last_samples_of_a_full_window_count() {
        let mut window = window("iops:5", 3, &[900.0, 100.0]);
        assert!(!window.add(101.0, 0.0), "the first sample is far away");
        assert!(window.add(102.0, 0.0));
        assert!(window.iops().eq([100.0, 101.0, 102.0]));
        assert!(!window.add(111.0, 0.0));
    }

    #[test]
    fn falling_rate_is_not_steady() {
        assert!(!window("iops_slope:1%", 3, &[300.0, 200.0, 100.0]).is_attained());
        assert!(window("iops_slope:60%", 3, &[300.0, 200.0, 100.0]).is_attained());
    }

    #[test]
    fn a_job_without_io_is_steady_at_zero() {
        assert!(window("bw:1%", 2, &[0.0, 0.0]).is_attained());
    }

    #[test]
    fn limits_that_are_no_percentage_may_have_units() {
        let value = |text| Limit::parse(text).expect(text).value;
        assert_eq!((value("bw:10M"), value("iops:1k")), (10_485_760.0, 1024.0));
        assert_eq!((value("bw_slope:0.5"), value("iops:0.5%")), (0.5, 0.5));
    }

    #[test]
    fn limit_of_0_is_never_kept() {
        for limit in ["iops:0", "iops:0%", "bw_slope:0%"] {
            assert!(!window(limit, 2, &[100.0, 100.0]).is_attained(), "{limit}");
        }
    }

    #[test]
    fn wrong_limits_are_refused() {
        let refused = |text| Limit::parse(text).expect_err(text);
        assert_eq!(refused("lat:5%"), "unknown criterion 'lat'");
        assert_eq!(refused("iops"), "iops needs a limit, as in iops:5%");
        assert_eq!(refused("bw:x"), "'x' is not a number");
        assert_eq!(refused("bw:1k%"), "'1k%' is not a number");
        assert_eq!(refused("iops:inf"), "'inf' is not a number");
        assert_eq!(refused("iops:nan%"), "'nan%' is not a number");
        assert_eq!(refused("bw:5%%"), "'5%%' is not a number");
        assert_eq!(refused("bw:-1"), "-1 is not a valid limit: expected 0 or more");
    }
}
