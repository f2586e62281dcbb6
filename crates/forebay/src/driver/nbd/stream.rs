//! Bytes to and from a server: as they are, or under TLS.
// It passes addresses on to system calls.
#![allow(unsafe_code)]

use super::socket::{Deadline, Socket};
use crate::driver::vectors::Vector;
use forebay_nbd::uri::Uri;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// What carries a connection.
#[derive(Debug)]
pub(super) enum Stream {
    /// Bytes as they are.
    Plain(Socket),
}

impl Stream {
    /// As [`Socket::send`], without waiting.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn send(&mut self, list: &[Vector]) -> io::Result<usize> {
        match self {
            // SAFETY: the caller's obligation.
            Stream::Plain(socket) => unsafe { socket.send(list, false) },
        }
    }

    /// As [`Socket::recv`]; waits only if it [`can_wait`](Stream::can_wait).
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn recv(&mut self, list: &[Vector], waits: bool) -> io::Result<usize> {
        match self {
            // SAFETY: the caller's obligation.
            Stream::Plain(socket) => unsafe { socket.recv(list, waits) },
        }
    }

    /// As [`Socket::send`]; waits as long as the socket's time limit says.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn send_waiting(&mut self, list: &[Vector]) -> io::Result<usize> {
        match self {
            // SAFETY: the caller's obligation.
            Stream::Plain(socket) => unsafe { socket.send(list, true) },
        }
    }

    /// As [`Socket::recv`]; likewise.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn recv_waiting(&mut self, list: &[Vector]) -> io::Result<usize> {
        match self {
            // SAFETY: the caller's obligation.
            Stream::Plain(socket) => unsafe { socket.recv(list, true) },
        }
    }

    /// Begins a TLS session.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn start_tls(self, _: &Uri, _: Deadline) -> Result<Stream, String> {
        Err(String::from("nbds:// needs TLS, which this version does not have"))
    }

    /// Whether something that was taken is not sent yet.
    pub(super) fn holds_back(&self) -> bool {
        false
    }

    /// Whether a receive may wait.
    pub(super) fn can_wait(&self) -> bool {
        true
    }

    pub(super) fn socket(&self) -> &Socket {
        match self {
            Stream::Plain(socket) => socket,
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}
