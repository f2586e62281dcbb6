//! The shapes and texts of a chart.

use std::fmt::Write;

use super::{Chart, Curve, WIDTH};
use crate::figure::axis::Axis;
use crate::figure::place::{LINE, Taken, apart, roomy};
use crate::figure::style::NR_STYLES;
use crate::figure::{anchored, cut, escaped, lines, text};

/// From the left border to the plot, and from the top border to the first line.
const LEFT: f64 = 78.0;
const TOP: f64 = 26.0;
/// The height of a plot, and of a line of the title.
const HEIGHT: f64 = 240.0;
const TITLE_LINE: f64 = 20.0;
/// The widths of a character: of the title, and of the labels.
const TITLE_CHAR: f64 = 9.0;
const CHAR: f64 = 7.3;
/// The longest name of a curve, in characters.
const NAME_MAX: usize = 20;
/// From the plot to the names of its curves.
const LEAD: f64 = 20.0;
/// Curves with more points have marks only at some of them.
const MARKS: usize = 24;
const FEW_MARKS: usize = 6;

/// The area of the plot and its axes.
struct Plot {
    left: f64,
    top: f64,
    width: f64,
    x: Axis,
    y: Axis,
}

impl Plot {
    /// Returns the place of a point; `None` if it has no value.
    fn at(&self, [x, y]: [f64; 2]) -> Option<[f64; 2]> {
        let place =
            [self.left + self.width * self.x.place(x), self.top + HEIGHT * (1.0 - self.y.place(y))];
        place.iter().all(|it| it.is_finite()).then_some(place)
    }

    fn bottom(&self) -> f64 {
        self.top + HEIGHT
    }
}

/// Returns the height of the chart, and its shapes.
pub(super) fn content(chart: &Chart) -> (f64, String) {
    let mut svg = String::new();
    let mut y = TOP;
    for line in lines(&chart.title, ((WIDTH - 32.0) / TITLE_CHAR) as usize) {
        svg += &text("head", 16.0, y, &escaped(&line));
        y += TITLE_LINE;
    }
    let points = || chart.curves.iter().flat_map(|curve| &curve.points);
    let values = |at: usize| points().map(move |point| point[at]).filter(|it| it.is_finite());
    let names: Vec<String> = chart.curves.iter().map(|curve| cut(&curve.name, NAME_MAX)).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let right = LEAD + 12.0 + longest as f64 * CHAR;
    let plot = Plot {
        left: LEFT,
        top: y + 14.0,
        width: WIDTH - LEFT - right,
        x: chart.x.axis(values(0)),
        y: chart.y.axis(values(1)),
    };
    svg += &text("dim", 16.0, y, &escaped(&subtitle(chart, &plot.y)));
    svg += &vertical(chart, &plot);
    svg += &horizontal(chart, &plot);
    let joined = chart.curves.iter().filter(|curve| curve.is_joined);
    joined.for_each(|curve| svg += &line(curve, &plot));
    chart.curves.iter().for_each(|curve| svg += &marks(curve, &plot));
    let mut taken = Taken::default();
    chart.curves.iter().for_each(|curve| svg += &labels(curve, &plot, &mut taken));
    svg += &curve_names(chart, &names, &plot);
    let mut bottom = plot.bottom() + 42.0;
    for note in &chart.notes {
        for line in lines(note, ((WIDTH - 32.0) / CHAR) as usize) {
            bottom += 17.0;
            svg += &text("dim", 16.0, bottom, &escaped(&line));
        }
    }
    (bottom + 14.0, svg)
}

/// Returns the name of the vertical axis, which way is better, and the scale.
fn subtitle(chart: &Chart, axis: &Axis) -> String {
    let better = match chart.is_higher_better {
        Some(true) => ", higher is better \u{2191}",
        Some(false) => ", lower is better \u{2193}",
        None => "",
    };
    let scale = if axis.is_log { ", log scale" } else { "" };
    format!("{}{better}{scale}", chart.y.name)
}

fn vertical(chart: &Chart, plot: &Plot) -> String {
    let mut svg = String::new();
    for &tick in &plot.y.ticks {
        let y = plot.top + HEIGHT * (1.0 - plot.y.place(tick));
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}h{:.1}\"/>", plot.width);
        svg += &anchored("dim", LEFT - 8.0, y + 4.0, "end", &chart.y.unit.label(tick));
    }
    svg
}

fn horizontal(chart: &Chart, plot: &Plot) -> String {
    let ticks = &plot.x.ticks;
    let x_of = |tick: &f64| plot.left + plot.width * plot.x.place(*tick);
    let texts: Vec<String> = ticks.iter().map(|&tick| chart.x.unit.label(tick)).collect();
    let widths: Vec<f64> = texts.iter().map(|text| text.chars().count() as f64 * CHAR).collect();
    let places: Vec<f64> = ticks.iter().map(x_of).collect();
    let bottom = plot.bottom();
    let mut svg = String::new();
    for at in roomy(&places, &widths, 6.0) {
        let x = places[at];
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{x:.1} {:.1}V{bottom:.1}\"/>", plot.top);
        svg += &anchored("dim", x, bottom + 18.0, "middle", &escaped(&texts[at]));
    }
    let _ = writeln!(
        svg,
        "<path class=\"axis\" d=\"M{LEFT} {:.1}V{bottom:.1}h{:.1}\"/>",
        plot.top, plot.width
    );
    let scale = if plot.x.is_log { ", log scale" } else { "" };
    let name = escaped(&format!("{}{scale}", chart.x.name));
    svg + &anchored("dim", plot.left + plot.width / 2.0, bottom + 36.0, "middle", &name)
}

/// Returns the line of a curve, with a gap where there is no value.
fn line(curve: &Curve, plot: &Plot) -> String {
    let mut path = String::new();
    let mut is_open = false;
    for &point in &curve.points {
        let place = plot.at(point);
        if let Some([x, y]) = place {
            let _ = write!(path, "{}{x:.1} {y:.1}", if is_open { 'L' } else { 'M' });
        }
        is_open = place.is_some();
    }
    let style = curve.style % NR_STYLES;
    match path.is_empty() {
        true => String::new(),
        false if curve.is_reference => {
            format!("<path class=\"thin c{style}\" d=\"{path}\"/>\n")
        }
        false => format!("<path class=\"line c{style} d{style}\" d=\"{path}\"/>\n"),
    }
}

fn marks(curve: &Curve, plot: &Plot) -> String {
    let places: Vec<_> = curve.points.iter().filter_map(|&point| plot.at(point)).collect();
    let every = match places.len() {
        0..=MARKS => 1,
        nr => nr.div_ceil(FEW_MARKS),
    };
    // Curves of many points have their marks at different places.
    let first = curve.style % NR_STYLES * every / NR_STYLES;
    places.iter().skip(first).step_by(every).map(|&place| mark(curve, place)).collect()
}

fn mark(curve: &Curve, [x, y]: [f64; 2]) -> String {
    let style = curve.style % NR_STYLES;
    let fill = if curve.is_reference { "hollow".to_owned() } else { format!("f{style}") };
    let class = format!("mark c{style} {fill}");
    let path = |d: String| format!("<path class=\"{class}\" d=\"{d}\"/>\n");
    match style {
        0 => format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\"/>\n"),
        1 => path(format!("M{:.1} {:.1}h7v7h-7z", x - 3.5, y - 3.5)),
        2 => path(format!("M{x:.1} {:.1}l4.4 7.6h-8.8z", y - 4.8)),
        3 => path(format!("M{x:.1} {:.1}l4.8 4.8l-4.8 4.8l-4.8 -4.8z", y - 4.8)),
        4 => path(format!("M{x:.1} {:.1}l4.4 -7.6h-8.8z", y + 4.8)),
        _ => path(format!("M{:.1} {:.1}h10v4h-10z", x - 5.0, y - 2.0)),
    }
}

/// Returns the labels of points. A label without room is left out.
fn labels(curve: &Curve, plot: &Plot, taken: &mut Taken) -> String {
    let mut svg = String::new();
    let labels = curve.points.iter().zip(&curve.labels).filter(|(_, label)| !label.is_empty());
    for (point, label) in labels {
        let Some([x, y]) = plot.at(*point) else { continue };
        let width = label.chars().count() as f64 * CHAR;
        let x = x.clamp(plot.left + width / 2.0 + 2.0, plot.left + plot.width - width / 2.0);
        let y = if y - plot.top < 20.0 { y + 18.0 } else { y - 8.0 };
        let (half, above) = (width / 2.0 + 2.0, y - LINE + 3.0);
        if taken.take([x - half, above, x + half, y + 4.0]) {
            svg += &anchored("tag", x, y, "middle", &escaped(label));
        }
    }
    svg
}

/// Returns the name of each curve, joined with its end.
fn curve_names(chart: &Chart, names: &[String], plot: &Plot) -> String {
    let last = |curve: &Curve| curve.points.iter().rev().find_map(|&point| plot.at(point));
    let ends: Vec<Option<[f64; 2]>> = chart.curves.iter().map(last).collect();
    let heights: Vec<f64> = ends.iter().flatten().map(|[_, y]| *y).collect();
    let mut placed = apart(&heights, plot.top + 4.0, plot.bottom()).into_iter();
    let x = plot.left + plot.width + LEAD;
    let mut svg = String::new();
    for ((curve, name), end) in chart.curves.iter().zip(names).zip(ends) {
        let Some([from, height]) = end else { continue };
        let y = placed.next().unwrap_or(height);
        let right = plot.left + plot.width + 4.0;
        let _ = writeln!(
            svg,
            "<path class=\"lead\" d=\"M{:.1} {height:.1}L{:.1} {height:.1}L{:.1} {y:.1}\"/>",
            from + 6.0,
            right.max(from + 6.0),
            x - 6.0
        );
        svg += &mark(curve, [x, y]);
        svg += &text("tag", x + 10.0, y + 4.0, &escaped(name));
    }
    svg
}
