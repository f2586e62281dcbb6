//! The figure `library`: the cost of the interfaces of the library.
//!
//! It measures the figures of [`figures::library`], and adds the counts of
//! instructions that `cargo xtask instructions` and `cargo xtask python` print: of a back end
//! or driver beyond `null`, of a C program beyond one in Rust, and of an I/O from Python.

use std::fmt::Write;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::Options;
use crate::measure::say;
use crate::{figures, table};

/// The name that selects this table.
pub(crate) const NAME: &str = "library";

/// The commands that count instructions, and the start of the lines with a count of the library's
/// interfaces.
const COUNTS: [(&str, &[&str]); 2] = [
    ("instructions", &["a back end in place of", "the same, ", "a driver", "an I/O from C"]),
    ("python", &["an I/O in lists"]),
];

/// Returns the whole table.
pub(crate) fn render(forebay: &std::path::Path, options: &Options) -> Result<String> {
    let mut rows = Vec::new();
    for figure in figures::library::FIGURES {
        rows.extend(figures::measure(figure, forebay, options)?);
    }
    let mut text = table::render(&rows, options)?;
    text += "\n## Instructions of an I/O, under callgrind\n\n| what | instructions | at most |\n\
             |---|---|---|\n";
    for (command, wanted) in COUNTS {
        say(&format!("cargo xtask {command}"));
        for (name, found, max) in counts(&output_of(command)?) {
            if wanted.iter().any(|start| name.starts_with(start)) {
                writeln!(text, "| {name} | {found} | {max} |")?;
            }
        }
    }
    Ok(text)
}

fn output_of(command: &str) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(["xtask", command]).output()?;
    ensure!(
        output.status.success(),
        "cargo xtask {command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).with_context(|| format!("cargo xtask {command}: not UTF-8"))
}

/// Returns the name, the count and the limit in each line such as
/// `instructions:   71 of at most   80: the same, unplugged`.
fn counts(output: &str) -> Vec<(&str, &str, &str)> {
    let parts = |line| {
        let (_, rest) = str::split_once(line, ": ")?;
        let (numbers, name) = rest.split_once(": ")?;
        // The first word is the count, and the last one the limit.
        let mut words = numbers.split_whitespace();
        Some((name.trim(), words.next()?, words.last()?))
    };
    output.lines().filter_map(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_lines_of_both_commands() {
        let output = "instructions:    71 of at most   80: the same, unplugged by 32\n\
                      instructions:  1.04 times that with the profile release\n\
                      python:  1190 instructions of at most 1500: an I/O in lists of 32\n";
        assert_eq!(
            counts(output),
            [("the same, unplugged by 32", "71", "80"), ("an I/O in lists of 32", "1190", "1500"),]
        );
    }
}
