//! The front's part of a session: the state of a client that does not depend on its protocol.

use crate::ending::Ending;
use crate::host::{Host, Interest, Peer};
use crate::kinds::RequestKind;
use crate::slots::Key;

/// The front's part of a session.
#[derive(Debug)]
pub struct Link<H: Host> {
    key: Key,
    /// The host's part of the client.
    pub peer: H::Peer,
    opened_ns: u64,
    /// Requests in flight: begun, and not answered.
    nr_in_flight: u32,
    /// Reason why the client is closed. If it is set, nothing more is received.
    ending: Option<Ending>,
    /// Time at which the client is closed by force, ns: the end of the time limit for the
    /// handshake, or for the last replies.
    pub(crate) deadline_ns: Option<u64>,
    /// Events for which the host watches the client.
    pub(crate) interest: Interest,
    /// Lists of the front in which the client is.
    pub(crate) listed: Listed,
}

/// Lists of the front in which a client is, each at most once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Listed {
    pub(crate) waiting: bool,
    pub(crate) dirty: bool,
    pub(crate) again: bool,
}

impl<H: Host> Link<H> {
    pub(crate) fn new(key: Key, peer: H::Peer, opened_ns: u64) -> Link<H> {
        Link {
            key,
            peer,
            opened_ns,
            nr_in_flight: 0,
            ending: None,
            deadline_ns: None,
            interest: Interest::default(),
            listed: Listed::default(),
        }
    }

    /// Returns the key of the client in the front.
    #[inline]
    pub fn key(&self) -> Key {
        self.key
    }

    /// Returns the time when the client was accepted, ns.
    pub(crate) fn opened_ns(&self) -> u64 {
        self.opened_ns
    }

    /// Returns the reason why the client is closed, if it is.
    #[inline]
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Returns whether the client is to be closed.
    #[inline]
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Ends the client for this reason. A later reason replaces an earlier one.
    pub fn end(&mut self, ending: Ending) {
        self.ending = Some(ending);
    }

    /// Ends the client for this reason, unless it ends already.
    pub(crate) fn end_if_open(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
    }

    /// Marks the client as broken: nothing more can be sent.
    pub fn break_off(&mut self, why: String) {
        self.end(Ending::Broken(why));
    }

    /// Returns whether the client is closed without its last replies.
    #[inline]
    pub fn is_given_up(&self) -> bool {
        self.ending.as_ref().is_some_and(Ending::is_at_once)
    }

    /// Returns the number of requests in flight.
    #[inline]
    pub fn nr_in_flight(&self) -> u32 {
        self.nr_in_flight
    }

    /// Counts a request that begins.
    #[inline]
    pub fn begun(&mut self) {
        self.nr_in_flight += 1;
    }

    /// Counts a request that has ended, with `bytes` moved. `kind` is `None` if it failed.
    #[inline]
    pub fn ended(&mut self, kind: Option<RequestKind>, bytes: u64) {
        self.nr_in_flight -= 1;
        match kind {
            Some(kind) => self.peer.end(kind, bytes),
            None => self.peer.fail(),
        }
    }
}
