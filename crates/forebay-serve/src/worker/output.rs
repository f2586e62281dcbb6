//! What is on its way to a client: heads of replies and their data, in order.
//!
//! Replies are gathered while a worker serves what it has read, and leave in one vectored write.

use crate::pool::Pool;
use forebay::Buf;
use std::collections::VecDeque;
use std::io::{self, IoSlice};

/// How many pieces of memory one write is made of at most.
const SLICES_MAX: usize = 256;

/// While so many bytes of heads wait, no more requests of the client are looked at: they are not of
/// the pool, and so nothing else bounds them.
pub(crate) const HEADS_MAX: usize = 64 << 10;

/// A part of the stream.
#[derive(Debug)]
enum Part {
    /// So many bytes of `Output::heads`.
    Heads(usize),
    /// The first `len` bytes of a piece of the pool.
    Data { buf: Buf, len: usize },
}

/// The bytes that a client has yet to take.
#[derive(Debug, Default)]
pub(crate) struct Output {
    parts: VecDeque<Part>,
    /// The heads of replies that are in `parts`, one after another.
    heads: Vec<u8>,
    /// How many bytes of `heads` have been sent.
    heads_sent: usize,
    /// How many bytes of the first part have been sent.
    first_sent: usize,
    /// Bytes in all.
    len: usize,
}

impl Output {
    /// Whether there is nothing to be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes of heads are to be sent.
    pub(crate) fn heads_len(&self) -> usize {
        self.heads.len() - self.heads_sent
    }

    /// Adds bytes that are copied.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.heads.extend_from_slice(bytes);
        self.len += bytes.len();
        match self.parts.back_mut() {
            Some(Part::Heads(len)) => *len += bytes.len(),
            _ => self.parts.push_back(Part::Heads(bytes.len())),
        }
    }

    /// Adds the first `len` bytes of a piece, which goes back to the pool when they have been sent.
    #[inline]
    pub(crate) fn push_data(&mut self, buf: Buf, len: usize) {
        debug_assert!(0 < len && len <= buf.len());
        self.len += len;
        self.parts.push_back(Part::Data { buf, len });
    }

    /// Sends as much as `write` takes. Says how many bytes of the pool's came back.
    ///
    /// # Errors
    /// Those of `write`, but for `WouldBlock`: what is left then waits for the socket.
    pub(crate) fn send(
        &mut self,
        pool: &mut Pool,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut given_back = 0;
        while self.len > 0 {
            let (asked, sent) = {
                let slices = self.slices();
                (slices.iter().map(|slice| slice.len()).sum::<usize>(), write(&slices))
            };
            let sent = match sent {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            given_back += self.advance(sent, pool);
            if sent < asked {
                break; // the socket is full
            }
        }
        Ok(given_back)
    }

    /// The next bytes, in place.
    fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(self.parts.len().min(SLICES_MAX));
        let (mut head_at, mut skip) = (self.heads_sent, self.first_sent);
        for part in self.parts.iter().take(SLICES_MAX) {
            match part {
                Part::Heads(len) => {
                    slices.push(IoSlice::new(&self.heads[head_at..head_at + len - skip]));
                    head_at += len - skip;
                }
                Part::Data { buf, len } => slices.push(IoSlice::new(&buf[skip..*len])),
            }
            skip = 0;
        }
        slices
    }

    /// The first `sent` bytes are gone. Says how many bytes of the pool's came back.
    fn advance(&mut self, mut sent: usize, pool: &mut Pool) -> usize {
        let mut given_back = 0;
        self.len -= sent;
        while sent > 0 {
            let len = match self.parts.front() {
                Some(Part::Heads(len) | Part::Data { len, .. }) => *len - self.first_sent,
                None => unreachable!("no more is sent than there is"),
            };
            let now = len.min(sent);
            sent -= now;
            if let Some(Part::Heads(_)) = self.parts.front() {
                self.heads_sent += now;
            }
            if now < len {
                self.first_sent += now;
                break;
            }
            self.first_sent = 0;
            if let Some(Part::Data { buf, .. }) = self.parts.pop_front() {
                given_back += buf.len();
                pool.give(buf);
            }
        }
        // A client that is always a little behind would let it grow for ever.
        if self.heads_sent == self.heads.len() || self.heads_sent >= HEADS_MAX {
            self.heads.drain(..self.heads_sent);
            self.heads_sent = 0;
        }
        given_back
    }

    /// Drops everything: the client is gone. Says how many bytes of the pool's came back.
    pub(crate) fn clear(&mut self, pool: &mut Pool) -> usize {
        let mut given_back = 0;
        for part in self.parts.drain(..) {
            if let Part::Data { buf, .. } = part {
                given_back += buf.len();
                pool.give(buf);
            }
        }
        *self = Output::default();
        given_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However few bytes the socket takes at a time, the stream is the same, and all pieces return.
    #[test]
    fn the_stream_does_not_depend_on_what_the_socket_takes() {
        for takes in [7, 16, 4096, 100_000] {
            let mut pool = Pool::new(1 << 20);
            let mut output = Output::default();
            let mut expected = Vec::new();
            let mut lent = 0;
            for n in 0..40_u8 {
                output.push(&[n; 16]);
                expected.extend([n; 16]);
                if n % 3 == 0 {
                    output.push(&[n, 1, 2]);
                    expected.extend([n, 1, 2]);
                }
                if n % 2 == 0 {
                    let mut buf = pool.take(5000, 0).unwrap();
                    lent += buf.len();
                    buf[..5000].fill(n);
                    output.push_data(buf, 5000);
                    expected.extend([n; 5000]);
                }
            }
            let (mut stream, mut returned): (Vec<u8>, usize) = (Vec::new(), 0);
            while !output.is_empty() {
                returned += output
                    .send(&mut pool, |slices| {
                        let bytes = slices.iter().flat_map(|slice| slice.iter()).take(takes);
                        let before = stream.len();
                        stream.extend(bytes);
                        Ok(stream.len() - before)
                    })
                    .unwrap();
            }
            assert!(stream == expected, "{takes} bytes at a time");
            assert_eq!(returned, lent);
        }
    }

    #[test]
    fn a_full_socket_is_no_error_and_a_broken_one_is() {
        let mut pool = Pool::new(1 << 20);
        let mut output = Output::default();
        output.push(b"head");
        assert_eq!(output.send(&mut pool, |_| Err(io::ErrorKind::WouldBlock.into())).unwrap(), 0);
        assert!(!output.is_empty());
        assert!(output.send(&mut pool, |_| Err(io::ErrorKind::BrokenPipe.into())).is_err());
    }
}
