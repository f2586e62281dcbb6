//! When threads call fsync: the patterns of sysbench's fileio.

/// When threads call fsync: the two patterns of sysbench's fileio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncShape {
    /// Each thread after each of its writes (`--file-fsync-all`).
    EachWrite,
    /// After so many writes of all threads together, all files are synced, with one fsync for each.
    /// The threads take turns at these calls, and at the next writes (`--file-fsync-freq`; by
    /// default 100 writes and 128 files, as in sysbench 0.4).
    AllFiles {
        /// The number of writes between two rounds.
        nr_writes: u32,
        /// The number of files, and so of calls in a round.
        nr_files: u32,
    },
}

/// The next action of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncTask {
    /// Write a block, and wait for it.
    Write,
    /// Call fsync, and wait for it.
    Fsync,
}

/// Assigns the actions to threads.
#[derive(Debug)]
pub struct FsyncTasks {
    shape: FsyncShape,
    nr_writes: u32,
    nr_fsyncs: u32,
}

impl FsyncTasks {
    /// Returns the initial state.
    pub fn new(shape: FsyncShape) -> FsyncTasks {
        FsyncTasks { shape, nr_writes: 0, nr_fsyncs: 0 }
    }

    /// Returns the next action of a thread whose last action was `last`.
    pub fn next(&mut self, last: Option<FsyncTask>) -> FsyncTask {
        match self.shape {
            FsyncShape::EachWrite => match last {
                Some(FsyncTask::Write) => FsyncTask::Fsync,
                _ => FsyncTask::Write,
            },
            FsyncShape::AllFiles { nr_writes, .. } if self.nr_writes < nr_writes => {
                self.nr_writes += 1;
                FsyncTask::Write
            }
            FsyncShape::AllFiles { nr_files, .. } => {
                self.nr_fsyncs += 1;
                if self.nr_fsyncs == nr_files {
                    (self.nr_writes, self.nr_fsyncs) = (0, 0);
                }
                FsyncTask::Fsync
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_syncs_its_own_writes() {
        let mut tasks = FsyncTasks::new(FsyncShape::EachWrite);
        assert_eq!(tasks.next(None), FsyncTask::Write);
        assert_eq!(tasks.next(None), FsyncTask::Write);
        assert_eq!(tasks.next(Some(FsyncTask::Write)), FsyncTask::Fsync);
        assert_eq!(tasks.next(Some(FsyncTask::Fsync)), FsyncTask::Write);
    }

    #[test]
    fn all_files_are_synced_after_a_number_of_writes_by_all_jobs() {
        let mut tasks = FsyncTasks::new(FsyncShape::AllFiles { nr_writes: 3, nr_files: 2 });
        let all: Vec<FsyncTask> = (0..10).map(|_| tasks.next(None)).collect();
        let nr = |task| all.iter().filter(|it| **it == task).count();
        assert_eq!(
            all[..5],
            [
                FsyncTask::Write,
                FsyncTask::Write,
                FsyncTask::Write,
                FsyncTask::Fsync,
                FsyncTask::Fsync
            ]
        );
        assert_eq!((nr(FsyncTask::Write), nr(FsyncTask::Fsync)), (6, 4));
        assert_eq!(all[..5], all[5..]);
    }
}
