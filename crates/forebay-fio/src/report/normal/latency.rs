//! The latency lines: each picks the unit in which its numbers are short but not blunt.

use super::super::number::{Base, short};
use super::Out;
use crate::histogram::{Histogram, PERCENTILES};
use crate::stats::moments::Moments;

/// Columns that a line of percentiles may have, without its indentation.
const LINE_WIDTH: usize = 73;

/// One line with minimum, maximum, mean and deviation; none if nothing was measured.
pub(super) fn moments(out: &mut Out, name: &str, moments: &Moments) {
    if moments.count() == 0 {
        return;
    }
    let (min, max, stddev) = (moments.min(), moments.max(), moments.stddev());
    let (unit, scale) = match (min, max) {
        (2_000_001.., 100_000_000..) if stddev > 1_000_000.0 => ("msec", 1_000_000),
        (2_001.., 100_000..) if stddev > 1_000.0 => ("usec", 1000),
        _ => ("nsec", 1),
    };
    out.line(format_args!(
        "{name:>8} ({unit}): min={}, max={}, avg={:5.2}, stdev={:5.2}",
        short(min / scale, 6, Base::Decimal, ""),
        short(max / scale, 6, Base::Decimal, ""),
        moments.mean() / scale as f64,
        stddev / scale as f64
    ));
}

/// The block of percentiles, as many to a line as fit; nothing if nothing was measured.
pub(super) fn percentiles(out: &mut Out, name: &str, histogram: &Histogram) {
    let values = histogram.percentiles(&PERCENTILES);
    let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
        return;
    };
    let (unit, scale) = match (min, max) {
        (2_000_001.., 100_000_000..) => ("msec", 1_000_000),
        (2_001.., 100_000..) => ("usec", 1000),
        _ => ("nsec", 1),
    };
    let width = max.div_ceil(scale).to_string().len().max(5);
    let texts: Vec<_> = PERCENTILES
        .iter()
        .zip(&values)
        .map(|(percent, ns)| format!("{percent:5.2}th=[{:width$}]", ns.div_ceil(scale)))
        .collect();
    out.line(format_args!("    {name} percentiles ({unit}):"));
    let per_line = LINE_WIDTH / (width + 12);
    let lines = texts.chunks(per_line).map(|line| format!("     | {}", line.join(", ")));
    out.line(format_args!("{}", lines.collect::<Vec<_>>().join(",\n")));
}
