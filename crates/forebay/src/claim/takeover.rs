//! Takeover lock: no program overtakes the I/O of a predecessor that was killed.
//!
//! The kernel may complete direct I/O of a killed process after the process has ended: a write
//! that was submitted to an io_uring may reach the device seconds later. The locks of the image
//! ([`image_lock`] and [`exclusive`]) are on another open file, and end with the process. So a
//! successor could write, and the older write could then replace its data.
//!
//! Each open file that a queue writes through has a shared lock on one more byte, [`BYTE`]. An
//! io_uring holds a reference to that open file until its last request has ended, and so keeps the
//! lock. The first disk of a process that writes to a file waits until no other open file has this
//! lock. The wait follows the locks of the image and precedes the first I/O. Later disks on the
//! same file belong to the same process, which orders their I/O itself. There is no wait either
//! for locks that this process has left behind, with a ring that it may not enter any more. Their
//! files are recognized by inode number, so the process keeps such a file from being freed: a new
//! file cannot have its number.
//!
//! Source: fcntl(2), open file description locks; io_uring(7), registered files.
//!
//! [`image_lock`]: super::image_lock
//! [`exclusive`]: super::exclusive

use super::name::Name;
use super::ofd_lock::{self, Range};
use super::own_file::OwnFile;
use crate::events;
use crate::sys::fork::{Origin, PerProcess};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The byte, apart from those that QEMU locks (100 to 203).
pub(super) const BYTE: libc::off_t = 300;
const RANGE: Range = Range { start: BYTE, len: 1 };

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// The files that this process has locked.
static MARKED: PerProcess<Marks> = PerProcess::new();

#[derive(Debug, Default)]
struct Marks {
    /// Once for each lock of a queue.
    of_queues: Vec<Name>,
    /// Locks that were left behind, each with a descriptor of its file that has no access and no
    /// lock. It keeps the inode.
    left: Vec<(Name, File)>,
}

impl Marks {
    fn contains(&self, name: Name) -> bool {
        self.of_queues.contains(&name) || self.left.iter().any(|(other, _)| *other == name)
    }

    fn remove(&mut self, name: Name) {
        if let Some(at) = self.of_queues.iter().position(|other| *other == name) {
            self.of_queues.swap_remove(at);
        }
    }
}

/// An open file that a queue uses. If the queue may write, the file has the lock.
#[derive(Debug)]
pub(crate) struct QueueFile {
    file: OwnFile,
    /// The name, if the file is locked.
    marked: Option<Name>,
    origin: Origin,
}

impl QueueFile {
    /// Locks the file if `marks` is set and its file system has locks.
    pub(crate) fn new(file: impl Into<OwnFile>, marks: bool) -> QueueFile {
        let file = file.into();
        let name = file.metadata().ok().filter(|_| marks).map(|facts| Name::of(&facts));
        // A shared lock conflicts only with a program that does not follow this protocol.
        let marked = name.filter(|_| ofd_lock::set(&file, RANGE, libc::F_RDLCK).is_ok());
        MARKED.lock().of_queues.extend(marked);
        QueueFile { file, marked, origin: Origin::here() }
    }

    /// Returns another open file of the same queues, with a lock of its own.
    pub(crate) fn sibling(&self, file: impl Into<OwnFile>) -> QueueFile {
        QueueFile::new(file, self.marked.is_some())
    }

    /// Takes another open file of the disk's stock, if it has one that is not empty.
    pub(crate) fn take_another(&self) -> Option<OwnFile> {
        self.file.take_another()
    }
}

impl Deref for QueueFile {
    type Target = File;

    #[inline]
    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for QueueFile {
    /// Unlocks the file: a child of a fork may have the descriptor too, and its queue has no I/O in
    /// flight any more. In such a child the lock belongs to the parent's queue. After a panic there
    /// may be I/O, and the lock stays until the ring has closed the file.
    fn drop(&mut self) {
        // A child of a fork shares the lock with its parent, which keeps it.
        let Some(name) = self.marked.filter(|_| !self.origin.is_elsewhere()) else { return };
        let mut marks = MARKED.lock();
        marks.remove(name);
        if !std::thread::panicking() {
            // The file is closed next, so a failure has no remedy.
            let _ = ofd_lock::set(&self.file, RANGE, libc::F_UNLCK);
        } else if let Ok(inode) = inode_of(&self.file) {
            marks.left.push((name, inode));
        }
        // Without that descriptor, the next disk waits for the lock as for another program's.
    }
}

/// Returns a descriptor of an open file's inode only: it has no access, and shares no lock.
fn inode_of(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)
}

/// The disks of this process that write to a place.
#[derive(Debug, Default)]
pub(super) struct Writers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    nr: u32,
    /// Whether the predecessor's I/O has ended. Reset when the last disk that writes is closed:
    /// then other programs may write, and be killed.
    is_clear: bool,
    /// A thread is reporting the wait, without the lock.
    is_reporting: bool,
}

impl Writers {
    /// Adds a disk. The first one waits until no other open file of `file`'s inode has the lock, at
    /// most for `patience`; others wait for the first. Returns false if the lock remains.
    ///
    /// # Errors
    /// Returns the error of the system if it cannot report the locks. On a file system without
    /// locks there is no wait, and no error.
    pub(super) fn enter(&self, file: &File, patience: Duration) -> io::Result<bool> {
        self.enter_reporting(file, patience, || events::waits_for_predecessor(patience))
    }

    /// Same as [`enter`](Self::enter), with a function that reports the wait.
    fn enter_reporting(
        &self,
        file: &File,
        patience: Duration,
        report: impl FnOnce(),
    ) -> io::Result<bool> {
        let since = Instant::now();
        let mut state = self.lock();
        let is_silent = state.is_clear || state.is_reporting || patience.is_zero();
        if !is_silent && is_held(file)? {
            state.is_reporting = true;
            drop(state);
            // A subscriber of the event may open the same file in this thread.
            report();
            state = self.lock();
            state.is_reporting = false;
        }
        state.is_clear = state.is_clear || wait(file, since, patience)?;
        state.nr += u32::from(state.is_clear);
        Ok(state.is_clear)
    }

    /// Removes a disk that was added.
    pub(super) fn leave(&self) {
        let mut state = self.lock();
        state.nr -= 1;
        state.is_clear = state.nr > 0;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until no other open file has the lock. Returns false if one still has it.
fn wait(file: &File, since: Instant, patience: Duration) -> io::Result<bool> {
    while is_held(file)? {
        if since.elapsed() >= patience {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(true)
}

/// Returns whether another open file has the lock, of another program.
fn is_held(file: &File) -> io::Result<bool> {
    if MARKED.lock().contains(Name::of(&file.metadata()?)) {
        return Ok(false);
    }
    match ofd_lock::conflict(file, RANGE, libc::F_WRLCK) {
        Ok(found) => Ok(i32::from(found.l_type) != libc::F_UNLCK),
        Err(error) if ofd_lock::is_unsupported(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
