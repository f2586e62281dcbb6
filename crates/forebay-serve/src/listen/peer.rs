//! Who is at the other end of a connection.

use std::fmt;
use std::net::SocketAddr;

use rustix::net::SocketAddrAny;

/// Who is at the other end of a connection, for the log.
///
/// A peer at a unix socket has no name. Its process would be known, but as number 0 if it is in
/// another namespace, which the safe call for it does not allow for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Somebody who may write to the socket file.
    Unix,
    /// An address, which proves nothing of who is there.
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
