//! Host of a front: disks, transport of clients, clock, counters and log.
//!
//! The server implements these traits with the library's queues, sockets and epoll. The simulator
//! implements them with virtual time, pipes and a simulated disk, and so runs the front that ships.

use crate::ending::Ending;
use crate::kinds::{RequestKind, Stage};
use crate::plant::plants;
use crate::slots::Key;
use forebay_core::{BioFlags, BlockStatus, Op, SubmitErrorKind};
use std::any::Any;
use std::fmt::Debug;
use std::io;

/// An I/O that a front submits. Offset and length are in bytes.
#[derive(Debug)]
pub struct Io<M> {
    /// The operation.
    pub op: Op,
    /// Start on the disk.
    pub offset: u64,
    /// Length of the range. The memory may be longer.
    pub len: u64,
    /// FUA or BACKGROUND.
    pub flags: BioFlags,
    /// Number that the completion carries.
    pub user_data: u64,
    /// Memory of a read or a write.
    pub memory: Option<M>,
}

impl<M> Io<M> {
    /// Returns an I/O on a range, without memory.
    #[inline]
    pub fn range(op: Op, offset: u64, len: u64) -> Io<M> {
        Io { op, offset, len, flags: BioFlags::NONE, user_data: 0, memory: None }
    }

    /// Returns a read or a write of the first `len` bytes of `memory`.
    #[inline]
    pub fn data(op: Op, memory: M, offset: u64, len: usize) -> Io<M> {
        Io { memory: Some(memory), ..Io::range(op, offset, len as u64) }
    }

    /// Adds FUA: the effect is durable before the completion.
    #[inline]
    #[must_use]
    pub fn fua_if(self, is_fua: bool) -> Io<M> {
        if is_fua && !plants!(ForgetFua) { self.flag(BioFlags::FUA) } else { self }
    }

    /// Adds a flag.
    #[inline]
    #[must_use]
    pub fn flag(self, flag: BioFlags) -> Io<M> {
        Io { flags: self.flags.union(flag), ..self }
    }

    /// Sets the number that the completion carries.
    #[inline]
    #[must_use]
    pub fn user_data(self, user_data: u64) -> Io<M> {
        Io { user_data, ..self }
    }
}

/// A completion in parts: the number of the I/O, the bytes moved or the failure, and the memory.
/// The memory is absent if the I/O had none, or if the disk keeps it (`io_timeout_ms`).
pub type Parts<M> = (u64, Result<u64, BlockStatus>, Option<M>);

/// Events for which a front watches a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// The client has sent something, or has gone.
    pub receive: bool,
    /// The client can take more output.
    pub send: bool,
}

/// A request that has failed, for the log.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    /// Index of the export.
    pub export: usize,
    /// Kind of the request.
    pub kind: RequestKind,
    /// Start of its range, bytes.
    pub offset: u64,
    /// Length of its range, bytes.
    pub len: u64,
    /// The reason.
    pub why: &'a str,
}

/// The end of a client, for the log and the counters.
#[derive(Clone, Copy, Debug)]
pub struct Closed<'a> {
    /// Index of the export, if it has chosen one.
    pub export: Option<usize>,
    /// The reason.
    pub ending: Option<&'a Ending>,
    /// Time when it was accepted, ns.
    pub opened_ns: u64,
    /// The key of the client.
    pub key: Key,
    /// I/Os of the client that the disks have not completed.
    pub nr_at_disk: u32,
}

/// The host of a front: the disks of one worker thread, its clients, and its clock.
pub trait Host: Debug + Sized {
    /// Memory of a read or a write. The disk owns it from the submission to the completion.
    type Memory: Debug;
    /// The host's part of a client: its transport and its counters.
    type Peer: Peer;
    /// A completion, as the disks return it.
    type Completion: Debug;
    /// Keeps a plug open while it lives. I/O that is submitted meanwhile is merged.
    type Plug;

    /// Opens a plug.
    fn plug(&mut self) -> Self::Plug;

    /// Returns the time of a monotonic clock, ns.
    fn now_ns(&self) -> u64;

    /// Submits an I/O of a client to the disk of an export.
    ///
    /// # Errors
    /// Returns the reason of a refusal, and the memory. After `WouldBlock` the front tries again.
    fn submit(
        &mut self,
        peer: &Self::Peer,
        export: usize,
        io: Io<Self::Memory>,
        now_ns: u64,
    ) -> Result<(), (SubmitErrorKind, Option<Self::Memory>)>;

    /// Appends the completions of all disks.
    fn reap(&mut self, done: &mut Vec<Self::Completion>, now_ns: u64);

    /// Returns the parts of a completion.
    fn parts(completion: Self::Completion) -> Parts<Self::Memory>;

    /// Returns whether a reap is due that no event reports: completions are waiting, or I/O was
    /// submitted since the last reap and the host must see it before a wait.
    fn wants_reap(&self) -> bool;

    /// Returns whether any I/O of this front is in flight.
    fn is_busy(&self) -> bool;

    /// Returns whether any I/O of this front is in flight on an export.
    fn is_busy_with(&self, export: usize) -> bool;

    /// Returns whether an export can take `nr` more I/Os now.
    fn has_room(&self, export: usize, nr: usize) -> bool;

    /// Begins to watch a client for events.
    ///
    /// # Errors
    /// Returns the error of the system, such as a lack of memory. Then the front closes the client.
    fn watch(&mut self, peer: &mut Self::Peer, key: Key, interest: Interest) -> io::Result<()>;

    /// Watches a client, which is watched already, for other events than before. The front stores
    /// for which.
    fn change_watch(&mut self, peer: &mut Self::Peer, key: Key, interest: Interest) {
        self.watch(peer, key, interest).expect("the client is watched already");
    }

    /// Adds the time that each of `nr` requests has spent in a stage, ns.
    fn record(&mut self, export: usize, stage: Stage, ns: u64, nr: u64);

    /// Counts a panic that ended one client: a bug in the front.
    fn panicked(&mut self, panic: Box<dyn Any + Send>);

    /// Reports a request that has failed.
    fn failed(&mut self, peer: &Self::Peer, failed: &Failed<'_>, now_ns: u64);

    /// Reports a client that is closed.
    fn closed(&mut self, peer: &mut Self::Peer, closed: &Closed<'_>, now_ns: u64);

    /// Reports the end of one of the I/Os that the client with this key had at the disks when it
    /// was closed ([`Closed::nr_at_disk`]).
    fn ended_after_close(&mut self, _client: Key) {}
}

/// The host's part of a client. Counts its requests.
pub trait Peer: Debug {
    /// Counts a request that was received and is not answered yet.
    fn begin(&mut self, kind: RequestKind);

    /// Counts a request that was answered, with `bytes` of data read or written.
    fn end(&mut self, kind: RequestKind, bytes: u64);

    /// Counts a request that was answered with an error.
    fn fail(&mut self);

    /// Records the chosen export.
    fn set_export(&mut self, export: usize);

    /// Notifies the client that the connection ends.
    fn say_goodbye(&mut self);
}
