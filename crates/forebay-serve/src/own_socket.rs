//! A socket file for the user of this process and root: its directory is closed to others, and its
//! mode is 0600.

use crate::listen::{Address, ListenError, Listener};
use rustix::fs::{Mode, chmod};
use rustix::process::geteuid;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An error of opening a control socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The server cannot listen at the path.
    #[error("control socket: {0}")]
    Listen(#[from] ListenError),
    /// Other users may enter the directory, or own it.
    #[error(
        "control socket {}: its directory {} {why}: run `chmod 700` on a directory of your own, \
         or create one with `mkdir -m 700`",
        path.display(), directory.display()
    )]
    Directory {
        /// Path of the socket.
        path: PathBuf,
        /// Its directory.
        directory: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// The directory does not exist.
    #[error(
        "control socket {}: its directory does not exist: create it with `mkdir -m 700 {}`",
        path.display(), directory.display()
    )]
    NoDirectory {
        /// Path of the socket.
        path: PathBuf,
        /// Its directory.
        directory: PathBuf,
    },
    /// The directory or the socket cannot be accessed.
    #[error("control socket {}: {source}", path.display())]
    System {
        /// Path of the socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Listens at `path`, for the user of this process and root.
///
/// # Errors
/// Returns an error if the directory is open to others, or if the socket cannot be opened.
pub(crate) fn listen(path: &Path) -> Result<Listener, ControlError> {
    let system = |source| ControlError::System { path: path.to_owned(), source };
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let metadata = std::fs::metadata(directory).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let (path, directory) = (path.to_owned(), directory.to_owned());
            ControlError::NoDirectory { path, directory }
        }
        _ => system(error),
    })?;
    let why = match (metadata.uid() == geteuid().as_raw(), metadata.mode() & 0o077) {
        (true, 0) => None,
        (true, _) => Some("is open to other users"),
        (false, _) => Some("belongs to another user"),
    };
    if let Some(why) = why {
        let (path, directory) = (path.to_owned(), directory.to_owned());
        return Err(ControlError::Directory { path, directory, why });
    }
    let listener = Listener::open(&Address::Unix(path.to_owned()))?;
    let own = Mode::RUSR | Mode::WUSR;
    chmod(path, own).map_err(|errno| system(errno.into()))?;
    Ok(listener)
}
