//! Options that a comparison refuses, and notes about those that have no effect in it.
//!
//! An accepted option has its effect. An option that a comparison cannot honour is an error if the
//! user would miss its effect, and causes a note otherwise.

use forebay::Spec;
use forebay_fio::job::{FileOptions, Job, OnError, OutputFormat, RunOptions};

use forebay_fio::steadystate::SteadyOptions;

use super::options::{CompareOptions, Format};
use crate::bench::filename;
use crate::bench::plan::Target;
use crate::failure::Failure;

/// Options about the form of the report. The runs do without them, because the figures are read
/// from their reports.
pub(super) const OF_THE_REPORT: [&str; 6] = [
    "unit_base",
    "percentile_list",
    "clat_percentiles",
    "lat_percentiles",
    "slat_percentiles",
    "unified_rw_reporting",
];

/// Refuses options of the run that a comparison cannot honour.
pub(super) fn run(run: &RunOptions, asked: &CompareOptions) -> Result<(), Failure> {
    let is_other = asked.format.is_some_and(|format| format != Format::Json);
    let formats = match run.format {
        OutputFormat::JSON_PLUS => Some(
            "--output-format=json+ has no effect: a comparison has no histograms; use \
             --compare-format=json",
        ),
        OutputFormat::JSON if is_other => {
            Some("--output-format=json contradicts --compare-format; leave out one of them")
        }
        OutputFormat::JSON | OutputFormat::NORMAL => None,
        OutputFormat::TERSE => Some(
            "--output-format=terse has no effect: a comparison has no terse lines; use \
             --compare-format=json",
        ),
        _ => Some(
            "--output-format with several formats has no effect: a comparison is printed in one; \
             use --compare-format",
        ),
    };
    let reports = run.status_interval.map(|_| {
        "--status-interval has no effect: a comparison prints one report at its end; leave it out"
    });
    let lines = run.eta_newline.map(|_| {
        "--eta-newline has no effect: the progress line of a comparison stays in place; leave it \
         out"
    });
    let traces = run.trace.as_ref().map(|_| {
        "--trace has no effect: a comparison makes many runs, and each would need a directory; \
         leave it out, and trace one run"
    });
    let insight = run.insight.as_ref().map(|_| {
        "--insight has no effect: the runs of a comparison are processes of their own; leave it \
         out, and watch one run"
    });
    let messages: Vec<_> = [formats, reports, lines, traces, insight]
        .into_iter()
        .flatten()
        .map(|message| format!("--compare: {message}"))
        .collect();
    match messages.is_empty() {
        true => Ok(()),
        false => Err(Failure::Several { messages, usage: true }),
    }
}

/// Refuses jobs that no comparison supports, with any sides.
pub(super) fn jobs(jobs: &[Job]) -> Result<(), Failure> {
    let refuse =
        |job: &Job, reason: &str| Err(Failure::Usage(format!("--compare: {}: {reason}", job.name)));
    if let Some(job) = jobs.iter().find(|job| job.group != jobs[0].group) {
        return refuse(
            job,
            "it starts another group (stonewall, new_group, or a second job file), and only one \
             group can be compared; compare the groups one by one with --section",
        );
    }
    let has_files = |job: &&Job| {
        let names = job.filename.as_deref().map(|given| filename::spec_texts(given, None));
        let has_several = names.is_some_and(|names| names.is_ok_and(|names| names.len() > 1));
        has_several || *job.files != FileOptions::default()
    };
    if let Some(job) = jobs.iter().find(has_files) {
        return refuse(
            job,
            "options about several files, their directory or their creation are not compared; give \
             each job one file with --filename",
        );
    }
    if let Some(job) = jobs.iter().find(|job| job.control.on_error != OnError::default()) {
        return refuse(
            job,
            "failed I/Os are not measured; leave out continue_on_error, ignore_error, \
             error_dump and fill_device",
        );
    }
    if let Some(job) = jobs.iter().find(|job| job.control.steady != SteadyOptions::default()) {
        return refuse(
            job,
            "the runs would have different lengths; leave out steadystate and its options, and \
             give a runtime",
        );
    }
    if let Some(job) = jobs.iter().find(|job| job.control.target.target.is_some()) {
        return refuse(
            job,
            "each run would have a depth of its own; leave out latency_target, and give an iodepth",
        );
    }
    if let Some(job) = jobs.iter().find(|job| job.replay.write.is_some()) {
        return refuse(job, "each run would overwrite the log; leave out write_iolog");
    }
    if let Some(job) = jobs.iter().find(|job| job.replay.read.is_some()) {
        return refuse(
            job,
            "replays are not compared; leave out read_iolog, or use --sweep for several settings",
        );
    }
    match jobs.iter().find(|job| job.logs.is_any()) {
        None => Ok(()),
        Some(job) => refuse(
            job,
            "each run would overwrite the logs of the one before; leave out write_bw_log, \
             write_lat_log, write_iops_log and write_hist_log",
        ),
    }
}

/// Returns notes about options of the jobs that have no effect in a comparison.
pub(super) fn notes(jobs: &[Job]) -> Vec<String> {
    let mut notes = Vec::new();
    for job in jobs {
        for name in OF_THE_REPORT {
            if job.texts.iter().any(|(given, _)| *given == name) {
                notes.push(format!(
                    "--compare: {}: --{name} has no effect: the metrics of a comparison are fixed",
                    job.name
                ));
            }
        }
    }
    notes
}

/// Refuses a comparison of jobs with themselves, if `with` has keys that should make a difference.
/// It is intentional without keys, or if `with` is exactly the device of the jobs: then it shows
/// how much equal runs differ.
pub(super) fn sides(
    (jobs, targets): (&[Job], &[Target]),
    (other_jobs, other_targets): (&[Job], &[Target]),
    with: &str,
) -> Result<(), Failure> {
    let is_intended =
        !with.contains('?') || jobs.iter().all(|job| job.filename.as_deref() == Some(with));
    let settings = |targets: &[Target]| -> Vec<_> {
        targets.iter().map(|target| settings(&target.spec)).collect()
    };
    let refuses = |job: &Job| job.fixedbufs == Some(false);
    let are_same_jobs =
        jobs.iter().zip(other_jobs).all(|(job, other)| refuses(job) == refuses(other));
    if is_intended || !are_same_jobs || settings(targets) != settings(other_targets) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--compare={with}: both sides would run the same jobs on the same disks: the keys have no \
         effect or are those of side A; leave them out, or give other values"
    )))
}

/// Returns the place of a disk and its keys in alphabetical order, with switches in one notation.
fn settings(spec: &Spec) -> (String, Vec<String>) {
    let text = spec.to_string();
    let (place, keys) = text.split_once('?').unwrap_or((&text, ""));
    let setting = |pair: &str| match pair.split_once('=') {
        Some((key, "on" | "1" | "yes" | "true")) => format!("{key}=on"),
        Some((key, "off" | "0" | "no" | "false")) => format!("{key}=off"),
        _ => pair.to_owned(),
    };
    let mut keys: Vec<_> = keys.split('&').map(setting).collect();
    keys.sort();
    (place.to_owned(), keys)
}
