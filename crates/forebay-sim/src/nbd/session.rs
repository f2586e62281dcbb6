//! A connection at the server: what came and is not taken apart yet, what has to go out, and what
//! it has in flight.

use super::context::Context;
use super::server::FlightId;
use super::trace::Met;
use forebay_nbd::server::{Handshake, TlsPolicy, Transmission};
use std::collections::VecDeque;

/// From so many bytes on nothing is added to what goes out.
const OUT_MAX: usize = 8 << 10;
/// With so many bytes of replies no more requests are read.
const REPLIES_MAX: usize = 64 << 10;

/// Where a connection stands.
#[derive(Debug)]
pub(crate) enum Phase {
    Handshake(Handshake),
    Transmission(Transmission),
}

/// A write whose payload is coming.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filling {
    pub(crate) flight: FlightId,
    /// How many bytes have come; and have gone to the disk.
    pub(crate) filled: u64,
    pub(crate) submitted: u64,
    pub(crate) len: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) phase: Phase,
    pub(crate) input: Vec<u8>,
    /// Bytes of a payload that are still to be thrown away.
    pub(crate) skip: u64,
    pub(crate) filling: Option<Filling>,
    pub(crate) out: Vec<u8>,
    /// Replies, each with its messages in order.
    streams: Vec<VecDeque<Vec<u8>>>,
    nr_bytes: usize,
    pub(crate) nr_flights: usize,
    /// Nothing more is read; it ends when all that is in flight has.
    pub(crate) is_closing: bool,
    /// It has written since it last flushed.
    pub(crate) has_written: bool,
    /// Its end is forgotten: a planted bug.
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

    /// A reply goes out, some time.
    pub(crate) fn reply(&mut self, messages: VecDeque<Vec<u8>>) {
        self.nr_bytes += messages.iter().map(Vec::len).sum::<usize>();
        if !messages.is_empty() {
            self.streams.push(messages);
        }
    }

    /// Whether it has so much to send that it is read no further.
    pub(crate) fn is_behind(&self) -> bool {
        self.nr_bytes + self.out.len() > REPLIES_MAX
    }

    /// Whether everything was sent.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.streams.is_empty() && self.out.is_empty()
    }

    /// Chooses what goes out next. Messages of different replies may come between each other.
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

    /// The client is gone: nothing goes out any more.
    pub(crate) fn forget_output(&mut self) {
        self.streams.clear();
        self.out.clear();
        self.nr_bytes = 0;
    }
}
