//! Errors of listening at a socket, with their remedies.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use super::Address;

/// Error of listening at a socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A system call failed.
    #[error("cannot listen at {address}: {source}{}", hint(.source))]
    Refused {
        /// The address.
        address: Address,
        /// The cause.
        source: io::Error,
    },
    /// Another server listens at this socket.
    #[error(
        "cannot listen at unix:{}: another server listens there: stop it, or choose another path",
        .path.display()
    )]
    InUse {
        /// The socket file.
        path: PathBuf,
    },
    /// The path exists and is not a socket. The server does not replace it.
    #[error(
        "cannot listen at unix:{}: this path exists and is not a socket: choose another path, or \
         move the file away",
        .path.display()
    )]
    NoSocket {
        /// The file.
        path: PathBuf,
    },
}

/// Returns the remedy for an error of the kernel.
fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ADDRINUSE) => ": stop the program that listens there, or choose another port",
        Some(Errno::ADDRNOTAVAIL) => {
            ": this machine does not have the address; `ip address` lists those it has"
        }
        Some(Errno::NOENT) => ": create the directory of the socket first",
        Some(Errno::ACCESS) => {
            ": the directory of a socket must be writable, and ports below 1024 need privileges"
        }
        _ => "",
    }
}
