//! Printing, with every failure looked at.
//!
//! `println!` panics when its reader has gone. Here a reader that has gone (`forebay ... | head`)
//! is no failure: there is nobody left to tell.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use forebay::DiskInfo;

use crate::failure::Failure;

/// Prints to standard output.
pub(crate) fn stdout(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints to standard error. If that does not work, there is nowhere to say so.
pub(crate) fn stderr(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Tells what an operator should know of a disk, if there is anything.
pub(crate) fn notice(info: &DiskInfo) {
    if let Some(notice) = &info.notice {
        let name = info.spec.split('?').next().unwrap_or_default();
        stderr(&format!("forebay: {name}: {notice}\n"));
    }
}

/// Where a report goes.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Standard output.
    Stdout,
    /// A file of this name.
    File(File, PathBuf),
}

impl Sink {
    /// Standard output, or the file at `path`, made or emptied.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Stdout) };
        match File::create(path) {
            Ok(file) => Ok(Self::File(file, path.to_owned())),
            Err(error) => Err(Failure::Run(format!("--output={}: {error}", path.display()))),
        }
    }

    /// Prints to it.
    pub(crate) fn write(&mut self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout => stdout(text),
            Self::File(file, path) => file
                .write_all(text.as_bytes())
                .map_err(|error| Failure::Run(format!("--output={}: {error}", path.display()))),
        }
    }
}
