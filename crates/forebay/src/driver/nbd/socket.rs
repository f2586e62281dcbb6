//! Sockets: connecting by a deadline, and moving bytes without waiting unless that is wanted.
//!
//! A socket stays one that blocks, and each call says whether it may: so an owner waits for a reply
//! with the same call that takes it.
// Its parts are system calls that the standard library does not make in this way.
#![allow(unsafe_code)]

use crate::driver::vectors::{self, Vector};
use crate::runtime::clock;
use forebay_nbd::uri::Address;
use std::io;
use std::mem::MaybeUninit;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The most stretches of memory that one call takes (`IOV_MAX`).
pub(super) const NR_VECTORS_MAX: usize = 1024;

/// Until when something must be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    at_ns: u64,
}

impl Deadline {
    pub(super) fn after(timeout: Duration) -> Deadline {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Deadline { at_ns: clock::now_ns().saturating_add(timeout_ns) }
    }

    /// What is left of it.
    ///
    /// # Errors
    /// Nothing is.
    pub(super) fn left(self) -> io::Result<Duration> {
        match self.at_ns.checked_sub(clock::now_ns()) {
            Some(left_ns) if left_ns > 0 => Ok(Duration::from_nanos(left_ns)),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// A connected stream socket.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

/// What a wait for a socket has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Polled {
    /// There is something to receive, or the end of it.
    pub(super) is_readable: bool,
    /// The other descriptor is readable.
    pub(super) is_other: bool,
}

impl Socket {
    /// Connects, before the deadline. (A name is looked up as long as that takes.)
    pub(super) fn connect(address: &Address, deadline: Deadline) -> io::Result<Socket> {
        match address {
            Address::Unix(path) => connect_unix(path, deadline),
            Address::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, deadline.left()?) {
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
        // A peer that has vanished without a word is noticed, some time.
        socket.set(libc::SO_KEEPALIVE, &1i32)?;
        Ok(socket)
    }

    /// One that is connected already.
    #[cfg(test)]
    pub(super) fn of(socket: OwnedFd) -> Socket {
        Socket(socket)
    }

    /// Calls that wait end with an error after this time; or never, without it.
    pub(super) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.unwrap_or_default();
        let time = libc::timeval {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            // Not nothing, which would be for ever.
            tv_usec: timeout.subsec_micros().max(u32::from(!timeout.is_zero())).into(),
        };
        self.set(libc::SO_RCVTIMEO, &time)?;
        self.set(libc::SO_SNDTIMEO, &time)
    }

    fn set<T>(&self, option: i32, value: &T) -> io::Result<()> {
        let len = size_of::<T>() as libc::socklen_t;
        let value = std::ptr::from_ref(value).cast();
        // SAFETY: the kernel reads one value of this length.
        let answer =
            unsafe { libc::setsockopt(self.0.as_raw_fd(), libc::SOL_SOCKET, option, value, len) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends some of this memory, at least a byte. Waits for room if `waits`.
    ///
    /// # Safety
    /// The memory can be read.
    pub(super) unsafe fn send(&self, list: &[Vector], waits: bool) -> io::Result<usize> {
        let message = message(list);
        let flags = libc::MSG_NOSIGNAL | if waits { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: the kernel reads the message and the memory that it names, which the caller
        // vouches for.
        let nr = unsafe { libc::sendmsg(self.0.as_raw_fd(), &raw const message, flags) };
        usize::try_from(nr).map_err(|_| io::Error::last_os_error())
    }

    /// Receives into this memory: some bytes, or none, where the peer has hung up. Waits for the
    /// first if `waits`.
    ///
    /// # Safety
    /// The memory can be written to, and nobody else uses it.
    pub(super) unsafe fn recv(&self, list: &[Vector], waits: bool) -> io::Result<usize> {
        let mut message = message(list);
        let flags = if waits { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: the kernel writes to the memory that the message names, which the caller vouches
        // for, and to the message.
        let nr = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags) };
        usize::try_from(nr).map_err(|_| io::Error::last_os_error())
    }

    /// Waits until there is something to receive, room to send if `for_room`, or the other
    /// descriptor is readable; or the time is over, or there was a signal of the system's.
    pub(super) fn poll(
        socket: Option<(BorrowedFd<'_>, bool)>,
        other: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
    ) -> Polled {
        // A negative descriptor is none.
        let entry =
            |fd: Option<i32>, events| libc::pollfd { fd: fd.unwrap_or(-1), events, revents: 0 };
        let for_room = socket.is_some_and(|(_, for_room)| for_room);
        let events = libc::POLLIN | if for_room { libc::POLLOUT } else { 0 };
        let mut list = [
            entry(socket.map(|(fd, _)| fd.as_raw_fd()), events),
            entry(other.map(|fd| fd.as_raw_fd()), libc::POLLIN),
        ];
        let limit = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
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

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn message(list: &[Vector]) -> libc::msghdr {
    let list = &list[..list.len().min(NR_VECTORS_MAX)];
    // SAFETY: all zeroes are a message without anything.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = vectors::as_ptr(list).cast_mut();
    message.msg_iovlen = list.len() as _;
    message
}

fn connect_unix(path: &[u8], deadline: Deadline) -> io::Result<Socket> {
    // SAFETY: all zeroes are an address without a name.
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
    // SAFETY: it is new, and nobody else's.
    let socket = Socket(unsafe { OwnedFd::from_raw_fd(fd) });
    // A server that does not accept makes who connects wait, for as long.
    socket.set_timeout(Some(deadline.left()?))?;
    // SAFETY: the kernel reads an address of this length.
    let answer = unsafe { libc::connect(fd, (&raw const name).cast(), len as libc::socklen_t) };
    match answer {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}
