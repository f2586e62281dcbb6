//! The records of the files of a disk, in the order of their times.

mod file;
mod gaps;
mod numbers;
mod raw;

use crate::record::{BadRecord, Kind, Notify, Record};
use file::FileReader;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::path::PathBuf;

/// A failure to read a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    #[error("{}: cannot read the trace: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file has other contents.
    #[error("{}: byte {offset}: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Where the record begins.
        offset: u64,
        /// The reason.
        source: BadRecord,
    },
    /// The file ends within a record.
    #[error("{}: the file ends within the record at byte {offset}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where the record begins.
        offset: u64,
    },
}

/// A record with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The record.
    pub record: Record,
    /// Its data.
    pub data: Vec<u8>,
}

impl Entry {
    /// Returns the text of a message or the name of a process.
    pub fn text(&self) -> Option<String> {
        match self.record.kind {
            Kind::Notify(Notify::Message | Notify::Process) => {
                let text = self.data.split(|byte| *byte == 0).next().unwrap_or_default();
                Some(String::from_utf8_lossy(text).into_owned())
            }
            _ => None,
        }
    }
}

/// Reads all files of a disk. Records of the same time come in the order of their numbers, as in
/// `blkparse`.
#[derive(Debug)]
pub struct TraceFiles {
    files: Vec<FileReader>,
    /// The next record of each file, by time, number, and index of the file.
    heads: BinaryHeap<Reverse<(u64, u32, usize)>>,
    entries: Vec<Option<Entry>>,
    /// The number of files with a gap.
    nr_gaps: usize,
}

impl TraceFiles {
    /// Opens the files.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or has other contents.
    pub fn open(paths: &[PathBuf]) -> Result<TraceFiles, ReadError> {
        let files =
            paths.iter().map(|path| FileReader::open(path)).collect::<Result<Vec<_>, _>>()?;
        let entries = vec![None; files.len()];
        let mut all = TraceFiles { files, heads: BinaryHeap::new(), entries, nr_gaps: 0 };
        (0..all.files.len()).try_for_each(|at| all.fetch(at))?;
        Ok(all)
    }

    /// Returns the next record.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or has other contents.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        let Some(Reverse((_, _, at))) = self.heads.pop() else { return Ok(None) };
        let entry = self.entries[at].take();
        self.fetch(at)?;
        Ok(entry)
    }

    /// Returns how many records are missing before the last one of each file that was read.
    pub fn nr_missing(&self) -> u64 {
        self.files.iter().map(FileReader::nr_missing).sum()
    }

    /// Returns whether records of some ring are missing between its last returned record and its
    /// next stage. A ring has a file of its own, or a part of a file that `blkparse -d` has merged.
    pub fn has_gap(&self) -> bool {
        self.nr_gaps > 0
    }

    fn fetch(&mut self, at: usize) -> Result<(), ReadError> {
        let file = &mut self.files[at];
        let had_gap = file.has_gap();
        let entry = file.next()?;
        self.nr_gaps = self.nr_gaps + usize::from(file.has_gap()) - usize::from(had_gap);
        if let Some(entry) = entry {
            self.heads.push(Reverse((entry.record.time_ns, entry.record.sequence, at)));
            self.entries[at] = Some(entry);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
