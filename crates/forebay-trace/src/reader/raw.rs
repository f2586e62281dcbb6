//! The records of a file, in its order.

use super::{Entry, ReadError};
use crate::record::{RECORD_BYTES, Record};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// The records of a file, in its order.
#[derive(Debug)]
pub(super) struct RawFile {
    path: PathBuf,
    file: BufReader<File>,
    offset: u64,
}

impl RawFile {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> Result<RawFile, ReadError> {
        let file =
            File::open(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
        let file = BufReader::with_capacity(1 << 16, file);
        Ok(RawFile { path: path.to_owned(), file, offset: 0 })
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the next record of a known kind, and its offset.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Entry)>, ReadError> {
        loop {
            let mut bytes = [0; RECORD_BYTES];
            if !self.fill(&mut bytes, true)? {
                return Ok(None);
            }
            let offset = self.offset;
            let record = Record::from_bytes(&bytes).map_err(|source| ReadError::Format {
                path: self.path.clone(),
                offset,
                source,
            })?;
            let data_len = record.map_or_else(|len| len, |record| record.data_len);
            let mut data = vec![0; data_len.into()];
            self.fill(&mut data, false)?;
            self.offset += (RECORD_BYTES + data.len()) as u64;
            if let Ok(record) = record {
                return Ok(Some((offset, Entry { record, data })));
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
