//! Extends a file: with data, because reading holes measures nothing; or with allocated space only,
//! if the job only writes the file.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use forebay_fio::random::Xoshiro256;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::stop::Stop;

/// Bytes written at a time.
const CHUNK: usize = 1 << 20;

/// Fills `file` from byte `from` up to `to`; first allocates the space, if asked to.
/// A signal ends it with the error kind `Interrupted`.
pub(super) fn with_data(
    file: &mut File,
    from: u64,
    to: u64,
    allocates: bool,
    stop: &Stop,
) -> io::Result<()> {
    // If the disk is too full, this fails now rather than after minutes. The length does not
    // change: unwritten bytes must not look like data.
    if allocates {
        allocate(file, FallocateFlags::KEEP_SIZE, from, to)?;
    }
    let mut draws = Xoshiro256::new(from, to);
    let mut chunk = vec![0; CHUNK];
    file.seek(SeekFrom::Start(from))?;
    let mut left = to - from;
    while left > 0 {
        if stop.is_set() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped by a signal"));
        }
        let len = left.min(CHUNK as u64) as usize;
        for bytes in chunk[..len].chunks_mut(8) {
            bytes.copy_from_slice(&draws.draw().to_le_bytes()[..bytes.len()]);
        }
        file.write_all(&chunk[..len])?;
        left -= len as u64;
    }
    // Otherwise later write-back would be part of the measurement.
    file.sync_all()
}

/// Allocates the space of `file` from byte `from` up to `to`.
pub(super) fn with_space(file: &File, from: u64, to: u64) -> io::Result<()> {
    allocate(file, FallocateFlags::empty(), from, to)?;
    // If the file system cannot allocate, the file gets a hole.
    if file.metadata()?.len() < to {
        file.set_len(to)?;
    }
    file.sync_all()
}

/// Allocates space, if the file system supports that.
fn allocate(file: &File, flags: FallocateFlags, from: u64, to: u64) -> io::Result<()> {
    match fallocate(file, flags, from, to - from) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
