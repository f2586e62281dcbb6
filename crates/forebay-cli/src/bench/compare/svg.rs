//! A comparison as an SVG figure: a panel for each metric, in which a line joins both sides of a
//! pair.
//!
//! A and B differ in shape as well as in colour.

use std::fmt::Write;

use super::comparison::{Comparison, Row};
use super::metric::Metric;
use super::spread::{Verdict, shown, shown_range};
use crate::figure::{
    Axis, LEFT, NAME_CHARS, NOTE, NOTE_CHARS, PLOT, TITLE_CHARS, TITLE_LINE, anchored, count_unit,
    cut, escaped, grid, height_of_panels, lines, page, panel_name, panels, text, x_of, y_of,
};

/// The space for the names of the sides, below the title.
const NAMES: f64 = 88.0;

/// Returns the figure.
pub(super) fn render(comparison: &Comparison) -> String {
    let rows: Vec<_> = comparison.rows.iter().filter(|row| is_plotted(row)).collect();
    let title = lines(&comparison.workload, TITLE_CHARS);
    let top = 16.0 + TITLE_LINE * title.len() as f64 + NAMES;
    let notes = notes(comparison);
    let bottom = top + height_of_panels(rows.len()) + 20.0;
    let mut svg = heading(comparison, &title);
    svg += &panels(top, rows.into_iter().map(panel));
    for (at, note) in notes.iter().enumerate() {
        svg += &text("dim", LEFT, bottom + NOTE * at as f64, &escaped(note));
    }
    let [a, b] = &comparison.titles;
    let title = format!("{}: {a} against {b}", comparison.workload);
    page(&title, bottom + NOTE * notes.len() as f64, &svg)
}

/// Returns the title, which is the load, and the names of the sides.
fn heading(comparison: &Comparison, title: &[String]) -> String {
    let mut svg = String::new();
    let mut y = 34.0;
    for line in title {
        svg += &text("title", LEFT, y, &escaped(line));
        y += TITLE_LINE;
    }
    let pairs = comparison.nr_pairs;
    svg += &text("dim", LEFT, y - 3.0, &format!("{pairs} pairs of runs, A and B in turn"));
    for (side, title) in ['a', 'b'].into_iter().zip(&comparison.titles) {
        y += 22.0;
        svg += &mark(side, LEFT + 8.0, y - 5.0);
        let name = side.to_ascii_uppercase();
        let title = escaped(&cut(title, NAME_CHARS));
        let content = format!("<tspan class=\"name\">{name}</tspan> {title}");
        svg += &text("", LEFT + 22.0, y, &content);
    }
    svg
}

/// Returns the lines of the notes below the panels.
fn notes(comparison: &Comparison) -> Vec<String> {
    let level = comparison.level().map_or(String::new(), |level| {
        format!("; interval: of the median, with a confidence of {level:.1} %")
    });
    let ratios = format!("A/B: median of the ratios of the pairs{level}.");
    let caution = comparison.cautions().into_iter().next();
    let notes = [ratios, comparison.machine.clone()].into_iter().chain(caution);
    notes.flat_map(|note| lines(&note, NOTE_CHARS)).collect()
}

/// Returns whether a metric has a panel. Bandwidth would repeat IOPS, and a value that is counted
/// once has no pairs.
fn is_plotted(row: &Row) -> bool {
    let metrics = [Metric::Iops, Metric::Mean, Metric::P50, Metric::P99, Metric::P999, Metric::Cpu];
    metrics.contains(&row.metric) && (row.ratio.is_some() || row.verdict.is_some())
}

fn panel(row: &Row) -> String {
    let (_, top, _, height) = PLOT;
    let values = row.pairs.iter().flatten().flatten().copied();
    let (unit, scale) = unit(row.metric, values.fold(0.0, f64::max));
    let pairs: Vec<_> =
        row.pairs.iter().map(|pair| pair.map(|value| value.map(|v| v / scale))).collect();
    let axis = Axis::of(pairs.iter().flatten().flatten().copied());
    let mut svg = panel_heading(row, unit, axis.is_log) + &grid(&axis);
    // With many pairs there is no room for all their numbers.
    let every = pairs.len().div_ceil(12);
    for (at, pair) in pairs.iter().enumerate() {
        let x = x_of(at, pairs.len());
        let y_of = |value| y_of(&axis, value);
        if let [Some(a), Some(b)] = pair.map(|value| value.map(y_of)) {
            let _ = writeln!(svg, "<path class=\"join\" d=\"M{x:.1} {a:.1}V{b:.1}\"/>");
        }
        svg += &pair[1].map_or(String::new(), |value| mark('b', x, y_of(value)));
        svg += &pair[0].map_or(String::new(), |value| mark('a', x, y_of(value)));
        if at.is_multiple_of(every) {
            let label = if at == 0 { "pair 1".to_owned() } else { (at + 1).to_string() };
            svg += &anchored("dim", x, top + height + 18.0, "middle", &label);
        }
    }
    svg
}

/// Returns the unit of a panel and its size.
fn unit(metric: Metric, max: f64) -> (&'static str, f64) {
    match metric {
        Metric::Iops => count_unit(max),
        _ => metric.unit(max),
    }
}

/// Returns the two lines above a plot: the metric with its unit, and the ratio with its verdict.
fn panel_heading(row: &Row, unit: &str, is_log: bool) -> String {
    let left = PLOT.0;
    let is_higher_better = row.metric.better().word() == "higher";
    let mut svg = panel_name(&row.name(), unit, is_higher_better, is_log);
    let ratio = row.ratio.map_or("-".to_owned(), |ratio| shown(ratio.median));
    let interval = row.ratio.and_then(|ratio| ratio.interval).map_or(String::new(), |interval| {
        format!(", interval {}", shown_range(interval.low, interval.high))
    });
    let range = row
        .ratio
        .map_or(String::new(), |ratio| format!(", range {}", shown_range(ratio.min, ratio.max)));
    let pairs = row.pairs_used().map_or(String::new(), |pairs| format!(", {pairs}"));
    let verdict = row.verdict.map_or("", Verdict::word);
    let class = match row.verdict {
        Some(Verdict::Worse) => "worse",
        Some(Verdict::Undecided) => "undecided",
        _ => "name",
    };
    let content = format!(
        "A/B <tspan class=\"name\">{ratio}</tspan><tspan class=\"dim\">{interval}{range}{pairs}\
         </tspan> <tspan class=\"{class}\">{verdict}</tspan>"
    );
    svg += &text("", left, 36.0, &content);
    svg
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
        let ratio = "A/B <tspan class=\"name\">1.02</tspan><tspan class=\"dim\">, interval \
                     0.90-1.10, range 0.90-1.10</tspan> <tspan class=\"undecided\">undecided<";
        assert!(svg.contains(ratio), "{svg}");
        let name = "latency p99</tspan> <tspan class=\"dim\">\u{b5}s, lower is better \u{2193}<";
        assert!(svg.contains(name), "{svg}");
    }

    #[test]
    fn the_title_is_the_load_and_axes_start_at_zero() {
        let mut comparison = comparison();
        comparison.workload = "rw=randread, bs=4k, ".repeat(6);
        let svg = render(&comparison);
        assert_eq!(svg.matches("class=\"title\"").count(), 2, "it is wrapped");
        assert!(svg.contains(">rw=randread, bs=4k, rw=randread,"), "{svg}");
        // One 0 for each panel.
        assert_eq!(svg.matches(">0</text>").count(), 6);
        assert!(!svg.contains("log scale"), "{svg}");
    }

    #[test]
    fn an_outlier_makes_its_panel_logarithmic_and_says_so() {
        let mut comparison = comparison();
        let row = comparison.rows.iter_mut().find(|row| row.metric == Metric::P99).expect("p99");
        row.pairs[2][0] = Some(3_000_000.0);
        let svg = render(&comparison);
        assert_eq!(svg.matches("log scale").count(), 1);
        assert!(svg.contains("latency p99</tspan> <tspan class=\"dim\">s, lower"), "{svg}");
    }

    #[test]
    fn row_without_a_ratio_has_its_verdict_and_the_values_of_one_side() {
        let mut comparison = comparison();
        let row = comparison.rows.iter_mut().find(|row| row.metric == Metric::P99).expect("p99");
        row.pairs.iter_mut().for_each(|pair| pair[1] = None);
        (row.ratio, row.verdict) = (None, Some(Verdict::Undecided));
        let svg = render(&comparison);
        let heading = "A/B <tspan class=\"name\">-</tspan><tspan class=\"dim\">, 0 of 5 pairs\
                       </tspan> <tspan class=\"undecided\">undecided<";
        assert!(svg.contains(heading), "{svg}");
        assert_eq!((svg.matches("<circle").count(), svg.matches("class=\"b\"").count()), (31, 26));
    }

    #[test]
    fn names_cannot_break_it() {
        let mut comparison = comparison();
        comparison.titles[0] = "a<b>&c".to_owned();
        comparison.titles[1] = "x".repeat(300) + "end";
        let svg = render(&comparison);
        assert!(svg.contains("a&lt;b&gt;&amp;c"));
        assert!(svg.contains("xxx...xxx") && svg.contains("xend</text>"), "{svg}");
    }
}
