//! `unlink`: removes the regular files of a job when its last clone has ended.
//!
//! Source: fio 3.33. It removes the files although other jobs may use them. A disk that is open
//! keeps its file until it is closed, so jobs that run at that time go on with the removed file.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::remove_file;

use forebay_fio::job::Job;

use super::plan::{self, Target};
use crate::output;

/// The clones of a stage that have not ended, by job.
#[derive(Debug)]
pub(super) struct Removal<'a> {
    jobs: &'a [Job],
    /// The targets of this stage.
    targets: &'a [Target],
    /// The targets of later stages.
    later: &'a [Target],
    nr_running: RefCell<Vec<usize>>,
}

impl<'a> Removal<'a> {
    pub(super) fn new(jobs: &'a [Job], targets: &'a [Target], later: &'a [Target]) -> Self {
        let mut nr_running = vec![0; jobs.len()];
        for clone in plan::clones(targets) {
            nr_running[clone[0].job] += 1;
        }
        Self { jobs, targets, later, nr_running: RefCell::new(nr_running) }
    }

    /// Removes the files of `job` if this was its last clone and it has `unlink`.
    pub(super) fn clone_ended(&self, job: usize) {
        let nr_running = {
            let mut nr_running = self.nr_running.borrow_mut();
            nr_running[job] = nr_running[job].saturating_sub(1);
            nr_running[job]
        };
        if nr_running > 0 || !self.jobs[job].files.unlink {
            return;
        }
        let own = || self.targets.iter().filter(|target| target.job == job);
        let paths: BTreeSet<_> = own().filter_map(Target::path).collect();
        for path in paths.iter().filter(|path| path.is_file()) {
            if let Err(error) = remove_file(path) {
                let path = path.display();
                output::stderr(&format!("forebay: --unlink: cannot remove {path}: {error}\n"));
            }
        }
        let is_own = |target: &&Target| own().any(|own| own.place == target.place);
        if let Some(target) =
            self.later.iter().filter(|target| target.path().is_some()).find(is_own)
        {
            output::stderr(&format!(
                "forebay: {}: uses {} after --unlink of {} has removed it: its I/O goes to the \
                 removed file, and data that it writes are lost\n",
                self.jobs[target.job].name,
                target.name(),
                self.jobs[job].name
            ));
        }
    }
}
