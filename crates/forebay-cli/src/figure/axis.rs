//! Axes of a figure: linear from 0, or logarithmic where the values differ by a large factor.

/// The factor from which values are drawn on a logarithmic axis. On a linear one, an outlier would
/// press all other values to the bottom.
const LOG_FROM: f64 = 20.0;

/// A vertical axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    pub(crate) is_log: bool,
    /// The values with a line and a label, ascending.
    pub(crate) ticks: Vec<f64>,
    /// Digits after the decimal point of a linear axis's labels.
    decimals: usize,
}

impl Axis {
    /// Returns an axis for these values, which are not negative.
    pub(crate) fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let max = values.clone().fold(0.0, f64::max);
        let min = values.filter(|&value| value > 0.0).fold(f64::INFINITY, f64::min);
        if max > LOG_FROM * min { Self::log(min, max) } else { Self::linear(max) }
    }

    /// Returns an axis from the lowest to the highest of these values, with a tick at each of them.
    /// It is logarithmic if they differ by a large factor.
    pub(crate) fn at_values(values: impl Iterator<Item = f64>) -> Self {
        let mut ticks: Vec<f64> = values.collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let (low, high) = match ticks[..] {
            [] => (0.0, 1.0),
            [low, .., high] => (low, high),
            [only] => (only, only),
        };
        let is_log = low > 0.0 && high > LOG_FROM * low;
        Self { low, high, is_log, ticks, decimals: 0 }
    }

    /// Returns an axis of powers of ten.
    pub(crate) fn of_powers(values: impl Iterator<Item = f64> + Clone) -> Self {
        let max = values.clone().fold(0.0, f64::max);
        Self::log(values.fold(f64::INFINITY, f64::min), max.max(1.0))
    }

    /// Returns an axis from 0, so that lengths show proportions.
    pub(crate) fn linear(max: f64) -> Self {
        let max = if max > 0.0 { max } else { 1.0 };
        let rough = max / 4.0;
        let power = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|n| n * power);
        let step = steps.into_iter().find(|&step| step >= rough).unwrap_or(power);
        // A rounding error must not add a step.
        let nr = (max / step - 1e-9).ceil().max(1.0) as u32;
        let ticks = (0..=nr).map(|at| f64::from(at) * step).collect();
        let decimals = (0..6).find(|&digits| is_whole(step * 10_f64.powi(digits))).unwrap_or(6);
        let high = f64::from(nr) * step;
        Self { low: 0.0, high, is_log: false, ticks, decimals: decimals as usize }
    }

    /// Returns an axis of powers of ten.
    fn log(min: f64, max: f64) -> Self {
        let (low, high) = (min.log10().floor(), max.log10().ceil());
        // At least one power, also for a single value.
        let (first, last) = (low as i32, (high as i32).max(low as i32 + 1));
        let every = ((last - first) as usize).div_ceil(6).max(1);
        let ticks = (first..=last).step_by(every).map(|power| 10_f64.powi(power)).collect();
        Self { low: 10_f64.powi(first), high: 10_f64.powi(last), is_log: true, ticks, decimals: 0 }
    }

    /// Returns the place of a value: 0 at the bottom, 1 at the top.
    pub(crate) fn place(&self, value: f64) -> f64 {
        match self.is_log {
            true => {
                let value = value.max(self.low);
                (value / self.low).log10() / (self.high / self.low).log10()
            }
            // A single value is in the middle.
            false if self.high == self.low => 0.5,
            false => (value - self.low) / (self.high - self.low),
        }
    }

    /// Returns the label of a tick.
    pub(crate) fn label(&self, tick: f64) -> String {
        let decimals = match tick {
            0.0 => 0,
            _ if self.is_log => (-tick.log10().round()).max(0.0) as usize,
            _ => self.decimals,
        };
        format!("{tick:.decimals$}")
    }
}

fn is_whole(value: f64) -> bool {
    (value - value.round()).abs() < 1e-9 * value.abs().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(values: &[f64]) -> (bool, Vec<String>) {
        let axis = Axis::of(values.iter().copied());
        let labels = axis.ticks.iter().map(|&tick| axis.label(tick)).collect();
        (axis.is_log, labels)
    }

    #[track_caller]
    fn check(values: &[f64], is_log: bool, labels: &[&str]) {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        assert_eq!(ticks(values), (is_log, labels), "{values:?}");
    }

    #[test]
    fn linear_axes_start_at_zero_and_have_round_numbers() {
        check(&[100.0, 101.0], false, &["0", "50", "100", "150"]);
        check(&[1.9, 2.5], false, &["0", "1", "2", "3"]);
        check(&[0.6, 0.98], false, &["0", "0.25", "0.50", "0.75", "1.00"]);
        check(&[500.0, 2000.0], false, &["0", "500", "1000", "1500", "2000"]);
        check(&[0.0, 0.0], false, &["0", "0.25", "0.50", "0.75", "1.00"]);
    }

    #[test]
    fn an_outlier_makes_the_axis_logarithmic() {
        check(&[10.0, 12.0, 900.0], true, &["10", "100", "1000"]);
        check(&[0.04, 30.0], true, &["0.01", "0.1", "1", "10", "100"]);
        check(&[1.0, 20.0], false, &["0", "5", "10", "15", "20"]);
        let axis = Axis::of([10.0, 100_000.0].into_iter());
        let places = [10.0, 1000.0, 100_000.0].map(|value| axis.place(value));
        assert!(
            places.iter().zip([0.0, 0.5, 1.0]).all(|(a, b)| (a - b).abs() < 1e-9),
            "{places:?}"
        );
    }

    #[test]
    fn an_axis_at_its_values_has_no_margins() {
        let places = |values: &[f64]| {
            let axis = Axis::at_values(values.iter().copied());
            (axis.is_log, values.iter().map(|&value| axis.place(value)).collect::<Vec<_>>())
        };
        assert_eq!(places(&[1.0, 3.0, 5.0]), (false, vec![0.0, 0.5, 1.0]));
        let (is_log, at) = places(&[1.0, 10.0, 100.0]);
        assert!(is_log && (at[1] - 0.5).abs() < 1e-9, "{at:?}");
        assert_eq!(places(&[7.0]), (false, vec![0.5]));
        assert_eq!(places(&[0.0, 50.0]), (false, vec![0.0, 1.0]));
        let axis = Axis::at_values([4.0, 1.0, 4.0].into_iter());
        assert_eq!(axis.ticks, [1.0, 4.0]);
    }

    #[test]
    fn every_value_is_on_the_axis() {
        for values in [[3.0, 7.0], [0.001, 0.9], [1e-3, 1e6], [99.0, 100.0]] {
            let axis = Axis::of(values.into_iter());
            for value in values {
                assert!((0.0..=1.0).contains(&axis.place(value)), "{value} in {values:?}");
            }
        }
    }
}
