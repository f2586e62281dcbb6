//! A comparison as a figure in SVG: a panel for each metric, in which a line joins both sides of a
//! pair.
//!
//! Written by hand: it is a few lines, circles and words, and so it can have colours for a light
//! and a dark page. A and B differ in shape as well as in colour.

use std::fmt::Write;

use super::axis::Axis;
use super::comparison::{Comparison, Row};
use super::metric::Metric;
use super::spread::{Verdict, shown, shown_range};

const WIDTH: f64 = 960.0;
/// From the left border to the text.
const LEFT: f64 = 24.0;
/// The height of a line of the title.
const TITLE_LINE: f64 = 24.0;
/// The space for the names of the sides, below the title.
const NAMES: f64 = 88.0;
/// A panel and the space around it.
const CELL: (f64, f64) = (WIDTH / 2.0, 236.0);
/// The plot in a panel: from the left, from the top, its width and its height.
const PLOT: (f64, f64, f64, f64) = (72.0, 58.0, 384.0, 128.0);
/// The height of a note below the panels.
const NOTE: f64 = 18.0;

/// Characters that fit into a line of the title, and of a name or a note.
const TITLE_CHARS: usize = 76;
const NAME_CHARS: usize = 110;
const NOTE_CHARS: usize = 126;

const STYLE: &str = "\
text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#24292f}\
.page{fill:#fff}.title{font-size:18px;font-weight:600}.name{font-weight:600}\
.dim{fill:#59636e;font-size:12px}.worse{fill:#b3261e;font-weight:600}\
.undecided{fill:#8a5a00;font-weight:600}\
.grid{stroke:#d8dee4;stroke-width:1}.axis{stroke:#8c959f;stroke-width:1}\
.join{stroke:#8c959f;stroke-width:2}.a{fill:#0b62c4}.b{fill:#fff;stroke:#c2570c;stroke-width:2.5}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}.dim{fill:#9aa4af}\
.worse{fill:#ff8078}.undecided{fill:#e3b341}.grid{stroke:#2b323b}.axis,.join{stroke:#7d8590}\
.a{fill:#5cabff}.b{fill:#0d1117;stroke:#ff9a4d}}";

/// Returns the figure.
pub(super) fn render(comparison: &Comparison) -> String {
    let rows: Vec<_> = comparison.rows.iter().filter(|row| is_plotted(row)).collect();
    let title = lines(&comparison.workload, TITLE_CHARS);
    let top = 16.0 + TITLE_LINE * title.len() as f64 + NAMES;
    let notes = notes(comparison);
    let bottom = top + CELL.1 * rows.len().div_ceil(2) as f64 + 20.0;
    let height = bottom + NOTE * notes.len() as f64;
    let [a, b] = comparison.titles.each_ref().map(|title| escaped(title));
    let workload = escaped(&comparison.workload);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n<title>{workload}: {a} against {b}\
         </title>\n<style>{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" \
         height=\"{height}\"/>\n"
    );
    svg += &heading(comparison, &title);
    for (at, row) in rows.iter().enumerate() {
        let (x, y) = ((at % 2) as f64 * CELL.0, top + (at / 2) as f64 * CELL.1);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">\n{}</g>", panel(row));
    }
    for (at, note) in notes.iter().enumerate() {
        svg += &text("dim", LEFT, bottom + NOTE * at as f64, &escaped(note));
    }
    svg + "</svg>\n"
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
    let (left, top, width, height) = PLOT;
    let values = row.pairs.iter().flatten().flatten().copied();
    let (unit, scale) = unit(row.metric, values.fold(0.0, f64::max));
    let pairs: Vec<_> =
        row.pairs.iter().map(|pair| pair.map(|value| value.map(|v| v / scale))).collect();
    let axis = Axis::of(pairs.iter().flatten().flatten().copied());
    let x_of = |at: usize| left + width * (at as f64 + 0.5) / pairs.len() as f64;
    let y_of = |value: f64| top + height * (1.0 - axis.place(value));
    let mut svg = panel_heading(row, unit, axis.is_log);
    for &tick in &axis.ticks {
        let y = y_of(tick);
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{left} {y:.1}h{width}\"/>");
        svg += &anchored("dim", left - 8.0, y + 4.0, "end", &axis.label(tick));
    }
    let _ = writeln!(svg, "<path class=\"axis\" d=\"M{left} {:.1}h{width}\"/>", top + height);
    // With many pairs there is no room for all their numbers.
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
            svg += &anchored("dim", x, top + height + 18.0, "middle", &label);
        }
    }
    svg
}

/// Returns the unit of a panel and its size. Axes have plain numbers, so large IOPS need one, too.
fn unit(metric: Metric, max: f64) -> (&'static str, f64) {
    match (metric, metric.unit(max)) {
        (Metric::Iops, _) if max >= 1e7 => ("millions", 1e6),
        (Metric::Iops, _) if max >= 1e4 => ("thousands", 1e3),
        (_, ("us", scale)) => ("\u{b5}s", scale),
        (_, unit) => unit,
    }
}

/// Returns the two lines above a plot: the metric with its unit, and the ratio with its verdict.
fn panel_heading(row: &Row, unit: &str, is_log: bool) -> String {
    let left = PLOT.0;
    let better = match row.metric.better().word() {
        "higher" => "higher is better \u{2191}",
        _ => "lower is better \u{2193}",
    };
    let scale = if is_log { ", log scale" } else { "" };
    let unit = if unit.is_empty() { String::new() } else { format!("{unit}, ") };
    let name = row.name();
    let content = format!(
        "<tspan class=\"name\">{name}</tspan> <tspan class=\"dim\">{unit}{better}{scale}</tspan>"
    );
    let mut svg = text("", left, 16.0, &content);
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

fn text(class: &str, x: f64, y: f64, content: &str) -> String {
    anchored(class, x, y, "start", content)
}

fn anchored(class: &str, x: f64, y: f64, anchor: &str, content: &str) -> String {
    format!(
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}\
         </text>\n"
    )
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

/// Returns the text in lines of at most `max` characters, broken at blanks.
fn lines(text: &str, max: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() > max {
            lines.push(word.to_owned());
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.iter().map(|line| cut(line, max)).collect()
}

/// Returns the text with at most `max` characters: of a longer one the middle is left out, because
/// names differ at their ends.
fn cut(text: &str, max: usize) -> String {
    let nr = text.chars().count();
    if nr <= max {
        return text.to_owned();
    }
    let kept = max - 3;
    let first: String = text.chars().take(kept.div_ceil(2)).collect();
    let last: String = text.chars().skip(nr - kept / 2).collect();
    format!("{first}...{last}")
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
