//! Host of a front: the library's queues, epoll, the log and the metrics.

use super::client::Client;
use super::inbox::{WorkerCommand, WorkerInbox};
use super::timer::Timer;
use crate::clients::Place;
use crate::export::Export;
use crate::host::{HostBase, WatchedQueue};
use crate::log::{Closed as ClosedLine, Opened as OpenedLine};
use crate::metrics::{ConnectionRefusal, HandshakeFailure, StageTimes};
use crate::shared::Shared;
use crate::tenant::Seat;
use crate::tls::TlsStream;
use forebay::{BioFlags, Buf, Completion, LateRequest, LateStage, Op, PlugGuard, SubmitErrorKind};
use forebay_front::nbd::{ExportFacts, NbdHost, Opened, StatusQuery};
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

/// An export with this thread's queue.
struct OpenExport {
    export: Arc<Export>,
    queue: WatchedQueue,
    times: Arc<StageTimes>,
    /// Most I/Os in the queue.
    nr_bios: usize,
}

/// The host of a worker's front.
pub(super) struct WorkerHost {
    common: HostBase,
    inbox: Arc<WorkerInbox>,
    /// Timer for deadlines and for freeing memory: waits for events have no timeout.
    timer: Timer,
    /// The exports, by index. Their queues are opened before clients are served: a disk on an NBD
    /// server connects to it, and no client must wait for that. `None`: the index is free.
    exports: Vec<Option<OpenExport>>,
    /// Places of clients that are gone, and how many of their I/Os are in flight.
    gone: HashMap<u64, (Seat, u32)>,
}

impl fmt::Debug for WorkerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nr = self.exports.len();
        f.debug_struct("WorkerHost").field("exports", &nr).finish_non_exhaustive()
    }
}

impl WorkerHost {
    pub(super) fn new(
        shared: Arc<Shared>,
        inbox: Arc<WorkerInbox>,
        (epoll, timer): (OwnedFd, Timer),
        offered: Vec<(usize, Arc<Export>)>,
    ) -> WorkerHost {
        let mut host = WorkerHost {
            exports: Vec::new(),
            gone: HashMap::new(),
            common: HostBase::new(Arc::clone(&shared), epoll),
            inbox,
            timer,
        };
        for (index, export) in offered {
            host.open_export(index, export);
        }
        host
    }

    /// Opens this thread's queue of an export.
    pub(super) fn open_export(&mut self, index: usize, export: Arc<Export>) {
        let times = self.common.shared().counters.times(index);
        let queue = WatchedQueue::new(export.disk.queue());
        let nr_bios = export.disk.info().policy.nr_bios as usize;
        if self.exports.len() <= index {
            self.exports.resize_with(index + 1, || None);
        }
        self.exports[index] = Some(OpenExport { export, queue, times, nr_bios });
    }

    /// Closes this thread's queue of an export that no client uses. Returns false if I/O is in
    /// flight.
    pub(super) fn close_export(&mut self, index: usize) -> bool {
        let Some(open) = &mut self.exports[index] else { return true };
        if !open.queue.queue().is_empty() {
            return false;
        }
        open.queue.unwatch(&self.common);
        self.exports[index] = None;
        self.common.shared().exports.left(index);
        true
    }

    /// Returns the facts of the first `nr` exports, for their sessions. No session uses those of a
    /// free index.
    pub(super) fn facts_of(&self, nr: usize) -> Vec<ExportFacts> {
        let free =
            ExportFacts { discards_to_zeroes: false, keeps_data: false, caches_reads: false };
        let facts = |open: &Option<OpenExport>| open.as_ref().map_or(free, |it| it.export.facts);
        self.exports.iter().map(facts).chain(std::iter::repeat(free)).take(nr).collect()
    }

    /// Returns an export that is open.
    #[inline]
    fn open(&self, export: usize) -> &OpenExport {
        self.exports[export].as_ref().expect("clients have chosen it")
    }

    /// Returns the parts that do not depend on the protocol.
    pub(super) fn common(&self) -> &HostBase {
        &self.common
    }

    pub(super) fn timer(&mut self) -> &mut Timer {
        &mut self.timer
    }

    /// Records that the descriptor of an export's queue was reported.
    pub(super) fn note_readable(&mut self, export: usize) {
        if let Some(open) = &mut self.exports[export] {
            open.queue.note_readable();
        }
    }

    /// Registers the descriptors of the queues at epoll, so that completions wake this thread. If
    /// the process has no descriptor left, as when clients have used all, ticks replace these
    /// events until there is one again.
    pub(super) fn watch_queues(&mut self) {
        for (export, open) in self.exports.iter_mut().enumerate() {
            let Some(open) = open else { continue };
            if !open.queue.watch(&self.common, OF_QUEUE | export as u64) {
                return self.timer.arm();
            }
        }
    }

    /// Logs each request of the disks that exceeded its time limit.
    fn log_late(&self, now_ns: u64) {
        for OpenExport { export, .. } in self.exports.iter().flatten() {
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
                let log = |line| self.common.warn(now_ns, line);
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
        let open = self.exports[export].as_mut().expect("clients have chosen it");
        let submitted = open.queue.queue_mut().submit_at(io, now_ns);
        submitted.map_err(|error| (error.kind, error.io.into_buf()))
    }

    fn reap(&mut self, done: &mut Vec<Completion>, now_ns: u64) {
        self.exports.iter_mut().flatten().for_each(|open| open.queue.reap_all(done));
        self.log_late(now_ns);
    }

    #[inline]
    fn parts(completion: Completion) -> Parts<Buf> {
        (completion.user_data, completion.result, completion.buf)
    }

    fn wants_reap(&self) -> bool {
        self.exports.iter().flatten().any(|open| open.queue.queue().wants_reap())
    }

    fn is_busy(&self) -> bool {
        self.exports.iter().flatten().any(|open| !open.queue.queue().is_empty())
    }

    fn is_busy_with(&self, export: usize) -> bool {
        !self.open(export).queue.queue().is_empty()
    }

    fn has_room(&self, export: usize, nr: usize) -> bool {
        let open = self.open(export);
        open.queue.queue().len() + nr <= open.nr_bios
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
        // The last times of a client that has gone may come after its export.
        if let Some(Some(open)) = self.exports.get(export) {
            open.times.record(stage, ns, nr);
        }
    }

    fn panicked(&mut self, _panic: Box<dyn Any + Send>) {
        self.common.count_panic();
    }

    fn failed(&mut self, client: &Client, failed: &Failed<'_>, now_ns: u64) {
        let &Failed { export, kind, offset, len, why } = failed;
        let (id, export) = (client.counters().id(), &self.open(export).export.name);
        let line = format_args!(
            "connection {id}: export {export:?}: {kind:?} of {len} bytes at {offset} failed: {why}"
        );
        self.common.warn(now_ns, line);
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
            export: export.map(|export| self.open(export).export.name.as_str()),
            why: ending.map_or("closed", Ending::why),
            traffic: client.counters().sum(),
            open_ns: now_ns.saturating_sub(opened_ns),
        };
        self.common.log(now_ns, line);
        self.inbox.closed();
        self.common.shared().closing.note_end();
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
        let open = self.open(export);
        let (id, peer) = (client.counters().id(), client.peer());
        let place = Place { address: peer.into(), peer, submitter: Arc::default() };
        client.set_seat(open.export.tenant.connect(id, place));
        self.common.shared().closing.note_client();
        let tls = client.tls().map(TlsStream::description);
        let line = OpenedLine { id, peer, export: &open.export.name, tls: tls.as_deref(), mode };
        self.common.log(now_ns, line);
    }

    fn refused(&mut self) {
        self.common.shared().counters.server().refuse(ConnectionRefusal::TooMany);
    }

    fn query_status(&mut self, query: StatusQuery) -> bool {
        let inbox = Arc::clone(&self.inbox);
        // A worker that has ended needs no answer.
        let answer = move |answer| _ = inbox.push(WorkerCommand::Answer(answer));
        self.common.shared().status.query(query, answer)
    }
}
