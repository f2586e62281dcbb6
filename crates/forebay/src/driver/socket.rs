//! Sockets: connect with a deadline, and transfers that block only on request.
//!
//! The socket itself stays in blocking mode, and each call selects whether it may block. So an
//! owner waits for a reply with the same call that receives it.
// It makes system calls that the standard library does not wrap in this form.
#![allow(unsafe_code)]

use crate::driver::deadline::Deadline;
use crate::driver::vectors::{self, Vector};
use crate::sys::event;
use forebay_nbd::uri::Address;
use std::io;
use std::mem::MaybeUninit;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The most stretches of memory that one call takes (`IOV_MAX`).
pub(super) const NR_VECTORS_MAX: usize = 1024;

/// A connected stream socket.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

/// The result of a wait for a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Polled {
    /// Input or the end of the stream is present.
    pub(super) is_readable: bool,
    /// The other descriptor is readable.
    pub(super) is_other: bool,
}

/// Sends as many bytes as a socket takes at once. Does not wait, and raises no signal.
#[cfg(feature = "vhost-user")]
pub(super) fn send_now(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let (fd, flags) = (socket.as_fd().as_raw_fd(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // SAFETY: the kernel reads these bytes, which are borrowed.
    let nr = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(nr).map_err(|_| io::Error::last_os_error())
}

impl Socket {
    /// Connects before the deadline, which does not limit the name lookup.
    pub(super) fn connect(address: &Address, deadline: Deadline) -> io::Result<Socket> {
        match address {
            Address::Unix(path) => connect_unix(path, deadline),
            Address::Tcp { host, port } => {
                let unknown = |why: io::Error| {
                    let text = "the host name does not resolve: check it, or give an IP address";
                    io::Error::other(format!("{text} ({why})"))
                };
                let mut last = unknown(io::Error::other("it has no address"));
                for address in (host.as_str(), *port).to_socket_addrs().map_err(unknown)? {
                    match TcpStream::connect_timeout(&address, deadline.time_left()?) {
                        Ok(stream) => return Socket::of_tcp(stream),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    fn of_tcp(stream: TcpStream) -> io::Result<Socket> {
        // Requests go out in batches already.
        stream.set_nodelay(true)?;
        let socket = Socket(stream.into());
        // Detects, after some time, a peer that has vanished without closing.
        socket.set(libc::SO_KEEPALIVE, &1i32)?;
        Ok(socket)
    }

    /// Wraps a connected socket.
    #[cfg(test)]
    pub(super) fn of(socket: OwnedFd) -> Socket {
        Socket(socket)
    }

    /// Sets the time after which blocking calls fail; `None` means never.
    pub(super) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_recv_timeout(timeout)?;
        self.set(libc::SO_SNDTIMEO, &timeval(timeout))
    }

    /// Sets the time after which blocking receives fail; `None` means never.
    pub(super) fn set_recv_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set(libc::SO_RCVTIMEO, &timeval(timeout))
    }

    fn set<T>(&self, option: i32, value: &T) -> io::Result<()> {
        let len = size_of::<T>() as libc::socklen_t;
        let value = std::ptr::from_ref(value).cast();
        // SAFETY: the kernel reads one value of this length.
        let answer =
            unsafe { libc::setsockopt(self.0.as_raw_fd(), libc::SOL_SOCKET, option, value, len) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends some of this memory, at least one byte. Waits for room if `waits`.
    ///
    /// # Safety
    /// The memory is readable.
    pub(super) unsafe fn send(&self, list: &[Vector], waits: bool) -> io::Result<usize> {
        let message = message(list);
        let flags = libc::MSG_NOSIGNAL | if waits { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: the kernel reads the message and the memory that it names, which is valid by the
        // caller's guarantee.
        let nr = unsafe { libc::sendmsg(self.0.as_raw_fd(), &raw const message, flags) };
        usize::try_from(nr).map_err(|_| io::Error::last_os_error())
    }

    /// Receives some bytes into this memory, or none if the peer has hung up. Waits for the first
    /// byte if `waits`.
    ///
    /// # Safety
    /// The memory is writable, and nothing else uses it.
    pub(super) unsafe fn recv(&self, list: &[Vector], waits: bool) -> io::Result<usize> {
        let mut message = message(list);
        let flags = if waits { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: the kernel writes to the message, and to the memory that it names, which is valid
        // by the caller's guarantee.
        let nr = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags) };
        usize::try_from(nr).map_err(|_| io::Error::last_os_error())
    }

    /// Waits until the socket is readable, has room if `for_room`, or the other descriptor is
    /// readable. Also returns on a timeout or a signal.
    pub(super) fn poll(
        socket: Option<(BorrowedFd<'_>, bool)>,
        other: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
    ) -> Polled {
        // The kernel ignores a negative descriptor.
        let entry =
            |fd: Option<i32>, events| libc::pollfd { fd: fd.unwrap_or(-1), events, revents: 0 };
        let for_room = socket.is_some_and(|(_, for_room)| for_room);
        let events = libc::POLLIN | if for_room { libc::POLLOUT } else { 0 };
        let mut list = [
            entry(socket.map(|(fd, _)| fd.as_raw_fd()), events),
            entry(other.map(|fd| fd.as_raw_fd()), libc::POLLIN),
        ];
        let limit = timeout.map(event::timespec);
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let nr = list.len() as libc::nfds_t;
        // SAFETY: two structures that the kernel writes to, and a time that it reads, if any.
        let answer = unsafe { libc::ppoll(list.as_mut_ptr(), nr, limit, std::ptr::null()) };
        if answer <= 0 {
            return Polled::default();
        }
        Polled {
            is_readable: list[0].revents & !libc::POLLOUT != 0,
            is_other: list[1].revents != 0,
        }
    }
}

/// Converts a time limit to the form of socket options.
fn timeval(limit: Option<Duration>) -> libc::timeval {
    let limit = limit.unwrap_or_default();
    libc::timeval {
        // 68 years, in the type of the field, which depends on the C library.
        tv_sec: limit.as_secs().min(i32::MAX as u64) as _,
        // Not zero, which would mean no limit.
        tv_usec: limit.subsec_micros().max(u32::from(!limit.is_zero())).into(),
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> OwnedFd {
        socket.0
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn message(list: &[Vector]) -> libc::msghdr {
    let list = &list[..list.len().min(NR_VECTORS_MAX)];
    // SAFETY: all zeroes is a valid, empty message.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = vectors::as_ptr(list).cast_mut();
    message.msg_iovlen = list.len() as _;
    message
}

fn connect_unix(path: &[u8], deadline: Deadline) -> io::Result<Socket> {
    // SAFETY: all zeroes is a valid, empty address.
    let mut name: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    name.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let is_abstract = path.first() == Some(&0);
    // A path ends with a zero byte; an abstract name has none but its first.
    let room = name.sun_path.len() - usize::from(!is_abstract);
    if path.len() > room {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a socket's path has at most {room} bytes, and this one {}", path.len()),
        ));
    }
    if !is_abstract && path.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path with a zero byte"));
    }
    for (place, byte) in name.sun_path.iter_mut().zip(path) {
        *place = *byte as libc::c_char;
    }
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + path.len();
    let len = len + usize::from(!is_abstract);
    // SAFETY: numbers only.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and no other value owns it.
    let socket = Socket(unsafe { OwnedFd::from_raw_fd(fd) });
    // If the server does not accept, connect blocks, at most for this long.
    socket.set_timeout(Some(deadline.time_left()?))?;
    // SAFETY: the kernel reads an address of this length.
    let answer = unsafe { libc::connect(fd, (&raw const name).cast(), len as libc::socklen_t) };
    match answer {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}
