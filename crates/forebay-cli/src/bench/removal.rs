//! `unlink`: removes the regular files of a job when its last clone has ended.
//!
//! Source: fio 3.33. It opens files when a job begins, and creates missing ones then. So a job that
//! begins after a removal has a file, and its own `unlink` decides whether that remains. Here all
//! disks are open from the start, so a removal is deferred while a job that has not begun may use
//! the file. It is cancelled when such a job begins, and performed when none of them can begin any
//! more. A job that uses the file by another hard link prevents no removal.
//!
//! As in fio, a removal does not wait for jobs that have begun: their disk keeps the removed file
//! until it is closed. A job that has not begun removes nothing.
//!
//! Each clone reports its start and its end on its own thread. It reports its end before a job that
//! waits for it begins.

use std::collections::{BTreeMap, HashSet};
use std::fs::{remove_file, symlink_metadata};
use std::mem::take;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use forebay_fio::generator::Direction;
use forebay_fio::job::Job;

use super::plan::{self, Target};
use crate::output;

/// The files that jobs of a run remove. Dropping it performs the deferred removals.
#[derive(Debug)]
pub(super) struct Removal<'a> {
    jobs: &'a [Job],
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// By job.
    jobs_files: Vec<JobFiles>,
    /// The files to be removed.
    pending: BTreeMap<PathBuf, PendingRemoval>,
}

/// The files of a job, and its progress.
#[derive(Debug, Default)]
struct JobFiles {
    /// The files by their paths.
    files: BTreeMap<PathBuf, LinkedFile>,
    places: HashSet<u64>,
    /// The links that the paths lead to, through symbolic links too.
    links: HashSet<PathBuf>,
    /// The clones that have not begun.
    nr_waiting: usize,
    nr_running: usize,
    has_begun: bool,
}

/// A file by one of its hard links.
#[derive(Debug, Clone)]
struct LinkedFile {
    /// All links to a file have the same place.
    place: u64,
    /// The path that a removal removes: its folder without symbolic links, and the last component.
    link: PathBuf,
}

/// A removal that a job has not cancelled.
#[derive(Debug, Clone)]
struct PendingRemoval {
    file: LinkedFile,
    /// The job that removes the file.
    job: usize,
}

impl<'a> Removal<'a> {
    /// Returns the state before the run of these targets.
    pub(super) fn new(jobs: &'a [Job], targets: &[Target]) -> Self {
        let mut jobs_files: Vec<_> = jobs.iter().map(|_| JobFiles::default()).collect();
        for clone in plan::clones(targets) {
            let of_job = &mut jobs_files[clone[0].job];
            of_job.nr_waiting += 1;
            for (target, path) in clone.iter().filter_map(|it| Some((it, it.path()?))) {
                let link = link_of(&path);
                of_job.places.insert(target.place);
                of_job.links.extend(path.canonicalize());
                of_job.links.insert(link.clone());
                of_job.files.insert(path, LinkedFile { place: target.place, link });
            }
        }
        Self { jobs, state: Mutex::new(State { jobs_files, pending: BTreeMap::new() }) }
    }

    /// Records that a clone of `job` begins: after its `wait_for` and `startdelay`, or together
    /// with the other clones of its stage.
    pub(super) fn clone_begins(&self, job: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { jobs_files, pending } = &mut *state;
        let of_job = &mut jobs_files[job];
        of_job.nr_waiting -= 1;
        of_job.nr_running += 1;
        of_job.has_begun = true;
        // This job decides about its files.
        pending.retain(|_, pending| !of_job.links.contains(&pending.file.link));
    }

    /// Records the end of a clone of `job`, and performs the removals that no job prevents any
    /// more.
    pub(super) fn clone_ended(&self, job: usize, has_begun: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { jobs_files, pending } = &mut *state;
        let of_job = &mut jobs_files[job];
        match has_begun {
            true => of_job.nr_running -= 1,
            false => of_job.nr_waiting -= 1,
        }
        let has_ended = of_job.nr_waiting + of_job.nr_running == 0;
        if has_ended && of_job.has_begun && self.jobs[job].files.unlink {
            let files = of_job.files.iter();
            let removal = |file: &LinkedFile| PendingRemoval { file: file.clone(), job };
            pending.extend(files.map(|(path, file)| (path.clone(), removal(file))));
        }
        let is_awaited = |link: &PathBuf| {
            jobs_files.iter().any(|of_job| of_job.nr_waiting > 0 && of_job.links.contains(link))
        };
        let (later, now): (BTreeMap<_, _>, BTreeMap<_, _>) =
            take(pending).into_iter().partition(|(_, pending)| is_awaited(&pending.file.link));
        *pending = later;
        let with_writers = |(path, pending): (PathBuf, PendingRemoval)| {
            (path, pending.job, self.writers(jobs_files, pending.file.place))
        };
        let now: Vec<_> = now.into_iter().map(with_writers).collect();
        // A removal of a large file takes time. The jobs that begin meanwhile do not use it.
        drop(state);
        for (path, job, writers) in now {
            self.remove(&path, job, &writers);
        }
    }

    /// Returns the jobs that write to a file at present, and that do not remove it themselves.
    fn writers(&self, jobs_files: &[JobFiles], place: u64) -> Vec<&'a str> {
        let writers = self.jobs.iter().zip(jobs_files).filter(|(job, of_job)| {
            let writes = job.rw.has(Direction::Write) && !job.files.unlink;
            writes && of_job.nr_running > 0 && of_job.places.contains(&place)
        });
        writers.map(|(job, _)| job.name.as_str()).collect()
    }

    /// Removes a file of `job` that the job `writers` write to.
    fn remove(&self, path: &Path, job: usize, writers: &[&str]) {
        if !path.is_file() {
            return;
        }
        // Other links to a file, or the target of a symbolic link, remain.
        let is_last = symlink_metadata(path).is_ok_and(|file| file.is_file() && file.nlink() == 1);
        let shown = path.display();
        if let Err(error) = remove_file(path) {
            output::stderr(&format!("forebay: --unlink: cannot remove {shown}: {error}\n"));
            return;
        }
        let remover = &self.jobs[job].name;
        for writer in writers.iter().filter(|_| is_last) {
            output::stderr(&format!(
                "forebay: {writer}: --unlink of {remover} has removed {shown} while {writer} \
                 writes to it: everything that {writer} writes to it is lost; give {writer} \
                 another file, or start it after {remover} with --wait_for\n"
            ));
        }
    }
}

/// Returns the path with the symbolic links of its folder resolved, but not that of its last
/// component.
fn link_of(path: &Path) -> PathBuf {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

impl Drop for Removal<'_> {
    /// Performs the removals that were deferred for jobs that never began.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (path, pending) in take(&mut state.pending) {
            self.remove(&path, pending.job, &[]);
        }
    }
}

#[cfg(test)]
mod tests;
