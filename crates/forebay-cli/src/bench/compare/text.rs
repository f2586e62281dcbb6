//! A comparison as a table: for a terminal, and in Markdown.

use std::fmt::Write;

use super::comparison::{Comparison, Row};
use super::spread::{Tolerance, Verdict};

const HEADS: [&str; 8] = ["", "A", "B", "A/B", "lowest", "highest", "better", "limit"];

/// For a terminal.
pub(super) fn render(comparison: &Comparison) -> String {
    let rows: Vec<_> = comparison.rows.iter().map(|row| (cells(row), word(row))).collect();
    let width = |at: usize| {
        let all = rows.iter().map(|(cells, _)| cells[at].len()).chain([HEADS[at].len()]);
        all.max().unwrap_or(0)
    };
    let widths: [usize; 8] = std::array::from_fn(width);
    let line = |cells: &[String; 8], word: &str| {
        let mut line = format!("  {:<1$}", cells[0], widths[0]);
        for (cell, width) in cells.iter().zip(widths).skip(1) {
            // Writing into a String does not fail.
            let _ = write!(line, "  {cell:>width$}");
        }
        format!("{line}  {word}").trim_end().to_owned() + "\n"
    };
    let mut text = opening(comparison, "  ");
    text += "\n";
    text += &line(&HEADS.map(str::to_owned), "verdict");
    for (cells, word) in &rows {
        text += &line(cells, word);
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

/// In Markdown.
pub(super) fn markdown(comparison: &Comparison) -> String {
    let mut text = format!("# Comparison\n\n{}\n", opening(comparison, "- "));
    let line = |cells: &[String; 8], word: &str| format!("| {} | {word} |\n", cells.join(" | "));
    text += &line(&HEADS.map(str::to_owned), "verdict");
    text += "|---|---:|---:|---:|---:|---:|---|---|---|\n";
    for row in &comparison.rows {
        let word = match row.verdict {
            Some(Verdict::Worse) => "**worse**",
            _ => word(row),
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
    let Comparison { titles: [a, b], machine, nr_pairs, .. } = comparison;
    let pairs = if *nr_pairs == 1 { "pair" } else { "pairs" };
    format!("{nr_pairs} {pairs} in turn, on {machine}\n\n{indent}A: {a}\n{indent}B: {b}\n")
}

fn cells(row: &Row) -> [String; 8] {
    let [a, b] = row.medians.map(|value| row.metric.show(value));
    let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let limit = row.metric.tolerance().as_ref().map(Tolerance::to_string).unwrap_or_default();
    [
        row.title(),
        a,
        b,
        ratio(row.ratio.map(|ratio| ratio.median)),
        ratio(row.ratio.map(|ratio| ratio.min)),
        ratio(row.ratio.map(|ratio| ratio.max)),
        row.metric.better().word().to_owned(),
        limit,
    ]
}

fn word(row: &Row) -> &'static str {
    row.verdict.map_or("", Verdict::word)
}

/// A sentence in lines that fit a terminal.
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
mod tests {
    use super::super::samples::comparison;
    use super::*;

    const TERMINAL: &str = "\
5 pairs in turn, on A Processor, 2 processors, Linux 6.1

  A: forebay, disk.img?direct=on
  B: fio-3.33, io_uring, x

                                 A       B   A/B  lowest  highest  better    limit  verdict
  IOPS                      102.0k  100.0k  1.02    0.90     1.10  higher  >= 0.97  ok
  bandwidth, MiB/s           398.4   390.6  1.02    0.90     1.10  higher  >= 0.97  ok
  latency mean, us            9.80   10.00  0.98    0.91     1.11   lower
  latency p50, us             7.84    8.00  0.98    0.91     1.11   lower  <= 1.05  ok
  latency p99, us            20.40   20.00  1.02    0.90     1.10   lower  <= 1.15  ok
  latency p99.9, us           1500    1500  1.00    1.00     1.00   lower
  CPU per I/O, us            3.000   5.000  0.60    0.60     0.60   lower
  system calls per I/O       2.000   2.500  0.80    0.80     0.80   lower
  context switches per I/O   0.500   0.500  1.00    1.00     1.00   lower

A/B: ";

    const MARKDOWN: &str = "\
# Comparison

5 pairs in turn, on A Processor, 2 processors, Linux 6.1

- A: forebay, disk.img?direct=on
- B: fio-3.33, io_uring, x

|  | A | B | A/B | lowest | highest | better | limit | verdict |
|---|---:|---:|---:|---:|---:|---|---|---|
| IOPS | 102.0k | 100.0k | 1.02 | 0.90 | 1.10 | higher | >= 0.97 | ok |
| bandwidth, MiB/s | 398.4 | 390.6 | 1.02 | 0.90 | 1.10 | higher | >= 0.97 | ok |
| latency mean, us | 9.80 | 10.00 | 0.98 | 0.91 | 1.11 | lower |  |  |
";

    #[test]
    fn the_table_for_a_terminal() {
        let text = render(&comparison());
        let expected = TERMINAL;
        assert!(text.starts_with(expected), "{text}");
        assert!(text.lines().take(16).all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn the_table_in_markdown() {
        let text = markdown(&comparison());
        let expected = MARKDOWN;
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.ends_with("\n```console\nforebay bench --name=a\nfio --thread --name=a\n```\n")
        );
    }

    #[test]
    fn what_a_reader_should_know_comes_first() {
        let mut comparison = comparison();
        comparison.nr_asked = 7;
        comparison.rows[0].ratio = comparison.rows[0].ratio.map(|mut ratio| {
            ratio.max = 2.0;
            ratio
        });
        let text = render(&comparison);
        let note = "\nNOTE: Interrupted: 5 of 7 pairs were done.\nNOTE: The ratios of IOPS go from \
                    0.90 to 2.00: the machine or the device was not quiet;\n  take more pairs, or \
                    longer runs.\nA/B: ";
        assert!(text.contains(note), "{text}");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let mut comparison = comparison();
        comparison.rows.retain(|row| row.title() == "system calls per I/O");
        comparison.rows[0].medians[1] = None;
        comparison.rows[0].ratio = None;
        assert_eq!(cells(&comparison.rows[0])[1..6], ["2.000", "-", "-", "-", "-"]);
    }
}
