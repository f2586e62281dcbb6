//! The log of `--write_iolog`.
//!
//! Lines are written while the job runs, through a buffer of 1 MiB, so a log may be longer than the
//! memory. The first failure ends the log, and is reported at the end of the job.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::PathBuf;

use forebay_fio::generator::Op;
use forebay_fio::iolog::{self, Act};
use forebay_fio::report::JobError;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

use crate::file_id::FileId;

const BUFFER_BYTES: usize = 1 << 20;

/// The log of a clone.
#[derive(Debug)]
pub(in crate::bench) struct LogWriter {
    path: String,
    /// The names of the files.
    names: Vec<String>,
    file: BufWriter<File>,
    error: Option<io::Error>,
}

impl LogWriter {
    /// Creates the log of a clone that uses the files with these names, at these paths. Nothing is
    /// written to a path that is one of them, or a block device.
    pub(in crate::bench) fn create(
        path: &str,
        names: Vec<String>,
        used: &[PathBuf],
    ) -> Result<Box<Self>, JobError> {
        if let Some(name) = names.iter().find(|name| name.contains(char::is_whitespace)) {
            return Err(refused(
                path,
                &format!(
                    "a log cannot hold the name '{name}', which has a \
                                               space; rename the file"
                ),
            ));
        }
        let file = open(path, used)?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let mut log = Self { path: path.to_owned(), names, file, error: None };
        log.put(iolog::HEADER);
        log.put_files(0, &["add", "open"]);
        Ok(Box::new(log))
    }

    /// Writes an I/O that is being submitted.
    pub(in crate::bench) fn io(&mut self, now_ns: u64, op: Op) {
        let line = iolog::io_line(now_ns, &self.names[usize::from(op.file)], op);
        self.put(&line);
    }

    /// Writes a sync.
    pub(in crate::bench) fn sync(&mut self, now_ns: u64, file: u16, act: Act) {
        let line = iolog::sync_line(now_ns, &self.names[usize::from(file)], act);
        self.put(&line);
    }

    /// Ends the log.
    pub(in crate::bench) fn finish(mut self, now_ns: u64) -> Result<(), JobError> {
        self.put_files(now_ns, &["close"]);
        let flushed = self.file.flush();
        match self.error.take().map_or(flushed, Err) {
            Ok(()) => Ok(()),
            Err(error) => Err(failed(&self.path, &error)),
        }
    }

    fn put_files(&mut self, now_ns: u64, actions: &[&str]) {
        let names = std::mem::take(&mut self.names);
        for action in actions {
            names.iter().for_each(|name| self.put(&iolog::file_line(now_ns, name, action)));
        }
        self.names = names;
    }

    fn put(&mut self, line: &str) {
        if self.error.is_none() {
            self.error = self.file.write_all(line.as_bytes()).err();
        }
    }
}

/// Opens the log, and removes an earlier one. A pipe needs a reader already, because the wait for
/// one has no limit.
fn open(path: &str, used: &[PathBuf]) -> Result<File, JobError> {
    let failed = |error: io::Error| failed(path, &error);
    let is_pipe = fs::metadata(path).is_ok_and(|facts| facts.file_type().is_fifo());
    let mut options = OpenOptions::new();
    // In shared directories Linux refuses to open a pipe of another user with O_CREAT.
    options.write(true).create(!is_pipe).truncate(false);
    let file = match options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path) {
        Err(error) if is_pipe && error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            return Err(refused(path, "no program reads this pipe; start the reader first"));
        }
        file => file.map_err(failed)?,
    };
    let facts = file.metadata().map_err(failed)?;
    let kind = facts.file_type();
    if kind.is_fifo() || kind.is_char_device() {
        fcntl_setfl(&file, OFlags::empty()).map_err(|error| failed(error.into()))?;
        return Ok(file);
    }
    if !kind.is_file() {
        return Err(refused(path, "not a file, pipe or character device; choose another path"));
    }
    let id = FileId::of_existing(&facts);
    if used.iter().any(|used| FileId::of(used) == id) {
        return Err(refused(path, "the job uses this file; choose another one for the log"));
    }
    file.set_len(0).map_err(failed)?;
    Ok(file)
}

fn refused(path: &str, why: &str) -> JobError {
    let errno = rustix::io::Errno::INVAL.raw_os_error();
    JobError { errno, message: format!("--write_iolog={path}: {why}") }
}

fn failed(path: &str, error: &io::Error) -> JobError {
    let message =
        format!("cannot write the log {path}: {error}; check --write_iolog and the free space");
    JobError { errno: error.raw_os_error().unwrap_or(0), message }
}
