//! The runs of `--compare` or `--sweep` as an SVG figure: a panel for each figure of the runs, with
//! a bar for each setting, or a line over the values of a swept key that is a number.
//!
//! Values that differ by a large factor have a logarithmic axis, and dots instead of bars.

use std::fmt::Write;

use forebay_sim::parse_size;

use super::rows::{Figure, Row};
use crate::figure::{
    Axis, LEFT, NAME_CHARS, NOTE, NOTE_CHARS, PLOT, TITLE_CHARS, TITLE_LINE, anchored, count_unit,
    cut, escaped, grid, height_of_panels, lines, page, panel_name, panels, text, time_unit, x_of,
    y_of,
};
use crate::range::Range;

/// The width of a character of a label, at most.
const CHAR: f64 = 7.0;
/// The height of a line of the list of settings.
const NAME_LINE: f64 = 20.0;
/// The widest bar.
const BAR_MAX: f64 = 48.0;

/// The subject of a figure.
#[derive(Debug)]
pub(super) struct About {
    /// The job file, for the title.
    pub(super) load: String,
    /// The number of seeds of each setting.
    pub(super) nr_seeds: u64,
    /// The swept key; `None` for `--compare`.
    pub(super) key: Option<String>,
}

/// Returns the figure.
pub(super) fn render(about: &About, rows: &[Row<'_>]) -> String {
    let places = Places::new(about, rows);
    let title = lines(&title(about), TITLE_CHARS);
    let mut svg = String::new();
    let mut y = 34.0;
    for line in &title {
        svg += &text("title", LEFT, y, &escaped(line));
        y += TITLE_LINE;
    }
    if about.nr_seeds > 1 {
        let nr = about.nr_seeds;
        let what = format!("Median of {nr} seeds; the thin line is the range of the values.");
        svg += &text("dim", LEFT, y - 3.0, &what);
        y += NAME_LINE;
    }
    for line in &places.list {
        svg += &text("", LEFT, y, &escaped(&cut(line, NAME_CHARS)));
        y += NAME_LINE;
    }
    let has = |figure: &Figure| rows.iter().any(|row| row.range(*figure).is_some());
    let (shown, missing): (Vec<_>, Vec<_>) = Figure::ALL.into_iter().partition(has);
    svg += &panels(y, shown.iter().map(|&figure| panel(figure, rows, &places)));
    let mut bottom = y + height_of_panels(shown.len()) + 20.0;
    for figure in missing {
        let note = format!("Not shown: {}, because {}.", figure.title(), figure.missing());
        for line in lines(&note, NOTE_CHARS) {
            svg += &text("dim", LEFT, bottom, &escaped(&line));
            bottom += NOTE;
        }
    }
    page(&title.join(" "), bottom, &svg)
}

fn title(about: &About) -> String {
    match &about.key {
        Some(key) => format!("{} with several values of {key}", about.load),
        None => format!("{} with other settings", about.load),
    }
}

/// The places of the settings, side by side in each panel.
#[derive(Debug)]
struct Places {
    /// The labels below a panel.
    labels: Vec<String>,
    /// The name of the horizontal axis.
    axis: Option<String>,
    /// The values are ascending numbers, so a line joins them.
    is_line: bool,
    /// The names of the settings by label, a line each, if they are too long to be labels.
    list: Vec<String>,
}

impl Places {
    fn new(about: &About, rows: &[Row<'_>]) -> Self {
        let value_of = |row: &Row<'_>| match &about.key {
            Some(key) => row.label().trim_start_matches(key).trim_start_matches('=').to_owned(),
            None => row.label().to_owned(),
        };
        let names: Vec<String> = rows.iter().map(value_of).collect();
        let numbers: Option<Vec<u64>> = names.iter().map(|name| parse_size(name)).collect();
        let is_line = about.key.is_some() && numbers.is_some_and(|numbers| numbers.is_sorted());
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64;
        let fits = longest * CHAR <= PLOT.2 / names.len() as f64;
        if is_line || fits {
            return Self { labels: names, axis: about.key.clone(), is_line, list: Vec::new() };
        }
        let labels: Vec<String> = (1..=names.len()).map(|nr| nr.to_string()).collect();
        let list = labels.iter().zip(&names).map(|(nr, name)| format!("{nr}  {name}")).collect();
        Self { labels, axis: about.key.clone(), is_line, list }
    }

    /// Returns the number of settings from one label to the next for which there is room.
    fn every(&self) -> usize {
        let longest = self.labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let width = (longest + 1) as f64 * CHAR * self.labels.len() as f64;
        ((width / PLOT.2).ceil() as usize).max(1)
    }
}

fn panel(figure: Figure, rows: &[Row<'_>], places: &Places) -> String {
    let ranges: Vec<Option<Range>> = rows.iter().map(|row| row.range(figure)).collect();
    let max = ranges.iter().flatten().map(|range| range.max).fold(0.0, f64::max);
    let (unit, scale) = match figure {
        Figure::Iops => count_unit(max),
        Figure::P99 | Figure::Late => time_unit(max),
        Figure::Switches | Figure::Fairness => ("", 1.0),
    };
    let scaled = |range: Range| Range {
        median: range.median / scale,
        min: range.min / scale,
        max: range.max / scale,
    };
    let ranges: Vec<_> = ranges.into_iter().map(|range| range.map(scaled)).collect();
    let ends = ranges.iter().flatten().flat_map(|range| [range.min, range.median, range.max]);
    let axis = Axis::of(ends);
    let mut svg = panel_name(figure.title(), unit, figure.is_higher_better(), axis.is_log);
    svg += &grid(&axis);
    // The length of a bar on a logarithmic axis has no meaning.
    svg += &match places.is_line || axis.is_log {
        true => dots(&axis, &ranges, places.is_line),
        false => bars(&axis, &ranges),
    };
    let (left, top, width, height) = PLOT;
    let every = places.every();
    for (at, label) in places.labels.iter().enumerate().step_by(every) {
        let x = x_of(at, places.labels.len());
        svg += &anchored("dim", x, top + height + 18.0, "middle", &escaped(label));
    }
    if let Some(name) = &places.axis {
        let x = left + width / 2.0;
        svg += &anchored("dim", x, top + height + 36.0, "middle", &escaped(name));
    }
    svg
}

/// Returns a dot for each value with its range. A line joins the dots of ascending values.
fn dots(axis: &Axis, ranges: &[Option<Range>], is_line: bool) -> String {
    let place = |at: usize| x_of(at, ranges.len());
    let mut svg = String::new();
    let medians = ranges.iter().map(|range| range.map(|range| y_of(axis, range.median)));
    let medians: Vec<Option<f64>> = medians.collect();
    for (at, pair) in medians.windows(2).enumerate() {
        if let [Some(from), Some(to)] = *pair
            && is_line
        {
            let (x, next) = (place(at), place(at + 1));
            let _ =
                writeln!(svg, "<path class=\"join\" d=\"M{x:.1} {from:.1}L{next:.1} {to:.1}\"/>");
        }
    }
    for (at, range) in ranges.iter().enumerate() {
        let Some(range) = range else {
            svg += &absent(place(at));
            continue;
        };
        let (x, y) = (place(at), y_of(axis, range.median));
        svg += &whisker(axis, x, range);
        let _ = writeln!(svg, "<circle class=\"a\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
    }
    svg
}

/// Returns a bar for each value, with its range.
fn bars(axis: &Axis, ranges: &[Option<Range>]) -> String {
    let (_, top, width, height) = PLOT;
    let bar = (width / ranges.len() as f64 * 0.6).min(BAR_MAX);
    let mut svg = String::new();
    for (at, range) in ranges.iter().enumerate() {
        let x = x_of(at, ranges.len());
        let Some(range) = range else {
            svg += &absent(x);
            continue;
        };
        let y = y_of(axis, range.median);
        let _ = writeln!(
            svg,
            "<rect class=\"a\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{bar:.1}\" height=\"{:.1}\"/>",
            x - bar / 2.0,
            top + height - y
        );
        svg += &whisker(axis, x, range);
    }
    svg
}

/// Returns the mark of a setting that does not have the figure.
fn absent(x: f64) -> String {
    anchored("dim", x, PLOT.1 + PLOT.3 - 4.0, "middle", "-")
}

/// Returns the range of a value as a line; nothing if all seeds gave the same value.
fn whisker(axis: &Axis, x: f64, range: &Range) -> String {
    let (low, high) = (y_of(axis, range.min), y_of(axis, range.max));
    match low - high > 0.5 {
        true => format!("<path class=\"range\" d=\"M{x:.1} {low:.1}V{high:.1}\"/>\n"),
        false => String::new(),
    }
}
