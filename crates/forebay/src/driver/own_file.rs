//! Separate open file descriptions for queues.
//!
//! The kernel reports a failed write-back once to each open file description (`errseq_t`), at its
//! next sync. If two hardware contexts flushed one description at once, one of them would get the
//! error, and the other would report lost data as durable. So a queue that one thread owns opens
//! the file again, or takes one from the stock of the disk. The new description does not report an
//! error that was reported before. The disk checks for such errors before it uses the queue
//! (`claim/place.rs`). If the stock is empty and the file cannot be opened again, there is no such
//! queue, and its thread uses the shared queue of the disk.
use crate::claim::QueueFile;
use crate::driver::Mode;
use crate::sys::open_flags::open_flags;
#[cfg(test)]
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

/// The open flags that the new description keeps.
const KEPT: i32 = libc::O_DIRECT | libc::O_SYNC | libc::O_DSYNC | libc::O_NOATIME;

/// Returns the file for a queue: the disk's own, one of its stock, or the same file opened again
/// with the same flags.
///
/// # Errors
/// Returns the system's error if the file cannot be opened again: without `/proc`, or if the
/// process may no longer open it.
pub(in crate::driver) fn for_queue(
    file: &Arc<QueueFile>,
    mode: Mode,
) -> io::Result<Arc<QueueFile>> {
    if mode == Mode::Shared {
        return Ok(Arc::clone(file));
    }
    if let Some(spare) = file.take_another() {
        return Ok(Arc::new(file.sibling(spare)));
    }
    let flags = open_flags(&***file)?;
    let mode = flags & libc::O_ACCMODE;
    let again = OpenOptions::new()
        .read(mode != libc::O_WRONLY)
        .write(mode != libc::O_RDONLY)
        .custom_flags(flags & KEPT)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(Arc::new(file.sibling(again)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owned_queue_has_an_open_file_of_its_own_with_the_same_flags() {
        let folder = std::env::temp_dir();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE | libc::O_DSYNC)
            .open(folder)
            .expect("a file without a name");
        let file = Arc::new(QueueFile::new(file, true));
        let flags = |file: &File| open_flags(file).expect("flags") & !libc::O_TMPFILE;
        let shared = for_queue(&file, Mode::Shared).expect("the same");
        assert_eq!(shared.as_raw_fd(), file.as_raw_fd());
        let owned = for_queue(&file, Mode::Owned).expect("another");
        assert_ne!(owned.as_raw_fd(), file.as_raw_fd());
        assert_eq!(flags(&owned), flags(&file));
    }
}
