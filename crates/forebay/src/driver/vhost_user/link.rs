//! The connection to a server in use, and its end.
//!
//! After the handshake there is only one message, which reads the size again and is rare. So the
//! stream is readable only for the reply to that message, at its end, or if the server breaks the
//! protocol. The latter two fail the device. So does a ring that breaks the standard, and an error
//! of a ring that the server signals, because the server has stopped that ring. The first reason is
//! kept. Then the stream is shut down, which ends the waits of all queues.

use super::size::Exchange;
use crate::sys::event::{Event, await_readable};
use crate::sys::fork::Origin;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

const RING_ERROR: &str = "the server reports an error of a ring: see its log";

#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    /// Signalled by the server for an error of any ring.
    error: Arc<Event>,
    /// Held by the thread that reads from the stream, also while it waits for a reply.
    exchange: Mutex<Exchange>,
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
        let exchange = Mutex::default();
        Ok(Link { stream, error, exchange, failure, is_lost, origin: Origin::here() })
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
    ///
    /// A thread whose edge-triggered wait has ended looks once. If another thread has the lock, it
    /// leaves both descriptors to that one, and no edge reports the same end again. So each thread
    /// that has had the lock looks once more after it has released it.
    pub(super) fn look(&self) {
        while !self.is_lost() {
            match await_readable(self.fds(), Some(Duration::ZERO)) {
                Some([true, _]) if self.read() => {}
                Some([false, true]) => self.lose(RING_ERROR),
                _ => return,
            }
        }
    }

    /// Reads from the stream and fails the device if it has ended. Returns false if another thread
    /// reads from it.
    #[cold]
    fn read(&self) -> bool {
        let mut exchange = match self.exchange.try_lock() {
            Ok(exchange) => exchange,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if let Err(why) = exchange.receive(&self.stream) {
            self.lose(&why);
        }
        true
    }

    /// Reads the capacity of the device again, in bytes.
    ///
    /// # Errors
    /// Fails if the device is gone, if the server refuses the message, or if it does not answer in
    /// time. After a refusal or a timeout the device goes on.
    pub(super) fn reread_capacity(&self, timeout: Duration) -> io::Result<u64> {
        let capacity = self.ask_capacity(timeout);
        // Other threads have left the descriptors to this one.
        self.look();
        capacity
    }

    fn ask_capacity(&self, timeout: Duration) -> io::Result<u64> {
        let until = Instant::now() + timeout;
        let mut exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        // The reply to a message whose sender has given up comes first.
        self.await_reply(&mut exchange, until, timeout)?;
        if let Some(why) = self.failure() {
            return Err(io::Error::other(why));
        }
        exchange.ask(&self.stream)?;
        self.await_reply(&mut exchange, until, timeout)?;
        let outcome = exchange.take_outcome().expect("the reply is complete");
        outcome.map_err(io::Error::other)
    }

    /// Waits until no reply is due.
    fn await_reply(
        &self,
        exchange: &mut Exchange,
        until: Instant,
        timeout: Duration,
    ) -> io::Result<()> {
        while exchange.is_due() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no answer to GET_CONFIG within {timeout:?}"),
                ));
            }
            let result = match await_readable(self.fds(), Some(left)) {
                Some([true, _]) => exchange.receive(&self.stream),
                Some([_, true]) => Err(RING_ERROR.to_owned()),
                _ => Ok(()),
            };
            if let Err(why) = result {
                self.lose(&why);
                return Err(io::Error::other(why));
            }
        }
        Ok(())
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
