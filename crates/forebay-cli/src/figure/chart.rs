//! A picture of curves with one pair of axes.
//!
//! Each curve has its name at its right end, so no list of colours has to be matched. A figure from
//! elsewhere, such as a published one, is a thin dotted line with hollow marks, in the style of the
//! curve that it is compared with.

mod draw;

use super::axis::Axis;
use super::unit::Unit;
use super::{Theme, escaped, style};

/// The width of a chart.
const WIDTH: f64 = 580.0;

/// A picture of curves.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    /// The name of its file, without the extension.
    pub(crate) file: String,
    /// The title.
    pub(crate) title: String,
    /// The horizontal axis.
    pub(crate) x: Dim,
    /// The vertical axis.
    pub(crate) y: Dim,
    /// Whether higher values are better; `None` if neither is.
    pub(crate) is_higher_better: Option<bool>,
    /// The curves.
    pub(crate) curves: Vec<Curve>,
    /// Sentences below the chart.
    pub(crate) notes: Vec<String>,
}

/// One dimension of a chart.
#[derive(Debug, Clone)]
pub(crate) struct Dim {
    /// The name of the values.
    pub(crate) name: String,
    /// Their unit.
    pub(crate) unit: Unit,
    /// The places of the ticks.
    pub(crate) ticks: Ticks,
}

/// The places of the ticks of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ticks {
    /// At round numbers, from 0, or at powers of ten if the values differ by a large factor.
    Round,
    /// At round numbers, from 0.
    Linear,
    /// At powers of ten.
    Powers,
    /// At the values themselves.
    Values,
}

/// A curve.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    /// Its name.
    pub(crate) name: String,
    /// The number of its style. Numbers beyond the last style begin anew.
    pub(crate) style: usize,
    /// Whether its figures come from elsewhere.
    pub(crate) is_reference: bool,
    /// Whether a line joins its points.
    pub(crate) is_joined: bool,
    /// Its points, in the order in which they are joined.
    pub(crate) points: Vec<[f64; 2]>,
    /// A label for each point, which may be empty; no labels if there are none.
    pub(crate) labels: Vec<String>,
}

impl Dim {
    /// Returns a dimension with ticks at round numbers.
    pub(crate) fn round(name: &str, unit: Unit) -> Self {
        Self { name: name.to_owned(), unit, ticks: Ticks::Round }
    }

    /// Returns a dimension with ticks at round numbers from 0, even if the values differ by a large
    /// factor.
    pub(crate) fn linear(name: &str, unit: Unit) -> Self {
        Self { ticks: Ticks::Linear, ..Self::round(name, unit) }
    }

    fn axis(&self, values: impl Iterator<Item = f64> + Clone) -> Axis {
        match self.ticks {
            Ticks::Round => Axis::of(values),
            Ticks::Linear => Axis::linear(values.fold(0.0, f64::max)),
            Ticks::Powers => Axis::of_powers(values),
            Ticks::Values => Axis::at_values(values),
        }
    }
}

impl Curve {
    /// Returns a curve of own figures.
    pub(crate) fn new(name: &str, style: usize, points: Vec<[f64; 2]>) -> Self {
        let name = name.to_owned();
        let (is_reference, is_joined) = (false, true);
        Self { name, style, is_reference, is_joined, points, labels: Vec::new() }
    }
}

impl Chart {
    /// Returns the chart as a file of its own.
    pub(crate) fn svg(&self, theme: Theme) -> String {
        self.page(&format!("<style>{}</style>\n", style::css(theme)))
    }

    /// Returns the chart as a part of a page that has the style sheet.
    pub(super) fn inline(&self) -> String {
        self.page("")
    }

    fn page(&self, style: &str) -> String {
        let (height, content) = draw::content(self);
        let (title, what) = (escaped(&self.title), escaped(&self.description()));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n<title>{title}</title>\n\
             <desc>{what}</desc>\n{style}<rect class=\"page\" width=\"{WIDTH}\" \
             height=\"{height}\"/>\n{content}</svg>\n"
        )
    }

    /// Returns the chart in words, for screen readers.
    fn description(&self) -> String {
        let (x, y) = (&self.x, &self.y);
        let mut text = format!("{} over {}.", y.name, x.name);
        for curve in &self.curves {
            let points = curve.points.iter().filter(|[_, y]| y.is_finite());
            let (first, last) = (points.clone().next(), points.clone().next_back());
            let highest = points.max_by(|a, b| a[1].total_cmp(&b[1]));
            let (Some(first), Some(last), Some(highest)) = (first, last, highest) else { continue };
            let at = |&[at, value]: &[f64; 2]| {
                format!("{} at {}", y.unit.label(value), x.unit.label(at))
            };
            text += &format!(
                " {}: from {} to {}, at most {}.",
                curve.name,
                at(first),
                at(last),
                at(highest)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests;
