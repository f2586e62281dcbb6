//! The settings on the front: those for which no other setting is better in one figure and worse in
//! none.
//!
//! More I/Os per second and a higher fairness are better, a lower p99 and fewer context switches
//! are. Figures are compared with the digits that the table shows.

use std::path::Path;

use super::rows::{Figure, Row};
use crate::figure::Axis;
use crate::figure::chart::{Chart, Curve, Dim};
use crate::figure::unit::Unit;

/// The longest label of a point, in characters. Longer ones are numbers, with a list below.
const LABEL_MAX: usize = 14;

/// Points that are nearer than these parts of the axes share a label.
const NEAR: [f64; 2] = [0.08, 0.07];

/// The place of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On the front by throughput and p99 alone.
    Curve,
    /// On the front because of context switches or fairness.
    Others,
    /// Not on the front.
    Dominated,
}

/// Returns the place of each row.
pub(super) fn places(rows: &[Row<'_>]) -> Vec<Place> {
    let points: Vec<_> = rows.iter().map(point).collect();
    places_of(&points)
}

/// The figures of a row, in the order of [`Figure::ALL`], so that higher ones are better.
type Point = [Option<f64>; Figure::ALL.len()];

fn point(row: &Row<'_>) -> Point {
    Figure::ALL.map(|figure| {
        let shown = figure.show(row.range(figure)?.median).parse().unwrap_or(f64::NAN);
        Some(if figure.is_higher_better() { shown } else { -shown })
    })
}

fn places_of(points: &[Point]) -> Vec<Place> {
    // The first two are throughput and p99.
    let is_on_front = |point: &Point, nr: usize| {
        !points.iter().any(|other| dominates(&other[..nr], &point[..nr]))
    };
    let place = |point: &Point| match (is_on_front(point, 2), is_on_front(point, point.len())) {
        (_, false) => Place::Dominated,
        (true, true) => Place::Curve,
        (false, true) => Place::Others,
    };
    points.iter().map(place).collect()
}

/// Returns whether a point is better in one figure and worse in none. A figure that one of them
/// lacks decides nothing.
fn dominates(a: &[Option<f64>], b: &[Option<f64>]) -> bool {
    let pairs = || a.iter().zip(b).filter_map(|(a, b)| Some(((*a)?, (*b)?)));
    pairs().all(|(a, b)| a >= b) && pairs().any(|(a, b)| a > b)
}

/// Returns the picture of p99 at each throughput. A line joins the settings of the curve.
pub(super) fn chart(load: &Path, nr_seeds: u64, rows: &[Row<'_>]) -> Chart {
    let places = places(rows);
    let median = |at: usize, figure| Some(rows[at].range(figure)?.median);
    let point = |at| Some([median(at, Figure::Iops)?, median(at, Figure::P99)? * 1e3]);
    let points: Vec<Option<[f64; 2]>> = (0..rows.len()).map(point).collect();
    let names: Vec<_> = rows.iter().map(|row| row.label().to_owned()).collect();
    let (labels, list) = labels(&names, &points);
    let mut curves = Vec::new();
    for (style, (name, place)) in CURVES.into_iter().enumerate() {
        let of_place = (0..rows.len()).filter(|&at| places[at] == place);
        let mut shown: Vec<_> = of_place.filter_map(|at| Some((at, points[at]?))).collect();
        shown.sort_by(|(_, a), (_, b)| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
        if shown.is_empty() {
            continue;
        }
        curves.push(Curve {
            labels: shown.iter().map(|(at, _)| labels[*at].clone()).collect(),
            is_joined: place == Place::Curve,
            ..Curve::new(name, style, shown.into_iter().map(|(_, point)| point).collect())
        });
    }
    let mut notes = vec![format!(
        "The I/Os of {}. No other setting is better than one on the front in throughput, p99, \
         context switches or fairness without being worse in another of them.",
        load.display()
    )];
    if nr_seeds > 1 {
        notes.push(format!("Medians of {nr_seeds} seeds."));
    }
    if curves.is_empty() {
        notes.push(format!("No point is shown, because {}.", Figure::Iops.missing()));
    }
    notes.extend(list);
    Chart {
        file: "front".to_owned(),
        title: "Latency at each throughput, by setting".to_owned(),
        x: Dim::round("IOPS", Unit::Count),
        y: Dim::round("latency p99", Unit::Ns),
        is_higher_better: Some(false),
        curves,
        notes,
    }
}

/// The curves of the picture.
const CURVES: [(&str, Place); 3] = [
    ("front", Place::Curve),
    ("switches, fairness", Place::Others),
    ("not on the front", Place::Dominated),
];

/// Returns the label of each point, and a list of the settings if the labels are numbers. Points at
/// about the same place have one label.
fn labels(names: &[String], points: &[Option<[f64; 2]>]) -> (Vec<String>, Vec<String>) {
    let joined = together(names, points);
    if joined.iter().all(|label| label.chars().count() <= LABEL_MAX) {
        return (joined, Vec::new());
    }
    let numbers: Vec<_> = (1..=names.len()).map(|nr| nr.to_string()).collect();
    let list = numbers.iter().zip(names).map(|(nr, name)| format!("{nr}: {name}")).collect();
    (together(&numbers, points), list)
}

/// Returns the labels of the points. The highest of several points at about the same place has the
/// labels of all of them, and the others have none.
fn together(labels: &[String], points: &[Option<[f64; 2]>]) -> Vec<String> {
    let axis = |dim: usize| Axis::of(points.iter().flatten().map(move |point| point[dim]));
    let axes = [axis(0), axis(1)];
    let is_near = |a: [f64; 2], b: [f64; 2]| {
        (0..2).all(|dim| (axes[dim].place(a[dim]) - axes[dim].place(b[dim])).abs() < NEAR[dim])
    };
    let mut joined = vec![String::new(); points.len()];
    let mut is_placed = vec![false; points.len()];
    for at in 0..points.len() {
        let Some(point) = points[at].filter(|_| !is_placed[at]) else { continue };
        let at_place = (at..points.len()).filter(|&other| !is_placed[other]);
        let at_place = at_place.filter_map(|other| Some((other, points[other]?)));
        let group: Vec<_> = at_place.filter(|(_, other)| is_near(point, *other)).collect();
        let highest = group.iter().max_by(|(_, a), (_, b)| a[1].total_cmp(&b[1]));
        let highest = highest.map_or(at, |(highest, _)| *highest);
        let names: Vec<_> = group.iter().map(|(other, _)| labels[*other].as_str()).collect();
        joined[highest] = names.join(", ");
        group.iter().for_each(|(other, _)| is_placed[*other] = true);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_has_the_settings_that_no_other_one_beats() {
        let point = |iops: f64, p99: f64, switches: f64, fairness: Option<f64>| {
            [Some(iops), Some(-p99), Some(-switches), fairness]
        };
        let points = [
            point(100.0, 10.0, 2.0, None),
            point(200.0, 30.0, 2.0, None),
            // Worse than the second one in p99 and equal otherwise.
            point(200.0, 31.0, 2.0, None),
            // Fewer switches.
            point(90.0, 40.0, 1.0, None),
            // A twin of the first one.
            point(100.0, 10.0, 2.0, None),
        ];
        let expected = [Place::Curve, Place::Curve, Place::Dominated, Place::Others, Place::Curve];
        assert_eq!(places_of(&points), expected);
        let fair = [point(1.0, 1.0, 1.0, Some(0.5)), point(1.0, 1.0, 1.0, Some(0.6))];
        assert_eq!(places_of(&fair), [Place::Dominated, Place::Curve]);
        assert_eq!(places_of(&[[None; 4], [None; 4]]), [Place::Curve; 2]);
    }

    #[test]
    fn points_at_one_place_share_a_label_and_long_labels_become_numbers() {
        let points = [Some([100.0, 10.0]), Some([50.0, 10.0]), Some([101.0, 10.1]), None];
        let texts = |texts: &[&str]| texts.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        let (short, list) = labels(&texts(&["a", "b", "c", "d"]), &points);
        assert_eq!((short, list), (texts(&["", "b", "a, c", ""]), Vec::new()));
        let names = ["queue_depth=10", "b", "c", "d"];
        let (numbers, list) = labels(&texts(&names), &points);
        assert_eq!(numbers, ["", "2", "1, 3", ""]);
        assert_eq!(list, ["1: queue_depth=10", "2: b", "3: c", "4: d"]);
    }
}
