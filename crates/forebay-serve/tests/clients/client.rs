//! A client that keeps no rules but those of the wire.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const CACHE: u16 = 5;
/// The flag of a read whose data are to come in one chunk.
pub(crate) const DF: u16 = 4;

const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const SET_META_CONTEXT: u32 = 10;
const ACK: u32 = 1;

/// A connection that has chosen an export.
pub(crate) struct Client {
    pub(crate) socket: UnixStream,
}

/// A reply, or a part of one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    pub(crate) error: u32,
    /// What it is: 1 are data, with their offset before them. A simple reply has none.
    pub(crate) kind: Option<u16>,
    pub(crate) is_last: bool,
    pub(crate) payload: Vec<u8>,
}

/// A request's bytes. What a write carries comes behind them.
pub(crate) fn request(command: u16, flags: u16, cookie: u64, at: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(at.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

impl Client {
    /// Connects and chooses the export `name`, with structured replies and `base:allocation` or
    /// with simple replies.
    pub(crate) fn new(socket: &Path, name: &str, is_structured: bool) -> Client {
        let socket = UnixStream::connect(socket).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut client = Client { socket };
        client.take(18);
        client.socket.write_all(&3u32.to_be_bytes()).unwrap();
        let mut named = (name.len() as u32).to_be_bytes().to_vec();
        named.extend(name.as_bytes());
        if is_structured {
            client.option(STRUCTURED_REPLY, &[]);
            let mut query = named.clone();
            query.extend([0, 0, 0, 1, 0, 0, 0, 15]);
            query.extend(b"base:allocation");
            client.option(SET_META_CONTEXT, &query);
        }
        named.extend([0, 0]);
        client.option(GO, &named);
        client
    }

    /// Sends an option, and takes its replies, up to the last.
    fn option(&mut self, option: u32, data: &[u8]) {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.socket.write_all(&bytes).unwrap();
        loop {
            let head = self.take(20);
            let [kind, len] = [12, 16].map(|at| number(&head[at..at + 4]) as u32);
            self.take(len as usize);
            assert!(kind < 1 << 31, "option {option} was refused: {kind:#x}");
            if kind == ACK {
                return;
            }
        }
    }

    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Takes some bytes of what has come, however many.
    pub(crate) fn some(&mut self, into: &mut [u8]) -> usize {
        loop {
            match self.socket.read(into) {
                // A thread that was stopped meanwhile, as by a debugger, gets this.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read.expect("the server sends"),
            }
        }
    }

    /// Takes the next reply. Behind a simple one that is no error come the bytes that `read_len`
    /// says for its cookie.
    pub(crate) fn reply(&mut self, read_len: impl Fn(u64) -> usize) -> Reply {
        let magic = number(&self.take(4));
        if magic == 0x6744_6698 {
            let head = self.take(12);
            let (error, cookie) = (number(&head[..4]) as u32, number(&head[4..]));
            let payload = self.take(if error == 0 { read_len(cookie) } else { 0 });
            return Reply { cookie, error, kind: None, is_last: true, payload };
        }
        assert_eq!(magic, 0x668e_33ef, "the stream is out of step");
        let head = self.take(16);
        let kind = number(&head[2..4]) as u16;
        let payload = self.take(number(&head[12..]) as usize);
        let error = if kind >= 1 << 15 { number(&payload[..4]) as u32 } else { 0 };
        let (cookie, is_last) = (number(&head[4..12]), head[1] & 1 == 1);
        Reply { cookie, error, kind: Some(kind), is_last, payload }
    }

    /// One request without payloads, and its error.
    pub(crate) fn ask(&mut self, command: u16, at: u64, len: u32) -> u32 {
        self.socket.write_all(&request(command, 0, 0, at, len)).unwrap();
        self.reply(|_| if command == READ { len as usize } else { 0 }).error
    }
}

/// The number in these bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
