//! The median of some values, and their range.

/// The median, the lowest and the highest of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Range {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Range {
    /// Returns the range of these values; `None` if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        // An even number of values has two in the middle.
        let (below, above) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: below.midpoint(above), min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_of_values_is_between_the_middle_two() {
        let range = |values: &[f64]| Range::of(values.iter().copied());
        let expected = Range { median: 3.0, min: 1.0, max: 9.0 };
        assert_eq!(range(&[9.0, 4.0, 1.0, 2.0]), Some(expected));
        assert_eq!(range(&[9.0, 3.0, 1.0]), Some(expected));
        assert_eq!(range(&[]), None);
    }
}
