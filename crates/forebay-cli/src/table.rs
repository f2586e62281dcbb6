//! Tables for terminals: the first column is aligned at the left, all others at the right.

use std::fmt::Write;

/// Between two columns.
const GAP: &str = "  ";

/// Returns a table with a line for each row, after `prefix`. Rows have equal numbers of cells.
pub(crate) fn aligned(rows: &[Vec<String>], prefix: &str) -> String {
    let widths = widths(rows);
    rows.iter().fold(String::new(), |text, row| {
        text + format!("{prefix}{}", line(row, &widths)).trim_end() + "\n"
    })
}

/// Returns the width of each column in characters.
pub(crate) fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let nr_columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    (0..nr_columns).map(width).collect()
}

/// Returns a row in columns of these widths, without the end of the line.
pub(crate) fn line(row: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (at, (cell, &width)) in row.iter().zip(widths).enumerate() {
        // Writing into a String does not fail.
        let _ = match at {
            0 => write!(text, "{cell:<width$}"),
            _ => write!(text, "{GAP}{cell:>width$}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_aligned_at_the_left_and_numbers_at_the_right() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows =
            [row(["load", "IOPS", ""]), row(["a b", "12345", "1"]), row(["\u{b5}s", "1", "2"])];
        assert_eq!(widths(&rows), [4, 5, 1]);
        assert_eq!(
            aligned(&rows, "# "),
            "# load   IOPS\n# a b   12345  1\n# \u{b5}s        1  2\n"
        );
        assert_eq!(aligned(&[], ""), "");
    }
}
