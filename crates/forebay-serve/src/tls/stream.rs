//! A TLS connection over a socket that does not block, for an event loop.
//!
//! The socket is borrowed for each call, so that the loop keeps it. Calls never wait. After each of
//! them, the loop asks [`TlsStream::wants_write`] whether to wait until the socket can be written
//! to, and [`TlsStream::has_plaintext`] whether there is something to read that no event of the
//! socket will tell of.

use std::cell::Cell;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use rustls::{ServerConfig, ServerConnection};

/// How much is taken off a socket at once, bytes: four records of the largest kind.
const RECEIVE_BYTES: usize = 64 * 1024 + 1024;
/// How much may wait to be sent on one connection, bytes: a few records, so that a large reply is
/// encrypted as it leaves.
const SEND_LIMIT_BYTES: usize = 128 * 1024;

thread_local! {
    /// What has just been received and is not decrypted yet. It is at a connection only while that
    /// reads, or has read less than came: so one that is idle has no such buffer.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The server's end of a TLS connection. It belongs to one thread at a time.
#[derive(Debug)]
pub(crate) struct TlsStream {
    connection: ServerConnection,
    /// What was received and not decrypted yet: from `decrypted` on.
    received: Vec<u8>,
    decrypted: usize,
    /// Bytes that `connection` has decrypted and that were not read yet.
    plaintext: usize,
    /// What ended it. Nothing is received after that.
    ended: Option<End>,
}

#[derive(Clone, Debug)]
enum End {
    /// The peer has said that it sends no more. It may wait for the server to do the same.
    Clean,
    Tls(rustls::Error),
    /// The peer closed the socket without saying that it would: it may have been cut off.
    Truncated,
}

impl TlsStream {
    /// A connection that the client is about to begin.
    ///
    /// # Errors
    /// If `config` cannot be used, which [`super::server_config`] rules out.
    pub(crate) fn new(config: Arc<ServerConfig>) -> io::Result<TlsStream> {
        let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(SEND_LIMIT_BYTES));
        Ok(TlsStream { connection, received: Vec::new(), decrypted: 0, plaintext: 0, ended: None })
    }

    /// Reads what the peer has sent. As long as the handshake runs, this drives it.
    ///
    /// Like `read`, it may bring less than there is: call it until it would block.
    ///
    /// # Errors
    /// `WouldBlock`; `UnexpectedEof` if the connection ends without the peer's word, so that what
    /// was read may not be all; `InvalidData` if it breaks the protocol or has no valid
    /// certificate; whatever the socket says. After any but the first the connection is of no use.
    /// Ok(0) is its clean end.
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

    /// Takes what the socket has; 0 at its end.
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

    /// Decrypts a part of what was received.
    fn decrypt(&mut self, socket: impl AsFd) {
        let mut rest = &self.received[self.decrypted..];
        let before = rest.len();
        // It takes a few KiB. It would refuse only with plaintext that waits, and there is none.
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
            // Whatever follows is not looked at.
            self.decrypted = self.received.len();
        }
        // The handshake goes on, or the peer is told what is wrong. What cannot be sent now waits:
        // `wants_write` tells of it.
        let _ = self.send(&socket);
    }

    /// The socket has ended.
    fn end(&mut self) -> End {
        // Zero bytes tell it of the end.
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

    /// Encrypts and sends. What it says it took will be sent: by itself as far as the socket
    /// takes it, the rest by later calls of this or of [`TlsStream::flush`].
    ///
    /// # Errors
    /// `WouldBlock` if it took nothing: enough waits to be sent already, or the handshake is not
    /// over. Whatever the socket says: the connection is of no use then.
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
                // The next call says it again.
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

    /// Sends what waits to be sent.
    ///
    /// # Errors
    /// `WouldBlock` if the socket does not take all of it; whatever else it says.
    pub(crate) fn flush(&mut self, socket: impl AsFd) -> io::Result<()> {
        self.send(socket)?;
        if self.wants_write() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    }

    /// Sends as much as the socket takes.
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

    /// Whether something waits until the socket can be written to.
    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether [`TlsStream::read`] should be called though the socket may have nothing to read.
    pub(crate) fn has_plaintext(&self) -> bool {
        self.plaintext > 0 || self.received.len() > self.decrypted
    }

    /// Tells the peer that nothing more comes, as far as the socket takes it at once. Call
    /// [`TlsStream::flush`] for the rest, before the socket is closed.
    pub(crate) fn close_notify(&mut self, socket: impl AsFd) {
        self.connection.send_close_notify();
        let _ = self.send(socket);
    }

    /// The version and the cipher, for the log: `TLSv1_3 TLS13_AES_256_GCM_SHA384`.
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

/// A socket as something to write to.
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
