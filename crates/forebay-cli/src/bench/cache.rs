//! `invalidate`: drops a file's page cache before the start, so that buffered reads measure the
//! device rather than data cached by an earlier run or by the layout.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use forebay_fio::job::Job;
use rustix::fs::{Advice, fadvise};

use super::plan::Target;
use crate::output;

/// Access to the page cache of the files of a run.
#[derive(Debug, Default)]
pub(super) struct PageCache {
    /// Files that a job with `unlink` may remove while another job uses them. Then their paths no
    /// longer name them.
    removable: BTreeMap<PathBuf, File>,
}

impl PageCache {
    /// Opens the files that a job may remove while another job uses them. The files must exist.
    pub(super) fn open(jobs: &[Job], targets: &[Target]) -> Self {
        let removed = targets.iter().filter(|target| jobs[target.job].files.unlink);
        let removed: BTreeSet<_> = removed.map(|target| (target.place, target.job)).collect();
        let is_removed_by_another = |target: &&Target| {
            let mut removers = removed.range((target.place, 0)..=(target.place, usize::MAX));
            !target.is_direct() && removers.any(|&(_, job)| job != target.job)
        };
        let paths = targets.iter().filter(is_removed_by_another).filter_map(Target::path);
        // Without the descriptor, `forget` reports that the file is missing.
        let file = |path: PathBuf| File::open(&path).ok().map(|file| (path, file));
        Self { removable: paths.filter_map(file).collect() }
    }

    /// Drops the page cache of every file and block device with a job that requests it. Dirty pages
    /// stay, as in fio.
    pub(super) fn invalidate(&self, jobs: &[Job], targets: &[Target]) {
        let wanted = |target: &&Target| jobs[target.job].invalidate && !target.is_direct();
        let paths: BTreeSet<_> = targets.iter().filter(wanted).filter_map(Target::path).collect();
        paths.iter().for_each(|path| self.forget(path));
    }

    /// Drops the clean pages of a file or block device from the page cache.
    pub(super) fn forget(&self, path: &Path) {
        let dropped = match self.removable.get(path) {
            Some(file) => drop_pages(file),
            None => File::open(path).and_then(|file| drop_pages(&file)),
        };
        if let Err(error) = dropped {
            output::stderr(&format!(
                "forebay: {}: cannot drop its page cache: {error}; reads may come from memory\n",
                path.display()
            ));
        }
    }
}

fn drop_pages(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}
