//! TLS session over a socket, which `nbds://` requires.
//!
//! Certificates are in a folder with the layout of libnbd, nbdkit and QEMU (`tls-certificates`):
//! `ca-cert.pem` with the trusted authorities, and optionally `client-cert.pem` and
//! `client-key.pem` of the client. Without a folder the session trusts the authorities of the
//! system. The server's certificate is always checked unless `tls-verify-peer=false` is set. The
//! name in it must be that of the host, or `tls-hostname`.
//!
//! A session encrypts its input at once, so no call uses requests' memory after it returns.
// It makes slices of the memory of requests, and system calls on it.
#![allow(unsafe_code)]

mod config;

pub(super) use config::Credentials;

use crate::driver::deadline::Deadline;
use crate::driver::socket::Socket;
use crate::driver::vectors::Vector;
use rustls::ClientConnection;
use std::io::{self, Read, Write};

/// The client side of a session.
#[derive(Debug)]
pub(super) struct TlsStream {
    socket: Socket,
    session: Box<ClientConnection>,
}

/// A reader and writer over a socket.
struct Wire<'a> {
    socket: &'a Socket,
    waits: bool,
}

impl Read for Wire<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the memory is all of `buf`.
        unsafe { self.socket.recv(&[Vector::of_mut(buf)], self.waits) }
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        // SAFETY: the memory is all of `buf`.
        unsafe { self.socket.send(&[Vector::of(buf)], self.waits) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsStream {
    /// Begins a session before the deadline.
    ///
    /// # Errors
    /// Returns why there is none, and what to do.
    pub(super) fn start(
        socket: Socket,
        credentials: &Credentials,
        deadline: Deadline,
    ) -> Result<Self, String> {
        let mut session = Box::new(credentials.session()?);
        while session.is_handshaking() || session.wants_write() {
            let left = deadline.time_left().and_then(|left| socket.set_timeout(Some(left)));
            left.map_err(|error| failed(&error))?;
            let mut wire = Wire { socket: &socket, waits: true };
            let moved = match session.wants_write() {
                true => session.write_tls(&mut wire),
                false => session.read_tls(&mut wire),
            };
            match moved {
                Ok(0) => {
                    return Err(String::from("the server has closed the connection during TLS"));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error)),
            }
            if let Err(error) = session.process_new_packets() {
                // Sends the alert to the server, if it still reads.
                let _ = session.write_tls(&mut Wire { socket: &socket, waits: false });
                return Err(config::refused(&error));
            }
        }
        Ok(TlsStream { socket, session })
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns whether encrypted bytes wait to be sent.
    pub(super) fn holds_back(&self) -> bool {
        self.session.wants_write()
    }

    /// Encrypts some of this memory and sends what it can. An empty list sends the rest.
    ///
    /// # Safety
    /// The memory is readable.
    pub(super) unsafe fn send(&mut self, list: &[Vector], waits: bool) -> io::Result<usize> {
        // Encrypted bytes go first, so that few of them accumulate.
        self.flush(waits)?;
        let mut nr = 0;
        for vector in list {
            // SAFETY: the caller guarantees it.
            let bytes = unsafe { std::slice::from_raw_parts(vector.addr().cast(), vector.len()) };
            let taken = self.session.writer().write(bytes)?;
            nr += taken;
            if taken < bytes.len() {
                break;
            }
        }
        match self.flush(waits) {
            // Accepted bytes are sent later.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(nr),
        }
    }

    fn flush(&mut self, waits: bool) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Wire { socket: &self.socket, waits }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Decrypts received bytes into this memory. Fills less than all of it only if there are no
    /// more.
    ///
    /// # Safety
    /// The memory is writable, and nothing else uses it.
    pub(super) unsafe fn recv(&mut self, list: &[Vector], waits: bool) -> io::Result<usize> {
        let mut nr = 0;
        let mut rest = list.iter().copied();
        let mut place = rest.next();
        while let Some(vector) = place {
            // SAFETY: the caller guarantees it. All of the memory is initialized: that of a read
            // was given by its owner as initialized bytes.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(vector.addr().cast(), vector.len()) };
            match self.session.reader().read(bytes) {
                // The server has closed the stream.
                Ok(0) if !bytes.is_empty() => return Ok(nr),
                Ok(len) => {
                    nr += len;
                    let left = vector.part(len, usize::MAX);
                    place = if left.len() > 0 { Some(left) } else { rest.next() };
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.take(waits && nr == 0) {
                        Ok(()) => {}
                        Err(_) if nr > 0 => return Ok(nr),
                        Err(error) => return Err(error),
                    }
                }
                Err(_) if nr > 0 => return Ok(nr),
                Err(error) => return Err(error),
            }
        }
        Ok(nr)
    }

    /// Receives from the socket, and decrypts.
    fn take(&mut self, waits: bool) -> io::Result<()> {
        self.session.read_tls(&mut Wire { socket: &self.socket, waits })?;
        match self.session.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }

    /// Announces the end of the stream, if that is possible without waiting.
    pub(super) fn close(&mut self) {
        self.session.send_close_notify();
        let _ = self.flush(false);
    }
}

fn failed(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            String::from("the server does not go on with TLS in time")
        }
        _ => format!("TLS: {error}"),
    }
}
