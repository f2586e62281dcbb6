//! Sockets that clients come to: opened here, or handed down by whoever started the server.

mod address;
mod error;
mod open;
mod peer;
mod stale;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, acceptfrom_with, getsockname, sockopt,
};

pub use address::{Address, AddressError};
pub use error::ListenError;
pub(crate) use peer::Peer;
use stale::SocketFile;

/// How many connections that were gone again are passed over in one call.
const MAX_ABORTED: usize = 64;
/// How much of its replies a client at a unix socket may leave in the kernel, if that allows it:
/// with its usual 208 KiB two replies of 128 KiB take three system calls, and two waits.
const SEND_BUFFER_BYTES: usize = 512 << 10;
/// A peer that is gone without a word is noticed after about two minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// What may stand in a URI as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PLAIN_PATH: &AsciiSet = &PLAIN.remove(b'/');

/// A socket that listens. Its calls may come from any thread, one at a time or together.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    name: Name,
    /// Given up for a moment where there is no descriptor left to refuse a connection with.
    spare: Mutex<Option<OwnedFd>>,
    /// Removed with the listener. What was inherited has none.
    file: Option<SocketFile>,
}

#[derive(Clone, Debug)]
enum Name {
    Unix(PathBuf),
    Tcp { host: String, port: u16 },
}

impl Name {
    /// What clients on this machine call an address.
    fn of(address: SocketAddr) -> Name {
        let host = match address.ip() {
            // What stands for all addresses is of no use to a client.
            ip if ip.is_unspecified() => "localhost".to_owned(),
            ip => ip.to_string(),
        };
        Name::Tcp { host, port: address.port() }
    }
}

/// Whether an error of [`Listener::accept`] says that this process or the machine has run out of
/// something, so that the next call is better made a while later.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    exhausted.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

impl Listener {
    /// Listens at `address`. Of a host name that stands for several addresses, it takes the first
    /// that can be had. A socket file that nobody listens at any more is replaced.
    ///
    /// Who may connect to a socket file is who may write to it, which is what the umask leaves:
    /// with the usual 022, the user of this process alone.
    ///
    /// # Errors
    /// If somebody listens there, or it is refused for another reason.
    pub(crate) fn open(address: &Address) -> Result<Listener, ListenError> {
        open::listener(address)
    }

    /// Takes over a socket that listens already. It is neither shut down nor unlinked.
    ///
    /// # Errors
    /// If the kernel does not tell its address.
    pub(crate) fn adopt(socket: OwnedFd) -> io::Result<Listener> {
        let flags = rustix::fs::fcntl_getfl(&socket)?;
        rustix::fs::fcntl_setfl(&socket, flags | rustix::fs::OFlags::NONBLOCK)?;
        let address = getsockname(&socket)?;
        let name = if address.address_family() == AddressFamily::UNIX {
            let address = SocketAddrUnix::try_from(address)?;
            let path = address.path_bytes().unwrap_or_default();
            Name::Unix(Path::new(std::ffi::OsStr::from_bytes(path)).to_owned())
        } else {
            Name::of(SocketAddr::try_from(address)?)
        };
        Listener::new(socket, name, None)
    }

    fn new(socket: OwnedFd, name: Name, file: Option<SocketFile>) -> io::Result<Listener> {
        Ok(Listener { socket, name, spare: Mutex::new(Some(spare()?)), file })
    }

    /// The next connection, with `O_NONBLOCK` and `FD_CLOEXEC` set, and without Nagle's delay;
    /// `None` if none is waiting. Connections that were gone before they were accepted are passed
    /// over.
    ///
    /// # Errors
    /// If [`is_exhausted`]: without a descriptor left (`EMFILE`) the connection was closed, so that
    /// its peer knows and the listener does not stay readable; otherwise it still waits.
    pub(crate) fn accept(&self) -> io::Result<Option<(OwnedFd, Peer)>> {
        for _ in 0..MAX_ABORTED {
            match acceptfrom_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok((connection, address)) => {
                    let peer = Peer::of(address);
                    prepare(&connection, peer);
                    return Ok(Some((connection, peer)));
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::MFILE) => {
                    self.refuse_one();
                    return Err(Errno::MFILE.into());
                }
                Err(errno) if is_of_one_connection(errno) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }

    /// Accepts and closes one connection, with the spare descriptor's number.
    fn refuse_one(&self) {
        let Ok(mut spare_slot) = self.spare.lock() else { return };
        drop(spare_slot.take());
        drop(acceptfrom_with(&self.socket, SocketFlags::CLOEXEC));
        // Another thread may have been faster: then the next one is not refused, but waits.
        *spare_slot = spare().ok();
    }

    /// The NBD URI of an export, to be pasted. A unix socket's path is absolute, so that it holds
    /// in any folder. With `tls` it is one that a client follows with TLS or not at all.
    pub(crate) fn uri(&self, export: &str, tls: bool) -> String {
        let export = percent_encode(export.as_bytes(), PLAIN_PATH);
        let s = if tls { "s" } else { "" };
        match &self.name {
            Name::Unix(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                let socket = percent_encode(path.as_os_str().as_bytes(), PLAIN_PATH);
                format!("nbd{s}+unix:///{export}?socket={socket}")
            }
            Name::Tcp { host, port } if host.contains(':') => {
                format!("nbd{s}://[{host}]:{port}/{export}")
            }
            Name::Tcp { host, port } => {
                format!("nbd{s}://{}:{port}/{export}", percent_encode(host.as_bytes(), PLAIN))
            }
        }
    }

    /// Where it listens, with the port that the kernel chose.
    pub(crate) fn address(&self) -> Address {
        match self.name.clone() {
            Name::Unix(path) => Address::Unix(path),
            Name::Tcp { host, port } => Address::Tcp { host, port },
        }
    }

    /// The socket file that goes with it.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.name {
            Name::Unix(path) if self.file.is_some() => Some(path),
            _ => None,
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn spare() -> io::Result<OwnedFd> {
    // One end of a pair: it needs no file, which a sandbox might refuse.
    open::new_socket(AddressFamily::UNIX)
}

/// What a connection failed of, and no other will: see accept(2).
fn is_of_one_connection(errno: Errno) -> bool {
    [
        Errno::CONNABORTED,
        Errno::INTR,
        Errno::PERM,
        Errno::PROTO,
        Errno::NETDOWN,
        Errno::NOPROTOOPT,
        Errno::HOSTDOWN,
        Errno::NONET,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
        Errno::TIMEDOUT,
    ]
    .contains(&errno)
}

/// Without these a connection still works, so failures do not matter.
fn prepare(connection: &OwnedFd, peer: Peer) {
    if let Peer::Tcp(_) = peer {
        let _ = sockopt::set_tcp_nodelay(connection, true);
        let _ = sockopt::set_socket_keepalive(connection, true);
        let _ = sockopt::set_tcp_keepidle(connection, KEEPALIVE_IDLE);
        let _ = sockopt::set_tcp_keepintvl(connection, KEEPALIVE_INTERVAL);
        let _ = sockopt::set_tcp_keepcnt(connection, KEEPALIVE_PROBES);
    } else {
        // Refused or cut down, it is as it was. (TCP finds the best by itself.)
        let _ = sockopt::set_socket_send_buffer_size(connection, SEND_BUFFER_BYTES);
    }
}

#[cfg(test)]
mod tests;
