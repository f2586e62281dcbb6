//! Open files that share no open file description with each other.
//!
//! Duplicates of a descriptor share a description. It has one set of locks, and reports a
//! write-back error only once. So no two users may have duplicates: neither queues of one disk,
//! nor two disks. Duplicates in other processes cannot be found.
//!
//! A shared description has shared flags. A file gets a flag that has no effect here, and no other
//! may have it then. `kcmp` would find this too, but kernels and containers may lack it.

use crate::sys::fork::{Origin, PerProcess};
use crate::sys::open_flags::{open_flags, set_open_flags};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};

/// The descriptors of all files that were registered. A file leaves it, under the lock, before it
/// is closed, so the numbers are those of open files as long as the lock is held.
static REGISTERED: PerProcess<Vec<RawFd>> = PerProcess::new();

/// An open file that shares no description with another registered one.
#[derive(Debug)]
pub(crate) struct DistinctFile {
    file: File,
    is_registered: bool,
    origin: Origin,
}

impl DistinctFile {
    /// Registers files. `None`: one of them shares its description with another one, or with a file
    /// that is registered already. Regular files and block devices lose the flag `O_NONBLOCK`.
    ///
    /// # Errors
    /// Returns the error of the system if it does not set or show the flags of a file.
    pub(crate) fn register(files: Vec<File>) -> io::Result<Option<Vec<DistinctFile>>> {
        let mut registered = REGISTERED.lock();
        let result = are_distinct(&files, &registered);
        files.iter().try_for_each(|file| set_mark(file, false))?;
        if !result? {
            return Ok(None);
        }
        registered.extend(files.iter().map(AsRawFd::as_raw_fd));
        let distinct = |file| DistinctFile { file, is_registered: true, origin: Origin::here() };
        Ok(Some(files.into_iter().map(distinct).collect()))
    }
}

/// A file that this process has opened itself: it needs no registration.
impl From<File> for DistinctFile {
    fn from(file: File) -> DistinctFile {
        DistinctFile { file, is_registered: false, origin: Origin::here() }
    }
}

impl Deref for DistinctFile {
    type Target = File;

    #[inline]
    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for DistinctFile {
    fn drop(&mut self) {
        // A child of a fork has a list of its own.
        if self.is_registered && !self.origin.is_elsewhere() {
            let number = self.file.as_raw_fd();
            REGISTERED.lock().retain(|other| *other != number);
        }
    }
}

/// Returns whether no file shares its description with another one or with a registered one. Leaves
/// marks behind.
fn are_distinct(files: &[File], registered: &[RawFd]) -> io::Result<bool> {
    files.iter().try_for_each(|file| set_mark(file, false))?;
    for file in files {
        if is_marked(file)? {
            return Ok(false);
        }
        set_mark(file, true)?;
    }
    // The mark of a duplicate goes with ours. The flag of another file does not.
    let marked = |fd: &&RawFd| is_marked(*fd).unwrap_or(false);
    let suspects: Vec<&RawFd> = registered.iter().filter(marked).collect();
    files.iter().try_for_each(|file| set_mark(file, false))?;
    Ok(suspects.iter().all(marked))
}

fn is_marked(fd: &impl AsRawFd) -> io::Result<bool> {
    Ok(open_flags(fd)? & libc::O_NONBLOCK != 0)
}

fn set_mark(file: &File, is_marked: bool) -> io::Result<()> {
    let flags = open_flags(file)? & !libc::O_NONBLOCK;
    let flags = if is_marked { flags | libc::O_NONBLOCK } else { flags };
    set_open_flags(file, flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_of_a_registered_file_is_refused_until_that_is_closed() {
        let scratch = tempfile::NamedTempFile::new().expect("a scratch file");
        let open = || File::options().read(true).write(true).open(scratch.path()).expect("open");
        let (first, second) = (open(), open());
        let duplicate = first.try_clone().expect("a duplicate");
        let again = duplicate.try_clone().expect("a duplicate");
        assert!(DistinctFile::register(vec![duplicate, again]).expect("flags").is_none());
        let duplicate = first.try_clone().expect("a duplicate");
        let stock = DistinctFile::register(vec![first]).expect("flags").expect("distinct");
        let kept = duplicate.try_clone().expect("a duplicate");
        let both = DistinctFile::register(vec![second, duplicate]).expect("flags");
        assert!(both.is_none(), "the second is a duplicate of a registered one");
        assert!(!is_marked(&*stock[0]).expect("flags"), "no mark is left");
        // A flag set by another owner does not make a file a duplicate.
        set_mark(&kept, true).expect("flags");
        let third = DistinctFile::register(vec![open()]).expect("flags").expect("distinct");
        set_mark(&kept, false).expect("flags");
        drop((stock, third));
        assert!(DistinctFile::register(vec![kept]).expect("flags").is_some());
    }
}
