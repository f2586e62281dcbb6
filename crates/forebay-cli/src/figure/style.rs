//! Colours and fonts of figures, for light and dark pages.
//!
//! Curves have six styles. They differ in colour, in the dashes of the line and in the shape of the
//! marks, so that one of the three is enough to distinguish them.

use std::fmt::Write;

/// The number of styles of curves.
pub(super) const NR_STYLES: usize = 6;

/// The colours of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theme {
    /// Those that the reader prefers.
    Auto,
    /// Those for a light page.
    Light,
    /// Those for a dark page.
    Dark,
}

/// The dashes of the lines, by style.
const DASHES: [&str; NR_STYLES] = ["none", "9 4", "3 3", "12 3 3 3", "6 2", "2 5"];

const BASE: &str = "\
svg text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}\
svg .title{font-size:18px;font-weight:600}svg .name,svg .head{font-weight:600}\
svg .head{font-size:15px}svg .dim,svg .tag{font-size:12px}\
svg .worse,svg .undecided{font-weight:600}.grid,.axis,.lead{stroke-width:1;fill:none}\
.join{stroke-width:2}.range{stroke-width:1.5}.b{stroke-width:2.5}\
.line{fill:none;stroke-width:2}.thin{fill:none;stroke-width:1.2;stroke-dasharray:1 4}\
.mark{stroke-width:1.8}";

/// The colours of one kind of page.
struct Colours {
    page: &'static str,
    text: &'static str,
    dim: &'static str,
    grid: &'static str,
    axis: &'static str,
    worse: &'static str,
    undecided: &'static str,
    curves: [&'static str; NR_STYLES],
}

const LIGHT: Colours = Colours {
    page: "#fff",
    text: "#24292f",
    dim: "#59636e",
    grid: "#d8dee4",
    axis: "#8c959f",
    worse: "#b3261e",
    undecided: "#8a5a00",
    curves: ["#0b62c4", "#b3480a", "#1a7f37", "#8250df", "#b5307f", "#6b5900"],
};

const DARK: Colours = Colours {
    page: "#0d1117",
    text: "#e6edf3",
    dim: "#9aa4af",
    grid: "#2b323b",
    axis: "#7d8590",
    worse: "#ff8078",
    undecided: "#e3b341",
    curves: ["#5cabff", "#ff9a4d", "#4ac26b", "#c297ff", "#ff80c8", "#d4b43c"],
};

impl Colours {
    fn css(&self) -> String {
        let Self { page, text, dim, grid, axis, worse, undecided, curves } = self;
        let mut css = format!(
            "svg text{{fill:{text}}}.page{{fill:{page}}}svg .dim{{fill:{dim}}}\
             svg .worse{{fill:{worse}}}svg .undecided{{fill:{undecided}}}\
             .grid{{stroke:{grid}}}.axis,.join,.lead{{stroke:{axis}}}.range{{stroke:{text}}}\
             .a{{fill:{}}}.b{{fill:{page};stroke:{}}}",
            curves[0], curves[1]
        );
        for (at, colour) in curves.iter().enumerate() {
            // Writing into a String does not fail.
            let _ = write!(css, ".c{at}{{stroke:{colour}}}.f{at}{{fill:{colour}}}");
        }
        let _ = write!(css, ".hollow{{fill:{page}}}");
        css
    }
}

/// Returns the style sheet of a figure.
pub(super) fn css(theme: Theme) -> String {
    let mut css = BASE.to_owned();
    for (at, dashes) in DASHES.iter().enumerate() {
        let _ = write!(css, ".d{at}{{stroke-dasharray:{dashes}}}");
    }
    css + &match theme {
        Theme::Light => LIGHT.css(),
        Theme::Dark => DARK.css(),
        Theme::Auto => {
            format!("{}@media(prefers-color-scheme:dark){{{}}}", LIGHT.css(), DARK.css())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the relative luminance of a colour, by WCAG 2.
    fn luminance(colour: &str) -> f64 {
        let digits = colour.trim_start_matches('#');
        let each = digits.len() / 3;
        let part = |at: usize| {
            let text = &digits[at * each..(at + 1) * each];
            let text = if each == 1 { text.repeat(2) } else { text.to_owned() };
            let value = f64::from(u8::from_str_radix(&text, 16).expect("hex")) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(0) + 0.7152 * part(1) + 0.0722 * part(2)
    }

    #[test]
    fn texts_and_curves_have_the_contrast_of_text() {
        for colours in [LIGHT, DARK] {
            let Colours { page, text, dim, worse, undecided, curves, .. } = colours;
            for colour in [text, dim, worse, undecided].into_iter().chain(curves) {
                let (a, b) = (luminance(page) + 0.05, luminance(colour) + 0.05);
                assert!(a.max(b) / a.min(b) >= 4.5, "{colour} on {page}");
            }
        }
    }

    #[test]
    fn only_a_fixed_theme_ignores_the_preference() {
        assert!(css(Theme::Auto).contains("prefers-color-scheme:dark"));
        assert!(!css(Theme::Dark).contains("prefers"));
        assert!(!css(Theme::Light).contains(DARK.page));
    }
}
