//! An independent NBD client with blocking calls and timeouts, which sends any bytes, valid or not.
//! It shares no code with the server, so that both cannot have the same mistake.

use std::io::{ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
pub(crate) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const STRUCTURED_REPLY: u32 = 0x668e_33ef;
const EXTENDED_REQUEST: u32 = 0x21e4_1c71;
const EXTENDED_REPLY: u32 = 0x6e8a_278c;

/// Options of the handshake.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
    pub(crate) const EXTENDED_HEADERS: u32 = 11;
}

/// Reply types of options.
pub(crate) mod answer {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const ERROR: u32 = 1 << 31;
}

/// Commands.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
    pub(crate) const FUA: u16 = 1;
    pub(crate) const PAYLOAD_LEN: u16 = 1 << 5;
}

/// A reply to an option: the option, the reply type, and its data.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) option: u32,
    pub(crate) kind: u32,
    pub(crate) data: Vec<u8>,
}

/// A reply to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    pub(crate) error: u32,
}

/// Framing of requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Simple,
    Structured,
    Extended,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    pub(crate) size_bytes: u64,
    /// The negotiated framing; the caller sets it after the negotiation.
    pub(crate) framing: Framing,
    next_cookie: u64,
}

impl Client {
    /// Connects and receives the greeting, without an answer.
    pub(crate) fn greeted(socket: &Path) -> Result<Client> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_write_timeout(Some(Duration::from_secs(30)))?;
        let framing = Framing::Simple;
        let mut client = Client { stream, size_bytes: 0, framing, next_cookie: 1 };
        let greeting: [u8; 18] = client.take()?;
        assert_eq!(greeting[..8], NBDMAGIC.to_be_bytes());
        assert_eq!(greeting[8..16], IHAVEOPT.to_be_bytes());
        Ok(client)
    }

    /// Connects, and answers the greeting with the client flags fixed newstyle and no zeroes.
    pub(crate) fn haggling(socket: &Path) -> Result<Client> {
        let mut client = Client::greeted(socket)?;
        client.stream.write_all(&3u32.to_be_bytes())?;
        Ok(client)
    }

    /// Connects to an export by name, with simple replies.
    pub(crate) fn connect(socket: &Path, name: &str) -> Result<Client> {
        let mut client = Client::haggling(socket)?;
        client.go(name)?;
        Ok(client)
    }

    /// Sends `GO` and receives its replies.
    pub(crate) fn go(&mut self, name: &str) -> Result<()> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend(0u16.to_be_bytes());
        self.option(option::GO, &data)?;
        loop {
            let answer = self.answer()?;
            match answer.kind {
                answer::ACK => return Ok(()),
                answer::INFO if answer.data[..2] == [0, 0] => {
                    let size = answer.data[2..10].try_into().expect("eight bytes");
                    self.size_bytes = u64::from_be_bytes(size);
                }
                answer::INFO => {}
                kind => return Err(std::io::Error::other(format!("GO was refused: {kind:#x}"))),
            }
        }
    }

    /// Sends an option.
    pub(crate) fn option(&mut self, option: u32, data: &[u8]) -> Result<()> {
        self.option_of_len(option, data.len() as u32, data)
    }

    /// Sends an option with an announced length that may differ from the length of its data.
    pub(crate) fn option_of_len(&mut self, option: u32, len: u32, data: &[u8]) -> Result<()> {
        let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes)
    }

    /// Receives one reply to an option.
    pub(crate) fn answer(&mut self) -> Result<Answer> {
        let head: [u8; 20] = self.take()?;
        assert_eq!(head[..8], OPTION_REPLY.to_be_bytes(), "an answer");
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let mut data = vec![0; word(16) as usize];
        self.stream.read_exact(&mut data)?;
        Ok(Answer { option: word(8), kind: word(12), data })
    }

    /// Returns the cookie of the next request.
    pub(crate) fn next_cookie(&self) -> u64 {
        self.next_cookie
    }

    /// Sends a request, and returns its cookie.
    pub(crate) fn send(
        &mut self,
        (command, flags): (u16, u16),
        offset: u64,
        len: u32,
        payload: &[u8],
    ) -> Result<u64> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let mut bytes = if self.framing == Framing::Extended {
            let has_payload = if command == command::WRITE { command::PAYLOAD_LEN } else { 0 };
            let head = request((command, flags | has_payload), cookie, offset, 0);
            let len = u64::from(len).to_be_bytes();
            [&EXTENDED_REQUEST.to_be_bytes(), &head[4..24], &len[..]].concat()
        } else {
            request((command, flags), cookie, offset, len).to_vec()
        };
        bytes.extend(payload);
        self.stream.write_all(&bytes)?;
        Ok(cookie)
    }

    /// Receives the header of a simple reply.
    pub(crate) fn reply(&mut self) -> Result<Reply> {
        let magic = u32::from_be_bytes(self.take()?);
        assert_eq!(magic, SIMPLE_REPLY, "a simple reply");
        self.simple()
    }

    /// Receives the rest of a simple reply, after its magic number.
    fn simple(&mut self) -> Result<Reply> {
        let error = u32::from_be_bytes(self.take()?);
        Ok(Reply { error, cookie: u64::from_be_bytes(self.take()?) })
    }

    /// Receives the whole reply to a request, in any framing. Returns its error, and copies its
    /// content into `data`, which begins at `offset` of the disk.
    pub(crate) fn whole(&mut self, cookie: u64, offset: u64, data: &mut [u8]) -> Result<u32> {
        let magic = u32::from_be_bytes(self.take()?);
        if magic == SIMPLE_REPLY && self.framing != Framing::Extended {
            // Only replies to reads must be structured.
            let reply = self.simple()?;
            assert_eq!(reply.cookie, cookie, "the reply to something else");
            if reply.error == 0 {
                self.stream.read_exact(data)?;
            }
            return Ok(reply.error);
        }
        self.chunks(magic, cookie, offset, data)
    }

    /// Receives a reply in chunks, after the first magic number.
    fn chunks(&mut self, magic: u32, cookie: u64, offset: u64, data: &mut [u8]) -> Result<u32> {
        let mut magic = Some(magic);
        let mut error = 0;
        loop {
            let magic = magic.take().map_or_else(|| self.take().map(u32::from_be_bytes), Ok)?;
            let (is_last, kind, body) = self.chunk(magic, cookie)?;
            let place = |at: u64| (at - offset) as usize;
            let word =
                |at: usize| u64::from_be_bytes(body[at..at + 8].try_into().expect("8 bytes"));
            match kind {
                1 => data[place(word(0))..][..body.len() - 8].copy_from_slice(&body[8..]),
                // The range of a hole is already zero in `data`.
                0 | 2 | 5 | 6 => {}
                _ if kind & 0x8000 != 0 => {
                    error = u32::from_be_bytes(body[..4].try_into().expect("4 bytes"));
                    let text = u16::from_be_bytes([body[4], body[5]]) as usize;
                    assert!(text <= 4096 && text <= body.len() - 6, "the length of a message");
                }
                _ => panic!("a chunk of kind {kind}"),
            }
            if is_last {
                return Ok(error);
            }
        }
    }

    /// Receives one chunk of a reply after its magic number. Returns whether it is the last one,
    /// its type, and its payload.
    fn chunk(&mut self, magic: u32, cookie: u64) -> Result<(bool, u16, Vec<u8>)> {
        let is_extended = self.framing == Framing::Extended;
        let expected = if is_extended { EXTENDED_REPLY } else { STRUCTURED_REPLY };
        assert_eq!(magic, expected, "a chunk of a reply");
        let mut head = vec![0; if is_extended { 28 } else { 16 }];
        self.stream.read_exact(&mut head)?;
        assert_eq!(head[4..12], cookie.to_be_bytes(), "the reply to something else");
        let len = head[head.len() - 4..].try_into().expect("4 bytes");
        let mut body = vec![0; u32::from_be_bytes(len) as usize];
        self.stream.read_exact(&mut body)?;
        Ok((head[1] & 1 != 0, u16::from_be_bytes([head[2], head[3]]), body))
    }

    /// Receives a structured reply of one chunk to any request. Returns its cookie.
    pub(crate) fn cookie_of_chunk(&mut self) -> Result<u64> {
        let head: [u8; 20] = self.take()?;
        assert_eq!(head[..4], STRUCTURED_REPLY.to_be_bytes(), "a chunk of a reply");
        let len = u32::from_be_bytes(head[16..].try_into().expect("4 bytes"));
        self.stream.read_exact(&mut vec![0; len as usize])?;
        Ok(u64::from_be_bytes(head[8..16].try_into().expect("8 bytes")))
    }

    /// Sends a request, and waits for its reply.
    pub(crate) fn ask(
        &mut self,
        command: (u16, u16),
        offset: u64,
        len: u32,
        payload: &[u8],
    ) -> Result<u32> {
        let cookie = self.send(command, offset, len, payload)?;
        self.whole(cookie, offset, &mut [])
    }

    /// Reads a range.
    pub(crate) fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>> {
        let cookie = self.send((command::READ, 0), offset, len, &[])?;
        let mut data = vec![0; len as usize];
        match self.whole(cookie, offset, &mut data)? {
            0 => Ok(data),
            error => Err(std::io::Error::from_raw_os_error(error as i32)),
        }
    }

    /// Receives `N` bytes.
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns whether the server closes the connection. Discards any earlier bytes.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::ConnectionReset,
            }
        }
    }
}

/// Returns the header of a request.
pub(crate) fn request(
    (command, flags): (u16, u16),
    cookie: u64,
    offset: u64,
    len: u32,
) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[..4].copy_from_slice(&REQUEST.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&command.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&len.to_be_bytes());
    bytes
}
