//! `invalidate`: drops a file's page cache before the start, so that buffered reads measure the
//! device rather than data cached by an earlier run or by the layout.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use forebay_fio::job::Job;
use rustix::fs::{Advice, fadvise};

use super::plan::Target;
use crate::output;

/// Drops the page cache of every file and block device with a job that requests it. Dirty pages
/// stay, as in fio.
pub(super) fn invalidate(jobs: &[Job], targets: &[Target]) {
    let wanted = |target: &&Target| jobs[target.job].invalidate && !target.is_direct();
    let paths: BTreeSet<_> = targets.iter().filter(wanted).filter_map(Target::path).collect();
    // If a job with `unlink` has removed a file, this prints that its pages stay.
    paths.iter().for_each(|path| forget(path));
}

/// Drops the clean pages of a file or block device from the page cache.
pub(super) fn forget(path: &Path) {
    let dropped = File::open(path).and_then(|file| Ok(fadvise(&file, 0, None, Advice::DontNeed)?));
    if let Err(error) = dropped {
        output::stderr(&format!(
            "forebay: {}: cannot drop its page cache: {error}; reads may come from memory\n",
            path.display()
        ));
    }
}
