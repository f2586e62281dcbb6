//! Host of a front: the library's queues, epoll, the log and the metrics.

use super::client::Client;
use super::inbox::WorkerInbox;
use super::status::BlockStatusThreads;
use super::timer::Timer;
use crate::clients::Place;
use crate::host::{HostBase, WatchedQueue};
use crate::log::{Closed as ClosedLine, Opened as OpenedLine};
use crate::metrics::{ConnectionRefusal, HandshakeFailure};
use crate::shared::Shared;
use crate::tenant::Seat;
use crate::tls::TlsStream;
use forebay::{BioFlags, Buf, Completion, LateRequest, LateStage, Op, PlugGuard, SubmitErrorKind};
use forebay_front::nbd::{NbdHost, Opened, StatusQuery};
use forebay_front::{Closed, Ending, Failed, Host, Interest, Io, Key, MARK_SHIFT, Parts, Stage};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Event data of descriptors other than those of connections.
pub(super) const OF_INBOX: u64 = u64::MAX;
pub(super) const OF_TIMER: u64 = u64::MAX - 1;
pub(super) const OF_QUEUE: u64 = 1 << MARK_SHIFT;

/// The host of a worker's front.
pub(super) struct WorkerHost {
    common: HostBase,
    block_status: Arc<BlockStatusThreads>,
    inbox: Arc<WorkerInbox>,
    /// Timer for deadlines and for freeing memory: waits for events have no timeout.
    timer: Timer,
    /// This thread's queue for each export. They are opened before clients are served: a disk on an
    /// NBD server connects to it, and no client must wait for that.
    queues: Vec<WatchedQueue>,
    /// Places of clients that are gone, and how many of their I/Os are in flight.
    gone: HashMap<u64, (Seat, u32)>,
}

impl fmt::Debug for WorkerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerHost").field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl WorkerHost {
    pub(super) fn new(
        shared: Arc<Shared>,
        (block_status, inbox): (Arc<BlockStatusThreads>, Arc<WorkerInbox>),
        (epoll, timer): (OwnedFd, Timer),
    ) -> WorkerHost {
        let queues = shared.exports.iter().map(|export| WatchedQueue::new(export.disk.queue()));
        WorkerHost {
            queues: queues.collect(),
            gone: HashMap::new(),
            common: HostBase::new(shared, epoll),
            block_status,
            inbox,
            timer,
        }
    }

    /// Returns the parts that do not depend on the protocol.
    pub(super) fn common(&self) -> &HostBase {
        &self.common
    }

    pub(super) fn timer(&mut self) -> &mut Timer {
        &mut self.timer
    }

    /// Returns the queue of an export.
    pub(super) fn queue_of(&mut self, export: usize) -> &mut WatchedQueue {
        &mut self.queues[export]
    }

    /// Registers the descriptors of the queues at epoll, so that completions wake this thread. If
    /// the process has no descriptor left, as when clients have used all, ticks replace these
    /// events until there is one again.
    pub(super) fn watch_queues(&mut self) {
        for (export, queue) in self.queues.iter_mut().enumerate() {
            if !queue.watch(&self.common, OF_QUEUE | export as u64) {
                return self.timer.arm();
            }
        }
    }

    /// Logs each request of the disks that exceeded its time limit.
    fn log_late(&self, now_ns: u64) {
        for export in self.common.shared().exports.iter() {
            for late in export.disk.take_late_requests() {
                let LateRequest { op, start, len, stage, .. } = late;
                let policy = &export.disk.info().policy;
                let limit_ms = policy.io_timeout_ns / 1_000_000;
                let grace_ms = policy.io_timeout_grace_ns / 1_000_000;
                let (name, op) = (&export.name, op.name());
                let done = match stage {
                    LateStage::Cancelled => {
                        format!("exceeded the time limit of {limit_ms} ms: cancelling it")
                    }
                    LateStage::Awaited => {
                        format!(
                            "exceeded the time limit of {limit_ms} ms: waiting, because the disk \
                             cannot cancel it"
                        )
                    }
                    LateStage::GivenUp => {
                        format!(
                            "did not complete within {grace_ms} ms after its time limit: the disk \
                             counts as gone and fails all requests; check it and restart the server"
                        )
                    }
                };
                let log = |line| self.common.log(now_ns, line);
                match len {
                    // A flush has no range.
                    0 => log(format_args!("export {name:?}: {op} {done}")),
                    _ => {
                        log(format_args!("export {name:?}: {op} of {len} bytes at {start} {done}"))
                    }
                }
            }
        }
    }
}

/// Returns the events of epoll for which a client is watched.
fn event_flags(interest: Interest) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, interest.receive);
    flags.set(EventFlags::OUT, interest.send);
    flags
}

/// Returns the library's form of an I/O.
#[inline(always)]
fn io_of(io: Io<Buf>) -> forebay::Io {
    let Io { op, offset, len, flags, user_data, memory } = io;
    let io = match (op, memory) {
        (Op::Read, Some(buf)) => forebay::Io::read_part(buf, len as usize, offset),
        (Op::Write, Some(buf)) => forebay::Io::write_part(buf, len as usize, offset),
        (Op::Flush, None) => forebay::Io::flush(),
        (Op::Discard, None) => forebay::Io::discard(offset, len),
        (Op::WriteZeroes, None) => forebay::Io::write_zeroes(offset, len),
        (op, _) => unreachable!("{op:?} with or without memory"),
    };
    let io = if flags.contains(BioFlags::FUA) { io.fua() } else { io };
    let io = if flags.contains(BioFlags::BACKGROUND) { io.background() } else { io };
    io.user_data(user_data)
}

impl Host for WorkerHost {
    type Memory = Buf;
    type Peer = Client;
    type Completion = Completion;
    type Plug = PlugGuard;

    #[inline]
    fn plug(&mut self) -> PlugGuard {
        forebay::plug()
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        forebay::now_ns()
    }

    #[inline]
    fn submit(
        &mut self,
        client: &Client,
        export: usize,
        io: Io<Buf>,
        now_ns: u64,
    ) -> Result<(), (SubmitErrorKind, Option<Buf>)> {
        let origin = client.seat().expect("it has chosen an export").origin();
        let io = io_of(io).origin(origin);
        let submitted = self.queues[export].queue_mut().submit_at(io, now_ns);
        submitted.map_err(|error| (error.kind, error.io.into_buf()))
    }

    fn reap(&mut self, done: &mut Vec<Completion>, now_ns: u64) {
        self.queues.iter_mut().for_each(|queue| queue.reap_all(done));
        self.log_late(now_ns);
    }

    #[inline]
    fn parts(completion: Completion) -> Parts<Buf> {
        (completion.user_data, completion.result, completion.buf)
    }

    fn wants_reap(&self) -> bool {
        self.queues.iter().any(|queue| queue.queue().wants_reap())
    }

    fn is_busy(&self) -> bool {
        self.queues.iter().any(|queue| !queue.queue().is_empty())
    }

    fn is_busy_with(&self, export: usize) -> bool {
        !self.queues[export].queue().is_empty()
    }

    fn has_room(&self, export: usize, nr: usize) -> bool {
        let policy = &self.common.shared().exports[export].disk.info().policy;
        self.queues[export].queue().len() + nr <= policy.nr_bios as usize
    }

    fn watch(&mut self, client: &mut Client, key: Key, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(key.to_u64());
        Ok(epoll::add(self.common.epoll(), client.fd(), data, event_flags(interest))?)
    }

    fn change_watch(&mut self, client: &mut Client, key: Key, interest: Interest) {
        let data = EventData::new_u64(key.to_u64());
        let changed = epoll::modify(self.common.epoll(), client.fd(), data, event_flags(interest));
        changed.expect("the socket is registered at epoll");
    }

    #[inline]
    fn record(&mut self, export: usize, stage: Stage, ns: u64, nr: u64) {
        self.common.record(export, stage, ns, nr);
    }

    fn panicked(&mut self, _panic: Box<dyn Any + Send>) {
        self.common.count_panic();
    }

    fn failed(&mut self, client: &Client, failed: &Failed<'_>, now_ns: u64) {
        let &Failed { export, kind, offset, len, why } = failed;
        let (id, export) = (client.counters().id(), &self.common.shared().exports[export].name);
        let line = format_args!(
            "connection {id}: export {export:?}: {kind:?} of {len} bytes at {offset} failed: {why}"
        );
        self.common.log(now_ns, line);
    }

    fn closed(&mut self, client: &mut Client, closed: &Closed<'_>, now_ns: u64) {
        let &Closed { export, ending, opened_ns, key, nr_at_disk } = closed;
        let failure = ending.and_then(|why| HandshakeFailure::of(why, client.tls().is_some()));
        if let (None, Some(failure)) = (export, failure) {
            self.common.shared().counters.server().fail_handshake(failure);
        }
        let line = ClosedLine {
            id: client.counters().id(),
            peer: client.peer(),
            export: export.map(|export| self.common.shared().exports[export].name.as_str()),
            why: ending.map_or("closed", Ending::why),
            traffic: client.counters().sum(),
            open_ns: now_ns.saturating_sub(opened_ns),
        };
        self.common.log(now_ns, line);
        self.inbox.closed();
        if let Some(mut seat) = client.take_seat()
            && nr_at_disk > 0
        {
            seat.leave();
            self.gone.insert(key.to_u64(), (seat, nr_at_disk));
        }
    }

    fn ended_after_close(&mut self, client: Key) {
        let key = client.to_u64();
        let Some((_, nr_at_disk)) = self.gone.get_mut(&key) else { return };
        *nr_at_disk -= 1;
        if *nr_at_disk == 0 {
            self.gone.remove(&key);
        }
    }
}

impl NbdHost for WorkerHost {
    fn allocate(len: usize) -> Buf {
        Buf::new(len)
    }

    fn start_tls(&mut self, client: &mut Client) -> Result<(), String> {
        let tls =
            self.common.shared().tls.as_ref().expect("TLS is offered only if it is configured");
        client.set_tls(TlsStream::new(tls.config()).map_err(|error| format!("TLS: {error}"))?);
        Ok(())
    }

    fn opened(&mut self, client: &mut Client, opened: &Opened, now_ns: u64) {
        let &Opened { export, mode } = opened;
        let tenant = &self.common.shared().exports[export].tenant;
        let (id, peer) = (client.counters().id(), client.peer());
        let place = Place { address: peer.into(), peer, submitter: Arc::default() };
        client.set_seat(tenant.connect(id, place));
        let tls = client.tls().map(TlsStream::description);
        let line = OpenedLine {
            id,
            peer,
            export: &self.common.shared().exports[export].name,
            tls: tls.as_deref(),
            mode,
        };
        self.common.log(now_ns, line);
    }

    fn refused(&mut self) {
        self.common.shared().counters.server().refuse(ConnectionRefusal::TooMany);
    }

    fn query_status(&mut self, query: StatusQuery) -> bool {
        self.block_status.query(query, &self.inbox)
    }
}
