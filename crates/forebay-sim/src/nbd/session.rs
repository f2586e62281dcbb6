//! A connection at the server: input that is not parsed yet, output, and requests in flight.

use super::context::Context;
use super::trace::Met;
use forebay_nbd::server::{Handshake, TlsPolicy, Transmission};
use std::collections::VecDeque;

/// From so many bytes on no message is added to the output.
const OUT_MAX: usize = 8 << 10;
/// With so many bytes of replies no more requests are read.
const REPLIES_MAX: usize = 64 << 10;

/// The index of a request at the disk.
pub(crate) type FlightId = usize;

/// State of a connection.
#[derive(Debug)]
pub(crate) enum Phase {
    Handshake(Handshake),
    Transmission(Transmission),
}

/// A write whose payload is arriving.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filling {
    pub(crate) flight: FlightId,
    /// The number of bytes that have arrived, and that have gone to the disk.
    pub(crate) filled: u64,
    pub(crate) submitted: u64,
    pub(crate) len: u64,
}

/// A connection at the server.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) phase: Phase,
    pub(crate) input: Vec<u8>,
    /// Bytes of a payload that are still to be skipped.
    pub(crate) skip: u64,
    pub(crate) filling: Option<Filling>,
    pub(crate) out: Vec<u8>,
    /// Replies, each with its messages in order.
    streams: Vec<VecDeque<Vec<u8>>>,
    nr_bytes: usize,
    pub(crate) nr_flights: usize,
    /// No more input is read; the session ends when all requests in flight have ended.
    pub(crate) is_closing: bool,
    /// A request has written since the last flush.
    pub(crate) has_written: bool,
    /// The end of the connection is ignored: a planted bug.
    pub(crate) is_leaked: bool,
    is_stream_begun: bool,
}

impl Session {
    pub(crate) fn new() -> Session {
        let mut out = Vec::new();
        let handshake = Handshake::new(TlsPolicy::Off, &mut out);
        Session {
            phase: Phase::Handshake(handshake),
            input: Vec::new(),
            skip: 0,
            filling: None,
            out,
            streams: Vec::new(),
            nr_bytes: 0,
            nr_flights: 0,
            is_closing: false,
            has_written: false,
            is_leaked: false,
            is_stream_begun: false,
        }
    }

    /// Queues a reply.
    pub(crate) fn reply(&mut self, messages: VecDeque<Vec<u8>>) {
        self.nr_bytes += messages.iter().map(Vec::len).sum::<usize>();
        if !messages.is_empty() {
            self.streams.push(messages);
        }
    }

    /// Returns whether so much output is waiting that no more input is read.
    pub(crate) fn is_behind(&self) -> bool {
        self.nr_bytes + self.out.len() > REPLIES_MAX
    }

    /// Returns whether everything was sent.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.streams.is_empty() && self.out.is_empty()
    }

    /// Chooses the next messages to send. Messages of different replies may be interleaved.
    pub(crate) fn choose(&mut self, context: &mut Context) {
        while self.out.len() < OUT_MAX && !self.streams.is_empty() {
            let nth = context.random.below(self.streams.len() as u64) as usize;
            if self.is_stream_begun && nth > 0 {
                context.note(Met::ChunksInterleaved, nth as u64, 0);
            }
            let stream = &mut self.streams[nth];
            let message = stream.pop_front().expect("an empty stream is dropped");
            self.nr_bytes -= message.len();
            self.out.extend(message);
            self.is_stream_begun = nth == 0 && !stream.is_empty();
            if stream.is_empty() {
                self.streams.swap_remove(nth);
            }
        }
    }

    /// Drops all output, because the client is gone.
    pub(crate) fn forget_output(&mut self) {
        self.streams.clear();
        self.out.clear();
        self.nr_bytes = 0;
    }
}
