//! Identity of a file or block device, by which it is found again.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Identity of a file or block device, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// Device and inode.
    File(u64, u64),
    /// The device number.
    BlockDevice(u64),
}

impl Name {
    pub(super) fn of(metadata: &Metadata) -> Name {
        match metadata.file_type().is_block_device() {
            true => Name::BlockDevice(metadata.rdev()),
            false => Name::File(metadata.dev(), metadata.ino()),
        }
    }
}

/// Opens the file at `path` again, with additional `flags`.
///
/// # Errors
/// Fails if the file cannot be opened, or is no longer the one that `name` identifies.
pub(super) fn open_again(path: &Path, name: Name, read_only: bool, flags: i32) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(!read_only).custom_flags(flags).open(path)?;
    match Name::of(&file.metadata()?) == name {
        true => Ok(file),
        false => Err(io::Error::other("another file has taken its place meanwhile; try again")),
    }
}
