//! Jobs as they come together, from the command line and from job files alike: which defaults a job
//! starts from, what is remembered for the report, warnings, and errors.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::errors::{Collected, CommandError, CommandErrors, UsageError};
use crate::generator::{Direction, Mix, Pattern};
use crate::job::{
    Engine, Given, Job, JobList, RunOptions, TerseVersion, number_groups, warn_of_empty_zones,
};
use crate::options::engines::is_foreign_engine;
use crate::options::{Found, Kind, known};
use crate::origin::{Origin, Source};

/// fio's limit on jobs, which bounds what a small file can make of large defaults.
const JOBS_MAX: usize = 4096;

/// Jobs and defaults as far as they have been read.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    pub(crate) run: RunOptions,
    /// Defaults of the command line, with which each job file starts.
    base: Draft,
    /// Defaults in force.
    defaults: Draft,
    global_options: Vec<(&'static str, String)>,
    /// The job files that were read, with those that they include.
    pub(crate) files: Vec<PathBuf>,
    jobs: Vec<Job>,
    /// For each job, where its options were given.
    origins: Vec<Vec<Arc<Origin>>>,
    /// The job that is open; `None` while defaults are set.
    open: Option<Open>,
    /// Whether the next job is the first of a job file that is not the first.
    follows_file: bool,
    warnings: Vec<String>,
    /// The options that have been warned of.
    warned: Vec<&'static str>,
    errors: Collected,
}

/// Options as they were given.
#[derive(Debug, Clone, Default)]
struct Draft {
    given: Given,
    origins: Vec<Arc<Origin>>,
    /// Whether an option failed. Contradictions of the others are then not reported: they may
    /// follow from that failure.
    has_failed: bool,
    /// Whether the engine does not exist here. Its options are then not refused one by one.
    has_foreign_engine: bool,
}

/// A job to which options are added.
#[derive(Debug)]
struct Open {
    name: String,
    draft: Draft,
    options: Vec<(&'static str, String)>,
}

/// Returns whether a job of this name only sets defaults. fio compares the beginning alone.
pub(crate) fn is_global(name: &str) -> bool {
    name.starts_with("global")
}

impl Assembly {
    /// Begins a job, or the defaults, when no job is open.
    ///
    /// # Errors
    ///
    /// There are too many jobs.
    pub(crate) fn open(&mut self, name: &str) -> Result<(), UsageError> {
        if is_global(name) {
            if name != "global" {
                self.warn(format!(
                    "'{name}' sets defaults, as in fio: its name begins with 'global'"
                ));
            }
            return Ok(());
        }
        if self.jobs.len() == JOBS_MAX {
            return Err(UsageError::TooManyJobs { max: JOBS_MAX });
        }
        let draft = self.defaults.clone();
        self.open = Some(Open { name: name.to_owned(), draft, options: Vec::new() });
        Ok(())
    }

    /// Ends the job that is open.
    ///
    /// # Errors
    ///
    /// Options of the job that contradict each other.
    pub(crate) fn close(&mut self) -> Result<(), UsageError> {
        let Some(Open { name, draft, options }) = self.open.take() else { return Ok(()) };
        let follows_file = std::mem::take(&mut self.follows_file);
        if !draft.has_failed {
            let mut job = Job::new(name, draft.given, options)?;
            job.stonewall |= follows_file;
            self.jobs.push(job);
            self.origins.push(draft.origins);
        }
        Ok(())
    }

    /// Records an error of the job or the defaults that are open.
    pub(crate) fn fail(&mut self, error: impl Into<CommandError>) {
        self.draft().has_failed = true;
        self.errors.add(error);
    }

    /// Ends the job that is open, and records a contradiction of its options.
    pub(crate) fn close_reporting(&mut self) {
        if let Err(error) = self.close() {
            self.errors.add(error);
        }
    }

    /// Records an error that is not one of an option.
    pub(crate) fn fail_outside(&mut self, error: impl Into<CommandError>) {
        self.errors.add(error);
    }

    /// Returns whether so many errors were found that reading more is of no use.
    pub(crate) fn has_enough_errors(&self) -> bool {
        self.errors.is_full()
    }

    fn draft(&mut self) -> &mut Draft {
        match &mut self.open {
            Some(open) => &mut open.draft,
            None => &mut self.defaults,
        }
    }

    /// Sets an option of what is open. `used` is its name as given; a `bare` one has no value.
    pub(crate) fn set(
        &mut self,
        found: Found,
        used: &str,
        value: &str,
        bare: bool,
        source: Source,
    ) -> Result<(), UsageError> {
        let spec = match found {
            Found::Supported(spec) => spec,
            Found::Ignored(foreign, _) if foreign.off.contains(&value) => return Ok(()),
            Found::Ignored(foreign, why) => {
                let name = foreign.names[0];
                if !self.warned.contains(&name) {
                    self.warned.push(name);
                    self.warn(format!("{}{used} is ignored: {why}", source.prefix()));
                }
                return Ok(());
            }
            Found::Refused(foreign, _) if foreign.off.contains(&value) => return Ok(()),
            Found::Refused(foreign, _)
                if self.draft().has_foreign_engine && known::is_of_engine(foreign) =>
            {
                return Ok(());
            }
            Found::Refused(_, instead) => {
                return Err(UsageError::NotSupported { name: used.to_owned(), instead });
            }
        };
        // The borrow of `run` is apart from that of the draft.
        let draft = match &mut self.open {
            Some(open) => &mut open.draft,
            None => &mut self.defaults,
        };
        if spec.name == "ioengine" {
            draft.has_foreign_engine = is_foreign_engine(value);
        }
        spec.apply(used, value, &mut draft.given, &mut self.run)?;
        if spec.is_of_run() {
            return Ok(());
        }
        draft.origins.retain(|origin| origin.name != spec.name);
        let value_given = value.to_owned();
        draft.origins.push(Arc::new(Origin { name: spec.name, value: value_given, source }));
        // fio's report lists what was given with a value.
        if !bare {
            self.remember(spec.name, value);
        }
        Ok(())
    }

    /// Gives the open job another name, as `name=` does in a job file.
    pub(crate) fn rename(&mut self, name: &str) {
        if let Some(open) = &mut self.open {
            name.clone_into(&mut open.name);
        }
        self.remember("name", name);
    }

    /// Notes a value for the report.
    pub(crate) fn remember(&mut self, name: &'static str, value: &str) {
        let options = match &mut self.open {
            Some(open) => &mut open.options,
            None => &mut self.global_options,
        };
        match options.iter_mut().find(|(known, _)| *known == name) {
            Some((_, text)) => value.clone_into(text),
            None => options.push((name, value.to_owned())),
        }
    }

    /// Adds a warning.
    pub(crate) fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    /// Ends the command line, whose defaults job files start from.
    pub(crate) fn end_arguments(&mut self) {
        self.close_reporting();
        let sections = &self.run.sections;
        if !sections.is_empty() {
            let is_kept: Vec<_> =
                self.jobs.iter().map(|job| sections.contains(&job.name)).collect();
            let mut kept = is_kept.iter().copied();
            self.jobs.retain(|_| kept.next().unwrap_or(false));
            let mut kept = is_kept.into_iter();
            self.origins.retain(|_| kept.next().unwrap_or(false));
        }
        self.base = std::mem::take(&mut self.defaults);
    }

    /// Begins job file number `nth`. Its defaults end with it, and its first job waits for all
    /// those of the files before.
    pub(crate) fn begin_file(&mut self, nth: usize) {
        self.defaults = self.base.clone();
        self.follows_file = nth > 0;
    }

    /// Returns whether `--section` leaves this job out.
    pub(crate) fn is_left_out(&self, name: &str) -> bool {
        let sections = &self.run.sections;
        !sections.is_empty() && !is_global(name) && !sections.iter().any(|known| known == name)
    }

    /// Returns all jobs, or all errors. Without a job, and without a file or a section that could
    /// have had one, there is one job with defaults that make a sensible first measurement.
    pub(crate) fn finish(mut self, nr_files: usize) -> Result<JobList, CommandErrors> {
        self.errors.check()?;
        self.close()?;
        if self.run.terse_version != TerseVersion::default() && !self.run.format.is_terse() {
            self.warn(
                "--terse-version has no effect without terse lines; add --minimal or \
                 --append-terse"
                    .to_owned(),
            );
        }
        if self.jobs.is_empty() && nr_files == 0 && self.run.sections.is_empty() {
            bare_defaults(&mut self.base.given);
            let mut options = std::mem::take(&mut self.global_options);
            options.retain(|(name, _)| *name != "name");
            self.jobs.push(Job::new("bench".to_owned(), self.base.given, options)?);
            self.origins.push(self.base.origins);
        }
        // fio reads a file without jobs, and then finds nothing to run.
        if self.jobs.is_empty() && !self.run.parse_only {
            let sections = self.run.sections.join(", ");
            return Err(CommandErrors::from(match self.run.sections[..] {
                [] => UsageError::NoJob,
                _ => UsageError::Conflict(format!("--section={sections}: no job has this name")),
            }));
        }
        number_groups(&mut self.jobs);
        warn_of_empty_zones(&mut self.jobs);
        check_waits(&self.jobs)?;
        if self.run.readonly {
            check_read_only(&self.jobs)?;
        }
        if let Some(warning) =
            first_warning(&self.warnings, &self.jobs).filter(|_| self.run.warnings_fatal)
        {
            return Err(UsageError::Conflict(format!("{warning} (--warnings-fatal)")).into());
        }
        Ok(JobList {
            run: self.run,
            global_options: self.global_options,
            jobs: self.jobs,
            origins: self.origins,
            warnings: self.warnings,
            files: self.files,
        })
    }
}

/// Returns the first warning, of the command or of a job.
fn first_warning(warnings: &[String], jobs: &[Job]) -> Option<String> {
    let of_jobs = jobs
        .iter()
        .flat_map(|job| job.warnings.iter().map(move |warning| format!("{}: {warning}", job.name)));
    warnings.iter().cloned().chain(of_jobs).next()
}

/// Fills in what a command line without any job leaves open: random reads of 4 KiB at depth 32 for
/// five seconds, on a RAM disk of 1 GiB unless another device is named.
fn bare_defaults(given: &mut Given) {
    if given.replay.read.is_some() {
        // The log determines the rest.
        given.iodepth.get_or_insert(32);
        return;
    }
    let randread = Pattern { random: true, mix: Mix::Only(Direction::Read) };
    given.rw.get_or_insert(randread);
    given.bs.get_or_insert(4096);
    given.iodepth.get_or_insert(32);
    given.runtime.get_or_insert(Duration::from_secs(5));
    // A runtime of 0 is "no limit", and nothing can be based on it.
    let limited = given.runtime.is_some_and(|time| !time.is_zero());
    given.time_based.get_or_insert(limited);
    if given.filename.is_none() && given.ioengine != Some(Engine::Null) {
        given.filename = Some("ram:1G".to_owned());
    }
}

/// Refuses a job that waits for one that is not before it.
fn check_waits(jobs: &[Job]) -> Result<(), UsageError> {
    for (at, job) in jobs.iter().enumerate() {
        let Some(awaited) = &job.control.wait_for else { continue };
        if !jobs[..at].iter().any(|earlier| earlier.name == *awaited) {
            let name = &job.name;
            return Err(UsageError::Conflict(format!(
                "{name}: --wait_for={awaited}: no job before it has this name"
            )));
        }
    }
    Ok(())
}

fn check_read_only(jobs: &[Job]) -> Result<(), UsageError> {
    let changes = |job: &&Job| job.rw.has(Direction::Write) || job.rw.has(Direction::Trim);
    match jobs.iter().find(changes) {
        None => Ok(()),
        Some(job) => Err(UsageError::Conflict(format!(
            "{}: --rw={} changes the disk, and --readonly was given",
            job.name,
            job.rw.word()
        ))),
    }
}

/// Returns whether the option is `name`, which opens a job on a command line and renames the
/// section in a job file.
pub(crate) fn is_job_name(found: Found) -> bool {
    matches!(found, Found::Supported(spec) if matches!(spec.kind, Kind::JobName))
}
