//! Reads the logs of jobs, and refuses replays that cannot be done.

use std::path::Path;

use forebay_fio::generator::Direction;
use forebay_fio::job::{Job, JobList};

use crate::bench::filename;
use crate::failure::Failure;
use crate::recording::{blktrace, read_iolog};

/// Makes each job with `--read_iolog` a replay of its log.
///
/// # Errors
///
/// A log cannot be read, or a job cannot replay it.
pub(in crate::bench) fn load(jobs: &mut [Job], readonly: bool) -> Result<(), Failure> {
    for job in jobs {
        let Some(path) = job.replay.read.clone() else { continue };
        let about = format!("{}: --read_iolog={path}: ", job.name);
        load_one(job, Path::new(&path)).map_err(|error| error.with_context(&about))?;
        let writes = job.rw.has(Direction::Write) || job.rw.has(Direction::Trim);
        if readonly && writes {
            return Err(Failure::Usage(format!(
                "{about}the log changes the disk, and --readonly was given; leave its writes out \
                 with --replay_skip=write,trim"
            )));
        }
    }
    Ok(())
}

/// Does the same for a copy of the jobs.
pub(in crate::bench) fn loaded(command: &JobList) -> Result<JobList, Failure> {
    let mut command = command.clone();
    load(&mut command.jobs, command.run.readonly)?;
    Ok(command)
}

fn load_one(job: &mut Job, path: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Run(format!("cannot read the log: {error}"));
    let recording = match blktrace::is_trace(path).map_err(failed)? {
        true if job.replay.redirect.is_none() => {
            return Err(Failure::Usage(
                "a trace has no names of files; name the disk with --replay_redirect".to_owned(),
            ));
        }
        true => blktrace::read(path).map_err(Failure::Run)?,
        false => read_iolog(path)?,
    };
    job.replay_log(recording).map_err(Failure::Run)?;
    check_names(job)
}

/// Refuses a list of names with the name of a driver, which is a disk of its own in a list of one.
fn check_names(job: &Job) -> Result<(), Failure> {
    let names = job.recording.as_ref().map_or(&[][..], |recording| recording.files());
    let is_driver = |name: &&String| filename::is_driver(name);
    match names.iter().find(is_driver).filter(|_| names.len() > 1) {
        None => Ok(()),
        Some(name) => Err(Failure::Usage(format!(
            "the log has several disks, and '{name}' is not a file; replay all on one disk with \
             --replay_redirect"
        ))),
    }
}
