//! Byte stream to and from a server: plain, or under TLS.
//!
//! TLS is the cargo feature `tls`. It is off by default, because it adds a cryptography library
//! that most users of the crate do not need. The program enables it.
// It passes addresses on to system calls.
#![allow(unsafe_code)]

#[cfg(feature = "tls")]
pub(super) use super::tls::Credentials;
#[cfg(feature = "tls")]
use super::tls::TlsStream;
use crate::driver::deadline::Deadline;
use crate::driver::socket::Socket;
use crate::driver::vectors::Vector;
#[cfg(not(feature = "tls"))]
use forebay_nbd::uri::Uri;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The configuration of TLS sessions, in a build without TLS.
#[cfg(not(feature = "tls"))]
#[derive(Debug)]
pub(super) enum Credentials {}

#[cfg(not(feature = "tls"))]
impl Credentials {
    /// # Errors
    /// Always fails.
    pub(super) fn of(_: &Uri) -> Result<Credentials, String> {
        Err(String::from(
            "nbds:// needs TLS, which this build lacks: build forebay with its feature `tls`",
        ))
    }
}

/// The transport of a connection.
#[derive(Debug)]
pub(super) enum Stream {
    /// Plain bytes.
    Plain(Socket),
    /// Bytes under TLS.
    #[cfg(feature = "tls")]
    Tls(TlsStream),
}

impl Stream {
    /// Sends as [`Socket::send`] does; if `waits`, at most for the socket's time limit.
    ///
    /// # Safety
    /// As for [`Socket::send`].
    pub(super) unsafe fn send(&mut self, list: &[Vector], waits: bool) -> io::Result<usize> {
        match self {
            // SAFETY: the caller guarantees it.
            Stream::Plain(socket) => unsafe { socket.send(list, waits) },
            #[cfg(feature = "tls")]
            // SAFETY: likewise.
            Stream::Tls(stream) => unsafe { stream.send(list, waits) },
        }
    }

    /// Receives as [`Socket::recv`] does; if `waits`, at most for the socket's time limit.
    ///
    /// # Safety
    /// As for [`Socket::recv`].
    pub(super) unsafe fn recv(&mut self, list: &[Vector], waits: bool) -> io::Result<usize> {
        match self {
            // SAFETY: the caller guarantees it.
            Stream::Plain(socket) => unsafe { socket.recv(list, waits) },
            #[cfg(feature = "tls")]
            // SAFETY: likewise.
            Stream::Tls(stream) => unsafe { stream.recv(list, waits) },
        }
    }

    /// Begins a TLS session.
    ///
    /// # Errors
    /// Returns why there is none.
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

    /// Never called: without TLS there are no credentials.
    #[cfg(not(feature = "tls"))]
    pub(super) fn start_tls(self, never: &Credentials, _: Deadline) -> Result<Stream, String> {
        match *never {}
    }

    /// Returns whether bytes were accepted and not sent yet.
    pub(super) fn holds_back(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.holds_back(),
        }
    }

    /// Returns whether a blocking receive waits for a reply and for nothing else.
    pub(super) fn can_wait(&self) -> bool {
        matches!(self, Stream::Plain(_))
    }

    /// Announces the end of the stream, if the transport has a message for that.
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
