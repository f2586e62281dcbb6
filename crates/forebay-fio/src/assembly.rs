//! Jobs as they come together, from the command line and from job files alike: which defaults a job
//! starts from, what is remembered for the report, and what is only warned of.

use crate::cmdline::{CommandLine, bare_defaults};
use crate::generator::Direction;
use crate::job::{Given, Job, RunOptions, number_groups};
use crate::options::{Found, Kind, UsageError};

/// fio's limit on jobs, which bounds what a small file can make of large defaults.
const JOBS_MAX: usize = 4096;

/// What has been said so far.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    pub(crate) run: RunOptions,
    /// Defaults of the command line, with which each job file starts.
    base: Given,
    /// Defaults that are in force.
    defaults: Given,
    global_options: Vec<(&'static str, String)>,
    jobs: Vec<Job>,
    /// The job that is open; `None` while defaults are set.
    open: Option<Open>,
    /// Whether the next job is the first of a job file that is not the first.
    follows_file: bool,
    warnings: Vec<String>,
    /// The options that have been warned of.
    warned: Vec<&'static str>,
}

/// A job to which options are added.
#[derive(Debug)]
struct Open {
    name: String,
    given: Given,
    options: Vec<(&'static str, String)>,
}

/// Whether a job of this name only sets defaults. fio looks at the beginning of the name alone.
pub(crate) fn is_global(name: &str) -> bool {
    name.starts_with("global")
}

impl Assembly {
    /// Ends the job that is open and begins another, or the defaults.
    pub(crate) fn open(&mut self, name: &str) -> Result<(), UsageError> {
        self.close()?;
        if is_global(name) {
            if name != "global" {
                self.warn(format!("'{name}' sets defaults: in fio, names with 'global' first do"));
            }
            return Ok(());
        }
        if self.jobs.len() == JOBS_MAX {
            return Err(UsageError::Conflict(format!("there are more than {JOBS_MAX} jobs")));
        }
        let given = self.defaults.clone();
        self.open = Some(Open { name: name.to_owned(), given, options: Vec::new() });
        Ok(())
    }

    /// Ends the job that is open.
    ///
    /// # Errors
    ///
    /// What its options contradict each other in.
    pub(crate) fn close(&mut self) -> Result<(), UsageError> {
        if let Some(Open { name, given, options }) = self.open.take() {
            let mut job = Job::new(name, given, options)?;
            job.stonewall |= std::mem::take(&mut self.follows_file);
            self.jobs.push(job);
        }
        Ok(())
    }

    /// Sets an option of what is open. `used` is its name as given; a `bare` one has no value.
    /// `place` stands before a warning.
    pub(crate) fn set(
        &mut self,
        found: Found,
        used: &str,
        value: &str,
        bare: bool,
        place: &str,
    ) -> Result<(), UsageError> {
        let spec = match found {
            Found::Supported(spec) => spec,
            Found::Ignored(foreign, why) => {
                let name = foreign.names[0];
                if !self.warned.contains(&name) {
                    self.warned.push(name);
                    self.warn(format!("{place}{used} is ignored: {why}"));
                }
                return Ok(());
            }
        };
        let given = match &mut self.open {
            Some(open) => &mut open.given,
            None => &mut self.defaults,
        };
        spec.apply(used, value, given, &mut self.run)?;
        // fio's report lists what was given with a value.
        if !bare && !spec.is_of_run() {
            self.remember(spec.name, value);
        }
        Ok(())
    }

    /// Gives the open job another name: what `name=` does in a job file.
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
    pub(crate) fn end_arguments(&mut self) -> Result<(), UsageError> {
        self.close()?;
        let sections = &self.run.sections;
        if !sections.is_empty() {
            self.jobs.retain(|job| sections.contains(&job.name));
        }
        self.base = std::mem::take(&mut self.defaults);
        Ok(())
    }

    /// Begins job file number `nth`. What it says of defaults ends with it, and its first job waits
    /// for all those of the files before.
    pub(crate) fn begin_file(&mut self, nth: usize) {
        self.defaults = self.base.clone();
        self.follows_file = nth > 0;
    }

    /// Whether `--section` leaves this job out.
    pub(crate) fn is_left_out(&self, name: &str) -> bool {
        let sections = &self.run.sections;
        !sections.is_empty() && !is_global(name) && !sections.iter().any(|known| known == name)
    }

    /// All jobs. Without any, and without a file or a section that could have had some, there is
    /// one of defaults that make a sensible first measurement.
    pub(crate) fn finish(mut self, nr_files: usize) -> Result<CommandLine, UsageError> {
        self.close()?;
        if self.jobs.is_empty() && nr_files == 0 && self.run.sections.is_empty() {
            bare_defaults(&mut self.base);
            let mut options = std::mem::take(&mut self.global_options);
            options.retain(|(name, _)| *name != "name");
            self.jobs.push(Job::new("bench".to_owned(), self.base, options)?);
        }
        // fio reads a file without jobs, and then finds nothing to run.
        if self.jobs.is_empty() && !self.run.parse_only {
            let sections = self.run.sections.join(", ");
            return Err(match self.run.sections[..] {
                [] => UsageError::NoJob,
                _ => UsageError::Conflict(format!("--section={sections}: no job is named so")),
            });
        }
        number_groups(&mut self.jobs);
        if self.run.readonly {
            check_read_only(&self.jobs)?;
        }
        if let Some(warning) = self.warnings.first().filter(|_| self.run.warnings_fatal) {
            return Err(UsageError::Conflict(format!("{warning} (--warnings-fatal)")));
        }
        Ok(CommandLine {
            run: self.run,
            global_options: self.global_options,
            jobs: self.jobs,
            warnings: self.warnings,
        })
    }
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

/// Whether an option may stand in a job file, and where a name does something else there.
pub(crate) fn is_job_name(found: Found) -> bool {
    matches!(found, Found::Supported(spec) if matches!(spec.kind, Kind::JobName))
}
