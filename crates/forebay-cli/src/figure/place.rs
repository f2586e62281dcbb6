//! Places of texts in a chart, so that none covers another.

/// The height of a line of labels.
pub(super) const LINE: f64 = 15.0;

/// Returns the heights of labels beside curves that end at these heights: at least a line apart and
/// between `top` and `bottom`, and otherwise as near as possible from above. The order stays the
/// same.
pub(super) fn apart(ends: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by(|&a, &b| ends[a].total_cmp(&ends[b]));
    let mut placed = vec![0.0; ends.len()];
    let mut free = top;
    for &at in &order {
        placed[at] = ends[at].max(free);
        free = placed[at] + LINE;
    }
    let mut free = bottom;
    for &at in order.iter().rev() {
        placed[at] = placed[at].min(free);
        free = placed[at] - LINE;
    }
    placed
}

/// A rectangle that a text takes: left, top, right, bottom.
pub(super) type Box4 = [f64; 4];

/// Rectangles that texts take.
#[derive(Debug, Default)]
pub(super) struct Taken(Vec<Box4>);

impl Taken {
    /// Takes a rectangle if it is free. Returns whether it was.
    pub(super) fn take(&mut self, wanted: Box4) -> bool {
        let covers = |other: &Box4| {
            wanted[0] < other[2]
                && other[0] < wanted[2]
                && wanted[1] < other[3]
                && other[1] < wanted[3]
        };
        let is_free = !self.0.iter().any(covers);
        if is_free {
            self.0.push(wanted);
        }
        is_free
    }
}

/// Returns which ticks at these places have room for labels of these widths. The first and the last
/// one have a label in any case, if both fit.
pub(super) fn roomy(places: &[f64], widths: &[f64], gap: f64) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    let clash =
        |a: usize, b: usize| places[a] + widths[a] / 2.0 + gap > places[b] - widths[b] / 2.0;
    for at in 0..places.len() {
        if kept.last().is_none_or(|&last| !clash(last, at)) {
            kept.push(at);
        } else if at + 1 == places.len() {
            while kept.len() > 1 && kept.last().is_some_and(|&last| clash(last, at)) {
                kept.pop();
            }
            if kept.last().is_some_and(|&last| !clash(last, at)) {
                kept.push(at);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_curves_that_end_together_are_a_line_apart() {
        assert_eq!(apart(&[50.0, 100.0], 0.0, 200.0), [50.0, 100.0]);
        assert_eq!(apart(&[50.0, 51.0, 49.0], 0.0, 200.0), [64.0, 79.0, 49.0]);
        assert_eq!(apart(&[199.0, 200.0], 0.0, 200.0), [185.0, 200.0]);
        assert_eq!(apart(&[], 0.0, 200.0), [0.0; 0]);
    }

    #[test]
    fn a_rectangle_is_taken_once() {
        let mut taken = Taken::default();
        assert!(taken.take([0.0, 0.0, 10.0, 10.0]));
        assert!(!taken.take([9.0, 9.0, 20.0, 20.0]));
        assert!(taken.take([10.0, 0.0, 20.0, 10.0]));
    }

    #[test]
    fn crowded_ticks_lose_their_labels_but_the_ends_keep_theirs() {
        let widths = [10.0; 4];
        assert_eq!(roomy(&[0.0, 20.0, 40.0, 60.0], &widths, 4.0), [0, 1, 2, 3]);
        assert_eq!(roomy(&[0.0, 10.0, 50.0, 60.0], &widths, 4.0), [0, 3]);
        assert_eq!(roomy(&[0.0, 1.0, 2.0, 3.0], &widths, 4.0), [0]);
    }
}
