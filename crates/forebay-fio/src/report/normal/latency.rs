//! Latency lines. Each has the unit in which its numbers are short but not blunt.

use super::super::number::{Base, short, time_unit};
use super::Out;
use crate::histogram::Histogram;
use crate::stats::moments::Moments;

/// Columns of a line of percentiles, without its indentation.
const LINE_WIDTH: usize = 73;

/// Prints a line with minimum, maximum, mean and deviation, if anything was measured.
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

/// Prints the percentiles, as many to a line as fit, if anything was measured.
pub(super) fn percentiles(out: &mut Out, name: &str, histogram: &Histogram, percents: &[f64]) {
    let values = histogram.percentiles(percents);
    let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
        return;
    };
    let (unit, scale) = time_unit(min, max);
    let width = max.div_ceil(scale).to_string().len().max(5);
    let digits = percents.iter().map(|&percent| decimals(percent)).max().unwrap_or(0);
    let columns = if digits == 0 { 2 } else { digits + 3 };
    let texts: Vec<_> = percents
        .iter()
        .zip(&values)
        .map(|(percent, ns)| {
            format!("{percent:columns$.digits$}th=[{:width$}]", ns.div_ceil(scale))
        })
        .collect();
    out.line(format_args!("    {name} percentiles ({unit}):"));
    let per_line = LINE_WIDTH / (width + columns + 7);
    let lines = texts.chunks(per_line).map(|line| format!("     | {}", line.join(", ")));
    out.line(format_args!("{}", lines.collect::<Vec<_>>().join(",\n")));
}

/// Returns the number of decimals of a percentile, six at most.
fn decimals(percent: f64) -> usize {
    let text = format!("{percent:.6}");
    text.trim_end_matches('0').split('.').nth(1).map_or(0, str::len)
}
