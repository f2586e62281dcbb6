//! Sockets that clients come to: opened here, or handed down by whoever started the server.

mod address;
mod inherited;
mod peer;
mod stale;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind, getsockname,
    listen, socket_with, sockopt,
};

pub use address::{Address, AddressError, NBD_PORT};
pub use peer::Peer;
use stale::SocketFile;

/// How many connections may wait until they are accepted: those that come in one burst.
const BACKLOG: i32 = 1024;
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
pub struct Listener {
    socket: OwnedFd,
    name: Name,
    /// Given up for a moment where there is no descriptor left to refuse a connection with.
    spare: Mutex<Option<OwnedFd>>,
    /// Removed with the listener. What was inherited has none.
    _file: Option<SocketFile>,
}

#[derive(Clone, Debug)]
enum Name {
    Unix(PathBuf),
    Tcp { host: String, port: u16 },
}

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
    /// The variables of socket activation make no sense.
    #[error("cannot take over the sockets of LISTEN_FDS: {source}")]
    Activation {
        /// Why.
        source: io::Error,
    },
    /// A socket that was handed down is of no use.
    #[error("cannot take over descriptor {number} (`{name}`) of LISTEN_FDS: {source}")]
    Inherited {
        /// The descriptor.
        number: i32,
        /// What LISTEN_FDNAMES calls it.
        name: String,
        /// Why.
        source: io::Error,
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

/// Whether an error of [`Listener::accept`] says that this process or the machine has run out of
/// something, so that the next call is better made a while later.
pub fn is_exhausted(error: &io::Error) -> bool {
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
    pub fn open(address: &Address) -> Result<Listener, ListenError> {
        match address {
            Address::Unix(path) => open_unix(path),
            Address::Tcp { host, port } => open_tcp(host, *port),
        }
        .map_err(|failure| match failure {
            Failure::Told(error) => error,
            Failure::Kernel(source) => ListenError::Refused { address: address.clone(), source },
        })
    }

    /// The sockets that were handed down by `LISTEN_FDS`; none, if that is not meant for this
    /// process. Names of `LISTEN_FDNAMES` are not needed.
    ///
    /// # Errors
    /// If one of them is not a listening unix or TCP socket, or the kernel does not allow
    /// `pidfd_getfd`, as in some containers.
    pub fn inherited() -> Result<Vec<Listener>, ListenError> {
        inherited::listeners()
    }

    /// Takes over a socket that listens already. It is neither shut down nor unlinked.
    ///
    /// # Errors
    /// If the kernel does not tell its address.
    pub fn adopt(socket: OwnedFd) -> io::Result<Listener> {
        let flags = rustix::fs::fcntl_getfl(&socket)?;
        rustix::fs::fcntl_setfl(&socket, flags | rustix::fs::OFlags::NONBLOCK)?;
        let address = getsockname(&socket)?;
        let name = if address.address_family() == AddressFamily::UNIX {
            let address = SocketAddrUnix::try_from(address)?;
            let path = address.path_bytes().unwrap_or_default();
            Name::Unix(Path::new(std::ffi::OsStr::from_bytes(path)).to_owned())
        } else {
            tcp_name(SocketAddr::try_from(address)?)
        };
        Listener::new(socket, name, None)
    }

    fn new(socket: OwnedFd, name: Name, file: Option<SocketFile>) -> io::Result<Listener> {
        Ok(Listener { socket, name, spare: Mutex::new(Some(spare()?)), _file: file })
    }

    /// The next connection, with `O_NONBLOCK` and `FD_CLOEXEC` set, and without Nagle's delay;
    /// `None` if none is waiting. Connections that were gone before they were accepted are passed
    /// over.
    ///
    /// # Errors
    /// If [`is_exhausted`]: without a descriptor left (`EMFILE`) the connection was closed, so that
    /// its peer knows and the listener does not stay readable; otherwise it still waits.
    pub fn accept(&self) -> io::Result<Option<(OwnedFd, Peer)>> {
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
    pub fn uri(&self, export: &str, tls: bool) -> String {
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
    pub fn address(&self) -> Address {
        match self.name.clone() {
            Name::Unix(path) => Address::Unix(path),
            Name::Tcp { host, port } => Address::Tcp { host, port },
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A failure that is told already, or the kernel's word, to which the address is added.
enum Failure {
    Told(ListenError),
    Kernel(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Kernel(error)
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Kernel(errno.into())
    }
}

fn open_unix(path: &Path) -> Result<Listener, Failure> {
    let socket = new_socket(AddressFamily::UNIX)?;
    // By the path as it was given: the absolute one may be too long for a socket.
    let address = SocketAddrUnix::new(path)?;
    let bound = bind(&socket, &address);
    if bound == Err(Errno::ADDRINUSE) {
        stale::remove(path).map_err(Failure::Told)?;
        bind(&socket, &address)?;
    } else {
        bound?;
    }
    // Absolute, since the process may change its folder.
    let path = std::path::absolute(path)?;
    let file = SocketFile::of(&path)?;
    listen(&socket, BACKLOG)?;
    Ok(Listener::new(socket, Name::Unix(path), Some(file))?)
}

fn open_tcp(host: &str, port: u16) -> Result<Listener, Failure> {
    let mut last = io::Error::other("this name stands for no address");
    for address in (host, port).to_socket_addrs()? {
        match open_socket_address(&address) {
            Ok(socket) => {
                let port = SocketAddr::try_from(getsockname(&socket)?)?.port();
                let name = match tcp_name(address) {
                    // What stands for all addresses is of no use to a client.
                    Name::Tcp { host, .. } if address.ip().is_unspecified() => {
                        Name::Tcp { host, port }
                    }
                    _ => Name::Tcp { host: host.to_owned(), port },
                };
                return Ok(Listener::new(socket, name, None)?);
            }
            Err(error) => last = error,
        }
    }
    Err(last.into())
}

fn open_socket_address(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = new_socket(family)?;
    // A server that is started again must not wait for the old connections to be forgotten.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn new_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

fn tcp_name(address: SocketAddr) -> Name {
    let host = match address.ip() {
        ip if ip.is_unspecified() => "localhost".to_owned(),
        ip => ip.to_string(),
    };
    Name::Tcp { host, port: address.port() }
}

fn spare() -> io::Result<OwnedFd> {
    // One end of a pair: it needs no file, which a sandbox might refuse.
    new_socket(AddressFamily::UNIX)
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
