//! The two sides: a program, its jobs, and its command lines.
//!
//! Forebay's side is a child process too: this program, in a new process for each run. So each run
//! of either side starts cold, with its own rings, threads and memory, its CPU time is that of a
//! whole process, and no state carries over to the next run.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use forebay::Spec;
use forebay_fio::arguments::{self, quoted};
use forebay_fio::job::{Engine, Job};
use forebay_fio::options::{Kind, OPTIONS, nearest};

use super::{checks, fio};
use crate::bench::filename;
use crate::bench::plan::{Target, plan};
use crate::failure::Failure;

/// The word for fio's side.
pub(super) const FIO: &str = "fio";

/// One of the two sides.
#[derive(Debug)]
pub(super) struct Side {
    /// Its long name.
    pub(super) title: String,
    /// Its short name.
    pub(super) name: &'static str,
    program: OsString,
    /// Notes for readers of the figures.
    pub(super) notes: Vec<String>,
    /// The arguments before the jobs.
    first: Vec<String>,
    jobs: Vec<Job>,
}

impl Side {
    /// Returns the side of Forebay with these jobs.
    pub(super) fn ours(jobs: &[Job], targets: &[Target]) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::Run(format!("--compare: this program's path: {error}")))?;
        Ok(Self {
            title: format!("forebay, {}", devices(targets)),
            name: "forebay",
            program: program.into(),
            notes: Vec::new(),
            first: vec!["bench".to_owned()],
            jobs: grouped(jobs),
        })
    }

    /// Returns the side of fio with the equivalents of these jobs.
    pub(super) fn fio(jobs: &[Job], targets: &[Target]) -> Result<Self, Failure> {
        let twins = fio::twins(jobs, targets)?;
        let version = fio::version(&twins)?;
        Ok(Self {
            title: format!("{version}, {}", listed(fio::descriptions(&twins, targets), "; ")),
            name: FIO,
            program: FIO.into(),
            notes: fio::notes(&twins, targets),
            // Jobs are threads on both sides. A process for each job would cost more.
            first: vec!["--thread".to_owned()],
            jobs: grouped(&twins),
        })
    }

    pub(super) fn program(&self) -> &OsString {
        &self.program
    }

    /// Returns the arguments of a run, which takes no longer than `limit`.
    pub(super) fn arguments(&self, limit: Option<Duration>) -> Vec<String> {
        let mut all = self.first.clone();
        all.extend(["--output-format=json", "--eta=never"].map(str::to_owned));
        all.extend(self.job_arguments(limit));
        all
    }

    /// Returns the command of a run, as typed in a shell.
    pub(super) fn command(&self, limit: Option<Duration>) -> String {
        let program = if self.name == FIO { FIO } else { "forebay" };
        let words = self.first.iter().cloned().chain(self.job_arguments(limit));
        words.fold(program.to_owned(), |line, word| line + " " + &quoted(&word))
    }

    fn job_arguments(&self, limit: Option<Duration>) -> Vec<String> {
        let mut all = Vec::new();
        for job in &self.jobs {
            let mut job = job.clone();
            if let Some(limit) = limit {
                job.runtime = Some(job.runtime.map_or(limit, |runtime| runtime.min(limit)));
            }
            all.extend(arguments::of(&job));
            all.extend(arguments::policies(&job));
        }
        all
    }
}

/// Returns the jobs as one group, so that percentiles cover all jobs. Drops options that change the
/// form of the report, because the figures are parsed from it.
fn grouped(jobs: &[Job]) -> Vec<Job> {
    let grouped = |job: &Job| {
        let mut job = Job { group_reporting: true, ..job.clone() };
        job.texts.retain(|(name, _)| !checks::OF_THE_REPORT.contains(name));
        job
    };
    jobs.iter().map(grouped).collect()
}

/// Returns the devices of a side, without the keys `read_only` and `nr_bios`, which follow from the
/// jobs alone.
fn devices(targets: &[Target]) -> String {
    let device = |target: &Target| {
        let text = target.spec.to_string();
        let (place, keys) = text.split_once('?').unwrap_or((&text, ""));
        let keys: Vec<_> = keys
            .split('&')
            .filter(|key| !key.is_empty() && *key != "read_only=on" && !key.starts_with("nr_bios="))
            .collect();
        match keys.is_empty() {
            true => place.to_owned(),
            false => format!("{place}?{}", keys.join("&")),
        }
    };
    listed(targets.iter().map(device).collect(), ", ")
}

/// Returns the distinct texts of a list in one line. If there are many, it lists the first two and
/// the number of the others.
fn listed(texts: Vec<String>, separator: &str) -> String {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    match all.len() {
        0..=3 => all.join(separator),
        more => format!("{}{separator}{} and {} more", all[0], all[1], more - 2),
    }
}

/// Refuses a word that is not a device. Without a slash, a dot, a colon or a question mark it is
/// more likely a mistyped `fio` or driver than a file name.
pub(super) fn check_word(with: &str) -> Result<(), Failure> {
    let is_word = !with.contains(['/', '.', ':', '?']) && !Path::new(with).exists();
    if with == FIO || !is_word {
        return Ok(());
    }
    let hint = match nearest(with, filename::DRIVERS.into_iter().chain([FIO])) {
        Some(FIO) => "; did you mean 'fio'?".to_owned(),
        Some(driver) => format!("; did you mean a disk of the driver `{driver}`, {driver}:...?"),
        None => format!("; for a new file of this name write ./{with}"),
    };
    Err(Failure::Usage(format!(
        "--compare={with}: unknown side '{with}'; expected fio, a device spec such as ram:1G or \
         /dev/vdb, or ?key=value for the same device with other settings{hint}"
    )))
}

/// Refuses a file that does not exist. The jobs may create their own file, but a mistyped path of
/// the other side must not become a new file.
pub(super) fn check_exists(with: &str) -> Result<(), Failure> {
    let file = Spec::parse(with).ok().and_then(|spec| spec.file());
    match file.filter(|path| !with.starts_with('?') && !path.exists()) {
        None => Ok(()),
        Some(path) => Err(Failure::Usage(format!(
            "--compare={with}: {path} does not exist, and a comparison does not create it: check \
             the path, or create the file first, such as with truncate -s SIZE {path}",
            path = path.display()
        ))),
    }
}

/// Returns the jobs on another device: each with the spec as its filename, or, for `?key=value`, on
/// the same device with these keys.
pub(super) fn on_other(jobs: &[Job], with: &str) -> Result<Vec<Job>, Failure> {
    let wrong = |reason: String| Failure::Usage(format!("--compare={with}: {reason}"));
    let keys = with.split_once('?').map_or("", |(_, keys)| keys);
    let mut pairs = Vec::new();
    for pair in keys.split('&').filter(|pair| !pair.is_empty()) {
        pairs.push(
            pair.split_once('=')
                .ok_or_else(|| wrong(format!("missing = in `{pair}`; expected key=value")))?,
        );
    }
    if let Some(keys) = with.strip_prefix('?') {
        if keys.is_empty() {
            return Err(wrong("missing key; expected ?key=value, such as ?plug=none".to_owned()));
        }
        return jobs.iter().map(|job| with_keys(job, &pairs).map_err(wrong)).collect();
    }
    Spec::parse(with).map_err(|error| wrong(error.to_string()))?;
    let other = |job: &Job| {
        let mut job = job.clone();
        job.filename = Some(with.to_owned());
        // A key of the spec overrides the option of the same name.
        job.policies.retain(|(name, _)| pairs.iter().all(|(key, _)| key != name));
        pairs.iter().for_each(|(key, _)| clear_option_of(key, &mut job));
        // The engine null would put a null device in the place of any other.
        job.ioengine = job.ioengine.filter(|&engine| engine != Engine::Null);
        job
    };
    Ok(jobs.iter().map(other).collect())
}

/// Returns the job with these keys. A key becomes an option if there is one and the filename does
/// not have the key; otherwise it is set in the filename.
pub(in crate::bench) fn with_keys(job: &Job, pairs: &[(&str, &str)]) -> Result<Job, String> {
    let mut job = job.clone();
    for &(key, value) in pairs {
        let is_it = |kind: &Kind| matches!(kind, Kind::Policy { .. });
        match OPTIONS.iter().find(|option| option.name == key && is_it(&option.kind)) {
            Some(option) => {
                job.policies.retain(|(name, _)| *name != key);
                match in_filename(&job, key, value) {
                    Some(filename) => job.filename = Some(filename),
                    None => job.policies.push((option.name, value.to_owned())),
                }
            }
            None => {
                let Some(filename) = &job.filename else {
                    return Err(format!(
                        "{}: the key `{key}` needs a job with --filename",
                        job.name
                    ));
                };
                let mut spec = Spec::parse(filename).map_err(|error| error.to_string())?;
                spec.set(key, value);
                job.filename = Some(spec.to_string());
                clear_option_of(key, &mut job);
            }
        }
    }
    Ok(job)
}

/// Returns the filename of a job with another value of this key, if it has the key.
fn in_filename(job: &Job, key: &str, value: &str) -> Option<String> {
    let mut spec = Spec::parse(job.filename.as_deref()?).ok()?;
    spec.get(key)?;
    spec.set(key, value);
    Some(spec.to_string())
}

/// Clears the option of fio that sets the same key of a file, because both would contradict
/// each other.
fn clear_option_of(key: &str, job: &mut Job) {
    match key {
        "direct" => job.direct = None,
        "sqpoll" => job.sqthread_poll = None,
        "fixed_buffers" => job.fixedbufs = None,
        _ => {}
    }
}

/// Plans the jobs of the other side. Its errors name `--compare`.
pub(super) fn plan_other(jobs: &[Job], with: &str) -> Result<Vec<Target>, Failure> {
    plan(jobs).map_err(|error| about(with, error))
}

/// Returns the failure as one of the other side.
pub(super) fn about(with: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Usage(message) => Failure::Usage(format!("--compare={with}: {message}")),
        Failure::Run(message) => Failure::Run(format!("--compare={with}: {message}")),
        Failure::Several { messages, usage } => {
            let about = |message: String| format!("--compare={with}: {message}");
            Failure::Several { messages: messages.into_iter().map(about).collect(), usage }
        }
        told @ Failure::Told { .. } => told,
    }
}

#[cfg(test)]
mod tests;
