//! The records of a file, in its order.

use super::{Entry, ReadError};
use crate::record::{RECORD_BYTES, Record};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The records of a file, in its order.
#[derive(Debug)]
pub(super) struct RawFile {
    path: PathBuf,
    file: BufReader<Source>,
    offset: u64,
}

/// Where the bytes come from.
#[derive(Debug)]
enum Source {
    /// The position of the file, which may be a pipe.
    Stream(Arc<File>),
    /// A position of our own in a regular file.
    At(Arc<File>, u64),
}

impl Read for Source {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Stream(file) => (&**file).read(bytes),
            Source::At(file, at) => {
                let nr = file.read_at(bytes, *at)?;
                *at += nr as u64;
                Ok(nr)
            }
        }
    }
}

impl Source {
    fn buffered(self) -> BufReader<Source> {
        BufReader::with_capacity(1 << 16, self)
    }
}

impl RawFile {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> Result<RawFile, ReadError> {
        let file =
            File::open(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
        let file = Source::Stream(Arc::new(file)).buffered();
        Ok(RawFile { path: path.to_owned(), file, offset: 0 })
    }

    /// Returns a second reader of the same file, from its beginning; `None` for a pipe, which can
    /// be read only once.
    pub(super) fn again(&self) -> Option<RawFile> {
        let (Source::Stream(file) | Source::At(file, _)) = self.file.get_ref();
        let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let source = is_regular.then(|| Source::At(Arc::clone(file), 0))?;
        Some(RawFile { path: self.path.clone(), file: source.buffered(), offset: 0 })
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
