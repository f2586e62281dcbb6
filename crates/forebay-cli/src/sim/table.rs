//! Runs of the same jobs on several disks, as a table.

use super::front::{self, Place};
use super::rows::{Figure, Row};
use super::run::{LoadOf, Run};
use crate::table;

/// The columns after the name, if each setting has one run.
const COLUMNS: [&str; 11] = [
    "IOPS",
    "MB/s",
    "p50 us",
    "p99 us",
    "max us",
    "requests",
    "merges",
    "tag waits",
    "failed",
    "switches/IO",
    "fairness",
];

/// The mark of a setting on the front.
const ON_FRONT: &str = "*";

/// Returns the table: the figures of each run, or, for several seeds, the median of each figure
/// and its range. That of a recorded load also has the lateness and the front.
pub(super) fn render(load: LoadOf<'_>, rows: &[Row<'_>]) -> String {
    let figures = Figure::of(load);
    let (mut columns, mut lines): (Vec<_>, Vec<_>) = match rows
        .iter()
        .all(|row| row.runs.len() == 1)
    {
        true => (COLUMNS.to_vec(), rows.iter().map(|row| cells(&row.runs[0]).to_vec()).collect()),
        false => {
            let cells = |row| figures.iter().map(|figure| spread(row, *figure)).collect::<Vec<_>>();
            (figures.iter().map(|it| it.name()).collect(), rows.iter().map(cells).collect())
        }
    };
    if load.recorded().is_some() {
        if !columns.contains(&Figure::Late.name()) {
            let at = columns.iter().position(|name| *name == "requests").unwrap_or(columns.len());
            columns.insert(at, Figure::Late.name());
            for (line, row) in lines.iter_mut().zip(rows) {
                line.insert(at, one(&row.runs[0], Figure::Late));
            }
        }
        columns.push("front");
        for (line, place) in lines.iter_mut().zip(front::places(rows)) {
            line.push(if place == Place::Dominated { "" } else { ON_FRONT }.to_owned());
        }
    }
    let heading = ["setting"].iter().chain(&columns).map(|&name| name.to_owned()).collect();
    let labels = rows.iter().map(|row| vec![row.label().to_owned()]);
    let lines = labels.zip(lines).map(|(label, cells)| [label, cells].concat());
    table::aligned(&[heading].into_iter().chain(lines).collect::<Vec<_>>(), "")
}

/// Returns the figures of the only run of a setting.
fn cells(run: &Run<'_>) -> [String; COLUMNS.len()] {
    let (summary, has_times) = (run.summary, run.has_times());
    let figure = |it| one(run, it);
    let only_if = |is_shown: bool, text: String| if is_shown { text } else { "-".to_owned() };
    let latency = run.latencies();
    let us = |ns: u64| only_if(has_times, format!("{:.1}", ns as f64 / 1e3));
    [
        figure(Figure::Iops),
        only_if(has_times, format!("{:.1}", summary.mb_per_s())),
        us(latency.p50),
        figure(Figure::P99),
        us(latency.max),
        summary.stats.issued.to_string(),
        summary.nr_merges().to_string(),
        summary.stats.tag_waits.to_string(),
        summary.tally.nr_failed.to_string(),
        figure(Figure::Switches),
        figure(Figure::Fairness),
    ]
}

/// Returns a figure of a run.
fn one(run: &Run<'_>, figure: Figure) -> String {
    figure.value(run).map_or("-".to_owned(), |value| figure.show(value))
}

/// Returns the median of a figure over the seeds, and its range.
fn spread(row: &Row<'_>, figure: Figure) -> String {
    let Some(range) = row.range(figure) else { return "-".to_owned() };
    let [median, min, max] = [range.median, range.min, range.max].map(|it| figure.show(it));
    format!("{median} ({min}..{max})")
}
