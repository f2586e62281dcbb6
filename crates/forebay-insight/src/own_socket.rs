//! Sockets for the user of this process and root: the directory is closed to others, the socket
//! file has mode 0600, and the kernel reports the user of each client (`SO_PEERCRED`).

use crate::small::Accept;
use crate::socket_file::{self, SocketFile, StaleError};
use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use rustix::process::geteuid;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Length of the accept queue.
const BACKLOG: i32 = 16;

/// Most connections, closed before they were accepted, that one call skips.
const MAX_ABORTED: usize = 64;

/// A reason why the directory of a socket is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// Other users may enter it, or own it.
    #[error(
        "its directory {} {why}: run `chmod 700` on a directory of your own, or create one with \
         `mkdir -m 700`",
        directory.display()
    )]
    Open {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// It does not exist.
    #[error(
        "its directory does not exist: create it with `mkdir -m 700 {}`",
        directory.display()
    )]
    Missing {
        /// The directory.
        directory: PathBuf,
    },
    /// It cannot be accessed.
    #[error("{0}")]
    System(io::Error),
}

/// Checks that only this user and root can reach a socket at this path.
///
/// # Errors
/// Returns the reason if the directory is not closed to other users.
pub fn check_directory(path: &Path) -> Result<(), DirectoryError> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let metadata = std::fs::metadata(directory).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => DirectoryError::Missing { directory: directory.to_owned() },
        _ => DirectoryError::System(error),
    })?;
    let why = match (metadata.uid() == geteuid().as_raw(), metadata.mode() & 0o077) {
        (true, 0) => return Ok(()),
        (true, _) => "is open to other users",
        (false, _) => "belongs to another user",
    };
    Err(DirectoryError::Open { directory: directory.to_owned(), why })
}

/// Closes a socket file to other users.
///
/// # Errors
/// Fails if the system does.
pub fn close_to_others(path: &Path) -> io::Result<()> {
    Ok(chmod(path, Mode::RUSR | Mode::WUSR)?)
}

/// Returns the user of a client that must be refused: neither root nor the user of this process.
pub fn refused_user(socket: BorrowedFd<'_>) -> Option<u32> {
    // A peer is refused too if the kernel does not return its user.
    let uid = socket_peercred(socket).map_or(u32::MAX, |peer| peer.uid.as_raw());
    let may_connect = uid == 0 || uid == geteuid().as_raw();
    (!may_connect).then_some(uid)
}

/// A reason why a socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    #[error("{0}")]
    Stale(#[from] StaleError),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> OpenError {
        OpenError::System(errno.into())
    }
}

/// A listening socket, for this user and root.
#[derive(Debug)]
pub(crate) struct OwnSocket {
    socket: OwnedFd,
    /// Removed with the socket.
    _file: SocketFile,
}

impl OwnSocket {
    /// Listens at `path`. A socket file of a process that has ended is replaced.
    pub(crate) fn open(path: &Path) -> Result<OwnSocket, OpenError> {
        check_directory(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // Bind by the path as given: the absolute one may be too long for a socket.
        let address = SocketAddrUnix::new(path)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                socket_file::remove(path)?;
                bind(&socket, &address)?;
            }
            bound => bound?,
        }
        // Absolute, since the process may change its working directory.
        let file = SocketFile::of(&std::path::absolute(path)?)?;
        close_to_others(path)?;
        listen(&socket, BACKLOG)?;
        Ok(OwnSocket { socket, _file: file })
    }
}

impl AsFd for OwnSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Accept for OwnSocket {
    fn accept(&self) -> io::Result<Option<OwnedFd>> {
        for _ in 0..MAX_ABORTED {
            match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(connection) => return Ok(Some(connection)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }
}
