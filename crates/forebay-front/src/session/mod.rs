//! Session: the protocol of one client.
//!
//! The front owns the rounds: it decides which session may work when, under which plug, and when
//! replies leave. A session takes requests from its client, submits their I/O, and makes replies
//! from completions. Bytes of a stream and rings in shared memory both fit: the front sees neither.

mod desk;

use crate::flight::{Answered, Ended, Flight};
use crate::host::Host;
use crate::link::Link;
use crate::slots::{Key, Slots};
pub(crate) use desk::Begun;
pub use desk::Desk;

/// Progress of a session that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It made no progress.
    Stuck,
    /// It made progress.
    Moved,
    /// It made progress, and input is left that no event reports.
    HasMore,
}

/// Result of [`Session::settle`].
#[derive(Debug)]
pub enum Settled {
    /// The request is answered and removed. The other requests waited for that, and are settled
    /// next.
    Answered(Answered, Vec<Key>),
    /// More of its I/O was submitted, or waits for memory.
    Continues,
    /// Its input is incomplete, or its reply waits for another request.
    NotYet,
}

/// The protocol of one client.
pub trait Session: Sized {
    /// The host of the front.
    type Host: Host;
    /// State that all sessions of a front share, such as their memory.
    type Common;
    /// State of receiving that all sessions of a front share, such as their buffer.
    type Inbound;
    /// The protocol's part of a request in flight.
    type Request;

    /// Begins the session of a new client.
    fn open(desk: &mut Desk<Self>, link: Link<Self::Host>) -> Self;

    /// Returns the part of the session that the front keeps.
    fn link(&self) -> &Link<Self::Host>;

    /// Returns the part of the session that the front keeps.
    fn link_mut(&mut self) -> &mut Link<Self::Host>;

    /// Returns the index of the export that the client uses; `None`: it has not chosen one.
    fn export(&self) -> Option<usize>;

    /// Returns whether more input may be received now.
    fn may_receive(&self) -> bool;

    /// Returns whether output waits for the client.
    fn wants_send(&self) -> bool;

    /// Returns whether the session waits for memory, for the disk or for its client, so that the
    /// front must resume it.
    fn is_waiting(&self) -> bool;

    /// Returns whether the session ends, and nothing of it is left to do.
    fn is_over(&self) -> bool;

    /// Returns whether a disk has still to complete I/O of this session. Requests that wait for
    /// their client do not count.
    fn waits_for_disk(&self) -> bool;

    /// Receives input and begins its requests. Returns whether input is left that no event reports.
    fn receive(&mut self, desk: &mut Desk<Self>, inbound: &mut Self::Inbound) -> bool;

    /// Continues where the session waited.
    fn resume(&mut self, desk: &mut Desk<Self>, inbound: &mut Self::Inbound) -> Progress;

    /// Sends output until the client takes no more.
    ///
    /// # Errors
    /// Returns the reason if the client cannot be reached any more.
    fn send(&mut self, desk: &mut Desk<Self>) -> Result<(), String>;

    /// Handles the end of one I/O of a request. Returns the request if it was answered; otherwise
    /// the front settles it.
    fn complete(&mut self, desk: &mut Desk<Self>, ended: EndedOf<Self>) -> Option<Answered>;

    /// Handles the end of an I/O whose client is gone.
    fn complete_gone(desk: &mut Desk<Self>, ended: EndedOf<Self>);

    /// Answers or continues a request without I/O in flight.
    fn settle(&mut self, desk: &mut Desk<Self>, key: Key) -> Settled;

    /// Releases the resources of a request whose client is gone.
    fn drop_request(desk: &mut Desk<Self>, flight: Flight<Self::Request>);

    /// Releases the resources of the session, except I/O in flight. Returns the requests to settle
    /// after that.
    fn close(&mut self, desk: &mut Desk<Self>, inbound: &mut Self::Inbound) -> Vec<Key>;

    /// Does background work, such as read-ahead. Called at the end of each round. Returns whether
    /// there is work that no event reports.
    fn end_round(desk: &mut Desk<Self>, clients: &mut Clients<Self>) -> bool;

    /// Returns whether the sessions need a tick.
    fn wants_tick(desk: &Desk<Self>) -> bool;

    /// Handles a tick of the front. `is_idle`: no request has begun for a while. Returns whether
    /// clients wait for resources that others hold. If so, the front calls
    /// [`Session::end_if_stuck`] for each client.
    fn tick(desk: &mut Desk<Self>, is_idle: bool) -> bool;

    /// Ends the client if it holds resources for too long while other clients wait for them.
    fn end_if_stuck(&mut self, now_ns: u64);
}

/// The clients of a front.
pub type Clients<S> = Slots<Box<S>>;

/// The memory that a session's I/O uses.
pub type MemoryOf<S> = <<S as Session>::Host as Host>::Memory;

/// The end of an I/O of a session.
pub type EndedOf<S> = Ended<MemoryOf<S>>;
