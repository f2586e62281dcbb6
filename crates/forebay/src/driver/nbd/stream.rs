//! Bytes to and from a server: as they are, or under TLS.
//!
//! TLS is the cargo feature `tls`. It is off by default, since it brings a library of cryptography
//! along that most users of the crate do not need; the program has it.
// It passes addresses on to system calls.
#![allow(unsafe_code)]

use super::socket::{Deadline, Socket};
#[cfg(feature = "tls")]
pub(super) use super::tls::Credentials;
#[cfg(feature = "tls")]
use super::tls::TlsStream;
use crate::driver::vectors::Vector;
#[cfg(not(feature = "tls"))]
use forebay_nbd::uri::Uri;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// What TLS sessions begin with, where there is no TLS.
#[cfg(not(feature = "tls"))]
#[derive(Debug)]
pub(super) enum Credentials {}

#[cfg(not(feature = "tls"))]
impl Credentials {
    /// # Errors
    /// There are none.
    pub(super) fn of(_: &Uri) -> Result<Credentials, String> {
        Err(String::from("nbds:// needs TLS: build the crate forebay with its feature `tls`"))
    }
}

/// What carries a connection.
#[derive(Debug)]
pub(super) enum Stream {
    /// Bytes as they are.
    Plain(Socket),
    /// Under TLS.
    #[cfg(feature = "tls")]
    Tls(TlsStream),
}

impl Stream {
    /// As [`Socket::send`]; if `waits`, as long as the socket's time limit says.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn send(&mut self, list: &[Vector], waits: bool) -> io::Result<usize> {
        match self {
            // SAFETY: the caller's obligation.
            Stream::Plain(socket) => unsafe { socket.send(list, waits) },
            #[cfg(feature = "tls")]
            // SAFETY: likewise.
            Stream::Tls(stream) => unsafe { stream.send(list, waits) },
        }
    }

    /// As [`Socket::recv`]; likewise.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn recv(&mut self, list: &[Vector], waits: bool) -> io::Result<usize> {
        match self {
            // SAFETY: the caller's obligation.
            Stream::Plain(socket) => unsafe { socket.recv(list, waits) },
            #[cfg(feature = "tls")]
            // SAFETY: likewise.
            Stream::Tls(stream) => unsafe { stream.recv(list, waits) },
        }
    }

    /// Begins a TLS session.
    ///
    /// # Errors
    /// Why there is none.
    #[cfg(feature = "tls")]
    pub(super) fn start_tls(
        self,
        credentials: &Credentials,
        deadline: Deadline,
    ) -> Result<Stream, String> {
        match self {
            Stream::Plain(socket) => {
                TlsStream::start(socket, credentials, deadline).map(Stream::Tls)
            }
            Stream::Tls(_) => Err(String::from("TLS within TLS")),
        }
    }

    /// Would begin a TLS session: there are no credentials for one.
    #[cfg(not(feature = "tls"))]
    pub(super) fn start_tls(self, never: &Credentials, _: Deadline) -> Result<Stream, String> {
        match *never {}
    }

    /// Whether something that was taken is not sent yet.
    pub(super) fn holds_back(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.holds_back(),
        }
    }

    /// Whether a receive is a wait for one reply, and for nothing else.
    pub(super) fn can_wait(&self) -> bool {
        matches!(self, Stream::Plain(_))
    }

    /// Says that nothing more comes, where there is a way to say so.
    pub(super) fn close(&mut self) {
        #[cfg(feature = "tls")]
        if let Stream::Tls(stream) = self {
            stream.close();
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        match self {
            Stream::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.socket(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}
