//! A socket file for the user of this process and root: its directory is closed to others, and its
//! mode is 0600.

use crate::listen::{Address, ListenError, Listener};
use forebay_insight::own_socket::{DirectoryError, check_directory, close_to_others};
use std::io;
use std::path::{Path, PathBuf};

/// An error of opening a control socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The server cannot listen at the path.
    #[error("control socket: {0}")]
    Listen(#[from] ListenError),
    /// The directory is missing, or other users may enter or own it.
    #[error("control socket {}: {source}", path.display())]
    Directory {
        /// Path of the socket.
        path: PathBuf,
        /// The reason.
        source: DirectoryError,
    },
    /// The socket cannot be accessed.
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
    check_directory(path)
        .map_err(|source| ControlError::Directory { path: path.to_owned(), source })?;
    let listener = Listener::open(&Address::Unix(path.to_owned()))?;
    close_to_others(path)
        .map_err(|source| ControlError::System { path: path.to_owned(), source })?;
    Ok(listener)
}
