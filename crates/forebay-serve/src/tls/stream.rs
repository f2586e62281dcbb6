//! TLS connection over a non-blocking socket, for an event loop.
//!
//! The socket is borrowed for each call, so that the loop keeps it. Calls never block. After each
//! call, the loop checks [`TlsStream::wants_write`] to learn whether to wait until the socket is
//! writable, and [`TlsStream::has_plaintext`] to learn whether there is data that no event of the
//! socket reports.

use std::cell::Cell;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use rustls::{ServerConfig, ServerConnection};

/// Most bytes received at once: four records of the largest size.
const RECEIVE_BYTES: usize = 64 * 1024 + 1024;
/// Most unsent bytes of one connection: a few records, so that a large reply is encrypted while it
/// is sent.
const SEND_LIMIT_BYTES: usize = 128 * 1024;

thread_local! {
    /// Received bytes that are not decrypted yet. A connection owns the buffer only while it reads,
    /// or while some of the bytes are left. So an idle connection has no such buffer.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Server side of a TLS connection. It belongs to one thread at a time.
#[derive(Debug)]
pub(crate) struct TlsStream {
    connection: ServerConnection,
    /// Received bytes. Those from `decrypted` on are not decrypted yet.
    received: Vec<u8>,
    decrypted: usize,
    /// Bytes that `connection` has decrypted and that were not read yet.
    plaintext: usize,
    /// End of the stream. Nothing is received after it.
    ended: Option<End>,
}

#[derive(Clone, Debug)]
enum End {
    /// The peer has sent close_notify. It may wait for that of the server.
    Clean,
    Tls(rustls::Error),
    /// The peer closed the socket without close_notify: the stream may be truncated.
    Truncated,
}

impl TlsStream {
    /// Creates a connection whose handshake has not begun.
    ///
    /// # Errors
    /// Returns an error if `config` cannot be used, which [`super::server_config`] rules out.
    pub(crate) fn new(config: Arc<ServerConfig>) -> io::Result<TlsStream> {
        let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(SEND_LIMIT_BYTES));
        Ok(TlsStream { connection, received: Vec::new(), decrypted: 0, plaintext: 0, ended: None })
    }

    /// Reads decrypted data. During the handshake, this drives it.
    ///
    /// Like `read`, it may return less than is available: call it until it would block.
    ///
    /// # Errors
    /// Returns `WouldBlock` if there is no data; `UnexpectedEof` if the connection ends without
    /// close_notify, so that data may be missing; `InvalidData` if the peer breaks the protocol or
    /// has no valid certificate; or the error of the socket. After any but the first, the
    /// connection is unusable. `Ok(0)` is its clean end.
    pub(crate) fn read(&mut self, socket: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
        let result = self.read_some(socket.as_fd(), into);
        if self.received.len() == self.decrypted {
            self.give_scratch_back();
        }
        result
    }

    fn read_some(&mut self, socket: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            if self.plaintext > 0 && filled < into.len() {
                let len = self.connection.reader().read(&mut into[filled..])?;
                self.plaintext -= len;
                filled += len;
                continue;
            }
            if filled > 0 && (filled == into.len() || self.received.len() == self.decrypted) {
                return Ok(filled);
            }
            if into.is_empty() {
                return Ok(0);
            }
            if let Some(end) = &self.ended {
                return end.result();
            }
            if self.received.len() == self.decrypted {
                if self.receive(&socket)? == 0 {
                    self.ended = Some(self.end());
                }
                continue;
            }
            self.decrypt(&socket);
        }
    }

    /// Receives from the socket. Returns 0 at its end.
    fn receive(&mut self, socket: impl AsFd) -> io::Result<usize> {
        if self.received.capacity() == 0 {
            self.received = SCRATCH.take();
        }
        self.received.clear();
        self.decrypted = 0;
        self.received.reserve(RECEIVE_BYTES);
        let (len, _) = rustix::io::retry_on_intr(|| {
            recv(&socket, spare_capacity(&mut self.received), RecvFlags::empty())
        })?;
        Ok(len)
    }

    /// Decrypts a part of the received bytes.
    fn decrypt(&mut self, socket: impl AsFd) {
        let mut rest = &self.received[self.decrypted..];
        let before = rest.len();
        // It takes a few KiB. It would fail only with unread plaintext, and there is none.
        let taken = self.connection.read_tls(&mut rest);
        debug_assert!(taken.is_ok(), "{taken:?}");
        self.decrypted += before - rest.len();
        match self.connection.process_new_packets() {
            Ok(state) => {
                self.plaintext = state.plaintext_bytes_to_read();
                if state.peer_has_closed() {
                    self.ended = Some(End::Clean);
                }
            }
            Err(error) => self.ended = Some(End::Tls(error)),
        }
        if self.ended.is_some() {
            // Ignore all that follows.
            self.decrypted = self.received.len();
        }
        // Continues the handshake, or sends an alert. Bytes that cannot be sent now are kept:
        // `wants_write` reports them.
        let _ = self.send(&socket);
    }

    /// Returns how the stream has ended, at the end of the socket.
    fn end(&mut self) -> End {
        // Zero bytes signal the end.
        let _ = self.connection.read_tls(&mut io::empty());
        match self.connection.process_new_packets() {
            Ok(state) if state.peer_has_closed() => End::Clean,
            Ok(_) => End::Truncated,
            Err(error) => End::Tls(error),
        }
    }

    fn give_scratch_back(&mut self) {
        let buffer = std::mem::take(&mut self.received);
        self.decrypted = 0;
        if buffer.capacity() > 0 {
            SCRATCH.set(buffer);
        }
    }

    /// Encrypts and sends. All bytes that it accepts will be sent: as many as the socket takes by
    /// this call, the rest by later calls of this or of [`TlsStream::flush`].
    ///
    /// # Errors
    /// Returns `WouldBlock` if it accepts nothing: too many bytes are unsent, or the handshake is
    /// not over. Returns the error of the socket otherwise: then the connection is unusable.
    pub(crate) fn write_vectored(
        &mut self,
        socket: impl AsFd,
        bufs: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        if self.connection.is_handshaking() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut bufs: Vec<IoSlice<'_>> = bufs.to_vec();
        let mut rest = &mut bufs[..];
        let mut taken = 0;
        self.send(&socket)?;
        while !rest.is_empty() {
            let len = self.connection.writer().write_vectored(rest)?;
            IoSlice::advance_slices(&mut rest, len);
            taken += len;
            match self.send(&socket) {
                Ok(()) => {}
                // The next call returns the error again.
                Err(_) if taken > 0 => break,
                Err(error) => return Err(error),
            }
            if len == 0 || self.wants_write() {
                break;
            }
        }
        match taken {
            0 if bufs.iter().any(|buf| !buf.is_empty()) => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// Sends all unsent bytes.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the socket does not take all of them, or the error of the socket.
    pub(crate) fn flush(&mut self, socket: impl AsFd) -> io::Result<()> {
        self.send(socket)?;
        if self.wants_write() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    }

    /// Sends until the socket would block.
    fn send(&mut self, socket: impl AsFd) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Outlet(&socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether unsent bytes wait for the socket to become writable.
    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Returns whether [`TlsStream::read`] should be called even if the socket is not readable.
    pub(crate) fn has_plaintext(&self) -> bool {
        self.plaintext > 0 || self.received.len() > self.decrypted
    }

    /// Queues close_notify and sends what the socket takes. Call [`TlsStream::flush`] for the rest
    /// before the socket is closed.
    pub(crate) fn close_notify(&mut self, socket: impl AsFd) {
        self.connection.send_close_notify();
        let _ = self.send(socket);
    }

    /// Returns the version and the cipher suite, for the log: `TLSv1_3 TLS13_AES_256_GCM_SHA384`.
    pub(crate) fn description(&self) -> String {
        match (self.connection.protocol_version(), self.connection.negotiated_cipher_suite()) {
            (Some(version), Some(suite)) => format!("{version:?} {:?}", suite.suite()),
            _ => "TLS handshake".to_owned(),
        }
    }
}

impl End {
    fn result(&self) -> io::Result<usize> {
        match self {
            End::Clean => Ok(0),
            End::Tls(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error.clone())),
            End::Truncated => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the peer ended the connection without a TLS close_notify",
            )),
        }
    }
}

/// Writer to a socket.
struct Outlet<Socket>(Socket);

impl<Socket: AsFd> Write for Outlet<Socket> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let mut control = SendAncillaryBuffer::default();
            match sendmsg(&self.0, bufs, &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
