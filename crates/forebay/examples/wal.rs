//! A write-ahead log: threads append records, and continue once their records are durable.
//!
//! It has no thread of its own and no timer: a caller that arrives during a sync shares the next
//! sync.

#![allow(clippy::print_stdout, reason = "an example talks through its standard streams")]

use forebay::{CommitError, GroupCommit};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;

struct Wal(GroupCommit);

impl Wal {
    fn open(path: &Path) -> io::Result<Wal> {
        let file = File::options().create(true).append(true).open(path)?;
        // The file's name must be durable too. A path without a folder is in the current one.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(Wal(GroupCommit::new(file)))
    }

    /// Returns once the record is durable. A reader stops at the first record with a wrong
    /// checksum: the log was torn there, before that record was reported durable.
    fn append(&self, record: &[u8]) -> io::Result<()> {
        let mut entry = (record.len() as u32).to_le_bytes().to_vec();
        entry.extend(sum(record).to_le_bytes());
        entry.extend(record);
        let point = self.0.point();
        self.0.file().write_all(&entry)?; // one write: appended whole
        self.0.commit_since(point).map_err(CommitError::into)
    }
}

/// Returns the FNV-1a checksum. A real log may need a stronger one.
fn sum(record: &[u8]) -> u32 {
    record.iter().fold(0x811c_9dc5, |sum, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn main() -> io::Result<()> {
    // Use a log on a disk: the temporary folder may be in memory.
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let own = std::env::temp_dir().join(format!("forebay-wal-{}", std::process::id()));
    let path = given.as_ref().unwrap_or(&own);
    let wal = Wal::open(path)?;
    thread::scope(|scope| {
        let append = |thread: u32| {
            let wal = &wal;
            scope.spawn(move || {
                let record = |n: u32| format!("record {n} of thread {thread}");
                (0..100).try_for_each(|n| wal.append(record(n).as_bytes()))
            })
        };
        let threads: Vec<_> = (0..16).map(append).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("an appending thread"))
    })?;
    let stats = wal.0.stats();
    let ratio = stats.commits as f64 / stats.syncs as f64;
    println!("{} commits in {} syncs: {ratio:.1} to each", stats.commits, stats.syncs);
    if given.is_none() { fs::remove_file(path) } else { Ok(()) }
}
