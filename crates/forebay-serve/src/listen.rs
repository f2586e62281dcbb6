//! Listening sockets: opened here, or passed by the service manager.

mod address;
mod error;
mod open;
mod peer;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use forebay_insight::small::Accept;
use forebay_insight::socket_file::SocketFile;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, acceptfrom_with, getsockname, sockopt,
};

pub use address::{Address, AddressError};
pub use error::ListenError;
pub(crate) use peer::Peer;

/// Most connections, closed before they were accepted, that one call skips.
const MAX_ABORTED: usize = 64;
/// Size of the send buffer of a unix socket, if the kernel allows it: with the default of 208 KiB,
/// two replies of 128 KiB take three system calls and two waits.
const SEND_BUFFER_BYTES: usize = 512 << 10;
/// Keepalive: a peer that has vanished is detected after about two minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// Characters that a URI need not encode.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PLAIN_PATH: &AsciiSet = &PLAIN.remove(b'/');

/// A listening socket. Any thread may call it, also concurrently.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    name: Name,
    /// Spare descriptor, closed for a moment to refuse a connection when no descriptor is left.
    spare: Mutex<Option<OwnedFd>>,
    /// Socket file, removed with the listener. `None` for an inherited socket.
    file: Option<SocketFile>,
}

#[derive(Clone, Debug)]
enum Name {
    Unix(PathBuf),
    Tcp { host: String, port: u16 },
}

impl Name {
    /// Returns the name by which clients on this machine reach an address.
    fn of(address: SocketAddr) -> Name {
        let host = match address.ip() {
            // Clients cannot connect to a wildcard address.
            ip if ip.is_unspecified() => "localhost".to_owned(),
            ip => ip.to_string(),
        };
        Name::Tcp { host, port: address.port() }
    }
}

/// Returns whether an error of [`Listener::accept`] means that the process or the machine has run
/// out of a resource, so that the caller should wait before it tries again.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    exhausted.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

impl Listener {
    /// Listens at `address`. If a host name resolves to several addresses, it uses the first that
    /// works. A socket file of a server that has ended is replaced.
    ///
    /// The processes that may write to a socket file may connect. The umask decides: with the usual
    /// 022, only the user of this process.
    ///
    /// # Errors
    /// Returns an error if another server listens there, or if the system refuses it.
    pub(crate) fn open(address: &Address) -> Result<Listener, ListenError> {
        open::listener(address)
    }

    /// Takes over a socket that listens already. It is neither shut down nor unlinked.
    ///
    /// # Errors
    /// Returns an error if the kernel does not return its address.
    pub(crate) fn adopt(socket: OwnedFd) -> io::Result<Listener> {
        set_nonblocking(&socket)?;
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

    /// Sets the flag `O_NONBLOCK` again, which another owner of the socket may have cleared.
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        set_nonblocking(&self.socket)
    }

    fn new(socket: OwnedFd, name: Name, file: Option<SocketFile>) -> io::Result<Listener> {
        Ok(Listener { socket, name, spare: Mutex::new(Some(spare()?)), file })
    }

    /// Accepts the next connection, with `O_NONBLOCK` and `FD_CLOEXEC`, and without Nagle's delay.
    /// Returns `None` if none is waiting. Skips connections that were closed before they were
    /// accepted.
    ///
    /// # Errors
    /// Returns an error for which [`is_exhausted`] holds if a resource has run out. Without a
    /// descriptor (`EMFILE`) the connection was closed, so that its peer learns of it and the
    /// listener does not stay readable; otherwise the connection still waits.
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

    /// Accepts and closes one connection, with the number of the spare descriptor.
    fn refuse_one(&self) {
        let Ok(mut spare_slot) = self.spare.lock() else { return };
        drop(spare_slot.take());
        drop(acceptfrom_with(&self.socket, SocketFlags::CLOEXEC));
        // If another thread took the number first, the next connection waits instead.
        *spare_slot = spare().ok();
    }

    /// Returns the NBD URI of an export. The path of a unix socket is absolute, so that the URI is
    /// valid in any directory. With `tls`, clients that use the URI require TLS.
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

    /// Returns the address, with the port that the kernel has chosen.
    pub(crate) fn address(&self) -> Address {
        match self.name.clone() {
            Name::Unix(path) => Address::Unix(path),
            Name::Tcp { host, port } => Address::Tcp { host, port },
        }
    }

    /// Returns the socket file of the listener.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.name {
            Name::Unix(path) if self.file.is_some() => Some(path),
            _ => None,
        }
    }
}

impl Accept for Listener {
    fn accept(&self) -> io::Result<Option<OwnedFd>> {
        Ok(Listener::accept(self)?.map(|(socket, _)| socket))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn set_nonblocking(socket: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(socket)?;
    Ok(rustix::fs::fcntl_setfl(socket, flags | rustix::fs::OFlags::NONBLOCK)?)
}

fn spare() -> io::Result<OwnedFd> {
    // One end of a pair: it needs no file, which a sandbox might refuse.
    open::new_socket(AddressFamily::UNIX)
}

/// Returns whether an error of accept(2) concerns one connection only.
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

/// Sets the options of a connection. It works without them, so errors are ignored.
fn prepare(connection: &OwnedFd, peer: Peer) {
    if let Peer::Tcp(_) = peer {
        let _ = sockopt::set_tcp_nodelay(connection, true);
        let _ = sockopt::set_socket_keepalive(connection, true);
        let _ = sockopt::set_tcp_keepidle(connection, KEEPALIVE_IDLE);
        let _ = sockopt::set_tcp_keepintvl(connection, KEEPALIVE_INTERVAL);
        let _ = sockopt::set_tcp_keepcnt(connection, KEEPALIVE_PROBES);
    } else {
        // If this fails, the buffer keeps its size. (TCP adapts the size itself.)
        let _ = sockopt::set_socket_send_buffer_size(connection, SEND_BUFFER_BYTES);
    }
}

#[cfg(test)]
mod tests;
