//! NBD session of one client: its state between rounds.

use super::payload::Payload;
use super::{NbdHost, Stream};
use crate::host::Peer;
use crate::kinds::RequestKind;
use crate::link::Link;
use crate::plant::plants;
use crate::slots::Key;
use crate::stream::output::Output;
use crate::stream::pool::{Held, Pool, Seat};
use forebay_nbd::export::ExportInfo;
use forebay_nbd::server::{Command, Handshake, NbdError, Request, Transmission};
use forebay_nbd::wire::Framing;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Capacity of the unparsed bytes of an idle client: the longest header of a request.
pub(super) const REST_MIN: usize = Framing::Extended.request_len();

/// One NBD client, from accept to close.
#[derive(Debug)]
pub struct Conn<H: NbdHost> {
    pub(super) link: Link<H>,
    phase: Phase,
    input: Input<H::Memory>,
    /// Input waits for memory, for the disk, or for the client to read its replies. Nothing more is
    /// received until then.
    is_stalled: bool,
    output: Output<H::Memory>,
    /// Large reads that wait for memory.
    paused: Vec<Key>,
    /// Number of BLOCK_STATUS requests in flight.
    nr_questions: u32,
    /// Number of CACHE requests in flight.
    nr_cache: u32,
    /// CACHE requests that are over, and whose replies wait for the end of an exclusive read.
    held_back: Vec<Key>,
    /// Bytes of the pool that the client holds.
    held: Held,
    /// Place of the client among those that have chosen an export.
    seat: Option<Seat>,
    /// Received bytes that are not parsed yet.
    pub(super) rest: Rest,
}

/// Received bytes that are not parsed yet: an incomplete header, or, if the client is stalled, all
/// that follows the request that waits.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) bytes: Vec<u8>,
    /// How many of them are part of the sum of all clients.
    nr_counted: usize,
}

impl Rest {
    /// Corrects the sum of the kept bytes of all clients.
    #[inline]
    pub(super) fn count(&mut self, sum: &mut usize) {
        *sum += self.bytes.len();
        *sum -= std::mem::replace(&mut self.nr_counted, self.bytes.len());
    }

    /// Removes the bytes from the sum of all clients.
    fn uncount(&self, sum: &mut usize) {
        *sum -= self.nr_counted;
    }
}

/// Phase of the protocol.
#[derive(Debug)]
pub(super) enum Phase {
    /// The client chooses an export.
    Handshake(Box<Handshake>),
    /// The client sends requests.
    Transmission(Transmission),
}

/// Meaning of the next bytes of the client.
#[derive(Debug)]
enum Input<P> {
    /// Options of the handshake, or headers of requests.
    Messages,
    /// The same, while a large read is in flight whose reply is sent in pieces that must not be
    /// interrupted. No other request begins, and no CACHE is answered, until it has ended.
    Exclusive,
    /// This many bytes of the payload of a refused request.
    Skip(u64),
    /// The payload of a write.
    Payload(Payload<P>),
}

impl<H: NbdHost> Conn<H> {
    pub(super) fn new(link: Link<H>, handshake: Handshake, greeting: &[u8]) -> Conn<H> {
        let mut output = Output::default();
        output.push(greeting);
        Conn {
            link,
            phase: Phase::Handshake(Box::new(handshake)),
            input: Input::Messages,
            is_stalled: false,
            output,
            paused: Vec::new(),
            nr_questions: 0,
            nr_cache: 0,
            held_back: Vec::new(),
            held: Held::default(),
            seat: None,
            rest: Rest { bytes: Vec::with_capacity(REST_MIN), nr_counted: 0 },
        }
    }

    /// Returns the phase of the protocol.
    #[inline]
    pub(super) fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Returns the handshake, with the output for its replies.
    ///
    /// # Panics
    /// Panics if the handshake is over.
    pub(super) fn handshake(&mut self) -> (&mut Handshake, &mut Output<H::Memory>) {
        match &mut self.phase {
            Phase::Handshake(handshake) => (handshake, &mut self.output),
            Phase::Transmission(_) => unreachable!("an option after the handshake"),
        }
    }

    /// Begins the transmission phase.
    pub(super) fn begin_transmission(&mut self, transmission: Transmission) {
        self.link.deadline_ns = None;
        self.link.peer.set_export(transmission.export());
        self.phase = Phase::Transmission(transmission);
    }

    /// Changes the size of the client's export, if it has chosen one.
    pub(super) fn resize(&mut self, infos: &[ExportInfo]) {
        if let Phase::Transmission(transmission) = &mut self.phase {
            transmission.resize(infos[transmission.export()].size_bytes);
        }
    }

    /// Takes one of the `max` places for clients that have chosen an export, and returns whether
    /// one was free.
    pub(super) fn count_in(&mut self, nr_open: &Arc<AtomicUsize>, max: usize) -> bool {
        let (seat, nr_before) = Seat::take(nr_open);
        self.seat = Some(seat);
        nr_before < max
    }

    /// Returns the result of the handshake.
    ///
    /// # Panics
    /// Panics if the handshake is not over. There are no requests before that.
    #[inline]
    pub(super) fn transmission(&self) -> &Transmission {
        match &self.phase {
            Phase::Transmission(transmission) => transmission,
            Phase::Handshake(_) => unreachable!("a request before the end of the handshake"),
        }
    }

    /// Returns the account of the client at the pool.
    #[inline]
    pub(super) fn held(&mut self) -> &mut Held {
        &mut self.held
    }

    /// Returns whether the bytes that follow begin a message.
    #[inline]
    pub(super) fn is_between_messages(&self) -> bool {
        matches!(self.input, Input::Messages | Input::Exclusive)
    }

    /// Begins to skip the payload of a refused request.
    pub(super) fn skip(&mut self, nr: u64) {
        let nr = if nr > 0 && plants!(OutOfStep) { nr - 1 } else { nr };
        if nr > 0 {
            self.input = Input::Skip(nr);
        }
    }

    /// Skips up to `nr` bytes. Returns how many were to be skipped.
    #[inline]
    pub(super) fn skipped(&mut self, nr: usize) -> usize {
        let Input::Skip(left) = &mut self.input else { return 0 };
        let now = (*left).min(nr as u64);
        *left -= now;
        if *left == 0 {
            self.input = Input::Messages;
        }
        now as usize
    }

    /// Begins to receive a payload.
    #[inline]
    pub(super) fn begin_payload(&mut self, payload: Payload<H::Memory>) {
        self.input = Input::Payload(payload);
    }

    /// Returns the payload that is being received.
    #[inline]
    pub(super) fn payload(&self) -> Option<&Payload<H::Memory>> {
        match &self.input {
            Input::Payload(payload) => Some(payload),
            _ => None,
        }
    }

    /// Returns the payload that is being received.
    #[inline]
    pub(super) fn payload_mut(&mut self) -> Option<&mut Payload<H::Memory>> {
        match &mut self.input {
            Input::Payload(payload) => Some(payload),
            _ => None,
        }
    }

    /// Ends the payload that was received.
    #[inline]
    pub(super) fn end_payload(&mut self) {
        self.input = Input::Messages;
    }

    /// Returns whether an exclusive read is in flight.
    #[inline]
    pub(super) fn is_exclusive(&self) -> bool {
        matches!(self.input, Input::Exclusive)
    }

    /// Begins an exclusive read.
    pub(super) fn begin_exclusive(&mut self) {
        debug_assert!(self.is_between_messages(), "a read begins at its header");
        if !plants!(Interrupt) {
            self.input = Input::Exclusive;
        }
    }

    /// Ends the exclusive read, if there is one. Returns the CACHE requests whose replies waited.
    pub(super) fn end_exclusive(&mut self) -> Vec<Key> {
        if self.is_exclusive() {
            self.input = Input::Messages;
        }
        std::mem::take(&mut self.held_back)
    }

    /// Delays the reply to a CACHE request until the exclusive read has ended.
    pub(super) fn hold_back(&mut self, flight: Key) {
        self.held_back.push(flight);
    }

    /// Stops receiving until the session is resumed, if `is_stalled`.
    #[inline]
    pub(super) fn set_stalled(&mut self, is_stalled: bool) {
        self.is_stalled = is_stalled;
    }

    /// Returns whether input waits.
    #[inline]
    pub(super) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Adds a large read to those that wait for memory.
    pub(super) fn pause(&mut self, flight: Key) {
        self.paused.push(flight);
    }

    /// Takes the large reads that wait for memory.
    #[inline]
    pub(super) fn take_paused(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.paused)
    }

    /// Returns whether the session must be resumed.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.is_stalled || !self.paused.is_empty()
    }

    /// Returns whether more bytes may be received now.
    #[inline]
    pub(super) fn may_receive(&self) -> bool {
        !self.link.is_ending() && !self.is_stalled
    }

    /// Counts a CACHE request that begins.
    pub(super) fn begin_cache(&mut self) {
        self.link.begun();
        self.nr_cache += 1;
    }

    /// Counts a BLOCK_STATUS request that begins.
    pub(super) fn begin_question(&mut self) {
        self.link.begun();
        self.nr_questions += 1;
    }

    /// Returns the number of BLOCK_STATUS requests in flight.
    pub(super) fn nr_questions(&self) -> u32 {
        self.nr_questions
    }

    /// Returns whether a request other than CACHE is in flight.
    pub(super) fn has_more_than_cache(&self) -> bool {
        self.link.nr_in_flight() > self.nr_cache
    }

    /// Counts a request that has ended.
    #[inline]
    pub(super) fn ended(&mut self, rq: &Request, has_failed: bool) {
        match rq.command {
            Ok(Command::Cache) => self.nr_cache -= 1,
            Ok(Command::BlockStatus { .. }) => self.nr_questions -= 1,
            _ => {}
        }
        let moved = match rq.command {
            Ok(Command::Read { .. } | Command::Write { .. }) => rq.len,
            _ => 0,
        };
        self.link.ended(if has_failed { None } else { kind_of(rq) }, moved);
    }

    /// Returns whether the client can be closed: it ends, and all requests are answered. A write
    /// whose payload is incomplete does not count as begun.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.link.is_ending() && self.link.nr_in_flight() == self.nr_half() && !self.wants_send()
    }

    /// Returns the number of writes whose payload is incomplete.
    #[inline]
    fn nr_half(&self) -> u32 {
        u32::from(self.payload().is_some())
    }

    /// Returns whether a disk has still to complete I/O of this client. Requests that wait for
    /// memory do not count, since they wait for the client, nor do replies that wait for such a
    /// request; nor does BLOCK_STATUS, which may hang.
    pub(super) fn waits_for_disk(&self) -> bool {
        let nr_waiting = (self.paused.len() + self.held_back.len()) as u32;
        self.link.nr_in_flight() > self.nr_half() + self.nr_questions + nr_waiting
    }

    /// Returns whether the data of this request must be sent contiguously: it is a read, and its
    /// reply has one header for all of it.
    pub(super) fn must_be_contiguous(&self, rq: &Request) -> bool {
        match rq.command {
            Ok(Command::Read { df }) => df || self.transmission().framing() == Framing::Simple,
            _ => false,
        }
    }

    /// Replies with an error.
    pub(super) fn reply_error(&mut self, rq: &Request, error: NbdError, message: &str) {
        let Phase::Transmission(transmission) = &self.phase else { unreachable!() };
        self.output.push_with(|heads| transmission.error(rq, error, message, heads));
    }

    /// Replies without data.
    #[inline]
    pub(super) fn reply_done(&mut self, rq: &Request) {
        let rq = if plants!(OtherCookie) { &other_cookie(rq) } else { rq };
        let head = self.transmission().done(rq);
        self.output.push(head.as_slice());
        if plants!(AnswerTwice) {
            self.output.push(head.as_slice());
        }
    }

    /// Replies with the extents of a range.
    pub(super) fn reply_extents(&mut self, rq: &Request, extents: &[(u64, u32)]) {
        let Phase::Transmission(transmission) = &self.phase else { unreachable!() };
        self.output.push_with(|heads| transmission.extents(rq, extents, heads));
    }

    /// Replies with the header of `len` bytes of data from offset `at`. They are the first of the
    /// reply, or the last, or both.
    #[inline]
    pub(super) fn reply_head(
        &mut self,
        rq: &Request,
        (at, len): (u64, u64),
        (is_first, is_last): (bool, bool),
    ) {
        let rq = if plants!(OtherCookie) { &other_cookie(rq) } else { rq };
        let at = if plants!(WrongPlace) { at ^ 1 } else { at };
        let head = self.transmission().data(rq, at, len as u32, is_first, is_last);
        self.output.push(head.as_slice());
    }

    /// Replies with the first `len` bytes of a piece.
    #[inline]
    pub(super) fn reply_data(&mut self, buf: H::Memory, len: usize) {
        let len = if plants!(ShortData) { len - 1 } else { len };
        self.output.push_data(buf, len);
    }

    /// Returns the number of queued header bytes.
    #[inline]
    pub(super) fn heads_len(&self) -> usize {
        self.output.heads_len()
    }

    /// Returns whether the client has taken all output.
    pub(super) fn has_sent_all(&self) -> bool {
        self.output.is_empty()
    }

    /// Sends queued output until the stream takes no more.
    pub(super) fn send(&mut self, pool: &mut Pool<H::Memory>) -> io::Result<()> {
        let peer = &mut self.link.peer;
        self.output.send(pool, &mut self.held, |slices| peer.send(slices))?;
        match self.link.peer.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns whether output waits for the stream.
    #[inline]
    pub(super) fn wants_send(&self) -> bool {
        self.link.peer.wants_send() || !self.output.is_empty()
    }

    /// Releases the memory of a client that is closed, and its place. Returns the requests that
    /// waited for it.
    pub(super) fn release(
        &mut self,
        pool: &mut Pool<H::Memory>,
        rest_bytes: &mut usize,
    ) -> Vec<Key> {
        self.rest.uncount(rest_bytes);
        self.output.clear(pool, &mut self.held);
        let mut flights = Vec::new();
        if let Input::Payload(payload) = &mut self.input {
            if let Some(buf) = payload.take_buf() {
                pool.give(buf, &mut self.held);
            }
            flights.push(payload.flight());
        }
        pool.leave(&mut self.held, self.seat.take());
        flights.append(&mut self.paused);
        flights.append(&mut self.held_back);
        flights
    }
}

/// Returns the request with another cookie: a planted bug.
fn other_cookie(rq: &Request) -> Request {
    Request { cookie: rq.cookie ^ 1, ..*rq }
}

/// Returns the kind under which a request is counted. `None`: the client disconnects.
#[inline]
pub(super) fn kind_of(rq: &Request) -> Option<RequestKind> {
    Some(match rq.command {
        Ok(Command::Read { .. }) => RequestKind::Read,
        Ok(Command::Write { .. }) => RequestKind::Write,
        Ok(Command::Flush) => RequestKind::Flush,
        Ok(Command::Trim { .. }) => RequestKind::Trim,
        Ok(Command::WriteZeroes { .. }) => RequestKind::WriteZeroes,
        Ok(Command::Cache) => RequestKind::Cache,
        Ok(Command::BlockStatus { .. }) => RequestKind::BlockStatus,
        Ok(Command::Disconnect) => return None,
        Err(_) => RequestKind::Refused,
    })
}
