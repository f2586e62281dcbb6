//! Open files of a disk, and the stock of those that a caller has opened for it.
//!
//! A disk needs several open file descriptions of its file: one for the checks and locks of its
//! place, and one for each hardware context. As a rule it opens the file again. A process that
//! may not open the file, such as a confined server, receives the descriptions from another one
//! instead ([`DiskOptions::open_fds`]). They are a stock: a part of the disk takes one, and puts
//! it back when it is closed.
//!
//! Write-back errors (O1-O3) are found as with files that are opened again: each description of
//! the stock was opened before the disk, and a check follows wherever it would follow an opening.
//! A description that is taken a second time has reported the earlier errors to its first user,
//! which recorded the loss before it was closed. A description that was opened before an error
//! reports it once, even if the loss was acknowledged meanwhile: then one flush fails that need
//! not. It never succeeds over lost data.
//!
//! The stock belongs to the file of the disk's shared queue, so it is closed with the disk. A file
//! that is in use then, such as that of a place with other disks, is closed with its user.
//!
//! [`DiskOptions::open_fds`]: crate::DiskOptions::open_fds

use super::distinct::DistinctFile;
use super::name::{Name, open_again};
use super::ofd_lock::{self, Range};
use crate::sys::fork::Origin;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Open file descriptions that no part of the disk uses.
#[derive(Debug)]
pub(crate) struct SpareFiles(Mutex<Vec<DistinctFile>>);

impl SpareFiles {
    /// Creates a stock. The first file is taken first.
    pub(crate) fn new(mut files: Vec<DistinctFile>) -> Arc<SpareFiles> {
        files.reverse();
        Arc::new(SpareFiles(Mutex::new(files)))
    }

    /// Takes a file. `None`: the stock is empty.
    pub(crate) fn take(self: &Arc<SpareFiles>) -> Option<OwnFile> {
        let file = self.files().pop()?;
        Some(OwnFile::new(file, Home::Of(Arc::downgrade(self))))
    }

    /// Takes the file of the disk's shared queue, with which the stock is closed. `None`: the stock
    /// is empty.
    pub(crate) fn take_first(self: &Arc<SpareFiles>) -> Option<OwnFile> {
        let file = self.files().pop()?;
        Some(OwnFile::new(file, Home::Owns(Arc::clone(self))))
    }

    fn files(&self) -> MutexGuard<'_, Vec<DistinctFile>> {
        // Each change under this lock is complete even if a panic follows.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stock has an identity: two of them are never equal.
impl PartialEq for SpareFiles {
    fn eq(&self, other: &SpareFiles) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for SpareFiles {}

/// An open file of one user: a place, or a hardware context.
#[derive(Debug)]
pub(crate) struct OwnFile {
    /// `None` only while it is dropped.
    file: Option<DistinctFile>,
    home: Home,
    origin: Origin,
}

/// The stock of a file.
#[derive(Debug)]
enum Home {
    /// The file is of no stock.
    None,
    /// The file is of this stock, and keeps it.
    Owns(Arc<SpareFiles>),
    /// The file returns to this stock, if the disk is still open.
    Of(Weak<SpareFiles>),
}

impl OwnFile {
    fn new(file: DistinctFile, home: Home) -> OwnFile {
        OwnFile { file: Some(file), home, origin: Origin::here() }
    }

    /// Takes another file of the stock from which this one is. `None`: there is no stock, or it is
    /// empty.
    pub(crate) fn take_another(&self) -> Option<OwnFile> {
        match &self.home {
            Home::None => None,
            Home::Owns(stock) => stock.take(),
            Home::Of(stock) => stock.upgrade()?.take(),
        }
    }
}

impl From<File> for OwnFile {
    fn from(file: File) -> OwnFile {
        OwnFile::new(DistinctFile::from(file), Home::None)
    }
}

impl Deref for OwnFile {
    type Target = File;

    #[inline]
    fn deref(&self) -> &File {
        self.file.as_ref().expect("open until it is dropped")
    }
}

impl Drop for OwnFile {
    /// Puts the file back without its locks. After a panic, I/O may be in flight, and the file is
    /// only closed. A child of a fork shares the description with its parent, which may use it.
    fn drop(&mut self) {
        let Home::Of(home) = &self.home else { return };
        if std::thread::panicking() || self.origin.is_elsewhere() {
            return;
        }
        let (Some(home), Some(file)) = (home.upgrade(), self.file.take()) else { return };
        // With a lock left, the next user of the file would exclude others by mistake.
        let is_unlocked = match ofd_lock::set(&file, Range::ALL, libc::F_UNLCK) {
            Ok(()) => true,
            Err(error) => ofd_lock::is_unsupported(&error),
        };
        if is_unlocked {
            home.files().push(file);
        }
    }
}

/// The file of a disk: the path by which it is opened again, and its stock of open files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) path: &'a Path,
    pub(crate) spares: Option<&'a Arc<SpareFiles>>,
}

impl Source<'_> {
    /// Returns a further open file: one of the stock, or the file opened again with additional
    /// `flags`. No file of a stock has such flags.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, or is no longer the one that `name` identifies.
    pub(super) fn open(&self, name: Name, read_only: bool, flags: i32) -> io::Result<OwnFile> {
        let spare = self.spares.filter(|_| flags == 0).and_then(SpareFiles::take);
        match spare {
            Some(spare) => Ok(spare),
            None => open_again(self.path, name, read_only, flags).map(OwnFile::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn file_returns_to_its_stock_without_its_locks() {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        let open = || File::options().read(true).write(true).open(file.path()).expect("it opens");
        let (first, second) = (open(), open());
        let number = first.as_raw_fd();
        let files = DistinctFile::register(vec![first, second]).expect("flags");
        let stock = SpareFiles::new(files.expect("distinct"));
        let taken = stock.take().expect("the first");
        assert_eq!(taken.as_raw_fd(), number);
        let other = taken.take_another().expect("the second");
        assert!(stock.take().is_none() && other.take_another().is_none());
        ofd_lock::set(&taken, Range::ALL, libc::F_WRLCK).expect("a lock");
        let found = |file: &File| {
            let found = ofd_lock::conflict(file, Range::ALL, libc::F_WRLCK).expect("a result");
            i32::from(found.l_type)
        };
        assert_eq!(found(&other), libc::F_WRLCK);
        drop(taken);
        assert_eq!(found(&other), libc::F_UNLCK);
        drop(other);
        let first = stock.take_first().expect("one that came back");
        drop(stock);
        let last = first.take_another().expect("the other");
        // The stock is closed with the first file, and then nothing returns to it.
        drop(first);
        assert!(last.take_another().is_none());
        drop(last);
    }

    #[test]
    fn file_without_a_stock_is_closed() {
        let file = OwnFile::from(tempfile::tempfile().expect("a scratch file"));
        assert!(file.take_another().is_none());
    }
}
