//! The records of the files of a disk, in the order of their times.

use crate::record::{BadRecord, Kind, Notify, RECORD_BYTES, Record};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
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
    /// The number of the last record of each device and index. A file that `blkparse -d` has merged
    /// has the records of several.
    last_sequences: HashMap<(u32, u32), u32>,
    nr_missing: u64,
    /// Records are missing before the next stage.
    has_gap: bool,
}

impl FileReader {
    fn open(path: &Path) -> Result<FileReader, ReadError> {
        let file =
            File::open(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
        let file = BufReader::with_capacity(1 << 16, file);
        let path = path.to_owned();
        let last_sequences = HashMap::new();
        Ok(FileReader { path, file, offset: 0, last_sequences, nr_missing: 0, has_gap: false })
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

    /// Counts the records that are missing before this one. The numbers wrap.
    fn count_missing(&mut self, record: &Record) {
        let numbered = (record.device, record.cpu);
        if let Some(last) = self.last_sequences.insert(numbered, record.sequence) {
            let gap = record.sequence.wrapping_sub(last).wrapping_sub(1);
            // A file of several traces begins again.
            if gap < u32::MAX / 2 {
                self.nr_missing += u64::from(gap);
                self.has_gap |= gap > 0;
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

    /// Returns whether a file lacks records between its last one that was returned and its next
    /// stage.
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
mod gap_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::file_path;
    use crate::record::Act;
    use crate::writer::{Place, TraceFile};
    use forebay_core::{BioFlags, Op, TraceEvent, TraceRecord};
    use std::time::Duration;

    pub(super) fn write(path: &Path, index: u32, times: &[u64]) {
        let place = Place { device: 0, index, errno_of: |_| 5 };
        let mut file = TraceFile::new(File::create(path).expect("a file"), place);
        file.begin(1, "name", 0, Duration::ZERO).expect("it is written");
        for &time_ns in times {
            let event = if time_ns == 7 { TraceEvent::Lost } else { TraceEvent::Issue };
            file.write(&TraceRecord {
                time_ns,
                event,
                op: Op::Read,
                flags: BioFlags::NONE,
                start: 512 * u64::from(index),
                len: 3,
                status: None,
                second_len: 0,
            })
            .expect("it is written");
        }
    }

    #[test]
    fn records_of_all_files_come_by_time_and_missing_ones_are_counted() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = [0, 1].map(|index| file_path(dir.path(), "disk", index));
        write(&paths[0], 0, &[5, 7, 30]);
        write(&paths[1], 1, &[4, 6, 20]);
        let mut files = TraceFiles::open(&paths).expect("a trace");
        let mut stages = Vec::new();
        let mut texts = Vec::new();
        while let Some(entry) = files.next_entry().expect("records") {
            match entry.record.kind {
                Kind::Stage(Act::Issue) => stages.push((entry.record.time_ns, entry.record.cpu)),
                _ => texts.extend(entry.text()),
            }
        }
        assert_eq!(stages, [(4, 1), (5, 0), (6, 1), (20, 1), (30, 0)]);
        assert_eq!(texts, ["name", "name", "3 records are missing: the ring was full"]);
        assert_eq!(files.nr_missing(), 3);
    }

    #[test]
    fn merged_file_has_the_numbers_of_each_of_its_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = [0, 1].map(|index| file_path(dir.path(), "disk", index));
        write(&paths[0], 0, &[5, 7, 30]);
        write(&paths[1], 1, &[4, 6, 20]);
        let mut files = TraceFiles::open(&paths).expect("a trace");
        let mut bytes = Vec::new();
        while let Some(entry) = files.next_entry().expect("records") {
            bytes.extend(entry.record.to_bytes());
            bytes.extend(entry.data);
        }
        let merged = dir.path().join("merged.bin");
        std::fs::write(&merged, bytes).expect("it is written");
        let mut files = TraceFiles::open(&[merged]).expect("a trace");
        let nr = std::iter::from_fn(|| files.next_entry().expect("records")).count();
        // Two files with a head of two records, and three records each.
        assert_eq!((nr, files.nr_missing()), (10, 3));
    }

    #[test]
    fn truncated_and_foreign_files_are_refused_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = file_path(dir.path(), "disk", 0);
        write(&path, 0, &[1]);
        let len = std::fs::metadata(&path).expect("a file").len();
        File::options().write(true).open(&path).expect("a file").set_len(len - 1).expect("cut");
        let paths = [path.clone()];
        let mut files = TraceFiles::open(&paths).expect("its beginning");
        let error = std::iter::repeat_with(|| files.next_entry()).find_map(Result::err);
        let text = error.expect("the end is missing").to_string();
        assert!(
            text.contains("disk.blktrace.0: the file ends within the record at byte"),
            "{text}"
        );
        std::fs::write(&path, [1; 64]).expect("it is written");
        let text = TraceFiles::open(&paths).expect_err("no trace").to_string();
        assert!(
            text.contains("disk.blktrace.0: byte 0: a record begins with 0x01010101"),
            "{text}"
        );
    }
}
