//! A connection as its front sees it: a byte stream over a socket, with TLS or without.

use crate::listen;
use crate::metrics::OpenConnection;
use crate::tenant::Seat;
use crate::tls::TlsStream;
use forebay_front::nbd::Stream;
use forebay_front::{Peer, RequestKind};
use rustix::net::SendFlags;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

/// One client connection, from accept to close.
#[derive(Debug)]
pub(super) struct Client {
    fd: OwnedFd,
    peer: listen::Peer,
    counters: OpenConnection,
    transport: Transport,
    /// Its place among the clients of its export. `None` before it has chosen one.
    seat: Option<Seat>,
}

/// Transport of the bytes of a connection.
#[derive(Debug)]
enum Transport {
    Plain,
    Tls(Box<TlsStream>),
}

impl Client {
    pub(super) fn new(fd: OwnedFd, peer: listen::Peer, counters: OpenConnection) -> Client {
        Client { fd, peer, counters, transport: Transport::Plain, seat: None }
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(super) fn peer(&self) -> listen::Peer {
        self.peer
    }

    pub(super) fn counters(&self) -> &OpenConnection {
        &self.counters
    }

    /// Returns its place among the clients of its export.
    #[inline]
    pub(super) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    pub(super) fn set_seat(&mut self, seat: Seat) {
        self.seat = Some(seat);
    }

    /// Takes its place, because the client is gone.
    pub(super) fn take_seat(&mut self) -> Option<Seat> {
        self.seat.take()
    }

    /// Returns the TLS stream, if there is one.
    pub(super) fn tls(&self) -> Option<&TlsStream> {
        match &self.transport {
            Transport::Plain => None,
            Transport::Tls(tls) => Some(tls),
        }
    }

    /// Encrypts all further bytes.
    pub(super) fn set_tls(&mut self, tls: TlsStream) {
        self.transport = Transport::Tls(Box::new(tls));
    }
}

impl Peer for Client {
    #[inline]
    fn begin(&mut self, kind: RequestKind) {
        self.counters.begin(kind);
    }

    #[inline]
    fn end(&mut self, kind: RequestKind, bytes: u64) {
        self.counters.end(kind, bytes);
    }

    fn fail(&mut self) {
        self.counters.fail();
    }

    fn set_export(&mut self, export: usize) {
        self.counters.set_export(export);
    }

    /// Sends the close_notify of TLS.
    fn say_goodbye(&mut self) {
        if let Transport::Tls(tls) = &mut self.transport {
            tls.close_notify(&self.fd);
        }
    }
}

impl Stream for Client {
    fn receive(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let received = match &mut self.transport {
            Transport::Plain => rustix::io::readv(&self.fd, slices)?,
            Transport::Tls(tls) => {
                let first = slices.iter_mut().find(|slice| !slice.is_empty());
                tls.read(&self.fd, first.expect("there is room"))?
            }
        };
        self.counters.received(received as u64);
        Ok(received)
    }

    #[inline]
    fn has_received(&self) -> bool {
        match &self.transport {
            Transport::Plain => false,
            Transport::Tls(tls) => tls.has_plaintext(),
        }
    }

    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let sent = match &mut self.transport {
            Transport::Plain => {
                let mut no_descriptors = rustix::net::SendAncillaryBuffer::default();
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                rustix::net::sendmsg(&self.fd, slices, &mut no_descriptors, flags)?
            }
            Transport::Tls(tls) => tls.write_vectored(&self.fd, slices)?,
        };
        self.counters.sent(sent as u64);
        Ok(sent)
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.transport {
            Transport::Plain => Ok(()),
            Transport::Tls(tls) => tls.flush(&self.fd),
        }
    }

    #[inline]
    fn wants_send(&self) -> bool {
        match &self.transport {
            Transport::Plain => false,
            Transport::Tls(tls) => tls.wants_write(),
        }
    }
}
