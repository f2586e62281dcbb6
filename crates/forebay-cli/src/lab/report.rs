//! Reports: tables for a terminal or a document, or JSON. All three have the same rows. Tables show
//! before and after side by side.

use std::fmt::Write;

use serde_json::{Value, json};

use super::constants::{self, Basis};
use super::rows::{Deviation, Row, metric};
use crate::table::aligned;

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// For a terminal.
    Text,
    /// For a document.
    Markdown,
    /// For programs.
    Json,
}

/// Returns the report of these rows; `title` returns the heading of an experiment on a device.
///
/// Rows of one part of one table are adjacent.
pub(super) fn print(
    rows: &[Row],
    format: Format,
    title: impl Fn(&'static str, &'static str) -> String,
) -> String {
    if format == Format::Json {
        let rows: Vec<_> = rows.iter().map(to_json).collect();
        return format!("{:#}\n", Value::from(rows));
    }
    let mut text = String::new();
    let key = |row: &Row| (row.experiment, row.device, row.part);
    for part in rows.chunk_by(|a, b| key(a) == key(b)) {
        let heading =
            format!("{}; {}", title(part[0].experiment, part[0].device), part[0].part.name());
        let mark = if format == Format::Markdown { "## " } else { "" };
        let gap = if text.is_empty() { "" } else { "\n" };
        // Writing into a String does not fail.
        let _ = writeln!(text, "{gap}{mark}{heading}");
        for metric in in_order(part.iter().map(|row| row.metric)) {
            let rows: Vec<_> = part.iter().filter(|row| row.metric == metric).collect();
            let _ = write!(text, "\n{}", table(&rows, format));
        }
        text.push_str(&notes(part, format));
        text.push_str(&constants(&part[0], format));
    }
    text
}

/// Returns one row as JSON.
fn to_json(row: &Row) -> Value {
    let (basis, constants) = constants::basis(row);
    json!({
        "experiment": row.experiment,
        "device": row.device,
        "x": row.x,
        "metric": row.metric,
        "policy": row.policy,
        "value": rounded(row.value),
        "published": row.published,
        "note": row.note,
        "basis": basis.name(),
        "constants": constants,
    })
}

/// Returns a value rounded to a thousandth; more digits are not measured. Adding 0 makes -0
/// positive.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0 + 0.0
}

fn in_order<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

/// Returns the table of one metric: a line for each x, columns for each policy.
fn table(rows: &[&Row], format: Format) -> String {
    let xs = in_order(rows.iter().map(|row| row.x));
    let policies = in_order(rows.iter().map(|row| row.policy));
    let is_published =
        |policy| rows.iter().any(|row| row.policy == policy && row.published.is_some());
    let mut lines: Vec<Vec<String>> = Vec::new();
    let x_name = x_name(rows[0].experiment);
    let mut header = vec![format!("{}; {x_name}", rows[0].metric)];
    for &policy in &policies {
        if is_published(policy) {
            header.extend([stage(policy).to_owned(), policy.to_owned(), "deviation".to_owned()]);
        } else {
            header.push(policy.to_owned());
        }
    }
    lines.push(header);
    for x in xs {
        let mut line = vec![x.to_string()];
        for &policy in &policies {
            let row = rows.iter().find(|row| row.x == x && row.policy == policy);
            let value = row.map_or(String::new(), |row| shown(row.metric, row.value));
            if !is_published(policy) {
                line.push(value);
                continue;
            }
            let published = row.and_then(|row| Some((row.metric, row.published?)));
            line.push(published.map_or_else(|| "-".to_owned(), |(name, it)| shown(name, it)));
            line.push(value);
            line.push(row.map_or(String::new(), |row| deviation(row)));
        }
        lines.push(line);
    }
    match format {
        Format::Markdown => markdown(&lines),
        _ => aligned(&lines, ""),
    }
}

/// Returns the name of the number that the rows of an experiment differ in.
pub(super) fn x_name(experiment: &str) -> &'static str {
    match experiment {
        "run" => "depth",
        "flush-each" | "flush-100" => "threads",
        super::mixed::NAME => "tags",
        _ => "jobs",
    }
}

/// Returns the heading of a policy's published figures.
fn stage(policy: &str) -> &'static str {
    match policy {
        "batch" | "always" | "tail" => "published before",
        _ => "published after",
    }
}

fn deviation(row: &Row) -> String {
    let Some(deviation) = row.deviation() else { return "-".to_owned() };
    let mark = if row.is_over() { " !" } else { "" };
    let basis = match constants::basis(row).0 {
        Basis::Measured => String::new(),
        basis => format!(" {}", basis.name()),
    };
    match deviation {
        Deviation::Share(off) => format!("{:+.1} %{mark}{basis}", tenth(off * 100.0)),
        // Ratios are around 1, where points would be too coarse.
        Deviation::Points(off) if row.metric == metric::IOPS_OF_HOLD => {
            format!("{:+.3}{mark}{basis}", rounded(off))
        }
        Deviation::Points(off) => format!("{:+.1} points{mark}{basis}", tenth(off)),
    }
}

/// Returns a value rounded to a tenth. Adding 0 makes -0 positive.
fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0 + 0.0
}

fn shown(name: &str, value: f64) -> String {
    match name {
        metric::JAIN
        | metric::LEAST_SHARE
        | metric::REDUNDANT
        | metric::IOPS_OF_HOLD
        | metric::IOPS_OF_ONE
        | metric::CLOSED_FORM => format!("{value:.3}"),
        metric::FEWER_SWITCHES => format!("{value:.1}"),
        metric::GAIN => format!("{value:.1} %"),
        metric::IOPS if value < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn markdown(lines: &[Vec<String>]) -> String {
    let line = |line: &Vec<String>| format!("| {} |\n", line.join(" | "));
    let rule = format!("|{}\n", " ---: |".repeat(lines[0].len()));
    let rest: String = lines[1..].iter().map(line).collect();
    format!("{}{rule}{rest}", line(&lines[0]))
}

/// Returns the notes of these rows, each once, with the rows that it applies to.
fn notes(rows: &[Row], format: Format) -> String {
    let texts = in_order(rows.iter().map(|row| &row.note).filter(|note| !note.is_empty()));
    let mut out = String::new();
    for text in texts {
        let about: Vec<_> = rows.iter().filter(|row| row.note == *text).collect();
        let metrics = in_order(about.iter().map(|row| row.metric)).join(", ");
        let policies = in_order(about.iter().map(|row| row.policy)).join(", ");
        let xs = in_order(about.iter().map(|row| row.x));
        let xs = xs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let gap = if out.is_empty() { "\n" } else { "" };
        let mark = if format == Format::Markdown { "- " } else { "  " };
        let _ = writeln!(out, "{gap}{mark}{metrics}; {policies}; at {xs}: {text}");
    }
    out
}

/// Returns the constants behind the rows of a part, of which `row` is one.
fn constants(row: &Row, format: Format) -> String {
    let all = constants::of_part(row.experiment, row.device, row.part);
    if all.is_empty() {
        return String::new();
    }
    let mut text =
        String::from("\nConstants. A row that no constant was fitted to is a prediction.\n\n");
    let mark = if format == Format::Markdown { "- " } else { "  " };
    for constant in all {
        // Writing into a String does not fail.
        let _ =
            writeln!(text, "{mark}{} = {}: {}", constant.name, constant.value, constant.source());
    }
    text
}

#[cfg(test)]
mod tests;
