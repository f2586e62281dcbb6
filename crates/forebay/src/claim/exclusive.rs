//! Exclusive use of a file or block device by one disk (`exclusive=on`).
//!
//! A file is locked as a whole by open-file-description locks (`F_OFD_SETLK`), which are advisory.
//! They spare the byte of the takeover lock, which the disk's own queues lock.
//! A block device is opened with `O_EXCL`, which fails while it is mounted, part of another device,
//! or opened with `O_EXCL` by another program.
use super::name::Name;
use super::ofd_lock::{self, Range};
use super::own_file::{OwnFile, Source};
use super::takeover;
use crate::error::OpenError;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The reason if a disk of this process prevents `exclusive=on`.
pub(super) const HERE: &str =
    "this process has it open already; close that disk first, or use a clone of it";

/// The parts of the whole file: before and behind the byte of the takeover lock.
const WHOLE: [Range; 2] =
    [Range { start: 0, len: takeover::BYTE }, Range { start: takeover::BYTE + 1, len: 0 }];

/// Returns the error of `exclusive=on`.
pub(super) fn not_exclusive(path: &Path, why: impl Into<String>) -> OpenError {
    OpenError::Exclusive { path: path.to_owned(), why: why.into() }
}

/// Number of attempts to open a device that is in use, and the pause between two attempts. A child
/// of a fork keeps all descriptors open until it executes a program, even those that were closed
/// here.
const NR_FORK_TRIES: u32 = 20;
const FORK_PAUSE: Duration = Duration::from_millis(1);

/// Takes a further open file of `source`, and locks it. A device is always opened again.
///
/// # Errors
/// Fails if the file is in use, or cannot be locked.
pub(super) fn open_alone(
    source: Source<'_>,
    name: Name,
    read_only: bool,
) -> Result<OwnFile, OpenError> {
    let path = source.path;
    let is_device = matches!(name, Name::BlockDevice(_));
    let open = || source.open(name, read_only, if is_device { libc::O_EXCL } else { 0 });
    let mut opened = open();
    for _ in 0..NR_FORK_TRIES {
        if !opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
            break;
        }
        std::thread::sleep(FORK_PAUSE);
        opened = open();
    }
    let alone = opened.map_err(|source| match source.raw_os_error() {
        Some(libc::EBUSY) => not_exclusive(
            path,
            "it is in use: mounted, part of another device, or open with O_EXCL (EBUSY); \
                 lsblk and fuser show by which program",
        ),
        _ => not_exclusive(path, format!("it cannot be opened once more: {source}")),
    })?;
    if !is_device {
        lock_all(&alone, read_only).map_err(|source| match source.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => {
                not_exclusive(path, "another program has locked it; lslocks shows which")
            }
            _ => not_exclusive(path, format!("its file system does not lock it: {source}")),
        })?;
    }
    Ok(alone)
}

/// Locks the whole file. A file that is open read-only can have a read lock only, which other
/// programs may hold too. So this also checks that there is no other lock.
fn lock_all(file: &File, read_only: bool) -> io::Result<()> {
    let kind = if read_only { libc::F_RDLCK } else { libc::F_WRLCK };
    for part in WHOLE {
        ofd_lock::set(file, part, kind)?;
    }
    for part in WHOLE {
        let other = ofd_lock::conflict(file, part, libc::F_WRLCK)?;
        if i32::from(other.l_type) != libc::F_UNLCK {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
    }
    Ok(())
}

/// Unlocks a file. Closing it may not suffice, because a child of a fork may have the descriptor
/// too.
pub(super) fn unlock(file: &File) {
    // A device has no lock. A failure has no remedy, so it is ignored.
    for part in WHOLE {
        let _ = ofd_lock::set(file, part, libc::F_UNLCK);
    }
}

/// Returns whether another program has locked the whole file. Locks of single bytes are ignored:
/// their meaning is private to the programs that use them.
pub(super) fn is_locked(file: &File) -> bool {
    // A file system without such locks has none.
    ofd_lock::conflict(file, Range::ALL, libc::F_RDLCK).is_ok_and(|found| {
        let is_whole = [0, takeover::BYTE].contains(&found.l_len);
        i32::from(found.l_type) == libc::F_WRLCK && found.l_start == 0 && is_whole
    })
}
