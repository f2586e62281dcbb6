//! Experiments as curves: each published figure beside that of this program.

use super::report;
use super::rows::{Part, Row, metric};
use super::stories::{heading, story};
use crate::figure::chart::{Chart, Curve, Dim, Ticks};
use crate::figure::html::Page;
use crate::figure::unit::Unit;

/// A metric with a chart: its name in rows, its name in the chart, its unit, the size of the row's
/// unit in it, and whether higher is better.
type Pick = (&'static str, &'static str, Unit, f64, bool);

const IOPS: Pick = (metric::IOPS, "IOPS", Unit::Count, 1.0, true);

/// Returns the metrics of an experiment that have a chart.
fn picks(experiment: &str) -> &'static [Pick] {
    match experiment {
        "run" => &[IOPS, (metric::GAIN, "gain of dedupe over always", Unit::Percent, 1.0, true)],
        "flush-each" | "flush-100" => &[
            (metric::IOPS_OF_HOLD, "IOPS as a part of those of hold", Unit::Count, 1.0, true),
            (metric::FSYNC_P99, "99th percentile of an fsync", Unit::Ns, 1000.0, false),
        ],
        super::mixed::NAME => &[
            IOPS,
            (metric::LARGE_P99, "99th percentile of large reads", Unit::Ns, 1000.0, false),
            (metric::SMALL_P99, "99th percentile of small reads", Unit::Ns, 1000.0, false),
        ],
        _ => &[
            IOPS,
            (metric::JAIN, "fairness among jobs (Jain's index)", Unit::Count, 1.0, true),
            (metric::SWITCHES, "context switches per second", Unit::Count, 1.0, false),
        ],
    }
}

/// Returns the rows of each part of each table, which are adjacent.
fn parts(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    let key = |row: &Row| (row.experiment, row.device, row.part);
    rows.chunk_by(move |a, b| key(a) == key(b))
}

/// Returns the charts of all rows. `title` returns the heading of an experiment on a device.
pub(super) fn charts(
    rows: &[Row],
    title: impl Fn(&'static str, &'static str) -> String,
) -> Vec<Chart> {
    parts(rows).flat_map(|part| of_part(part, &title)).collect()
}

fn of_part(rows: &[Row], title: &impl Fn(&'static str, &'static str) -> String) -> Vec<Chart> {
    let Row { experiment, device, part, .. } = rows[0];
    let suffix = match part {
        Part::Virtual | Part::VirtualAsItIs => "",
        Part::VirtualModelled => "-modelled",
        Part::Real | Part::RealMeasured => "-real",
    };
    let chart = |&(metric, name, unit, size, better): &Pick| {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.metric == metric).collect();
        let x_name = report::x_name(experiment);
        let short = metric.trim_end_matches("_us").replace('_', "-");
        (!rows.is_empty()).then(|| Chart {
            file: format!("{experiment}-{device}{suffix}-{short}"),
            title: format!("{experiment} on {device}: {name}"),
            x: Dim { name: x_name.to_owned(), unit: Unit::Number, ticks: Ticks::Values },
            y: Dim::round(name, unit),
            is_higher_better: Some(better),
            curves: curves(&rows, size),
            notes: vec![format!("{}; {}", title(experiment, device), part.name())],
        })
    };
    picks(experiment).iter().filter_map(chart).collect()
}

/// Returns a curve for each policy, and one for its published figures.
fn curves(rows: &[&Row], size: f64) -> Vec<Curve> {
    let mut policies: Vec<&str> = Vec::new();
    for row in rows {
        if !policies.contains(&row.policy) {
            policies.push(row.policy);
        }
    }
    let mut curves = Vec::new();
    for (style, policy) in policies.into_iter().enumerate() {
        let own = || rows.iter().filter(|row| row.policy == policy);
        let points = own().map(|row| [f64::from(row.x), row.value * size]).collect();
        curves.push(Curve::new(policy, style, points));
        let published = own().filter_map(|row| Some([f64::from(row.x), row.published? * size]));
        let points: Vec<_> = published.collect();
        if !points.is_empty() {
            let name = format!("{policy}, published");
            curves.push(Curve { is_reference: true, ..Curve::new(&name, style, points) });
        }
    }
    curves
}

/// Returns the page of these rows.
pub(super) fn page(rows: &[Row], title: impl Fn(&'static str, &'static str) -> String) -> String {
    let mut page = Page::new("Published experiments, measured again");
    page.paragraph(
        "Filled marks and thick lines are figures of this program. Hollow marks and dotted lines \
         are published figures, in the style of the policy that they are compared with.",
    );
    for section in rows.chunk_by(|a, b| heading(a.experiment) == heading(b.experiment)) {
        page.heading(heading(section[0].experiment));
        page.paragraph(story(section[0].experiment));
        page.charts(&charts(section, &title));
    }
    page.heading("Program");
    page.paragraph(&format!(
        "{}. Figures in virtual time are the same on every machine.",
        crate::fio_report::VERSION
    ));
    page.render()
}

#[cfg(test)]
mod tests {
    use super::super::rows::sample;
    use super::*;

    fn row_of(policy: &'static str, x: u32, value: f64, published: Option<f64>) -> Row {
        Row { policy, x, value, published, ..sample() }
    }

    fn rows() -> Vec<Row> {
        vec![
            row_of("batch", 1, 120.0, Some(119.0)),
            row_of("batch", 72, 101.0, Some(100.0)),
            row_of("fair", 1, 120.0, None),
            row_of("fair", 72, 119.9, None),
            Row { metric: metric::VAIN_WAKES, ..row_of("fair", 72, 5.0, None) },
        ]
    }

    fn title(_: &'static str, _: &'static str) -> String {
        "reads".to_owned()
    }

    #[test]
    fn published_figures_are_beside_those_of_the_same_policy() {
        let charts = charts(&rows(), title);
        let [chart] = &charts[..] else { panic!("{charts:?}") };
        assert_eq!(chart.file, "tags-hdd-iops");
        let names: Vec<_> = chart.curves.iter().map(|it| (it.name.as_str(), it.style)).collect();
        assert_eq!(names, [("batch", 0), ("batch, published", 0), ("fair", 1)]);
        assert_eq!(chart.curves[1].points, [[1.0, 119.0], [72.0, 100.0]]);
    }

    #[test]
    fn the_page_has_a_story_and_the_charts() {
        let html = page(&rows(), title);
        assert_eq!(html.matches("<svg ").count(), 1);
        assert!(html.contains("<h2>tags</h2>\n<p>"), "{html}");
    }

    #[test]
    fn experiments_with_one_story_share_a_section() {
        let row = |experiment| Row { experiment, ..row_of("batch", 1, 120.0, None) };
        let html = page(&["tags-4k-256", "tags-4k-512", "tags-4k-256"].map(row), title);
        assert_eq!(html.matches("<h2>tags-4k</h2>").count(), 1, "{html}");
        assert_eq!(html.matches("<svg ").count(), 3);
    }
}
