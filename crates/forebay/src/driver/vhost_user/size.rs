//! GET_CONFIG on an open device: reads its size again.
//!
//! This is the only message after the handshake. Its reply arrives at the stream that all queues
//! watch for the end of the connection. So each thread that finds the stream readable receives what
//! there is ([`Exchange::receive`]), and the reply is complete for the thread that has asked. If
//! that thread has given up, the reply to a later call follows the one that is left.

use super::config::LEN;
use crate::driver::socket::send_now;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;

/// Number of the message, and its flags: the version of the protocol, and the bit of a reply.
const GET_CONFIG: u32 = 24;
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
/// Lengths of a message's header, and of the fields before the bytes of the configuration.
const HEADER: usize = 12;
const FIELDS: usize = 12;

/// The exchange of a message and its reply.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// Whether a reply is due.
    is_due: bool,
    /// The bytes of it that have arrived.
    reply: Vec<u8>,
    /// The last reply: the capacity in bytes, or why the server has none.
    outcome: Option<Result<u64, String>>,
}

impl Exchange {
    /// Returns whether a reply is due.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Returns the outcome of the last message, once.
    pub(super) fn take_outcome(&mut self) -> Option<Result<u64, String>> {
        self.outcome.take()
    }

    /// Sends the message. No reply may be due.
    ///
    /// # Errors
    /// Fails if the server does not read its messages, or the connection is lost.
    pub(super) fn ask(&mut self, stream: &UnixStream) -> io::Result<()> {
        assert!(!self.is_due, "replies come in order");
        let words = [GET_CONFIG, VERSION, (FIELDS + LEN) as u32, 0, LEN as u32, 0];
        let message = [&words.map(u32::to_ne_bytes).concat()[..], &[0; LEN]].concat();
        let sent = send_now(stream, &message)?;
        // Linux takes such a short message whole or not at all.
        if sent < message.len() {
            return Err(io::Error::other("the server does not read its messages"));
        }
        (self.is_due, self.outcome) = (true, None);
        Ok(())
    }

    /// Receives what has arrived. Does not block: the stream must be non-blocking.
    ///
    /// # Errors
    /// Returns the reason if the connection has ended, or the server breaks the protocol.
    pub(super) fn receive(&mut self, stream: &UnixStream) -> Result<(), String> {
        loop {
            let missing = self.missing()?;
            let mut bytes = [0; HEADER + FIELDS + LEN];
            // Without a reply that is due, any byte is one too many.
            match (&mut &*stream).read(&mut bytes[..missing.max(1)]) {
                Ok(0) => return Err("the server has closed the connection".to_owned()),
                Ok(_) if missing == 0 => return Err(broken("it has sent an unexpected message")),
                Ok(nr) => self.reply.extend_from_slice(&bytes[..nr]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::ConnectionReset => {
                        return Err("the server has closed the connection".to_owned());
                    }
                    _ => return Err(format!("the connection is lost: {error}")),
                },
            }
            if self.missing()? == 0 {
                self.outcome = Some(capacity(&self.reply[HEADER..]));
                (self.is_due, self.reply) = (false, Vec::new());
            }
        }
    }

    /// Returns how many bytes of the reply are missing.
    fn missing(&self) -> Result<usize, String> {
        let Some(header) = self.reply.get(..HEADER) else {
            return Ok(if self.is_due { HEADER - self.reply.len() } else { 0 });
        };
        let [code, flags, len] = words(header);
        let is_reply = code == GET_CONFIG && flags & 0b111 == VERSION | REPLY;
        // An empty reply is an error.
        let len = Some(len as usize).filter(|len| [0, FIELDS + LEN].contains(len));
        match (is_reply, len) {
            (true, Some(len)) => Ok(HEADER + len - self.reply.len()),
            _ => Err(broken("its reply to GET_CONFIG is malformed")),
        }
    }
}

/// Returns the capacity in the body of a reply.
fn capacity(body: &[u8]) -> Result<u64, String> {
    let Some((fields, space)) = body.split_at_checked(FIELDS) else {
        return Err("the server refuses GET_CONFIG: see its log".to_owned());
    };
    let [offset, len, _] = words(fields);
    let sectors = u64::from_le_bytes(space[..8].try_into().expect("eight bytes"));
    let bytes = sectors.checked_mul(512).filter(|bytes| *bytes <= i64::MAX as u64);
    match bytes.filter(|_| offset == 0 && len as usize == LEN) {
        Some(bytes) => Ok(bytes),
        None => Err(format!("the server reports a configuration with {sectors} sectors")),
    }
}

/// Returns the numbers of twelve bytes.
fn words(bytes: &[u8]) -> [u32; 3] {
    [0, 4, 8].map(|at| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes")))
}

fn broken(why: &str) -> String {
    format!("the server breaks the protocol: {why}")
}

#[cfg(test)]
mod tests;
