//! Desk: the host, the table of requests in flight, and the state that sessions share. The front
//! passes it to a session that works on its requests.

use super::{MemoryOf, Session};
use crate::flight::{Failure, Flight};
use crate::host::{Host, Io};
use crate::slots::{Key, Slots};
use forebay_core::SubmitErrorKind;
use std::fmt;

/// Result of an attempt to begin a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The request is in flight, or answered.
    Yes,
    /// No memory or no bio is free.
    NoRoom,
}

/// The host, the requests in flight and the shared state of the sessions of one front.
pub struct Desk<S: Session> {
    pub(crate) host: S::Host,
    pub(crate) common: S::Common,
    pub(crate) flights: Slots<Flight<S::Request>>,
    /// Requests that may be over although no completion will report it.
    pub(crate) to_settle: Vec<Key>,
    /// Requests begun in this round, without background work.
    pub(crate) nr_begun: u64,
    /// Whether any request began since the last tick.
    was_used: bool,
    /// Start of this round, ns.
    pub(crate) now_ns: u64,
    /// Time of the last reap of this round that has returned completions, or its start, ns.
    pub(crate) ended_ns: u64,
}

impl<S: Session> fmt::Debug for Desk<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nr_flights = self.flights.len();
        f.debug_struct("Desk")
            .field("host", &self.host)
            .field("flights", &nr_flights)
            .finish_non_exhaustive()
    }
}

impl<S: Session> Desk<S> {
    pub(crate) fn new(host: S::Host, common: S::Common) -> Desk<S> {
        Desk {
            host,
            common,
            flights: Slots::new(),
            to_settle: Vec::new(),
            nr_begun: 0,
            was_used: false,
            now_ns: 0,
            ended_ns: 0,
        }
    }

    /// Returns whether no request has begun since the last call.
    pub(crate) fn is_idle(&mut self) -> bool {
        !std::mem::take(&mut self.was_used)
    }

    /// Returns the number of requests that have begun since the last call.
    #[inline]
    pub(crate) fn take_nr_begun(&mut self) -> u64 {
        let nr = std::mem::take(&mut self.nr_begun);
        self.was_used |= nr > 0;
        nr
    }

    /// Returns a request that begins now, with all its I/O submitted.
    #[inline]
    pub(crate) fn flight(&self, client: Key, export: usize, rq: S::Request) -> Flight<S::Request> {
        let now_ns = self.now_ns;
        Flight {
            client,
            export,
            begun_ns: now_ns,
            issued_ns: now_ns,
            in_disk: 0,
            is_all_there: true,
            failure: None,
            rq,
        }
    }

    /// Submits an I/O of a client.
    #[inline(always)]
    pub(crate) fn submit(
        &mut self,
        peer: &<S::Host as Host>::Peer,
        export: usize,
        io: Io<MemoryOf<S>>,
    ) -> Result<(), (SubmitErrorKind, Option<MemoryOf<S>>)> {
        let now_ns = self.now_ns;
        self.host.submit(peer, export, io, now_ns)
    }

    /// Returns how many I/Os of a client the disks have not completed.
    pub(crate) fn nr_at_disk(&mut self, client: Key) -> u32 {
        let (mut at, mut nr) = (0, 0);
        while let Some(key) = self.flights.next_key(&mut at) {
            let flight = self.flights.get_mut(key).expect("just found");
            nr += if flight.client == client { flight.in_disk } else { 0 };
        }
        nr
    }

    /// Fails a request whose I/O the layer has refused for good. No completion reports that, so the
    /// request is added to the list of those to settle.
    pub(crate) fn refused(&mut self, key: Key, refusal: SubmitErrorKind) {
        let flight = self.flights.get_mut(key).expect("inserted by the caller");
        flight.fail(Failure::from(refusal));
        self.to_settle.push(key);
    }
}
