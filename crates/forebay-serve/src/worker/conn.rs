//! State of one connection that a worker keeps between rounds.

use super::ending::Ending;
use super::output::Output;
use super::payload::Payload;
use super::slots::Key;
use crate::listen::Peer;
use crate::metrics::{OpenConnection, RequestKind};
use crate::pool::{Held, Pool, Seat};
use crate::tls::TlsStream;
use forebay_nbd::server::{Command, Handshake, NbdError, Request, Transmission};
use forebay_nbd::wire::Framing;
use rustix::event::epoll::EventFlags;
use rustix::net::SendFlags;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Capacity of the unparsed bytes of an idle connection: the longest header of a request.
pub(super) const REST_MIN: usize = Framing::Extended.request_len();

/// One client connection, from accept to close.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Key of the connection in the worker.
    pub(crate) key: Key,
    pub(crate) fd: OwnedFd,
    pub(crate) peer: Peer,
    pub(crate) counters: OpenConnection,
    pub(crate) opened_ns: u64,
    pub(crate) transport: Transport,
    pub(crate) phase: Phase,
    /// Received bytes that are not parsed yet: an incomplete header, or, if the connection is
    /// stalled, all that follows the request that waits.
    pub(crate) rest: Vec<u8>,
    /// Bytes of `rest` that the worker has added to its sum.
    pub(crate) rest_counted: usize,
    /// Payload that is being received.
    pub(crate) payload: Option<Payload>,
    /// Bytes of the stream to skip: the payload of a refused request.
    pub(crate) skip: u64,
    pub(crate) output: Output,
    /// Large reads that wait for memory.
    pub(crate) paused: Vec<Key>,
    /// Requests in flight: begun, and not answered.
    pub(crate) nr_in_flight: u32,
    /// Number of these that are BLOCK_STATUS requests.
    pub(crate) nr_questions: u32,
    /// How many of them are CACHE.
    pub(crate) nr_cache: u32,
    /// CACHE requests that are over, and whose replies wait for the end of an exclusive read.
    pub(crate) held_back: Vec<Key>,
    /// Bytes of the pool that the connection holds.
    pub(crate) held: Held,
    /// Input waits for memory, for the disk, or for the client to read its replies. Nothing more is
    /// received until then.
    pub(crate) is_stalled: bool,
    /// A large read is in flight whose reply is sent in pieces that must not be interrupted. No
    /// other request begins, and no CACHE is answered, until it has ended.
    pub(crate) is_exclusive: bool,
    /// Whether the connection is in the worker's `waiting` list.
    pub(crate) is_waiting: bool,
    /// Whether the connection is in the worker's `dirty` list.
    pub(crate) is_dirty: bool,
    /// Reason why the connection ends. If it is set, nothing more is read.
    pub(crate) ending: Option<Ending>,
    /// Time at which the connection is closed by force, ns: the end of the time limit for the
    /// handshake, or for the last replies.
    pub(crate) deadline_ns: Option<u64>,
    /// Events for which the socket is registered at the worker's epoll.
    pub(crate) interest: EventFlags,
    /// Place of the connection among those that have chosen an export.
    pub(crate) seat: Option<Seat>,
}

/// Transport of the bytes of a connection.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain,
    Tls(Box<TlsStream>),
}

/// Phase of the protocol.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The client chooses an export.
    Handshake(Box<Handshake>),
    /// The client sends requests.
    Transmission(Transmission),
}

impl Phase {
    /// Returns the result of the handshake.
    ///
    /// # Panics
    /// Panics if the handshake is not over. There are no requests before that.
    pub(crate) fn transmission(&self) -> &Transmission {
        match self {
            Phase::Transmission(transmission) => transmission,
            Phase::Handshake(_) => unreachable!("a request before the end of the handshake"),
        }
    }
}

impl Conn {
    pub(crate) fn new(
        key: Key,
        (fd, peer): (OwnedFd, Peer),
        counters: OpenConnection,
        opened_ns: u64,
        handshake: Handshake,
        greeting: &[u8],
    ) -> Conn {
        let mut output = Output::default();
        output.push(greeting);
        Conn {
            key,
            fd,
            peer,
            counters,
            opened_ns,
            transport: Transport::Plain,
            phase: Phase::Handshake(Box::new(handshake)),
            rest: Vec::with_capacity(REST_MIN),
            rest_counted: 0,
            payload: None,
            skip: 0,
            output,
            paused: Vec::new(),
            nr_in_flight: 0,
            nr_questions: 0,
            nr_cache: 0,
            held_back: Vec::new(),
            held: Held::default(),
            is_stalled: false,
            is_exclusive: false,
            is_waiting: false,
            is_dirty: false,
            ending: None,
            deadline_ns: None,
            interest: EventFlags::empty(),
            seat: None,
        }
    }

    /// Takes one of the `max` places for connections that have chosen an export, and returns
    /// whether one was free.
    pub(crate) fn count_in(&mut self, nr_open: &Arc<AtomicUsize>, max: usize) -> bool {
        let (seat, nr_before) = Seat::take(nr_open);
        self.seat = Some(seat);
        nr_before < max
    }

    /// Counts a request that has ended.
    #[inline]
    pub(crate) fn ended(&mut self, rq: &Request, has_failed: bool) {
        self.nr_in_flight -= 1;
        self.nr_cache -= u32::from(rq.command == Ok(Command::Cache));
        let moved = match rq.command {
            Ok(Command::Read { .. } | Command::Write { .. }) => rq.len,
            _ => 0,
        };
        match kind_of(rq) {
            Some(kind) if !has_failed => self.counters.end(kind, moved),
            _ => self.counters.fail(),
        }
    }

    /// Replies with an error.
    pub(crate) fn reply_error(&mut self, rq: &Request, error: NbdError, message: &str) {
        let transmission = self.phase.transmission();
        self.output.push_with(|heads| transmission.error(rq, error, message, heads));
    }

    /// Returns whether the connection can be closed: it ends, and all requests are answered. A
    /// write whose payload is incomplete does not count as begun.
    pub(crate) fn is_over(&self) -> bool {
        let nr_half = u32::from(self.payload.is_some());
        self.ending.is_some() && self.nr_in_flight == nr_half && !self.wants_write()
    }

    /// Returns whether a disk has still to complete I/O of this connection. Requests that wait for
    /// memory do not count, since they wait for the client, nor do replies that wait for such a
    /// request; nor does BLOCK_STATUS, which may hang.
    pub(crate) fn waits_for_disk(&self) -> bool {
        let nr_half = u32::from(self.payload.is_some());
        let nr_waiting = (self.paused.len() + self.held_back.len()) as u32;
        self.nr_in_flight > nr_half + self.nr_questions + nr_waiting
    }

    /// Sends the TLS close_notify, unless the connection is broken.
    pub(crate) fn say_goodbye(&mut self) {
        if !self.is_given_up()
            && let Transport::Tls(tls) = &mut self.transport
        {
            tls.close_notify(&self.fd);
        }
    }

    /// Returns whether the connection is to be closed without sending more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.ending.as_ref().is_some_and(Ending::is_at_once)
    }

    /// Marks the connection as broken: nothing more can be sent.
    pub(crate) fn break_off(&mut self, why: String) {
        self.ending = Some(Ending::Broken(why));
    }

    /// Returns whether the data of this request must be sent contiguously: it is a read, and its
    /// reply has one header for all of it.
    pub(crate) fn must_be_contiguous(&self, rq: &Request) -> bool {
        let Phase::Transmission(transmission) = &self.phase else { return false };
        match rq.command {
            Ok(Command::Read { df }) => df || transmission.framing() == Framing::Simple,
            _ => false,
        }
    }

    /// Returns whether more bytes may be received now.
    pub(crate) fn may_read(&self) -> bool {
        self.ending.is_none() && !self.is_stalled
    }

    /// Receives into the slices, in order. Returns 0 if the client has closed its side.
    pub(crate) fn receive(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let received = match &mut self.transport {
            Transport::Plain => rustix::io::readv(&self.fd, slices)?,
            Transport::Tls(tls) => {
                let first = slices.iter_mut().find(|slice| !slice.is_empty());
                tls.read(&self.fd, first.expect("there is room"))?
            }
        };
        self.counters.received(received as u64);
        Ok(received)
    }

    /// Returns whether decrypted bytes are left, although the socket may have none.
    pub(crate) fn has_plaintext(&self) -> bool {
        match &self.transport {
            Transport::Plain => false,
            Transport::Tls(tls) => tls.has_plaintext(),
        }
    }

    /// Sends queued output until the socket would block.
    pub(crate) fn send(&mut self, pool: &mut Pool) -> io::Result<()> {
        let (fd, transport) = (&self.fd, &mut self.transport);
        let before = self.output.len();
        self.output.send(pool, &mut self.held, |slices| send_slices(fd, transport, slices))?;
        self.counters.sent((before - self.output.len()) as u64);
        if let Transport::Tls(tls) = transport {
            match tls.flush(fd) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns whether output waits for the socket to become writable.
    pub(crate) fn wants_write(&self) -> bool {
        let is_tls_behind = match &self.transport {
            Transport::Plain => false,
            Transport::Tls(tls) => tls.wants_write(),
        };
        is_tls_behind || !self.output.is_empty()
    }
}

fn send_slices(
    fd: &OwnedFd,
    transport: &mut Transport,
    slices: &[IoSlice<'_>],
) -> io::Result<usize> {
    match transport {
        Transport::Plain => {
            let mut no_descriptors = rustix::net::SendAncillaryBuffer::default();
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            Ok(rustix::net::sendmsg(fd, slices, &mut no_descriptors, flags)?)
        }
        Transport::Tls(tls) => tls.write_vectored(fd, slices),
    }
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
