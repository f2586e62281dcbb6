//! Job files: fio's ini form of what the command line says.
//!
//! Source: fio's HOWTO, "Job file format". `[name]` opens a job and `[global]` sets defaults for
//! the jobs below it; a line is `option=value`, or a bare flag; `#` and `;` begin comment lines.
//! The options are those of the command line ([`crate::options`]). Not supported: `include`,
//! environment variables, and comments behind a value.

use crate::job::{Given, Job, RunOptions};
use crate::options::{self, UsageError};
use thiserror::Error;

/// What is wrong with a job file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JobFileError {
    /// A line that is wrong.
    #[error("line {line}: {error}")]
    Line {
        /// Its number, from 1 on.
        line: usize,
        /// What is wrong with it.
        error: UsageError,
    },
    /// An option above the first section.
    #[error("line {line}: '{text}' stands before the first section, such as [job1]")]
    NoSection {
        /// Its number, from 1 on.
        line: usize,
        /// The line.
        text: String,
    },
    /// A section whose name does not end.
    #[error("line {line}: '{text}' begins a section and does not end with ]")]
    OpenSection {
        /// Its number, from 1 on.
        line: usize,
        /// The line.
        text: String,
    },
    /// Options of a job that contradict each other.
    #[error("{0}")]
    Job(UsageError),
    /// No section but `[global]`.
    #[error("there is no job in it; a job begins with a line such as [job1]")]
    NoJob,
}

/// Parses the text of a job file.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn parse(text: &str) -> Result<Vec<Job>, JobFileError> {
    let mut global = Given::default();
    let mut jobs = Vec::new();
    // The job that is open; an empty name for [global].
    let mut open: Option<(String, Given)> = None;
    for (at, line) in text.lines().enumerate() {
        let (number, line) = (at + 1, line.trim());
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let Some(name) = rest.strip_suffix(']') else {
                return Err(JobFileError::OpenSection { line: number, text: line.to_owned() });
            };
            close(open.take(), &mut global, &mut jobs)?;
            open = Some((name.trim().to_owned(), global.clone()));
            continue;
        }
        let Some((_, given)) = &mut open else {
            return Err(JobFileError::NoSection { line: number, text: line.to_owned() });
        };
        set(given, line).map_err(|error| JobFileError::Line { line: number, error })?;
    }
    close(open, &mut global, &mut jobs)?;
    if jobs.is_empty() { Err(JobFileError::NoJob) } else { Ok(jobs) }
}

fn close(
    open: Option<(String, Given)>,
    global: &mut Given,
    jobs: &mut Vec<Job>,
) -> Result<(), JobFileError> {
    match open {
        Some((name, given)) if name == "global" => *global = given,
        Some((name, given)) => {
            jobs.push(Job::new(name, given, Vec::new()).map_err(JobFileError::Job)?);
        }
        None => {}
    }
    Ok(())
}

/// Sets one option of a job. What concerns a whole run is taken, and means nothing here.
fn set(given: &mut Given, line: &str) -> Result<(), UsageError> {
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (line, None),
    };
    let spec = options::lookup(name)?;
    let value = match value {
        Some(value) => value,
        None if spec.is_flag() => "1",
        None => {
            let accepted = spec.kind.accepted();
            return Err(UsageError::MissingValue { name: name.to_owned(), accepted });
        }
    };
    spec.apply(name, value, given, &mut RunOptions::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_jobs_and_global_is_for_those_below() {
        let text = "; a comment\n[global]\nbs=8k\n\n[a]\nrw=randwrite\n# another\n[global]\n\
                    iodepth = 4\n[b]\nnorandommap\n";
        let jobs = parse(text).expect("it is right");
        let [a, b] = &jobs[..] else { panic!("{jobs:?}") };
        assert_eq!((a.name.as_str(), a.bs, a.rw.word(), a.iodepth), ("a", 8192, "randwrite", 1));
        assert_eq!((b.name.as_str(), b.bs, b.iodepth, b.norandommap), ("b", 8192, 4, true));
    }

    #[track_caller]
    fn check(text: &str, message: &str) {
        assert_eq!(parse(text).expect_err(text).to_string(), message);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        check("", "there is no job in it; a job begins with a line such as [job1]");
        check(
            "[global]\nbs=4k\n",
            "there is no job in it; a job begins with a line such as [job1]",
        );
        check("bs=4k\n", "line 1: 'bs=4k' stands before the first section, such as [job1]");
        check("\n[a\n", "line 2: '[a' begins a section and does not end with ]");
        check(
            "[a]\nbs\n",
            "line 2: --bs needs a value; accepted: a size such as 4096, 4k, 1m or 1g \
             (k = 1024, ki = 1000), or up to three: read,write,trim",
        );
        check("[a]\n\niodpth=4\n", "line 3: unknown option --iodpth; did you mean --iodepth?");
        check("[a]\ntime_based\n", "a: --time_based needs a --runtime");
    }
}
