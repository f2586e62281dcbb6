//! A comparison as a figure in SVG: a panel for each metric, in which both sides of a pair are
//! joined by a line.
//!
//! Written by hand: it is a few lines, circles and words, and so it can have colours for a light
//! and a dark page. A and B differ in shape as well as in colour.

use std::fmt::Write;

use super::comparison::{Comparison, Row};
use super::metric::Metric;
use super::spread::Verdict;

const WIDTH: f64 = 960.0;
/// What the title and the names of the sides take.
const TOP: f64 = 112.0;
/// A panel and what stands around it.
const CELL: (f64, f64) = (WIDTH / 2.0, 218.0);
/// The plot in a panel: from the left, from the top, its width and its height.
const PLOT: (f64, f64, f64, f64) = (72.0, 44.0, 380.0, 124.0);
/// What stands below the panels.
const BOTTOM: f64 = 52.0;

const STYLE: &str = "\
text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#24292f}\
.page{fill:#fff}.title{font-size:18px;font-weight:600}.name{font-weight:600}\
.dim{fill:#59636e;font-size:12px}.worse{fill:#b3261e;font-weight:600}\
.grid{stroke:#d8dee4;stroke-width:1}.axis{stroke:#8c959f;stroke-width:1}\
.join{stroke:#8c959f;stroke-width:2}.a{fill:#0b62c4}.b{fill:#fff;stroke:#c2570c;stroke-width:2.5}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}.dim{fill:#9aa4af}\
.worse{fill:#ff8078}.grid{stroke:#2b323b}.axis,.join{stroke:#7d8590}.a{fill:#5cabff}\
.b{fill:#0d1117;stroke:#ff9a4d}}";

/// The figure.
pub(super) fn render(comparison: &Comparison) -> String {
    let rows: Vec<_> = comparison.rows.iter().filter(|row| is_plotted(row)).collect();
    let height = TOP + CELL.1 * rows.len().div_ceil(2) as f64 + BOTTOM;
    let [a, b] = comparison.titles.each_ref().map(|title| escaped(title));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n<title>{a} against {b}</title>\n\
         <style>{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"24\" y=\"34\">The same job in {} pairs of runs, A and B in \
         turn</text>\n",
        comparison.nr_pairs
    );
    svg += &mark('a', 32.0, 58.0);
    svg += &mark('b', 32.0, 82.0);
    for (name, title, y) in [("A", a, 63.0), ("B", b, 87.0)] {
        let _ = writeln!(
            svg,
            "<text x=\"46\" y=\"{y}\"><tspan class=\"name\">{name}</tspan> {title}</text>"
        );
    }
    for (at, row) in rows.iter().enumerate() {
        let (x, y) = ((at % 2) as f64 * CELL.0, TOP + (at / 2) as f64 * CELL.1);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">\n{}</g>", panel(row));
    }
    let mut notes = comparison.cautions();
    notes.truncate(1);
    notes
        .insert(0, format!("A/B: median of the pairs (lowest to highest). {}", comparison.machine));
    for (at, note) in notes.iter().enumerate() {
        let y = height - 30.0 + 18.0 * at as f64;
        let _ = writeln!(svg, "<text class=\"dim\" x=\"24\" y=\"{y}\">{}</text>", escaped(note));
    }
    svg + "</svg>\n"
}

/// Bandwidth says what IOPS says; what was counted once has no pairs.
fn is_plotted(row: &Row) -> bool {
    let metrics = [Metric::Iops, Metric::Mean, Metric::P50, Metric::P99, Metric::P999, Metric::Cpu];
    metrics.contains(&row.metric) && row.ratio.is_some()
}

fn panel(row: &Row) -> String {
    let (left, top, width, height) = PLOT;
    let (scale, unit) = match row.metric {
        Metric::Iops => (1e-3, "thousands"),
        _ => (1.0, "\u{b5}s"),
    };
    let pairs: Vec<_> =
        row.pairs.iter().map(|pair| pair.map(|value| value.map(|v| v * scale))).collect();
    let (low, high, step) = axis(pairs.iter().flatten().flatten().copied());
    let x_of = |at: usize| left + width * (at as f64 + 0.5) / pairs.len() as f64;
    let y_of = |value: f64| top + height * (1.0 - (value - low) / (high - low));
    let title = row.title();
    let title = title.strip_suffix(", us").unwrap_or(&title);
    let mut svg = format!(
        "<text x=\"{left}\" y=\"16\"><tspan class=\"name\">{title}</tspan> <tspan class=\"dim\">\
         {unit}, {} is better</tspan></text>\n{}",
        row.metric.better().word(),
        says(row, left + width)
    );
    let mut tick = (low / step).round() as i64;
    while tick as f64 * step <= high + step / 2.0 {
        let (value, y) = (tick as f64 * step, y_of(tick as f64 * step));
        let decimals = (-step.log10().floor()).clamp(0.0, 4.0) as usize;
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{left} {y:.1}h{width}\"/><text class=\"dim\" x=\"{}\" \
             y=\"{:.1}\" text-anchor=\"end\">{value:.decimals$}</text>",
            left - 8.0,
            y + 4.0
        );
        tick += 1;
    }
    let _ = writeln!(svg, "<path class=\"axis\" d=\"M{left} {:.1}h{width}\"/>", top + height);
    // Many pairs have no room for all their numbers.
    let every = pairs.len().div_ceil(12);
    for (at, pair) in pairs.iter().enumerate() {
        let x = x_of(at);
        if let [Some(a), Some(b)] = pair.map(|value| value.map(y_of)) {
            let _ = writeln!(svg, "<path class=\"join\" d=\"M{x:.1} {a:.1}V{b:.1}\"/>");
        }
        svg += &pair[1].map_or(String::new(), |value| mark('b', x, y_of(value)));
        svg += &pair[0].map_or(String::new(), |value| mark('a', x, y_of(value)));
        if at.is_multiple_of(every) {
            let label = if at == 0 { "pair 1".to_owned() } else { (at + 1).to_string() };
            let _ = writeln!(
                svg,
                "<text class=\"dim\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
                top + height + 18.0
            );
        }
    }
    svg
}

/// The median ratio, and the verdict.
fn says(row: &Row, right: f64) -> String {
    let Some(ratio) = row.ratio else { return String::new() };
    let word = row.verdict.map_or("", Verdict::word);
    let class = if row.verdict == Some(Verdict::Worse) { "worse" } else { "name" };
    format!(
        "<text x=\"{right}\" y=\"16\" text-anchor=\"end\">A/B <tspan class=\"name\">{:.2}</tspan> \
         <tspan class=\"dim\">({:.2} to {:.2})</tspan> <tspan class=\"{class}\">{word}</tspan>\
         </text>\n",
        ratio.median, ratio.min, ratio.max
    )
}

/// Both ends of an axis and the step between its lines. It spans a third of the values at least, so
/// that a hundredth does not look like a difference.
fn axis(values: impl Iterator<Item = f64> + Clone) -> (f64, f64, f64) {
    let min = values.clone().fold(f64::INFINITY, f64::min);
    let max = values.fold(f64::NEG_INFINITY, f64::max);
    let middle = f64::midpoint(min, max);
    let half = (0.55 * (max - min)).max(middle / 6.0).max(1e-6);
    let rough: f64 = half * 2.0 / 4.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|&step| step >= rough);
    let step = step.unwrap_or(power);
    let low = ((middle - half) / step).floor().max(0.0) * step;
    (low, ((middle + half) / step).ceil() * step, step)
}

fn mark(side: char, x: f64, y: f64) -> String {
    match side {
        'a' => format!("<circle class=\"a\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5.5\"/>\n"),
        _ => format!(
            "<rect class=\"b\" x=\"{:.1}\" y=\"{:.1}\" width=\"9\" height=\"9\"/>\n",
            x - 4.5,
            y - 4.5
        ),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::samples::comparison;
    use super::*;

    #[test]
    fn both_sides_of_each_pair_are_joined() {
        let svg = render(&comparison());
        let count = |what: &str| svg.matches(what).count();
        // Six metrics and five pairs, and a mark for each name.
        assert_eq!(count("class=\"join\""), 30);
        assert_eq!((count("<circle"), count("class=\"b\"")), (31, 31));
        assert_eq!(count("<g "), count("</g>"));
        assert!(svg.contains("A/B <tspan class=\"name\">1.02</tspan>"), "{svg}");
        assert!(svg.contains("latency p99</tspan> <tspan class=\"dim\">\u{b5}s, lower is better<"));
    }

    #[test]
    fn names_cannot_break_it() {
        let mut comparison = comparison();
        comparison.titles[0] = "a<b>&c".to_owned();
        assert!(render(&comparison).contains("a&lt;b&gt;&amp;c"));
    }

    #[test]
    fn axes_have_round_numbers_around_the_values() {
        assert_eq!(axis([100.0, 101.0].into_iter()), (80.0, 120.0, 10.0));
        assert_eq!(axis([1.0, 9.0].into_iter()), (0.0, 10.0, 5.0));
        assert_eq!(axis([0.0, 0.0].into_iter()).0, 0.0);
    }
}
