//! Descriptors that a disk is opened on: the path of their file, and how they must be open.

use crate::claim::{DistinctFile, SpareFiles};
use crate::error::{OpenError, SpecError};
use crate::spec::Spec;
use crate::sys::open_flags::open_flags;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

/// An open descriptor, and paths of its file.
pub(super) struct Named {
    flags: i32,
    /// The path of the descriptor in `/proc`. It opens this file even if another one has its name.
    pub(super) path: PathBuf,
    /// The path of the file as the kernel reports it. The file may no longer be there.
    pub(super) shown: PathBuf,
}

/// Flags that a disk does not accept, each with the reason.
const REFUSED: [(i32, &str); 4] = [
    (libc::O_PATH, "it has O_PATH, which allows no I/O; open it for reading and writing"),
    (
        libc::O_APPEND,
        "it has O_APPEND, with which writes go to the end of the file whatever their offset; open \
         it without O_APPEND",
    ),
    (
        libc::O_SYNC | libc::O_DSYNC,
        "it has O_SYNC or O_DSYNC, which the disk would not keep; open it without, and use flushes \
         or durable writes",
    ),
    (libc::O_NOATIME, "it has O_NOATIME, which the disk would not keep; open it without"),
];

impl Named {
    /// Returns the paths of a descriptor's file. They are valid while the descriptor is open.
    ///
    /// # Errors
    /// Fails without `/proc`.
    pub(super) fn of(fd: &OwnedFd) -> Result<Named, OpenError> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let failed = |call, source| OpenError::System { path: path.clone(), call, source };
        let flags = open_flags(fd).map_err(|error| failed("fcntl(F_GETFL)", error))?;
        let shown = std::fs::read_link(&path).map_err(|error| failed("readlink", error))?;
        Ok(Named { flags, path, shown })
    }

    /// Checks how the descriptor is open. Sets `direct` in the spec as the descriptor has it.
    ///
    /// # Errors
    /// Fails if a disk cannot be opened on it, or if the spec demands something else.
    pub(super) fn check(&self, spec: &mut Spec) -> Result<(), OpenError> {
        let refuse = |why| Err(OpenError::Descriptor { path: self.shown.clone(), why });
        if let Some((_, why)) = REFUSED.into_iter().find(|(flag, _)| self.flags & flag != 0) {
            return refuse(why);
        }
        match self.flags & libc::O_ACCMODE {
            libc::O_RDWR => {}
            libc::O_RDONLY if spec.switch("read_only") == Some(true) => {}
            libc::O_RDONLY => {
                return refuse(
                    "it is open for reading only; open it for reading and writing, or set \
                     read_only=on",
                );
            }
            _ => return refuse("it is open for writing only; open it for reading and writing"),
        }
        let is_direct = self.flags & libc::O_DIRECT != 0;
        if let Some(wanted) = spec.switch("direct").filter(|wanted| *wanted != is_direct) {
            let (value, expected) = match wanted {
                true => ("on", "off, because the descriptor is open without O_DIRECT"),
                false => ("off", "on, because the descriptor is open with O_DIRECT"),
            };
            return Err(OpenError::Spec(SpecError::BadValue {
                key: String::from("direct"),
                value: value.to_owned(),
                expected: expected.into(),
            }));
        }
        // A value that is no switch is refused later.
        if is_direct && spec.get("direct").is_none() {
            spec.set("direct", "on");
        }
        Ok(())
    }

    /// Returns the stock of open files in these descriptors, of which this is the first.
    ///
    /// # Errors
    /// Fails if they are not open files of their own, of one inode, with the same flags.
    pub(super) fn stock(&self, fds: Vec<OwnedFd>) -> Result<Arc<SpareFiles>, OpenError> {
        let files: Vec<File> = fds.into_iter().map(File::from).collect();
        let failed = |call| {
            let path = self.shown.clone();
            move |source| OpenError::System { path, call, source }
        };
        let refuse = |why| Err(OpenError::Descriptor { path: self.shown.clone(), why });
        let facts: Result<Vec<_>, _> = files.iter().map(File::metadata).collect();
        let facts = facts.map_err(failed("fstat"))?;
        if facts.iter().any(|it| (it.dev(), it.ino()) != (facts[0].dev(), facts[0].ino())) {
            return refuse("the descriptors are of different files; open one file several times");
        }
        for file in &files {
            if open_flags(file).map_err(failed("fcntl(F_GETFL)"))? != self.flags {
                return refuse("the descriptors are open with different flags; open all alike");
            }
        }
        // The flags of a pipe or socket must stay as they are.
        let is_disk = facts.iter().all(|it| it.is_file() || it.file_type().is_block_device());
        if !is_disk {
            return refuse("it is neither a regular file nor a block device; open one of these");
        }
        match DistinctFile::register(files).map_err(failed("fcntl(F_SETFL)"))? {
            Some(files) => Ok(SpareFiles::new(files)),
            None => refuse(
                "it is a duplicate of another descriptor, or of one on which a disk is open; \
                 duplicates share their locks, and report a write-back error once in all: open the \
                 file anew for each",
            ),
        }
    }
}
