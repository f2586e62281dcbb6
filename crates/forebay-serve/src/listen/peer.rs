//! Peer of a connection.

use std::fmt;
use std::net::SocketAddr;

use rustix::net::SocketAddrAny;

/// Peer of a connection, for the log.
///
/// A peer at a unix socket has no name. The kernel knows its process, but reports number 0 for one
/// in another namespace, which the safe wrapper of that call cannot represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A process that may write to the socket file.
    Unix,
    /// A TCP address. It does not identify the client.
    Tcp(SocketAddr),
}

impl Peer {
    pub(super) fn of(address: Option<SocketAddrAny>) -> Peer {
        address.and_then(|address| SocketAddr::try_from(address).ok()).map_or(Peer::Unix, Peer::Tcp)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Unix => f.write_str("unix"),
            Peer::Tcp(address) => write!(f, "{address}"),
        }
    }
}
