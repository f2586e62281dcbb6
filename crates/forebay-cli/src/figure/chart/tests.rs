//! Charts as SVG: shapes, texts and gaps.

use super::*;

fn chart() -> Chart {
    Chart {
        file: "x".to_owned(),
        title: "IOPS of <two> policies".to_owned(),
        x: Dim { name: "jobs".to_owned(), unit: Unit::Count, ticks: Ticks::Values },
        y: Dim::round("IOPS", Unit::Count),
        is_higher_better: Some(true),
        curves: vec![
            Curve::new("fair", 0, vec![[1.0, 100.0], [24.0, 120.0], [72.0, 110.0]]),
            Curve {
                is_reference: true,
                ..Curve::new("published", 0, vec![[1.0, 100.0], [24.0, f64::NAN], [72.0, 100.0]])
            },
        ],
        notes: vec!["A note & more.".to_owned()],
    }
}

#[test]
fn curves_have_lines_marks_and_names_in_the_style() {
    let svg = chart().svg(Theme::Auto);
    let count = |what: &str| svg.matches(what).count();
    // A mark for each point and one beside each name.
    assert_eq!((count("class=\"mark c0 f0\""), count("class=\"mark c0 hollow\"")), (4, 3));
    assert_eq!((count("class=\"line c0 d0\""), count("class=\"thin c0\"")), (1, 1));
    assert!(svg.contains(">fair</text>") && svg.contains(">published</text>"), "{svg}");
    assert!(svg.contains("IOPS, higher is better \u{2191}<"), "{svg}");
    assert!(svg.contains("jobs, log scale<"), "{svg}");
    assert!(svg.contains("A note &amp; more."), "{svg}");
}

#[test]
fn a_missing_value_leaves_a_gap() {
    let svg = chart().inline();
    let thin = svg.lines().find(|line| line.contains("class=\"thin")).expect("a line");
    assert_eq!((thin.matches('M').count(), thin.matches('L').count()), (2, 0), "{thin}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    assert!(!svg.contains("<style>"), "the page has it");
}

#[test]
fn a_chart_is_described_in_words() {
    let svg = chart().svg(Theme::Dark);
    assert!(svg.contains("<title>IOPS of &lt;two&gt; policies</title>"), "{svg}");
    let what = "<desc>IOPS over jobs. fair: from 100 at 1 to 110 at 72, at most 120 at 24.";
    assert!(svg.contains(what), "{svg}");
}

#[test]
fn charts_without_points_are_drawn() {
    let mut chart = chart();
    chart.curves.clear();
    assert!(chart.svg(Theme::Light).ends_with("</svg>\n"));
    chart.curves.push(Curve::new("empty", 9, Vec::new()));
    let svg = chart.svg(Theme::Light);
    assert!(!svg.contains("NaN") && !svg.contains(">empty<"), "{svg}");
}

#[test]
fn crowded_labels_of_points_are_left_out() {
    let mut chart = chart();
    let curve = &mut chart.curves[0];
    curve.points = (0..100).map(|at| [100.0 + f64::from(at) / 50.0, 5.0]).collect();
    curve.labels = (0..100).map(|at| format!("label{at}")).collect();
    let shown = chart.inline().matches(">label").count();
    assert!((1..20).contains(&shown), "{shown}");
    let marks = chart.inline().matches("class=\"mark c0 f0\"").count();
    assert!(marks < 10, "{marks}");
}
