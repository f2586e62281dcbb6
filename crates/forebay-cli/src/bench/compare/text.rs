//! A comparison as a table: for a terminal, and in Markdown.

use std::fmt::Write;

use super::comparison::{Comparison, Row};
use super::spread::{Tolerance, Verdict, shown, shown_range};
use crate::table;

/// The columns of the table before the verdict.
const NR_CELLS: usize = 8;

/// The headings of a terminal's table. The first line groups the columns below it.
const GROUPS: [&str; 3] = ["", "medians of runs", "A/B, pair by pair"];
const HEADS: [&str; NR_CELLS] = ["", "A", "B", "median", "interval", "range", "better", "limit"];

/// The same for a document, where there is one line of headings.
const MARKDOWN_HEADS: [&str; NR_CELLS] = [
    "",
    "A, median",
    "B, median",
    "A/B, median of the pairs",
    "its interval",
    "range of the pairs",
    "better",
    "limit",
];

/// Returns the table for a terminal; with `colours`, the verdict "worse" is red.
pub(super) fn render(comparison: &Comparison, colours: bool) -> String {
    let rows: Vec<_> = comparison.rows.iter().map(|row| (cells(row), row.verdict)).collect();
    let heads = HEADS.map(str::to_owned);
    let all: Vec<_> =
        rows.iter().map(|(cells, _)| cells).chain([&heads]).map(|it| it.to_vec()).collect();
    let widths = table::widths(&all);
    let line = |cells: &[String; NR_CELLS], word: &str| {
        format!("  {}  {word}", table::line(cells, &widths)).trim_end().to_owned() + "\n"
    };
    let mut text = opening(comparison, "  ");
    text += "\n";
    text += &groups(&widths);
    text += &line(&heads, "verdict");
    for (cells, verdict) in &rows {
        let word = verdict.map_or("", Verdict::word);
        text += &match verdict {
            Some(Verdict::Worse) if colours => line(cells, &format!("\x1b[31m{word}\x1b[0m")),
            _ => line(cells, word),
        };
    }
    text += "\n";
    for caution in comparison.cautions() {
        text += &wrapped(&format!("NOTE: {caution}"));
    }
    for sentence in comparison.legend() {
        text += &wrapped(&sentence);
    }
    text += "\nCommands:\n";
    for (name, command) in ["A", "B"].iter().zip(&comparison.commands) {
        let _ = writeln!(text, "  {name}: {command}");
    }
    text
}

/// Returns the first line of headings, which groups the columns.
fn groups(widths: &[usize]) -> String {
    let end_of = |at: usize| 2 + widths[..=at].iter().sum::<usize>() + 2 * at;
    let mut line = String::new();
    for (text, last) in GROUPS.into_iter().zip([0, 2, 5]) {
        let end = end_of(last).max(line.len() + 2 + text.len());
        let blanks = end - line.len() - text.len();
        let _ = write!(line, "{:blanks$}{text}", "");
    }
    line + "\n"
}

/// Returns the table in Markdown.
pub(super) fn markdown(comparison: &Comparison) -> String {
    let mut text = format!("# Comparison\n\n{}\n", opening(comparison, "- "));
    let line =
        |cells: &[String; NR_CELLS], word: &str| format!("| {} | {word} |\n", cells.join(" | "));
    text += &line(&MARKDOWN_HEADS.map(str::to_owned), "verdict");
    text += "|---|---:|---:|---:|---:|---:|---|---|---|\n";
    for row in &comparison.rows {
        let word = match row.verdict {
            Some(Verdict::Worse) => "**worse**",
            verdict => verdict.map_or("", Verdict::word),
        };
        text += &line(&cells(row), word);
    }
    text += "\n";
    for caution in comparison.cautions() {
        let _ = writeln!(text, "- **{caution}**");
    }
    for sentence in comparison.legend() {
        let _ = writeln!(text, "- {sentence}");
    }
    let [a, b] = &comparison.commands;
    let _ = write!(text, "\n```console\n{a}\n{b}\n```\n");
    text
}

fn opening(comparison: &Comparison, indent: &str) -> String {
    let Comparison { titles: [a, b], machine, nr_pairs, workload, .. } = comparison;
    let pairs = if *nr_pairs == 1 { "pair" } else { "pairs" };
    format!(
        "{nr_pairs} {pairs} of runs, A and B in turn, on {machine}\n\n{indent}Load: {workload}\n\
         {indent}A: {a}\n{indent}B: {b}\n"
    )
}

fn cells(row: &Row) -> [String; NR_CELLS] {
    let (_, scale) = row.unit();
    let [a, b] = row.medians.map(|value| row.metric.show(value, scale));
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let interval = row.ratio.and_then(|ratio| ratio.interval);
    let limit = row.metric.tolerance().as_ref().map(Tolerance::to_string).unwrap_or_default();
    let title = match row.pairs_used() {
        Some(pairs) => format!("{} ({pairs})", row.title()),
        None => row.title(),
    };
    [
        title,
        a,
        b,
        or_dash(row.ratio.map(|ratio| shown(ratio.median))),
        or_dash(interval.map(|interval| shown_range(interval.low, interval.high))),
        or_dash(row.ratio.map(|ratio| shown_range(ratio.min, ratio.max))),
        row.metric.better().word().to_owned(),
        limit,
    ]
}

/// Returns a sentence in lines that fit a terminal.
fn wrapped(sentence: &str) -> String {
    const COLUMNS: usize = 90;
    let (mut text, mut column) = (String::new(), 0);
    for word in sentence.split(' ') {
        match column {
            0 => {}
            _ if column + 1 + word.len() > COLUMNS => {
                text += "\n  ";
                column = 2;
            }
            _ => {
                text.push(' ');
                column += 1;
            }
        }
        text += word;
        column += word.len();
    }
    text + "\n"
}

#[cfg(test)]
mod tests;
