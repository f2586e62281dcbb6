//! SET_BACKEND_REQ_FD: the message by which a front end passes the socket of the backend channel.
//!
//! The crate `vhost` wraps this socket in a type that sends other messages only and does not return
//! it. So this module receives the message itself: it peeks at the number of each message before
//! the crate receives it.

use super::refusal::{Refusal, refuse};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketType,
    recv, recvmsg, send,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Number of the message.
const SET_BACKEND_REQ_FD: u32 = 21;
/// Length of a header: number, flags, and length of the body.
const HEADER_LEN: usize = 12;
/// Flags of a header: the version of the protocol, and bits.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
/// Most descriptors that are received, one more than there may be. The kernel closes the rest.
const MAX_FDS: usize = 2;

/// The message as received.
#[derive(Debug)]
pub(super) struct SetBackendFd {
    flags: u32,
    body_len: u32,
    fds: Vec<OwnedFd>,
}

/// Waits for a message, and receives it if it is this one.
///
/// # Errors
/// Returns the system's error. A stream that ends within the message has none: the next message is
/// then received by the crate, which reports the end.
pub(super) fn receive(stream: &UnixStream) -> Result<Option<SetBackendFd>, Errno> {
    let mut number = [0; 4];
    let peeked = loop {
        match recv(stream, &mut number[..], RecvFlags::PEEK) {
            Err(Errno::INTR) => {}
            result => break result?.1,
        }
    };
    if peeked < number.len() || u32::from_ne_bytes(number) != SET_BACKEND_REQ_FD {
        return Ok(None);
    }
    let (mut header, mut at, mut fds) = ([0; HEADER_LEN], 0, Vec::new());
    while at < HEADER_LEN {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut header[at..])];
        match recvmsg(stream, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            Ok(received) if received.bytes > 0 => at += received.bytes,
            Ok(_) => return Ok(None),
            Err(error) => return Err(error),
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
    }
    let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().expect("four bytes"));
    Ok(Some(SetBackendFd { flags: word(4), body_len: word(8), fds }))
}

impl SetBackendFd {
    /// Sends the reply, if the message demands one.
    pub(super) fn reply(&self, stream: &UnixStream, is_accepted: bool) -> Result<(), Errno> {
        if self.flags & NEED_REPLY == 0 {
            return Ok(());
        }
        let header = [SET_BACKEND_REQ_FD, VERSION | REPLY, 8].map(u32::to_ne_bytes).concat();
        let reply = [&header[..], &u64::from(!is_accepted).to_ne_bytes()].concat();
        let mut rest = &reply[..];
        while !rest.is_empty() {
            match send(stream, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the socket.
    ///
    /// # Errors
    /// Returns an error if the message is malformed, or has no stream socket.
    pub(super) fn socket(&mut self) -> Result<OwnedFd, Refusal> {
        if self.flags & !NEED_REPLY != VERSION || self.body_len != 0 {
            return Err(refuse(format_args!(
                "flags {:#x} and a body of {} bytes: expected version {VERSION} and no body",
                self.flags, self.body_len
            )));
        }
        let (Some(socket), true) = (self.fds.pop(), self.fds.is_empty()) else {
            return Err(refuse("expected one descriptor"));
        };
        let is_unix = socket_domain(&socket) == Ok(AddressFamily::UNIX);
        let is_stream = socket_type(&socket) == Ok(SocketType::STREAM);
        match is_unix && is_stream {
            true => Ok(socket),
            false => Err(refuse("the descriptor is not a unix stream socket")),
        }
    }
}
