//! Runs of the same jobs on several disks, as a table.

use std::fmt::Write;

use super::run::Run;

/// The columns after the name.
const COLUMNS: [&str; 10] = [
    "IOPS",
    "MB/s",
    "p50 us",
    "p99 us",
    "max us",
    "requests",
    "merges",
    "tag waits",
    "switches/IO",
    "fairness",
];

/// Returns the table of the runs.
pub(super) fn render(runs: &[Run<'_>]) -> String {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(runs.iter().map(cells));
    let names = ["setting"].into_iter().chain(runs.iter().map(|run| run.variant.label()));
    let width = names.clone().map(str::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (name, row) in names.zip(&rows) {
        // Writing into a String does not fail.
        let _ = write!(text, "{name:<width$}");
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

fn cells(run: &Run<'_>) -> [String; COLUMNS.len()] {
    let (summary, has_times) = (run.summary, run.has_times());
    let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let only_if = |is_shown: bool, text: String| if is_shown { text } else { "-".to_owned() };
    let latency = &summary.tally.latency;
    let us = |ns: u64| only_if(has_times, format!("{:.1}", ns as f64 / 1e3));
    [
        only_if(has_times, format!("{:.0}", summary.iops())),
        only_if(has_times, format!("{:.1}", summary.mb_per_s())),
        us(latency.percentile(500_000)),
        us(latency.percentile(990_000)),
        us(latency.max()),
        summary.stats.issued.to_string(),
        summary.nr_merges().to_string(),
        summary.stats.tag_waits.to_string(),
        ratio(run.switches_per_io()),
        ratio(run.fairness()),
    ]
}
