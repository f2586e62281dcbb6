//! One connection: what a worker keeps of it between rounds.

use super::ending::Ending;
use super::input::kind_of;
use super::output::Output;
use super::payload::Payload;
use super::slots::Key;
use crate::listen::Peer;
use crate::metrics::OpenConnection;
use crate::pool::{Held, Pool};
use crate::tls::TlsStream;
use forebay_nbd::server::{Command, Handshake, NbdError, Request, Transmission};
use forebay_nbd::wire::Framing;
use rustix::event::epoll::EventFlags;
use rustix::net::SendFlags;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Capacity of the unparsed bytes of an idle connection: the longest header of a request.
pub(super) const REST_MIN: usize = Framing::Extended.request_len();

/// A client, from accept to close.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Its name in the worker.
    pub(crate) key: Key,
    pub(crate) fd: OwnedFd,
    pub(crate) peer: Peer,
    pub(crate) counters: OpenConnection,
    pub(crate) opened_ns: u64,
    pub(crate) transport: Transport,
    pub(crate) phase: Phase,
    /// Bytes that were received and not looked at: the begin of something, or, while the connection
    /// is stalled, whatever was behind the request that has to wait.
    pub(crate) rest: Vec<u8>,
    /// How much of it the worker has counted, bytes.
    pub(crate) rest_counted: usize,
    /// The payload that is being received.
    pub(crate) payload: Option<Payload>,
    /// Bytes of the stream that are to be ignored: the payload of a request that was refused.
    pub(crate) skip: u64,
    pub(crate) output: Output,
    /// Large reads that wait for memory.
    pub(crate) paused: Vec<Key>,
    /// Requests that were begun and not answered.
    pub(crate) nr_in_flight: u32,
    /// How many of them are BLOCK_STATUS.
    pub(crate) nr_questions: u32,
    /// Bytes of the pool that are on their way for it.
    pub(crate) held: Held,
    /// What was received behind its last request waits: for memory, for the disk, or for the client
    /// to take its replies. Nothing more is received.
    pub(crate) is_stalled: bool,
    /// A large read is on its way whose reply is sent piece by piece, and may not be interrupted:
    /// no request is taken up meanwhile.
    pub(crate) is_exclusive: bool,
    /// It is in the worker's list of those that wait.
    pub(crate) is_waiting: bool,
    /// It is in the worker's list of those to be looked at in this round.
    pub(crate) is_dirty: bool,
    /// Nothing more is read: why.
    pub(crate) ending: Option<Ending>,
    /// When it is closed by force, ns: the end of the time for the handshake, or for the last
    /// replies.
    pub(crate) deadline_ns: Option<u64>,
    /// What the worker's epoll is told of it.
    pub(crate) interest: EventFlags,
    seat: Option<Seat>,
}

/// A place among the connections that have chosen an export. Relaxed: it is a count.
#[derive(Debug)]
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How bytes go over the socket.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain,
    Tls(Box<TlsStream>),
}

/// How far a connection is.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The client chooses its export.
    Handshake(Box<Handshake>),
    /// Requests and replies.
    Transmission(Transmission),
}

impl Phase {
    /// What was negotiated.
    ///
    /// # Panics
    /// If nothing was yet: there are no requests before.
    pub(crate) fn transmission(&self) -> &Transmission {
        match self {
            Phase::Transmission(transmission) => transmission,
            Phase::Handshake(_) => unreachable!("a request before the handshake's end"),
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

    /// Takes one of the `max` places for connections that have chosen an export, until it is
    /// dropped.
    pub(crate) fn count_in(&mut self, nr_open: &Arc<AtomicUsize>, max: usize) -> bool {
        let seat = Seat(Arc::clone(nr_open));
        let is_free = seat.0.fetch_add(1, Ordering::Relaxed) < max;
        self.seat = Some(seat);
        is_free
    }

    /// One of its requests is over, answered or about to be.
    #[inline]
    pub(crate) fn ended(&mut self, rq: &Request, has_failed: bool) {
        self.nr_in_flight -= 1;
        let moved = match rq.command {
            Ok(Command::Read { .. } | Command::Write { .. }) => rq.len,
            _ => 0,
        };
        match kind_of(rq) {
            Some(kind) if !has_failed => self.counters.end(kind, moved),
            _ => self.counters.fail(),
        }
    }

    /// Answers a request with an error.
    pub(crate) fn reply_error(&mut self, rq: &Request, error: NbdError, message: &str) {
        let transmission = self.phase.transmission();
        self.output.push_with(|heads| transmission.error(rq, error, message, heads));
    }

    /// Whether everything that was begun has been answered, and nothing more will be. A write whose
    /// payload has not come to its end was not begun.
    pub(crate) fn is_over(&self) -> bool {
        let nr_half = u32::from(self.payload.is_some());
        self.ending.is_some() && self.nr_in_flight == nr_half && !self.wants_write()
    }

    /// Whether a disk has yet to end something of it. What waits for memory waits for the client to
    /// take its replies, and questions about ranges may hang.
    pub(crate) fn waits_for_disk(&self) -> bool {
        let nr_half = u32::from(self.payload.is_some());
        self.nr_in_flight > nr_half + self.nr_questions + self.paused.len() as u32
    }

    /// The last words of a connection that is not broken.
    pub(crate) fn say_goodbye(&mut self) {
        if !self.is_given_up()
            && let Transport::Tls(tls) = &mut self.transport
        {
            tls.close_notify(&self.fd);
        }
    }

    /// Whether it is to be closed as it is.
    pub(crate) fn is_given_up(&self) -> bool {
        self.ending.as_ref().is_some_and(Ending::is_at_once)
    }

    /// Nothing can be said to this client any more.
    pub(crate) fn break_off(&mut self, why: String) {
        self.ending = Some(Ending::Broken(why));
    }

    /// Whether the data of this request must come in one go, with nothing in between: it is a read,
    /// and its reply has one head for all of it.
    pub(crate) fn must_be_contiguous(&self, rq: &Request) -> bool {
        let Phase::Transmission(transmission) = &self.phase else { return false };
        match rq.command {
            Ok(Command::Read { df }) => df || transmission.framing() == Framing::Simple,
            _ => false,
        }
    }

    /// Whether bytes of it may be read now.
    pub(crate) fn may_read(&self) -> bool {
        self.ending.is_none() && !self.is_stalled
    }

    /// Receives into the slices, in their order. 0: the client has closed its side.
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

    /// Whether there are bytes to be received though the socket may have none.
    pub(crate) fn has_plaintext(&self) -> bool {
        match &self.transport {
            Transport::Plain => false,
            Transport::Tls(tls) => tls.has_plaintext(),
        }
    }

    /// Sends what there is, as far as the socket takes it.
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

    /// Whether the socket must take more before everything has been sent.
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
