//! Output of a connection: headers of replies and their data, in order.
//!
//! A worker queues replies while it handles input; they leave in one vectored write.

use super::Piece;
use super::pool::{Held, Pool};
use std::collections::VecDeque;
use std::io::{self, IoSlice};

/// Most slices of one write.
const SLICES_MAX: usize = 256;

/// Limit of queued header bytes. From it on, no request of the client is parsed: headers are not
/// part of the pool, so nothing else bounds them.
pub(crate) const HEADS_MAX: usize = 64 << 10;

/// A part of the stream.
#[derive(Debug)]
enum Part<P> {
    /// This many bytes of `Output::heads`.
    Heads(usize),
    /// The first `len` bytes of a piece of the pool.
    Data { buf: P, len: usize },
}

/// Bytes that are not sent yet.
#[derive(Debug)]
pub(crate) struct Output<P> {
    parts: VecDeque<Part<P>>,
    /// The headers of the replies in `parts`, one after another.
    heads: Vec<u8>,
    /// Bytes of `heads` that are sent.
    heads_sent: usize,
    /// Bytes of the first part that are sent.
    first_sent: usize,
    /// Total number of bytes.
    len: usize,
}

impl<P> Default for Output<P> {
    fn default() -> Output<P> {
        Output { parts: VecDeque::new(), heads: Vec::new(), heads_sent: 0, first_sent: 0, len: 0 }
    }
}

impl<P: Piece> Output<P> {
    /// Returns whether nothing is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of queued header bytes.
    pub(crate) fn heads_len(&self) -> usize {
        self.heads.len() - self.heads_sent
    }

    /// Queues a copy of these bytes.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.push_with(|heads| heads.extend_from_slice(bytes));
    }

    /// Queues the bytes that `append` appends.
    #[inline]
    pub(crate) fn push_with<R>(&mut self, append: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let before = self.heads.len();
        let answer = append(&mut self.heads);
        let added = self.heads.len() - before;
        self.len += added;
        match self.parts.back_mut() {
            _ if added == 0 => {}
            Some(Part::Heads(len)) => *len += added,
            _ => self.parts.push_back(Part::Heads(added)),
        }
        answer
    }

    /// Queues the first `len` bytes of a piece, which returns to the pool when they are sent.
    #[inline]
    pub(crate) fn push_data(&mut self, buf: P, len: usize) {
        debug_assert!(0 < len && len <= buf.len());
        self.len += len;
        self.parts.push_back(Part::Data { buf, len });
    }

    /// Sends until `write` would block.
    ///
    /// # Errors
    /// Returns the error of `write`, except `WouldBlock`: then the rest waits for the socket.
    pub(crate) fn send(
        &mut self,
        pool: &mut Pool<P>,
        held: &mut Held,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<()> {
        while self.len > 0 {
            let mut slices = pool.take_slices();
            self.add_slices(&mut slices);
            let asked = slices.iter().map(|slice| slice.len()).sum::<usize>();
            let sent = write(&slices);
            pool.keep_slices(slices);
            let sent = match sent {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            self.advance(sent, pool, held);
            if sent < asked {
                break; // the socket is full
            }
        }
        Ok(())
    }

    /// Adds the next bytes to an empty list, at most [`SLICES_MAX`] slices.
    fn add_slices<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
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
    }

    /// Removes the first `sent` bytes.
    fn advance(&mut self, mut sent: usize, pool: &mut Pool<P>, held: &mut Held) {
        self.len -= sent;
        while sent > 0 {
            let len = match self.parts.front() {
                Some(Part::Heads(len) | Part::Data { len, .. }) => *len - self.first_sent,
                None => unreachable!("no more bytes are sent than queued"),
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
                pool.give(buf, held);
            }
        }
        // A client that never catches up would let the buffer grow without a limit.
        if self.heads_sent == self.heads.len() || self.heads_sent >= HEADS_MAX {
            self.heads.drain(..self.heads_sent);
            self.heads_sent = 0;
        }
    }

    /// Drops all output: the client is gone.
    pub(crate) fn clear(&mut self, pool: &mut Pool<P>, held: &mut Held) {
        for part in self.parts.drain(..) {
            if let Part::Data { buf, .. } = part {
                pool.give(buf, held);
            }
        }
        *self = Output::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{Budget, Capacity};

    fn pool() -> Pool<Box<[u8]>> {
        let capacity = Capacity { connections: 1, threads: 1, memory_bytes: Some(1 << 20) };
        Pool::new(Budget::new(&capacity, 512).unwrap(), |len| vec![0; len].into())
    }

    /// The stream is the same however few bytes the socket takes at a time, and all pieces return.
    #[test]
    fn the_stream_does_not_depend_on_what_the_socket_takes() {
        for takes in [7, 16, 4096, 100_000] {
            let mut pool = pool();
            let mut held = Held::default();
            let mut output = Output::default();
            let mut expected = Vec::new();
            for n in 0..40_u8 {
                output.push(&[n; 16]);
                expected.extend([n; 16]);
                if n % 3 == 0 {
                    output.push(&[n, 1, 2]);
                    expected.extend([n, 1, 2]);
                }
                if n % 2 == 0 {
                    let mut buf = pool.take(5000, &mut held).unwrap();
                    buf[..5000].fill(n);
                    output.push_data(buf, 5000);
                    expected.extend([n; 5000]);
                }
            }
            let mut stream: Vec<u8> = Vec::new();
            while !output.is_empty() {
                output
                    .send(&mut pool, &mut held, |slices| {
                        let bytes = slices.iter().flat_map(|slice| slice.iter()).take(takes);
                        let before = stream.len();
                        stream.extend(bytes);
                        Ok(stream.len() - before)
                    })
                    .unwrap();
            }
            assert!(stream == expected, "{takes} bytes at a time");
            assert_eq!(held, Held::default(), "all pieces are back");
        }
    }

    #[test]
    fn a_full_socket_is_no_error_and_a_broken_one_is() {
        let (mut pool, mut held) = (pool(), Held::default());
        let mut output = Output::default();
        output.push(b"head");
        let full = output.send(&mut pool, &mut held, |_| Err(io::ErrorKind::WouldBlock.into()));
        assert!(full.is_ok() && !output.is_empty());
        let broken = output.send(&mut pool, &mut held, |_| Err(io::ErrorKind::BrokenPipe.into()));
        assert!(broken.is_err());
    }
}
