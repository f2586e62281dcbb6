//! Laying out: making files that are missing, and extending those that are too small, as fio does.
//!
//! A file that will be read is filled with data, because reading holes measures nothing; one that
//! will only be written has its space allocated.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use forebay_fio::generator::Direction;
use forebay_fio::job::Job;
use forebay_fio::random::Xoshiro256;
use forebay_fio::units::Size;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::plan::Target;
use super::run;
use crate::failure::Failure;

/// Bytes written at a time.
const CHUNK: usize = 1 << 20;

/// Makes sure that the file of `target`, if it has one, is as long as the job needs. `tell` gets
/// the line that says so.
pub(super) fn prepare(
    job: &Job,
    target: &Target,
    stop: &AtomicBool,
    mut tell: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(path) = target.path() else { return Ok(()) };
    let existing = match std::fs::metadata(&path) {
        // Anything else than a regular file is as long as it is, or is refused when it is opened.
        Ok(metadata) if !metadata.is_file() => return Ok(()),
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        // Opening it as a disk fails as well, and says more.
        Err(_) => return Ok(()),
    };
    let needed = match needed_bytes(job) {
        Some(needed) => needed,
        None if existing > 0 => return Ok(()),
        None => {
            return Err(Failure::Run(format!(
                "{}: {} does not exist or is empty; give --size, so that it can be laid out",
                job.name,
                path.display()
            )));
        }
    };
    if existing >= needed {
        return Ok(());
    }
    tell(&format!(
        "{}: Laying out IO file (1 file / {}MiB)\n",
        job.name,
        needed.div_ceil(1 << 20)
    ))?;
    lay_out(&path, existing, needed, job.rw.has(Direction::Read), stop).map_err(|error| {
        Failure::Run(format!("{}: laying out {}: {error}", job.name, path.display()))
    })
}

/// The length that the options ask for, if they say so in bytes.
fn needed_bytes(job: &Job) -> Option<u64> {
    match (job.offset, job.size) {
        (Size::Bytes(offset), Some(Size::Bytes(size))) if size > 0 => offset.checked_add(size),
        _ => None,
    }
}

fn lay_out(path: &Path, from: u64, to: u64, fill: bool, stop: &AtomicBool) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    if fill {
        fill_with_data(&mut file, from, to, stop)?;
    } else {
        allocate(&file, from, to)?;
    }
    // What is written back later would be measured with the job.
    file.sync_all()
}

fn fill_with_data(file: &mut File, from: u64, to: u64, stop: &AtomicBool) -> io::Result<()> {
    let mut draws = Xoshiro256::new(from, to);
    let mut chunk = vec![0; CHUNK];
    file.seek(SeekFrom::Start(from))?;
    let mut left = to - from;
    while left > 0 {
        if run::was_stopped(stop) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped by a signal"));
        }
        let len = left.min(CHUNK as u64) as usize;
        for bytes in chunk[..len].chunks_mut(8) {
            bytes.copy_from_slice(&draws.draw().to_le_bytes()[..bytes.len()]);
        }
        file.write_all(&chunk[..len])?;
        left -= len as u64;
    }
    Ok(())
}

/// Allocates the space; where the file system cannot, the file gets a hole.
fn allocate(file: &File, from: u64, to: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), from, to - from) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(to),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &[u8], to: u64, fill: bool) -> Vec<u8> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("data");
        std::fs::write(&path, from).expect("a file");
        lay_out(&path, from.len() as u64, to, fill, &AtomicBool::new(false)).expect("laid out");
        let data = std::fs::read(&path).expect("a file");
        assert_eq!(data.len() as u64, to);
        assert_eq!(&data[..from.len()], from, "what was there stays");
        data
    }

    #[test]
    fn a_file_that_will_be_read_has_data() {
        let data = check(b"", 3 << 20, true);
        let zeros = data.iter().filter(|&&byte| byte == 0).count();
        assert!(zeros < data.len() / 100, "{zeros} zero bytes");
    }

    #[test]
    fn a_file_is_extended_behind_what_is_there() {
        check(b"kept", 10_000, true);
        check(b"kept", 10_000, false);
    }

    #[test]
    fn a_signal_ends_it() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let stopped = AtomicBool::new(true);
        let error = lay_out(&dir.path().join("data"), 0, 1 << 20, true, &stopped);
        assert_eq!(error.expect_err("stopped").kind(), io::ErrorKind::Interrupted);
    }
}
