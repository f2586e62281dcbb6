//! Opens listening sockets: at a path, or at the first usable address of a host.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, listen, socket_with,
    sockopt,
};

use forebay_insight::socket_file::{self, SocketFile, StaleError};

use super::{Address, ListenError, Listener, Name};

/// Length of the accept queue: enough for the connections of one burst.
const BACKLOG: i32 = 1024;

/// Opens a socket that listens at `address`.
pub(super) fn listener(address: &Address) -> Result<Listener, ListenError> {
    match address {
        Address::Unix(path) => open_unix(path),
        Address::Tcp { host, port } => open_tcp(host, *port),
    }
    .map_err(|failure| match failure {
        Failure::Told(error) => error,
        Failure::Kernel(source) => ListenError::Refused { address: address.clone(), source },
    })
}

fn open_unix(path: &Path) -> Result<Listener, Failure> {
    let socket = new_socket(AddressFamily::UNIX)?;
    // Bind by the path as given: the absolute one may be too long for a socket.
    let address = SocketAddrUnix::new(path)?;
    let bound = bind(&socket, &address);
    if bound == Err(Errno::ADDRINUSE) {
        remove_stale(path).map_err(Failure::Told)?;
        bind(&socket, &address)?;
    } else {
        bound?;
    }
    // Absolute, since the process may change its working directory.
    let path = std::path::absolute(path)?;
    let file = SocketFile::of(&path)?;
    listen(&socket, BACKLOG)?;
    Ok(Listener::new(socket, Name::Unix(path), Some(file))?)
}

fn remove_stale(path: &Path) -> Result<(), ListenError> {
    socket_file::remove(path).map_err(|error| {
        let path = path.to_owned();
        match error {
            StaleError::InUse => ListenError::InUse { path },
            StaleError::NoSocket => ListenError::NoSocket { path },
            StaleError::System(source) => {
                ListenError::Refused { address: Address::Unix(path), source }
            }
        }
    })
}

fn open_tcp(host: &str, port: u16) -> Result<Listener, Failure> {
    let unknown = |why: io::Error| {
        let text = "the host name does not resolve: check it, or give an IP address";
        io::Error::other(format!("{text} ({why})"))
    };
    let mut last = unknown(io::Error::other("it has no address"));
    for address in (host, port).to_socket_addrs().map_err(unknown)? {
        match open_socket_address(&address) {
            Ok(socket) => {
                let port = SocketAddr::try_from(getsockname(&socket)?)?.port();
                let name = match address.ip().is_unspecified() {
                    true => Name::of(SocketAddr::new(address.ip(), port)),
                    false => Name::Tcp { host: host.to_owned(), port },
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
    // A restarted server must not wait until the kernel drops the state of old connections.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

pub(super) fn new_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

/// An error with its own message, or one of the kernel to which the address is added.
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
