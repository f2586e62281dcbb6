//! Files, and other things that can be synced.

use std::fs::File;
use std::io;
use std::sync::Arc;

/// The scope of a sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncKind {
    /// The data, and the metadata needed to read it (the length): `fdatasync`.
    #[default]
    Data,
    /// All metadata as well, such as times: `fsync`.
    All,
}

/// Something with a call that makes its writes durable. Implemented for files. Implement it for
/// other things, such as several files of one log, a remote log, or a fake that fails.
pub trait SyncFile {
    /// Waits until all writes that returned before this call are on stable storage.
    ///
    /// # Errors
    /// After an error they may not be, and a later successful call does not prove that they are.
    fn sync(&self, kind: SyncKind) -> io::Result<()>;
}

impl SyncFile for File {
    fn sync(&self, kind: SyncKind) -> io::Result<()> {
        match kind {
            SyncKind::Data => self.sync_data(),
            SyncKind::All => self.sync_all(),
        }
    }
}

impl<F: SyncFile + ?Sized> SyncFile for Arc<F> {
    fn sync(&self, kind: SyncKind) -> io::Result<()> {
        (**self).sync(kind)
    }
}

impl<F: SyncFile + ?Sized> SyncFile for &F {
    fn sync(&self, kind: SyncKind) -> io::Result<()> {
        (**self).sync(kind)
    }
}
