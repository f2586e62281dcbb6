//! The loads that take part in a fit: their errors with given constants, and the best constants.
//!
//! The best constants have the smallest squared errors of the logarithm of the IOPS. A load that
//! its processor limits counts only if the model would be slower than the measurement. Large errors
//! count less than their squares, so that one disturbed load does not determine the others.

use super::family::{Family, Guess};
use super::probe::{Figures, Probe};
use super::solve::{Problem, Solution};
use forebay_model::Parameter;

/// A value is ruled out if the fit with it is worse by so much, at least.
const RULED_OUT: f64 = 0.05;

/// The smallest value in a search, in place of 0, which has no logarithm.
const NEARLY_ZERO: f64 = 0.01;

/// Errors beyond this count by their size and no longer by their square.
const LARGE_ERROR: f64 = 0.1;

/// The loads that take part in a fit, and their figures.
pub(super) struct Data {
    loads: Vec<(Probe, Figures)>,
}

impl Data {
    /// Returns the loads that are no checks.
    pub(super) fn new(probes: &[Probe], figures: &[Figures]) -> Data {
        let loads = probes.iter().copied().zip(figures.iter().copied());
        Data { loads: loads.filter(|(probe, _)| !probe.is_check).collect() }
    }

    /// Returns the error of each load: the logarithm of the ratio of the measured to the predicted
    /// IOPS.
    fn errors(&self, family: Family, values: &[f64]) -> Vec<f64> {
        let error_of = |(probe, figures): &(Probe, Figures)| {
            let predicted_ns = family.interval_ns(values, probe, figures.cpu_ns);
            let error = (predicted_ns * figures.iops / 1e9).ln();
            if figures.is_of_processor() { error.max(0.0) } else { error }
        };
        self.loads.iter().map(error_of).collect()
    }

    /// Returns the root of the mean squared error.
    pub(super) fn error(&self, family: Family, values: &[f64]) -> f64 {
        let sum: f64 = self.errors(family, values).iter().map(|error| error * error).sum();
        (sum / self.nr_of_device().max(1) as f64).sqrt()
    }

    /// Returns the number of loads that no processor limits.
    pub(super) fn nr_of_device(&self) -> usize {
        self.loads.iter().filter(|(_, figures)| !figures.is_of_processor()).count()
    }

    /// Returns the loads.
    pub(super) fn probes(&self) -> Vec<Probe> {
        self.loads.iter().map(|(probe, _)| *probe).collect()
    }

    /// Returns the figures of the loads.
    pub(super) fn figures(&self) -> Vec<Figures> {
        self.loads.iter().map(|(_, figures)| *figures).collect()
    }

    /// Returns the solution that a search from `start` finds. Some constants may be held.
    pub(super) fn solve(&self, family: Family, start: &[f64], is_held: &[bool]) -> Solution {
        let bounds: Vec<_> = family.constants().iter().map(bounds).collect();
        let residuals =
            |values: &[f64]| self.errors(family, values).into_iter().map(damped).collect();
        Problem { residuals: &residuals, bounds: &bounds, is_held }.solve(start)
    }

    /// Returns the best solution, in which numbers of channels and the like are whole.
    pub(super) fn best(&self, family: Family) -> Solution {
        let free = vec![false; family.constants().len()];
        let starts = combinations(&family.starts(&self.guess()));
        let solutions = starts.iter().map(|start| self.solve(family, start, &free));
        let best = solutions.reduce(|a, b| if b.sum < a.sum { b } else { a });
        let mut best = best.unwrap_or_else(|| unreachable!("a family has a start"));
        for (at, constant) in family.constants().iter().enumerate() {
            if is_count(constant) {
                let rounded = [f64::floor, f64::ceil].map(|round| {
                    let mut start = best.values.clone();
                    start[at] = round(start[at]).max(1.0);
                    self.solve(family, &start, &held(&free, at))
                });
                let [down, up] = rounded;
                best = if up.sum < down.sum { up } else { down };
            }
        }
        best
    }

    fn guess(&self) -> Guess {
        let intervals = self.loads.iter().map(|(_, it)| 1e9 / it.iops);
        let throughput = |(probe, it): &(Probe, Figures)| it.iops * f64::from(probe.block_bytes);
        Guess {
            alone_ns: self.loads.first().map_or(1.0, |(_, it)| 1e9 / it.iops),
            serial_ns: intervals.fold(f64::INFINITY, f64::min),
            bytes_per_s: self.loads.iter().map(throughput).fold(1.0, f64::max),
        }
    }

    /// Returns whether the figures rule out this value of a constant.
    fn rules_out(&self, family: Family, best: &Solution, at: usize, value: f64) -> bool {
        let mut start = best.values.clone();
        start[at] = value;
        let solution = self.solve(family, &start, &held(&vec![false; start.len()], at));
        is_worse(solution.sum, best.sum, self.loads.len(), start.len())
    }

    /// Returns the first value in one direction that the figures rule out, between a doubling and
    /// the next; `None` if none is. `factor` is 2 or a half.
    pub(super) fn limit(
        &self,
        family: Family,
        best: &Solution,
        at: usize,
        factor: f64,
    ) -> Option<f64> {
        let constant = &family.constants()[at];
        let (min, max) = bounds(constant);
        let mut inside = best.values[at];
        if factor < 1.0 && is_count(constant) && inside <= min {
            // There is no smaller number.
            return Some(min);
        }
        let mut outside = inside * factor;
        while !self.rules_out(family, best, at, outside.clamp(min, max)) {
            if !(min..=max).contains(&outside) {
                return None;
            }
            (inside, outside) = (outside, outside * factor);
        }
        for _ in 0..8 {
            let middle = (inside * outside).sqrt();
            match self.rules_out(family, best, at, middle.clamp(min, max)) {
                true => outside = middle,
                false => inside = middle,
            }
        }
        Some(outside.clamp(min, max))
    }
}

/// Returns the smallest and the largest value in a search.
pub(super) fn bounds(constant: &Parameter) -> (f64, f64) {
    ((constant.min as f64).max(NEARLY_ZERO), constant.max as f64)
}

/// Returns whether a constant counts things: small whole numbers.
pub(super) fn is_count(constant: &Parameter) -> bool {
    (constant.min, constant.max) == (1, 65_536)
}

/// Returns whether a sum of squared errors is clearly worse than the best one: a load is 5 %
/// further off, or twice as far as the best fit is off from `nr_loads` loads with `nr_constants`
/// constants.
pub(super) fn is_worse(sum: f64, best: f64, nr_loads: usize, nr_constants: usize) -> bool {
    let scatter = best / nr_loads.saturating_sub(nr_constants).max(1) as f64;
    sum - best > (RULED_OUT * RULED_OUT).max(4.0 * scatter)
}

/// Returns `is_held` with one more constant held.
fn held(is_held: &[bool], at: usize) -> Vec<bool> {
    let mut is_held = is_held.to_vec();
    is_held[at] = true;
    is_held
}

/// Returns the residual of an error: nearly the error itself if it is small, and less otherwise.
pub(super) fn damped(error: f64) -> f64 {
    let ratio = error / LARGE_ERROR;
    let size = (2.0 * ((1.0 + ratio * ratio).sqrt() - 1.0)).sqrt() * LARGE_ERROR;
    size.copysign(error)
}

/// Returns all combinations of one value from each list.
fn combinations(lists: &[Vec<f64>]) -> Vec<Vec<f64>> {
    lists.iter().fold(vec![Vec::new()], |heads, list| {
        let extended = |head: &Vec<f64>| {
            let head = head.clone();
            list.iter().map(move |&value| head.iter().copied().chain([value]).collect())
        };
        heads.iter().flat_map(extended).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_ruled_out_beyond_the_scatter_of_the_loads() {
        // One load that is 6 % off, and nothing else is.
        assert!(is_worse(0.06 * 0.06, 0.0, 11, 3));
        assert!(!is_worse(0.04 * 0.04, 0.0, 11, 3));
        // Each of 8 loads is 10 % off in the best fit.
        assert!(!is_worse(0.08 + 0.19 * 0.19, 0.08, 11, 3));
        assert!(is_worse(0.08 + 0.21 * 0.21, 0.08, 11, 3));
    }

    #[test]
    fn large_errors_count_less_than_their_squares() {
        let near = |error: f64, expected: f64| assert!((damped(error) - expected).abs() < 1e-3);
        near(0.01, 0.01);
        near(-0.01, -0.01);
        // The root of twice the ratio of 10, less 1, in units of 0.1.
        near(1.0, 0.4254);
        assert!(damped(-3.0) < damped(-1.0));
    }

    #[test]
    fn combinations_have_one_value_of_each_list() {
        let all = combinations(&[vec![1.0, 2.0], vec![3.0], vec![4.0, 5.0]]);
        assert_eq!(all, [[1.0, 3.0, 4.0], [1.0, 3.0, 5.0], [2.0, 3.0, 4.0], [2.0, 3.0, 5.0]]);
    }
}
