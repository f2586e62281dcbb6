//! Why a socket cannot be listened at, and what to do about it.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use super::Address;

/// Why a socket cannot be listened at.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The kernel refused.
    #[error("cannot listen at {address}: {source}{}", hint(.source))]
    Refused {
        /// Where.
        address: Address,
        /// Why.
        source: io::Error,
    },
    /// A server is there.
    #[error(
        "cannot listen at unix:{}: another server listens there; stop it, or choose another path",
        .path.display()
    )]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// A file is there that is no socket, and may be of value.
    #[error(
        "cannot listen at unix:{}: something is there that is no socket; choose another path, or \
         move it away",
        .path.display()
    )]
    NoSocket {
        /// The file.
        path: PathBuf,
    },
}

/// What to do about what the kernel refused.
fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ADDRINUSE) => "; stop who listens there, or choose another port",
        Some(Errno::ADDRNOTAVAIL) => "; this machine has no such address: `ip address` shows those",
        Some(Errno::NOENT) => "; make the folder of the socket first",
        Some(Errno::ACCESS) => {
            "; a socket's folder must be writable, and ports below 1024 are for those with rights"
        }
        _ => "",
    }
}
