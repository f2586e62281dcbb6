//! Socket files: removes that of a server that died, and the server's own at its end, but never a
//! file that another process has put in its place.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// A reason why a socket file cannot be removed.
#[derive(Debug, thiserror::Error)]
pub enum StaleError {
    /// Another server listens there.
    #[error("another server listens there: stop it, or choose another path")]
    InUse,
    /// The path exists and is not a socket.
    #[error("this path exists and is not a socket: choose another path, or move the file away")]
    NoSocket,
    /// A system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// A socket file that this process has created. Dropping it removes the file, if it is still there.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    is_kept: bool,
}

impl SocketFile {
    /// Takes the file at `path`, which this process has just created.
    ///
    /// # Errors
    /// Fails if the file has gone.
    pub fn of(path: &Path) -> io::Result<SocketFile> {
        let identity = identity(&fs::symlink_metadata(path)?);
        Ok(SocketFile { path: path.to_owned(), identity, is_kept: false })
    }
}

impl SocketFile {
    /// Leaves the file in place: another process listens there.
    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let unchanged = |found: &fs::Metadata| identity(found) == self.identity;
        if !self.is_kept && fs::symlink_metadata(&self.path).as_ref().is_ok_and(unchanged) {
            // If it cannot be removed, the next server finds it, and that no server listens there.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Removes the socket file at `path` if no server listens there.
///
/// If two servers start at the same moment, both may find the old file, and the slower one may
/// remove the file of the faster one. Checking the file before and after makes that unlikely.
///
/// # Errors
/// Returns the reason if the file stays.
pub fn remove(path: &Path) -> Result<(), StaleError> {
    let found = fs::symlink_metadata(path)?;
    if !found.file_type().is_socket() {
        return Err(StaleError::NoSocket);
    }
    match try_to_connect(path) {
        Err(Errno::CONNREFUSED) => {}
        // Another process has removed it.
        Err(Errno::NOENT) => return Ok(()),
        // The accept queue is full, or it took the connection: a server listens.
        Ok(()) | Err(Errno::AGAIN) => return Err(StaleError::InUse),
        Err(errno) => return Err(StaleError::System(errno.into())),
    }
    if identity(&fs::symlink_metadata(path)?) != identity(&found) {
        return Err(StaleError::InUse);
    }
    Ok(fs::remove_file(path)?)
}

fn try_to_connect(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(socket, &SocketAddrUnix::new(path)?)
}
