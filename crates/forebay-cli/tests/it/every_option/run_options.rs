//! Options of the whole run, and the effect of each that must be seen in both programs.
//!
//! Each row runs both programs, and checks one effect in both ([`Effect`]). If a program ignored an
//! option, a row of the option would fail. Further rows test another value, or a job that must be
//! accepted.

use std::fs::{read, read_dir, read_to_string};
use std::ops::RangeInclusive;
use std::process::Output;

use tempfile::TempDir;

use super::Runs;
use super::counts::{self, Counts};
use crate::common::{stderr, stdout};
use crate::terse::{Line, forms};

/// A run of both programs.
pub(super) struct Row {
    /// The option.
    pub(super) name: &'static str,
    /// The arguments before the job file.
    pub(super) options: &'static str,
    /// The job file, with a space between two lines.
    pub(super) job: &'static str,
    effect: Effect,
}

/// An effect that both programs must have.
enum Effect {
    /// They report these jobs as JSON, with equal counts.
    Json(&'static [&'static str]),
    /// They report the job `a` as JSON in the file `report`, and print nothing.
    File,
    /// They print one terse line of this version, with fields of equal forms, alone or within the
    /// normal report. The field `name_at` is the name of the job.
    Terse { version: &'static str, name_at: usize, is_alone: bool },
    /// They print at least this many terse lines of the job `a`, with growing runtimes.
    Repeated(usize),
    /// They print progress of the job on this many lines.
    Progress(RangeInclusive<usize>),
    /// They succeed, print exactly nothing (an empty list) or all of these words, and run nothing.
    Text(&'static [&'static str]),
    /// They fail with a message, and run nothing.
    Refused,
}

/// A job whose run can be seen: it creates a file.
const NEW: &str = "[a] filename=new size=64k rw=write";
/// A job that lasts 2.3 s, which is enough for one line of progress.
const LONG: &str = "[a] filename=y size=64k time_based runtime=2300ms thinktime=200ms";
/// A job with a warning of each program: fio refers to `read_iolog` and `write_iolog`, and our
/// program to `create_fsync`.
const WARNED: &str = "[a] read_iolog=log write_iolog=l create_fsync=0";

const fn row(name: &'static str, options: &'static str, job: &'static str, effect: Effect) -> Row {
    Row { name, options, job, effect }
}

/// The runs. The longest are first.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    // fio 3.33 starts the second line of progress with its third update.
    row("eta-newline", "--eta=always --eta-newline=300ms",
        "[a] filename=y size=64k time_based runtime=4400ms thinktime=200ms",
        Effect::Progress(2..=9)),
    row("eta", "--eta=always", LONG, Effect::Progress(1..=1)),
    // Without a terminal, `auto` prints no progress either, but here it would follow `always`.
    row("eta", "--eta=always --eta=never", LONG, Effect::Progress(0..=0)),
    row("status-interval", "--minimal --status-interval=300ms",
        "[a] filename=y size=64k time_based runtime=1200ms thinktime=200ms",
        Effect::Repeated(3)),
    row("output", "--output-format=json --output=report", NEW, Effect::File),
    row("output-format", "--output-format=json", NEW, Effect::Json(&["a"])),
    row("minimal", "--minimal", NEW,
        Effect::Terse { version: "3", name_at: 2, is_alone: true }),
    row("append-terse", "--append-terse", NEW,
        Effect::Terse { version: "3", name_at: 2, is_alone: false }),
    // Version 2 has other fields than the default, version 4 has the same.
    row("terse-version", "--minimal --terse-version=2", NEW,
        Effect::Terse { version: "2", name_at: 1, is_alone: true }),
    row("terse-version", "--minimal --terse-version=4", NEW,
        Effect::Terse { version: "4", name_at: 2, is_alone: true }),
    row("section", "--output-format=json --section=b",
        "[a] filename=x size=64k [b] filename=y size=32k [c] filename=x size=64k",
        Effect::Json(&["b"])),
    row("parse-only", "--output-format=json --parse-only", NEW, Effect::Text(&[])),
    row("showcmd", "--showcmd", NEW,
        Effect::Text(&["--name=a ", "--filename=new", "--rw=write", "--size="])),
    row("readonly", "--output-format=json --readonly", NEW, Effect::Refused),
    row("readonly", "--output-format=json --readonly", "[a] filename=y size=64k",
        Effect::Json(&["a"])),
    row("warnings-fatal", "--output-format=json", WARNED, Effect::Json(&["a"])),
    row("warnings-fatal", "--output-format=json --warnings-fatal", WARNED, Effect::Refused),
    row("help", "--help", NEW,
        Effect::Text(&["--output", "--terse-version", "--section", "--readonly"])),
];

impl Row {
    /// Returns whether this row runs the programs with the option.
    pub(super) fn uses(&self, option: &str) -> bool {
        let names = self.options.split_whitespace().filter_map(|option| {
            option.strip_prefix("--").and_then(|option| option.split('=').next())
        });
        self.name == option && names.into_iter().any(|name| name == option)
    }

    /// Checks the effect in both programs, and compares their output.
    ///
    /// # Errors
    ///
    /// A description of the difference.
    pub(super) fn compare(&self, runs: &Runs) -> Result<(), String> {
        let [theirs, ours] = [0, 1].map(|at| {
            let program = ["fio", "forebay"][at];
            let (folder, output) = (&runs.folders[at], &runs.outputs[at]);
            self.effect.check(folder, output).map_err(|error| {
                let [out, err] = [stdout(output), stderr(output)];
                format!("{program}: {error}: {:?}\n{out}\n{err}", output.status.code())
            })
        });
        let (theirs, ours) = (theirs?, ours?);
        match (&theirs, &ours) {
            (Found::Report(theirs), Found::Report(ours)) => counts::compare(theirs, ours, &[]),
            (Found::Forms(theirs), Found::Forms(ours)) if theirs != ours => {
                Err(format!("forms of the fields: fio {theirs:?}, we {ours:?}"))
            }
            _ => Ok(()),
        }
    }
}

/// A part of the output that must be equal.
enum Found {
    Report(Counts),
    Forms(Vec<String>),
    Nothing,
}

impl Effect {
    /// Checks the effect in one program.
    ///
    /// # Errors
    ///
    /// The effect that is missing.
    fn check(&self, folder: &TempDir, output: &Output) -> Result<Found, String> {
        let text = stdout(output);
        if output.status.success() == matches!(self, Self::Refused) {
            return Err("unexpected exit code".to_owned());
        }
        match self {
            Self::Json(names) => report(&text, names),
            Self::File if !text.is_empty() => Err("there is output".to_owned()),
            Self::File => {
                let text = read_to_string(folder.path().join("report"));
                report(&text.map_err(|error| format!("report: {error}"))?, &["a"])
            }
            Self::Terse { version, name_at, is_alone } => {
                if *is_alone == text.contains("a: (groupid=0") {
                    return Err(format!("not terse alone: {is_alone}"));
                }
                let [line] = terse_lines(&text, version, *name_at)[..] else {
                    return Err(format!("not one terse line of version {version}"));
                };
                Ok(Found::Forms(forms(Line::of(line, 0).of_job())))
            }
            Self::Repeated(min) => {
                // The runtime in milliseconds follows the error, KiB, bandwidth and IOPS.
                let runtime = |line: &&str| line.split(';').nth(8)?.parse::<u64>().ok();
                let lines = terse_lines(&text, "3", 2);
                let runtimes: Vec<_> = lines.iter().filter_map(runtime).collect();
                let is_growing = runtimes.windows(2).all(|pair| pair[0] < pair[1]);
                expect(runtimes.len() >= *min && is_growing, || format!("runtimes {runtimes:?}"))
            }
            Self::Progress(range) => {
                let all = text + "\n" + &stderr(output);
                let lines = all.split('\n').filter(|line| line.contains("Jobs: 1 (f=1)")).count();
                expect(range.contains(&lines), || format!("{lines} lines of progress"))
            }
            Self::Text(words) => {
                let is_text = match words {
                    [] => text.is_empty(),
                    _ => words.iter().all(|word| text.contains(word)),
                };
                expect(is_text, || format!("not the text {words:?}"))?;
                untouched(folder)
            }
            Self::Refused => {
                expect(!stderr(output).is_empty(), || "no message".to_owned())?;
                untouched(folder)
            }
        }
    }
}

/// Returns the counts of a report of jobs with these names, which have done I/O.
fn report(text: &str, names: &[&str]) -> Result<Found, String> {
    let counts = Counts::of(text);
    let is_right = counts.names() == names && counts.has_io();
    expect(is_right, || format!("not a report of {names:?} with I/O: {counts:?}"))?;
    Ok(Found::Report(counts))
}

/// Returns the terse lines of the job `a` in this version.
fn terse_lines<'a>(text: &'a str, version: &str, name_at: usize) -> Vec<&'a str> {
    let is_terse = |line: &&str| {
        let mut fields = line.split(';');
        fields.next() == Some(version) && line.split(';').nth(name_at) == Some("a")
    };
    text.lines().filter(is_terse).collect()
}

/// Checks that no job has run: the folder has the files that were prepared, and no more.
fn untouched(folder: &TempDir) -> Result<Found, String> {
    let entries = read_dir(folder.path()).expect("a folder");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    let is_same = |name| read(folder.path().join(name)).is_ok_and(|data| data == [7; 65_536]);
    let is_right =
        names == ["a.fio", "full", "log", "x", "y"] && ["x", "y"].map(is_same) == [true; 2];
    expect(is_right, || format!("a job has run: {names:?}"))
}

fn expect(is_right: bool, error: impl FnOnce() -> String) -> Result<Found, String> {
    is_right.then_some(Found::Nothing).ok_or_else(error)
}
