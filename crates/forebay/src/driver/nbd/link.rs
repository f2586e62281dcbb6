//! A connection in use: outgoing requests, incoming replies, and the memory of both.
//!
//! Nothing here blocks, except one receive that may. A reply's data go to the memory of its
//! request. If more data are still to come than were received behind the reply's header, a receive
//! puts them there directly; otherwise one copy does. A request whose reply arrives before all of
//! it is sent completes only when it is sent: until then the kernel may read its memory (K2). (A
//! server may refuse a write before it has read the data. A block-status query has no data: a
//! server that replies before the query is sent breaks the protocol and loses the connection.)
//!
//! When the connection is lost, for any reason, each request ends with [`BlockStatus::Offline`],
//! and nothing is sent or received any more.
// It follows the addresses of segments.
#![allow(unsafe_code)]

use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::query::StatusQuery;
use super::recv_limit::RecvLimit;
use super::stream::Stream;
use crate::driver::deadline::Deadline;
use crate::driver::vectors::{Vector, Vectors};
use crate::sys::clock;
use forebay_core::{BlockStatus, Completions, Segment, Tag};
use forebay_nbd::client::{Command, Event, Negotiated, Request, Transmission};
use forebay_nbd::wire::Head;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The maximum of segments of a request.
pub(super) const MAX_SEGMENTS: u32 = 128;

/// The reason why the first lost connection of a device was lost.
pub(super) type Failure = Arc<OnceLock<String>>;

/// A connection and its requests in flight.
pub(super) struct Link {
    pub(super) stream: Stream,
    replies: Transmission,
    /// One for each tag.
    slots: Box<[RequestSlot]>,
    /// The header of each tag, and one more for block-status queries. A header does not move while
    /// its request is sent.
    heads: Box<[Head]>,
    out: Outgoing,
    input: Incoming,
    /// Scratch list for the next receive; meaningless between receives.
    scratch: Vec<Vector>,
    /// Data to be received next, whose beginning was copied.
    data: Option<Data>,
    /// Completions to be reaped.
    done: Vec<(Tag, Result<u64, BlockStatus>)>,
    /// Requests with a reply that are not sent completely.
    early: Vec<(Tag, Result<u64, BlockStatus>)>,
    nr_in_flight: usize,
    /// The block-status query.
    pub(super) query: StatusQuery,
    /// The mark of that query in [`Outgoing`].
    query_mark: u64,
    failure: Failure,
    is_lost: bool,
    /// The time limit of blocking receives.
    recv_limit: RecvLimit,
    pub(super) nr_syscalls: u64,
}

/// A request of one tag.
struct RequestSlot {
    vectors: Vectors,
    len: u64,
    /// The mark of its end in [`Outgoing`].
    mark: u64,
    is_in_flight: bool,
}

/// Data of a request, from `at` on.
#[derive(Clone, Copy, Debug)]
struct Data {
    slot: usize,
    at: u64,
    len: u64,
}

/// The end of a blocking receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// Data arrived, or the connection is lost.
    Received,
    /// The time limit of receives has expired.
    TimedOut,
    /// A signal.
    Interrupted,
}

impl Link {
    /// Creates a link to an export, with `depth` tags.
    pub(super) fn new(stream: Stream, export: &Negotiated, depth: u32, failure: Failure) -> Link {
        let entry = || {
            let vectors = Vectors::new(MAX_SEGMENTS);
            RequestSlot { vectors, len: 0, mark: 0, is_in_flight: false }
        };
        let nr = depth as usize;
        Link {
            stream,
            replies: Transmission::new(export, nr + 1),
            slots: (0..nr).map(|_| entry()).collect(),
            heads: vec![Head::EMPTY; nr + 1].into(),
            out: Outgoing::default(),
            input: Incoming::new(),
            scratch: Vec::with_capacity(MAX_SEGMENTS as usize + 1),
            data: None,
            done: Vec::with_capacity(nr),
            early: Vec::with_capacity(nr),
            nr_in_flight: 0,
            query: StatusQuery::default(),
            query_mark: 0,
            failure,
            is_lost: false,
            recv_limit: RecvLimit::default(),
            nr_syscalls: 0,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns the number of requests that are not reaped.
    pub(super) fn nr_in_flight(&self) -> usize {
        self.nr_in_flight
    }

    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    pub(super) fn nr_done(&self) -> usize {
        self.done.len()
    }

    /// Returns whether there are data to send.
    pub(super) fn holds_back(&self) -> bool {
        !self.is_lost && (!self.out.is_empty() || self.stream.holds_back())
    }

    /// Queues a request of a tag. The next send sends it.
    pub(super) fn begin(
        &mut self,
        tag: Tag,
        request: Request,
        segments: impl Iterator<Item = Segment>,
    ) {
        let slot = tag.index();
        let entry = &mut self.slots[slot];
        assert!(!entry.is_in_flight, "a tag is issued once (K1)");
        entry.vectors.fill(segments);
        (entry.len, entry.is_in_flight) = (request.len, true);
        self.nr_in_flight += 1;
        self.put_head(slot, request);
        if matches!(request.command, Command::Write { .. }) {
            self.slots[slot].vectors.as_slice().iter().for_each(|&vector| self.out.push(vector));
        }
        self.slots[slot].mark = self.out.mark();
    }

    /// Queues a block-status query, beside the requests of tags.
    pub(super) fn begin_asking(&mut self, offset: u64, len: u64) {
        self.query.begin();
        let request = Request { command: Command::BlockStatus, offset, len };
        self.put_head(self.slots.len(), request);
        self.query_mark = self.out.mark();
    }

    fn put_head(&mut self, slot: usize, request: Request) {
        self.heads[slot] = Head::EMPTY;
        self.replies.begin(slot, request, &mut self.heads[slot]);
        self.out.push(Vector::of(self.heads[slot].as_slice()));
    }

    /// Sends a disconnect request, if that is possible without waiting.
    pub(super) fn disconnect(&mut self) {
        if self.is_lost || self.holds_back() {
            return;
        }
        self.heads[0] = Head::EMPTY;
        self.replies.disconnect(&mut self.heads[0]);
        self.out.push(Vector::of(self.heads[0].as_slice()));
        self.send();
        self.stream.close();
    }

    /// Sends pending data as long as the socket has room.
    pub(super) fn send(&mut self) {
        while self.holds_back() {
            self.nr_syscalls += 1;
            // SAFETY: headers, which do not move, and segments of requests that are not reaped
            // (K2).
            match unsafe { self.stream.send(self.out.next(), false) } {
                Ok(len) => self.out.advance(len),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::Interrupted => {}
                    _ => {
                        // Replies that the server sent before it hung up are valid.
                        self.receive(false);
                        self.lose(&lost(&error));
                    }
                },
            }
        }
        if !self.early.is_empty() {
            self.complete_early();
        }
    }

    fn complete_early(&mut self) {
        let Link { early, done, slots, out, .. } = self;
        early.retain(|&(tag, result)| {
            let is_sent = out.has_sent(slots[tag.index()].mark);
            if is_sent {
                done.push((tag, result));
            }
            !is_sent
        });
    }

    /// Returns whether a blocking receive may wait for replies, and ends before the deadline.
    pub(super) fn may_block_until(&mut self, until: Deadline) -> bool {
        match until.left() {
            None => true,
            Some(left) => self.recv_limit.fit(self.stream.socket(), left, &mut self.nr_syscalls),
        }
    }

    /// Receives data, and waits for the first bytes. The caller has checked that it may block.
    pub(super) fn receive_blocking(&mut self) -> Blocked {
        let begin_ns = clock::now_ns();
        if self.receive(true) || self.is_lost {
            return Blocked::Received;
        }
        let took = Duration::from_nanos(clock::now_ns().saturating_sub(begin_ns));
        match self.recv_limit.has_ended(took) {
            true => Blocked::TimedOut,
            false => Blocked::Interrupted,
        }
    }

    /// Receives available data and delivers them. Waits for the first bytes if `waits` and the
    /// stream supports it. Returns whether anything was received.
    pub(super) fn receive(&mut self, mut waits: bool) -> bool {
        let mut has_received = false;
        while !self.is_lost {
            self.scratch.clear();
            if let Some(data) = self.data {
                self.scratch.extend(parts(self.slots[data.slot].vectors.as_slice(), data));
            }
            let wanted: usize = self.scratch.iter().map(Vector::len).sum();
            let room = self.input.room();
            self.scratch.push(room);
            let offered = wanted + room.len();
            self.nr_syscalls += 1;
            // SAFETY: segments of a read that is not reaped (K2), which nothing else uses, and a
            // buffer of this link.
            match unsafe { self.stream.recv(&self.scratch, waits) } {
                Ok(0) => self.lose(CLOSED),
                Ok(len) => {
                    has_received = true;
                    self.received(len, wanted);
                    if len < offered {
                        break;
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    // A waiting caller repeats the wait.
                    io::ErrorKind::Interrupted if waits => break,
                    io::ErrorKind::Interrupted => {}
                    _ => self.lose(&lost(&error)),
                },
            }
            waits = false;
        }
        has_received
    }

    /// Handles `len` received bytes: the first `wanted` belong to pending data, the rest follow
    /// them.
    fn received(&mut self, len: usize, wanted: usize) {
        if let Some(data) = &mut self.data {
            let direct = len.min(wanted) as u64;
            (data.at, data.len) = (data.at + direct, data.len - direct);
            if data.len > 0 {
                return;
            }
            self.data = None;
        }
        self.input.received(len - len.min(wanted));
        self.look();
    }

    /// Parses the received bytes until more are needed.
    fn look(&mut self) {
        while !self.is_lost {
            let taken = match self.replies.take(self.input.bytes()) {
                Ok(taken) => taken,
                Err(broken) => {
                    return self.lose(&format!("the server breaks the protocol: {broken}"));
                }
            };
            self.input.consume(taken.consumed);
            match taken.event {
                Event::More => return,
                Event::Data { slot, at, len } => {
                    self.copy(Data { slot, at, len });
                    if self.data.is_some() {
                        return;
                    }
                }
                Event::Zeroes { slot, at, len } => {
                    for part in parts(self.slots[slot].vectors.as_slice(), Data { slot, at, len }) {
                        // SAFETY: memory of a read that is not reaped (K2).
                        unsafe { part.addr().cast::<u8>().write_bytes(0, part.len()) };
                    }
                }
                Event::Extent { len, state, .. } => self.query.extent(len, state),
                Event::Done { slot, result } => {
                    self.ended(slot, result.map_err(BlockStatus::from));
                }
            }
        }
    }

    /// Copies the part of some data that is already received. The rest is received directly.
    fn copy(&mut self, data: Data) {
        let here = data.len.min(self.input.bytes().len() as u64);
        let vectors = self.slots[data.slot].vectors.as_slice();
        let mut from = self.input.bytes();
        for part in parts(vectors, Data { len: here, ..data }) {
            let (now, rest) = from.split_at(part.len());
            // SAFETY: memory of a read that is not reaped (K2). It does not overlap the buffer of
            // this link.
            unsafe { part.addr().cast::<u8>().copy_from_nonoverlapping(now.as_ptr(), now.len()) };
            from = rest;
        }
        self.input.consume(here as usize);
        if here < data.len {
            self.data = Some(Data { at: data.at + here, len: data.len - here, ..data });
        }
    }

    fn ended(&mut self, slot: usize, result: Result<(), BlockStatus>) {
        let Some(entry) = self.slots.get_mut(slot) else {
            // The header must not be reused while it is still to be sent.
            return match self.out.has_sent(self.query_mark) {
                true => self.query.end(result),
                false => self.lose("the server breaks the protocol: an answer before its question"),
            };
        };
        entry.is_in_flight = false;
        let ended = (Tag::from_index(slot), result.map(|()| entry.len));
        match self.out.has_sent(entry.mark) {
            true => self.done.push(ended),
            false => self.early.push(ended),
        }
    }

    /// Fails the connection.
    #[cold]
    fn lose(&mut self, why: &str) {
        if std::mem::replace(&mut self.is_lost, true) {
            return;
        }
        let _ = self.failure.set(why.to_owned());
        self.out.clear();
        self.data = None;
        for (slot, entry) in self.slots.iter_mut().enumerate() {
            if std::mem::take(&mut entry.is_in_flight) {
                self.done.push((Tag::from_index(slot), Err(BlockStatus::Offline)));
            }
        }
        // The server may have misread a request that was not sent completely.
        for (tag, _) in self.early.drain(..) {
            self.done.push((tag, Err(BlockStatus::Offline)));
        }
        self.query.end(Err(BlockStatus::Offline));
    }

    /// Returns the completed requests.
    pub(super) fn take_done(&mut self, done: &mut Completions) {
        self.nr_in_flight -= self.done.len();
        self.done.drain(..).for_each(|(tag, result)| done.push(tag, result));
    }
}

const CLOSED: &str = "the server has closed the connection";

fn lost(error: &io::Error) -> String {
    match error.kind() {
        // The timing decides which of these it is.
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::UnexpectedEof => String::from(CLOSED),
        _ => format!("the connection is lost ({error})"),
    }
}

/// Returns the parts of a request's memory that some data cover.
fn parts(vectors: &[Vector], data: Data) -> impl Iterator<Item = Vector> + '_ {
    let (mut skip, mut left) = (data.at, data.len);
    vectors.iter().filter_map(move |vector| {
        let len = vector.len() as u64;
        if skip >= len || left == 0 {
            skip = skip.saturating_sub(len);
            return None;
        }
        let part = vector.part(skip as usize, usize::try_from(left).unwrap_or(usize::MAX));
        skip = 0;
        left -= part.len() as u64;
        Some(part)
    })
}
