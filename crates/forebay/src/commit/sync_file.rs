//! What can be synced.

use std::fs::File;
use std::io;
use std::sync::Arc;

/// What a sync makes durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncKind {
    /// The data, and of the metadata what it takes to read it (the length): `fdatasync`.
    #[default]
    Data,
    /// All metadata too (times, for instance): `fsync`.
    All,
}

/// Something whose writes a sync makes durable. Implemented for files; implement it for what else
/// has such a call: several files of one log, a remote one, a fake that fails.
pub trait SyncFile {
    /// Returns when all writes that had returned before this call are on stable storage.
    ///
    /// # Errors
    /// They may not be, and a later call that succeeds does not mean that they are.
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
