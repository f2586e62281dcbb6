//! Reader of one trace file, which also finds the gaps between its records.

use super::gaps::Gaps;
use super::numbers::SequenceNumbers;
use super::raw::RawFile;
use super::{Entry, ReadError};
use crate::record::{Kind, Record};
use std::collections::HashMap;
use std::path::Path;

/// Reads one file, one record ahead.
#[derive(Debug)]
pub(super) struct FileReader {
    file: RawFile,
    /// The numbers of each ring, by device and index. A file that `blkparse -d` has merged has the
    /// records of several.
    numbers: HashMap<(u32, u32), SequenceNumbers>,
    nr_missing: u64,
    /// Whether the record that was read last is a stage, and its offset.
    last: Option<(bool, u64)>,
    /// Records are missing between the record that was returned last and the next stage.
    has_gap: bool,
    /// Whether the file has the records of several rings.
    is_merged: bool,
    /// The gaps of such a file, unless it is a pipe.
    gaps: Option<Gaps>,
}

impl FileReader {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> Result<FileReader, ReadError> {
        Ok(FileReader {
            file: RawFile::open(path)?,
            numbers: HashMap::new(),
            nr_missing: 0,
            last: None,
            has_gap: false,
            is_merged: false,
            gaps: None,
        })
    }

    /// Returns how many records are missing before the last one that was read.
    pub(super) fn nr_missing(&self) -> u64 {
        self.nr_missing
    }

    /// Returns whether the record before the one that was read last lies in a gap of any ring.
    pub(super) fn has_gap(&self) -> bool {
        self.has_gap
    }

    /// Reads the next record of a known kind.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, ReadError> {
        let before = self.last.take();
        if before.is_some_and(|(is_stage, _)| is_stage) {
            self.has_gap = false;
        }
        let Some((offset, entry)) = self.file.next()? else {
            self.has_gap = false;
            return Ok(None);
        };
        let nr_missing = self.count(&entry.record);
        self.nr_missing += u64::from(nr_missing);
        self.has_gap |= nr_missing > 0;
        if let (Some(gaps), Some((_, before))) = (&mut self.gaps, before) {
            self.has_gap = gaps.has(before);
        }
        self.last = Some((matches!(entry.record.kind, Kind::Stage(_)), offset));
        Ok(Some(entry))
    }

    /// Returns how many records are missing before this one.
    fn count(&mut self, record: &Record) -> u32 {
        let numbers = self.numbers.entry((record.device, record.cpu)).or_default();
        let nr_missing = numbers.take(record);
        // A pipe is read once. Its gaps begin when they show.
        if !self.is_merged && self.numbers.len() > 1 {
            self.is_merged = true;
            self.gaps = self.file.again().map(Gaps::scan);
        }
        nr_missing
    }
}
