//! The connection to a server in use, and its end.
//!
//! After the handshake neither side sends messages. So the stream is readable only at its end, or
//! if the server breaks the protocol. Either fails the device. So does a ring that breaks the
//! standard, and an error of a ring that the server signals, because the server has stopped that
//! ring. The first reason is kept. Then the stream is shut down, which ends the waits of all
//! queues.

use crate::sys::event::{Event, await_readable};
use crate::sys::fork::Origin;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    /// Signalled by the server for an error of any ring.
    error: Arc<Event>,
    failure: OnceLock<String>,
    /// Set after the reason. Release, with the acquire of a load: requests that the device has
    /// completed before its end are taken first.
    is_lost: AtomicBool,
    origin: Origin,
}

impl Link {
    /// Returns the link of a connection whose handshake is over.
    ///
    /// # Errors
    /// The OS error if the stream cannot be made non-blocking.
    pub(super) fn new(stream: UnixStream, error: Arc<Event>) -> io::Result<Link> {
        stream.set_nonblocking(true)?;
        let (failure, is_lost) = (OnceLock::new(), AtomicBool::new(false));
        Ok(Link { stream, error, failure, is_lost, origin: Origin::here() })
    }

    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Returns why the device is gone, if it is gone.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }

    /// Fails the device.
    #[cold]
    pub(super) fn lose(&self, why: &str) {
        let _ = self.failure.set(why.to_owned());
        self.is_lost.store(true, Ordering::Release);
        // Fails only if the peer has closed it: then it ends waits as well.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Fails the device if the stream has ended or the server has signalled an error. Does not
    /// block.
    pub(super) fn look(&self) {
        if self.is_lost() {
            return;
        }
        match await_readable(self.fds(), Some(Duration::ZERO)) {
            Some([true, _]) => self.read(),
            Some([_, true]) => self.lose("the server reports an error of a ring: see its log"),
            _ => {}
        }
    }

    /// Reads from the stream and fails the device if it has ended.
    #[cold]
    fn read(&self) {
        match (&self.stream).read(&mut [0]) {
            Ok(0) => self.lose("the server has closed the connection"),
            Ok(_) => self.lose("the server breaks the protocol: it has sent an unexpected message"),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                io::ErrorKind::ConnectionReset => self.lose("the server has closed the connection"),
                _ => self.lose(&format!("the connection is lost: {error}")),
            },
        }
    }

    /// Returns the descriptors of the stream and of errors. One of them is readable once the device
    /// is gone or should be.
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.stream.as_fd(), self.error.fd()]
    }
}

impl Drop for Link {
    /// Ends the connection, even if a child of a fork has it open. The server then stops the rings.
    fn drop(&mut self) {
        // In such a child the connection belongs to the parent.
        if !self.origin.is_elsewhere() {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}
