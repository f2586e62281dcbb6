//! Runs of the same jobs on several disks, as a table.

use super::rows::{Figure, Row};
use super::run::Run;
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

/// Returns the table: the figures of each run, or, for several seeds, the median of each figure
/// and its range.
pub(super) fn render(rows: &[Row<'_>]) -> String {
    match rows.iter().all(|row| row.runs.len() == 1) {
        true => with_settings(&COLUMNS, rows, |row| cells(&row.runs[0]).to_vec()),
        false => {
            let names = Figure::ALL.map(Figure::name);
            with_settings(&names, rows, |row| {
                Figure::ALL.map(|figure| spread(row, figure)).to_vec()
            })
        }
    }
}

/// Returns a table with the setting and these cells of each row.
fn with_settings(
    columns: &[&str],
    rows: &[Row<'_>],
    cells: impl Fn(&Row<'_>) -> Vec<String>,
) -> String {
    let heading = ["setting"].iter().chain(columns).map(|&name| name.to_owned()).collect();
    let line = |row: &Row<'_>| [vec![row.label().to_owned()], cells(row)].concat();
    let lines: Vec<_> = [heading].into_iter().chain(rows.iter().map(line)).collect();
    table::aligned(&lines, "")
}

/// Returns the figures of the only run of a setting.
fn cells(run: &Run<'_>) -> [String; COLUMNS.len()] {
    let (summary, has_times) = (run.summary, run.has_times());
    let figure = |it: Figure| it.of(run).map_or("-".to_owned(), |value| it.show(value));
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

/// Returns the median of a figure over the seeds, and its range.
fn spread(row: &Row<'_>, figure: Figure) -> String {
    let Some(range) = row.range(figure) else { return "-".to_owned() };
    let [median, min, max] = [range.median, range.min, range.max].map(|it| figure.show(it));
    format!("{median} ({min}..{max})")
}
