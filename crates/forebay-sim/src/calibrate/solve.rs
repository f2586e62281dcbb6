//! Nonlinear least squares for a few positive constants: the method of Levenberg and Marquardt.
//!
//! The search runs over the logarithms of the constants, because a rate and a latency differ by
//! many orders of magnitude, and none is negative.

/// The maximum number of steps. Loads of a calibration need about ten.
const NR_STEPS: usize = 60;
/// The search ends when a step improves the sum by a smaller share.
const PROGRESS: f64 = 1e-9;
/// The difference of a logarithm by which slopes are computed.
const DELTA: f64 = 1e-4;

/// The problem: residuals as a function of the constants.
pub(super) struct Problem<'a> {
    /// Returns the residuals, always the same number of them.
    pub(super) residuals: &'a dyn Fn(&[f64]) -> Vec<f64>,
    /// The smallest and the largest value of each constant; positive.
    pub(super) bounds: &'a [(f64, f64)],
    /// The constants that keep their values.
    pub(super) is_held: &'a [bool],
}

/// A solution.
#[derive(Clone, Debug)]
pub(super) struct Solution {
    pub(super) values: Vec<f64>,
    /// The sum of the squares of the residuals.
    pub(super) sum: f64,
}

impl Problem<'_> {
    /// Returns the solution that a search from `start` finds.
    pub(super) fn solve(&self, start: &[f64]) -> Solution {
        let mut best = self.solution(start.to_vec());
        let free: Vec<usize> = (0..start.len()).filter(|&at| !self.is_held[at]).collect();
        let mut damping = 1e-2;
        for _ in 0..NR_STEPS {
            let (normal, slope) = self.equations(&best, &free);
            let mut improved = None;
            // A larger damping shortens the step.
            while damping < 1e9 {
                let step = solve_linear(damped(&normal, damping), slope.clone());
                let moved = self.solution(self.moved(&best.values, &free, &step));
                if moved.sum < best.sum {
                    improved = Some(moved);
                    damping = (damping / 10.0).max(1e-9);
                    break;
                }
                damping *= 10.0;
            }
            let Some(moved) = improved else { break };
            let is_done = best.sum - moved.sum <= PROGRESS * best.sum;
            best = moved;
            if is_done {
                break;
            }
        }
        best
    }

    fn solution(&self, mut values: Vec<f64>) -> Solution {
        for (value, &(min, max)) in values.iter_mut().zip(self.bounds) {
            *value = value.clamp(min, max);
        }
        let sum = (self.residuals)(&values).iter().map(|it| it * it).sum();
        Solution { values, sum }
    }

    fn moved(&self, values: &[f64], free: &[usize], step: &[f64]) -> Vec<f64> {
        let mut moved = values.to_vec();
        for (&at, step) in free.iter().zip(step) {
            // At most a factor of e^2, so that one bad slope does not leave the region.
            moved[at] *= step.clamp(-2.0, 2.0).exp();
        }
        moved
    }

    /// Returns the normal equations: the matrix, and the right side.
    fn equations(&self, at: &Solution, free: &[usize]) -> (Vec<Vec<f64>>, Vec<f64>) {
        let residuals = (self.residuals)(&at.values);
        let slopes: Vec<Vec<f64>> = free
            .iter()
            .map(|&constant| {
                let mut values = at.values.clone();
                values[constant] *= DELTA.exp();
                let moved = (self.residuals)(&values);
                residuals.iter().zip(&moved).map(|(from, to)| (to - from) / DELTA).collect()
            })
            .collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let normal = slopes.iter().map(|a| slopes.iter().map(|b| dot(a, b)).collect()).collect();
        let slope = slopes.iter().map(|a| -dot(a, &residuals)).collect();
        (normal, slope)
    }
}

/// Returns the matrix with a larger diagonal. A constant without influence keeps its value.
fn damped(normal: &[Vec<f64>], damping: f64) -> Vec<Vec<f64>> {
    let mut damped = normal.to_vec();
    for (at, row) in damped.iter_mut().enumerate() {
        row[at] += damping * (row[at] + 1e-9);
    }
    damped
}

/// Solves linear equations by elimination. Unknowns that the equations leave open become 0.
fn solve_linear(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let nr = right.len();
    for at in 0..nr {
        let size = |row: usize| matrix[row][at].abs();
        let pivot = (at..nr).max_by(|&a, &b| size(a).total_cmp(&size(b))).unwrap_or(at);
        matrix.swap(at, pivot);
        right.swap(at, pivot);
        if matrix[at][at] == 0.0 {
            continue;
        }
        for row in at + 1..nr {
            let factor = matrix[row][at] / matrix[at][at];
            let (head, tail) = matrix.split_at_mut(row);
            let columns = tail[0].iter_mut().zip(&head[at]).skip(at);
            columns.for_each(|(cell, pivot)| *cell -= factor * pivot);
            right[row] -= factor * right[at];
        }
    }
    let mut solution = vec![0.0; nr];
    for at in (0..nr).rev() {
        let known: f64 = (at + 1..nr).map(|column| matrix[at][column] * solution[column]).sum();
        if matrix[at][at] != 0.0 {
            solution[at] = (right[at] - known) / matrix[at][at];
        }
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solve(residuals: &dyn Fn(&[f64]) -> Vec<f64>, start: &[f64], held: &[bool]) -> Solution {
        let bounds = vec![(0.01, 1e12); start.len()];
        Problem { residuals, bounds: &bounds, is_held: held }.solve(start)
    }

    #[test]
    fn linear_equations_are_solved_also_with_a_zero_pivot() {
        let matrix = vec![vec![0.0, 2.0, 1.0], vec![1.0, 1.0, 0.0], vec![2.0, 0.0, 1.0]];
        assert_eq!(solve_linear(matrix, vec![7.0, 3.0, 5.0]), [1.0, 2.0, 3.0]);
        assert_eq!(solve_linear(vec![vec![2.0, 0.0], vec![0.0, 0.0]], vec![4.0, 0.0]), [2.0, 0.0]);
    }

    #[test]
    fn constants_of_different_magnitude_are_found() {
        // A line through exact points.
        let residuals = |values: &[f64]| {
            let at = |x: f64| ((values[0] + values[1] * x) / (80_000.0 + 0.3 * x)).ln();
            [1.0, 1e3, 1e5, 1e7].map(at).to_vec()
        };
        let found = solve(&residuals, &[1000.0, 50.0], &[false; 2]);
        assert!((found.values[0] / 80_000.0 - 1.0).abs() < 1e-4, "{found:?}");
        assert!((found.values[1] / 0.3 - 1.0).abs() < 1e-4, "{found:?}");
    }

    #[test]
    fn held_constants_and_constants_without_influence_keep_their_values() {
        let residuals = |values: &[f64]| vec![(values[0] * values[1] / 12.0).ln()];
        let found = solve(&residuals, &[3.0, 2.0, 7.0], &[true, false, false]);
        assert!((found.values[1] - 4.0).abs() < 1e-3, "{found:?}");
        assert_eq!((found.values[0], found.values[2]), (3.0, 7.0));
    }
}
