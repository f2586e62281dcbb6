//! A TLS session over a socket: what `nbds://` insists on.
//!
//! Certificates are in a folder that is laid out as libnbd, nbdkit and QEMU know it
//! (`tls-certificates`): `ca-cert.pem`, whom to trust, and perhaps `client-cert.pem` and
//! `client-key.pem`, who we are. Without a folder those are trusted whom the system trusts. The
//! server's certificate is always checked unless `tls-verify-peer=false` says otherwise; the name
//! in it is that of the host, or `tls-hostname`.
//!
//! A session encrypts what it is given at once, so requests' memory is not used after a call.
// It makes slices of the memory of requests, and system calls on it.
#![allow(unsafe_code)]

mod config;

pub(super) use config::Credentials;

use super::socket::{Deadline, Socket};
use crate::driver::vectors::Vector;
use rustls::ClientConnection;
use std::io::{self, Read, Write};

/// The client's end of a session.
#[derive(Debug)]
pub(super) struct TlsStream {
    socket: Socket,
    session: Box<ClientConnection>,
}

/// A socket as something to read from and write to.
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
    /// Begins a session, before the deadline.
    ///
    /// # Errors
    /// Why there is none, and what to do.
    pub(super) fn start(
        socket: Socket,
        credentials: &Credentials,
        deadline: Deadline,
    ) -> Result<Self, String> {
        let mut session = Box::new(credentials.session()?);
        while session.is_handshaking() || session.wants_write() {
            let left = deadline.left().and_then(|left| socket.set_timeout(Some(left)));
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
                // The server is told, if it listens.
                let _ = session.write_tls(&mut Wire { socket: &socket, waits: false });
                return Err(config::refused(&error));
            }
        }
        Ok(TlsStream { socket, session })
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Whether something is encrypted and not sent.
    pub(super) fn holds_back(&self) -> bool {
        self.session.wants_write()
    }

    /// Encrypts some of this memory, and sends what it can. May be given none, to send the rest.
    ///
    /// # Safety
    /// The memory can be read.
    pub(super) unsafe fn send(&mut self, list: &[Vector], waits: bool) -> io::Result<usize> {
        // What is encrypted goes first, so that there is never much of it.
        self.flush(waits)?;
        let mut nr = 0;
        for vector in list {
            // SAFETY: the caller vouches for it.
            let bytes = unsafe { std::slice::from_raw_parts(vector.addr().cast(), vector.len()) };
            let taken = self.session.writer().write(bytes)?;
            nr += taken;
            if taken < bytes.len() {
                break;
            }
        }
        match self.flush(waits) {
            // What was taken will be sent.
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

    /// Decrypts into this memory what has come: less than there is room for only if there is no
    /// more.
    ///
    /// # Safety
    /// The memory can be written to, and nobody else uses it.
    pub(super) unsafe fn recv(&mut self, list: &[Vector], waits: bool) -> io::Result<usize> {
        let mut nr = 0;
        let mut rest = list.iter().copied();
        let mut place = rest.next();
        while let Some(vector) = place {
            // SAFETY: the caller vouches for it. It may not be initialized only where it is the
            // memory of a read, which its owner gave as initialized bytes.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(vector.addr().cast(), vector.len()) };
            match self.session.reader().read(bytes) {
                // The server has said that it sends no more.
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

    /// Takes what the socket has, and decrypts it.
    fn take(&mut self, waits: bool) -> io::Result<()> {
        self.session.read_tls(&mut Wire { socket: &self.socket, waits })?;
        match self.session.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }

    /// Says that nothing more comes, if that is possible without waiting.
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
