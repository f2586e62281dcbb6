//! The records of the files of a disk, in the order of their times.

use crate::record::{BadRecord, Kind, Notify, RECORD_BYTES, Record};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

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

/// Reads one file.
#[derive(Debug)]
struct FileReader {
    path: PathBuf,
    file: BufReader<File>,
    offset: u64,
    /// The numbers of each device and index. A file that `blkparse -d` has merged has the records
    /// of several.
    numbers: HashMap<(u32, u32), SequenceNumbers>,
    nr_missing: u64,
    /// Records are missing before the next stage.
    has_gap: bool,
}

/// The numbers of the records of one file.
#[derive(Debug, Default)]
struct SequenceNumbers {
    /// The number of the last record that is in its place.
    last: Option<u32>,
    /// The numbers of the notify records after it. `blkparse -d` writes one (the name of a process,
    /// the time of the day) as soon as it reads it, and sorts all other records by time. So a
    /// notify record may come before records with lower numbers.
    notify_numbers: VecDeque<u32>,
}

impl FileReader {
    fn open(path: &Path) -> Result<FileReader, ReadError> {
        let file =
            File::open(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
        let file = BufReader::with_capacity(1 << 16, file);
        let path = path.to_owned();
        let numbers = HashMap::new();
        Ok(FileReader { path, file, offset: 0, numbers, nr_missing: 0, has_gap: false })
    }

    /// Returns the next record of a known kind.
    fn next(&mut self) -> Result<Option<Entry>, ReadError> {
        loop {
            let mut bytes = [0; RECORD_BYTES];
            if !self.fill(&mut bytes, true)? {
                return Ok(None);
            }
            let record = Record::from_bytes(&bytes).map_err(|source| ReadError::Format {
                path: self.path.clone(),
                offset: self.offset,
                source,
            })?;
            let data_len = record.map_or_else(|len| len, |record| record.data_len);
            let mut data = vec![0; data_len.into()];
            self.fill(&mut data, false)?;
            self.offset += (RECORD_BYTES + data.len()) as u64;
            if let Ok(record) = record {
                self.count_missing(&record);
                return Ok(Some(Entry { record, data }));
            }
        }
    }

    /// Counts the records that are missing before this one.
    fn count_missing(&mut self, record: &Record) {
        let numbers = self.numbers.entry((record.device, record.cpu)).or_default();
        match record.kind {
            Kind::Notify(Notify::Process | Notify::Timestamp) => {
                numbers.notify_numbers.push_back(record.sequence);
            }
            _ => {
                let nr = numbers.take(record.sequence);
                self.nr_missing += u64::from(nr);
                self.has_gap |= nr > 0;
            }
        }
    }

    /// Fills the bytes. Returns false at the end of the file, where it `may_end`.
    fn fill(&mut self, mut bytes: &mut [u8], may_end: bool) -> Result<bool, ReadError> {
        let len = bytes.len();
        while !bytes.is_empty() {
            match self.file.read(bytes) {
                Ok(0) if may_end && bytes.len() == len => return Ok(false),
                Ok(0) => {
                    let (path, offset) = (self.path.clone(), self.offset);
                    return Err(ReadError::Truncated { path, offset });
                }
                Ok(nr) => bytes = &mut bytes[nr..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(ReadError::Io { path: self.path.clone(), source }),
            }
        }
        Ok(true)
    }
}

impl SequenceNumbers {
    /// Takes the number of a record that is no notify record. Returns how many records are missing
    /// before it.
    fn take(&mut self, number: u32) -> u32 {
        // The numbers wrap.
        let nr_between = |earlier: u32| number.wrapping_sub(earlier).wrapping_sub(1);
        let is_before = |other: &u32| nr_between(*other) < u32::MAX / 2;
        // A file of several traces begins again.
        let last = self.last.replace(number).filter(is_before);
        let first_notify = self.notify_numbers.front().copied().filter(is_before);
        let Some(last) = last.or(first_notify.map(|number| number.wrapping_sub(1))) else {
            return 0;
        };
        let mut nr_notify = 0;
        while self.notify_numbers.front().is_some_and(is_before) {
            self.notify_numbers.pop_front();
            nr_notify += 1;
        }
        nr_between(last).saturating_sub(nr_notify)
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
        let is_stage = |entry: &Entry| matches!(entry.record.kind, Kind::Stage(_));
        if entry.as_ref().is_some_and(is_stage) {
            self.end_gap(at);
        }
        self.fetch(at)?;
        Ok(entry)
    }

    /// Returns how many records are missing before the last one of each file that was read.
    pub fn nr_missing(&self) -> u64 {
        self.files.iter().map(|file| file.nr_missing).sum()
    }

    /// Returns whether records of some file are missing between its last returned record and its
    /// next stage.
    pub fn has_gap(&self) -> bool {
        self.nr_gaps > 0
    }

    fn fetch(&mut self, at: usize) -> Result<(), ReadError> {
        let had_gap = self.files[at].has_gap;
        match self.files[at].next()? {
            Some(entry) => {
                self.nr_gaps += usize::from(self.files[at].has_gap && !had_gap);
                self.heads.push(Reverse((entry.record.time_ns, entry.record.sequence, at)));
                self.entries[at] = Some(entry);
            }
            None => self.end_gap(at),
        }
        Ok(())
    }

    fn end_gap(&mut self, at: usize) {
        self.nr_gaps -= usize::from(std::mem::take(&mut self.files[at].has_gap));
    }
}

#[cfg(test)]
mod tests;
