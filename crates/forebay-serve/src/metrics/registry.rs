//! What the server counts: who writes it, and where a scrape finds it.
//!
//! A connection belongs to one worker at a time, which is the only writer of its counters. What a
//! connection has counted is added to its export's when it ends, under the lock under which a
//! scrape adds up those that are open: so nothing is counted twice, and nothing is lost. Times are
//! counted by the worker, for each export.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay::Disk;

use super::counter::{Counter, SharedCounter, Times, TimesSum};

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// FLUSH.
    Flush,
    /// TRIM.
    Trim,
    /// WRITE_ZEROES.
    WriteZeroes,
    /// CACHE.
    Cache,
    /// BLOCK_STATUS.
    BlockStatus,
    /// Something that is not done, or not here.
    Refused,
}

impl RequestKind {
    pub(super) const ALL: [(RequestKind, &'static str); 8] = [
        (RequestKind::Read, "read"),
        (RequestKind::Write, "write"),
        (RequestKind::Flush, "flush"),
        (RequestKind::Trim, "trim"),
        (RequestKind::WriteZeroes, "write_zeroes"),
        (RequestKind::Cache, "cache"),
        (RequestKind::BlockStatus, "block_status"),
        (RequestKind::Refused, "refused"),
    ];
}

/// Where a request spends its time in the server. The disk's own stages are the disk's to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// From its header being there to its being handed to the disk, all of it: waits for its
    /// payload, memory, and the rest of the batch.
    Receive,
    /// From there until its end at the disk was seen. Its reply leaves at once, if the client takes
    /// it.
    Disk,
}

impl Stage {
    pub(super) const ALL: [(Stage, &'static str); 2] =
        [(Stage::Receive, "receive"), (Stage::Disk, "disk")];
}

/// Why a connection was closed as soon as it was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// As many as allowed are open.
    TooMany,
    /// The process has no descriptor left.
    NoDescriptor,
}

impl Refusal {
    pub(super) const ALL: [(Refusal, &'static str); 2] =
        [(Refusal::TooMany, "connections"), (Refusal::NoDescriptor, "descriptors")];
}

/// Why a connection never came to ask for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeFailure {
    /// It took too long.
    Timeout,
    /// It broke the protocol.
    Protocol,
    /// TLS failed, or was needed and not asked for.
    Tls,
    /// The peer was gone. Looking at the exports and leaving is no failure.
    Gone,
}

impl HandshakeFailure {
    pub(super) const ALL: [(HandshakeFailure, &'static str); 4] = [
        (HandshakeFailure::Timeout, "timeout"),
        (HandshakeFailure::Protocol, "protocol"),
        (HandshakeFailure::Tls, "tls"),
        (HandshakeFailure::Gone, "gone"),
    ];
}

/// What an export, a connection or a connection that is gone was asked for.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: [Counter; RequestKind::ALL.len()],
    ended: Counter,
    errors: Counter,
    read_bytes: Counter,
    written_bytes: Counter,
    received_bytes: Counter,
    sent_bytes: Counter,
}

impl Traffic {
    /// A request is there, and not answered yet.
    #[inline]
    pub(crate) fn begin(&self, kind: RequestKind) {
        self.requests[kind as usize].add(1);
    }

    /// A request was answered: `bytes` of data were read for it or written by it.
    #[inline]
    pub(crate) fn end(&self, kind: RequestKind, bytes: u64) {
        self.ended.add(1);
        match kind {
            RequestKind::Read => self.read_bytes.add(bytes),
            RequestKind::Write => self.written_bytes.add(bytes),
            _ => {}
        }
    }

    /// A request was answered with an error.
    #[inline]
    pub(crate) fn fail(&self) {
        self.ended.add(1);
        self.errors.add(1);
    }

    /// Bytes came from the client: headers, payloads, the handshake; without TLS's own.
    #[inline]
    pub(crate) fn received(&self, bytes: u64) {
        self.received_bytes.add(bytes);
    }

    /// Bytes went to the client.
    #[inline]
    pub(crate) fn sent(&self, bytes: u64) {
        self.sent_bytes.add(bytes);
    }

    /// A copy as of now.
    pub(crate) fn sum(&self) -> TrafficSum {
        // First what has ended: so no request has ended that has not begun.
        let mut sum = TrafficSum { ended: self.ended.get(), ..Default::default() };
        for (sum, counter) in sum.requests.iter_mut().zip(&self.requests) {
            *sum = counter.get();
        }
        sum.errors = self.errors.get();
        sum.read_bytes = self.read_bytes.get();
        sum.written_bytes = self.written_bytes.get();
        sum.received_bytes = self.received_bytes.get();
        sum.sent_bytes = self.sent_bytes.get();
        sum
    }
}

/// What [`Traffic`] has counted at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrafficSum {
    requests: [u64; RequestKind::ALL.len()],
    ended: u64,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// Bytes of data that reads have brought.
    pub read_bytes: u64,
    /// Bytes of data that writes have taken.
    pub written_bytes: u64,
    /// Bytes from the client.
    pub received_bytes: u64,
    /// Bytes to the client.
    pub sent_bytes: u64,
}

impl TrafficSum {
    /// Requests of this kind.
    pub(crate) fn requests(&self, kind: RequestKind) -> u64 {
        self.requests[kind as usize]
    }

    /// Requests of all kinds.
    pub(crate) fn all_requests(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// Requests that were not answered yet.
    pub(crate) fn in_flight(&self) -> u64 {
        self.all_requests().saturating_sub(self.ended)
    }

    fn add(&mut self, other: &TrafficSum) {
        for (sum, more) in self.requests.iter_mut().zip(&other.requests) {
            *sum += more;
        }
        self.ended += other.ended;
        self.errors += other.errors;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
    }
}

/// What a connection is and has counted. Its worker writes it, and nobody else.
#[derive(Debug)]
pub(crate) struct ConnectionCounters {
    id: u64,
    /// The export's index; `NO_EXPORT` before it has chosen one.
    export: AtomicUsize,
    traffic: Traffic,
}

const NO_EXPORT: usize = usize::MAX;

impl ConnectionCounters {
    /// Its number: the first is 1, and none is used again.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// It has chosen an export.
    pub(crate) fn set_export(&self, export: usize) {
        self.export.store(export, Ordering::Relaxed);
    }

    /// The export that it has chosen.
    pub(super) fn export(&self) -> Option<usize> {
        let export = self.export.load(Ordering::Relaxed);
        (export != NO_EXPORT).then_some(export)
    }
}

impl Deref for ConnectionCounters {
    type Target = Traffic;

    fn deref(&self) -> &Traffic {
        &self.traffic
    }
}

/// A connection that is open. Dropped when it ends.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    counters: Arc<ConnectionCounters>,
    source: Arc<Source>,
}

impl Deref for OpenConnection {
    type Target = ConnectionCounters;

    fn deref(&self) -> &ConnectionCounters {
        &self.counters
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut open = self.source.lock();
        open.connections.retain(|other| !Arc::ptr_eq(other, &self.counters));
        let mut sum = self.counters.sum();
        // What it has left behind will not be answered any more.
        sum.ended = sum.all_requests();
        match self.counters.export() {
            Some(export) => open.ended[export].add(&sum),
            None => open.without_export.add(&sum),
        }
    }
}

/// The times of one worker's requests. It is their only writer.
#[derive(Debug)]
pub(crate) struct WorkerCounters {
    exports: Vec<[Times; Stage::ALL.len()]>,
}

impl WorkerCounters {
    /// A request of an export has spent this time in a stage, ns.
    #[inline]
    pub(crate) fn record(&self, export: usize, stage: Stage, ns: u64) {
        self.exports[export][stage as usize].record(ns);
    }
}

/// What is rare enough for any thread to count.
#[derive(Debug, Default)]
pub(crate) struct ServerCounters {
    refused: [SharedCounter; Refusal::ALL.len()],
    handshake_failures: [SharedCounter; HandshakeFailure::ALL.len()],
    /// Panics that were caught at the border of a connection. Each is a fault of the server.
    pub panics: SharedCounter,
    /// Failures of accept(2) that were not a connection's own.
    pub accept_errors: SharedCounter,
}

impl ServerCounters {
    /// A connection was closed as soon as it was there.
    pub(crate) fn refuse(&self, why: Refusal) {
        self.refused[why as usize].count();
    }

    /// A connection ended before it came to ask for data.
    pub(crate) fn fail_handshake(&self, why: HandshakeFailure) {
        self.handshake_failures[why as usize].count();
    }

    pub(super) fn refused(&self, why: Refusal) -> u64 {
        self.refused[why as usize].get()
    }

    pub(super) fn handshake_failures(&self, why: HandshakeFailure) -> u64 {
        self.handshake_failures[why as usize].get()
    }
}

/// An export, as the metrics know it.
#[derive(Clone, Debug)]
pub(crate) struct ExportSource {
    /// Its name, the label `device`.
    pub name: String,
    /// Its disk.
    pub disk: Disk,
}

/// All that is counted.
#[derive(Debug)]
pub(crate) struct Source {
    exports: Vec<ExportSource>,
    server: ServerCounters,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    next_id: u64,
    connections: Vec<Arc<ConnectionCounters>>,
    workers: Vec<Arc<WorkerCounters>>,
    /// The traffic of connections that have ended, for each export.
    ended: Vec<TrafficSum>,
    /// That of those that never chose one.
    without_export: TrafficSum,
}

/// All connections and times at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) connections: Vec<ConnectionSnapshot>,
    pub(super) exports: Vec<ExportSnapshot>,
    /// Connections so far.
    pub(super) accepted: u64,
}

#[derive(Debug)]
pub(super) struct ConnectionSnapshot {
    pub(super) id: u64,
    pub(super) export: Option<usize>,
    pub(super) traffic: TrafficSum,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ExportSnapshot {
    pub(super) connections: u64,
    pub(super) traffic: TrafficSum,
    pub(super) stages: [TimesSum; Stage::ALL.len()],
}

impl Source {
    /// Counters for a server of these exports, whose indices are what the others here take.
    pub(crate) fn new(exports: Vec<ExportSource>) -> Arc<Source> {
        let open = Open {
            next_id: 1,
            connections: Vec::new(),
            workers: Vec::new(),
            ended: vec![TrafficSum::default(); exports.len()],
            without_export: TrafficSum::default(),
        };
        Arc::new(Source { exports, server: ServerCounters::default(), open: Mutex::new(open) })
    }

    /// Counters of a connection that was accepted.
    pub(crate) fn open_connection(self: &Arc<Source>) -> OpenConnection {
        let mut open = self.lock();
        let counters = Arc::new(ConnectionCounters {
            id: open.next_id,
            export: AtomicUsize::new(NO_EXPORT),
            traffic: Traffic::default(),
        });
        open.next_id += 1;
        open.connections.push(Arc::clone(&counters));
        OpenConnection { counters, source: Arc::clone(self) }
    }

    /// Counters of a worker.
    pub(crate) fn worker(&self) -> Arc<WorkerCounters> {
        let exports = self.exports.iter().map(|_| Default::default()).collect();
        let worker = Arc::new(WorkerCounters { exports });
        self.lock().workers.push(Arc::clone(&worker));
        worker
    }

    /// Counters of the whole server.
    pub(crate) fn server(&self) -> &ServerCounters {
        &self.server
    }

    pub(super) fn exports(&self) -> &[ExportSource] {
        &self.exports
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let open = self.lock();
        let mut exports: Vec<_> = open
            .ended
            .iter()
            .map(|ended| ExportSnapshot { traffic: *ended, ..Default::default() })
            .collect();
        let connections = open
            .connections
            .iter()
            .map(|connection| {
                let (export, traffic) = (connection.export(), connection.sum());
                if let Some(export) = export {
                    exports[export].traffic.add(&traffic);
                    exports[export].connections += 1;
                }
                ConnectionSnapshot { id: connection.id, export, traffic }
            })
            .collect();
        for worker in &open.workers {
            for (export, stages) in exports.iter_mut().zip(&worker.exports) {
                for (sum, times) in export.stages.iter_mut().zip(stages) {
                    times.add_to(sum);
                }
            }
        }
        Snapshot { connections, exports, accepted: open.next_id - 1 }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Each change under it is whole even if a panic follows.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Arc<Source> {
        let disk = Disk::open("null:1M").unwrap();
        Source::new(vec![ExportSource { name: "a".into(), disk }])
    }

    #[test]
    fn what_a_connection_has_counted_stays_with_its_export() {
        let source = source();
        let (one, other) = (source.open_connection(), source.open_connection());
        one.set_export(0);
        one.begin(RequestKind::Read);
        one.begin(RequestKind::Write);
        one.end(RequestKind::Read, 4096);
        other.set_export(0);
        other.begin(RequestKind::Flush);
        other.fail();
        let before = source.snapshot();
        assert_eq!((before.connections.len(), before.exports[0].connections), (2, 2));
        let sum = before.exports[0].traffic;
        assert_eq!((sum.all_requests(), sum.in_flight(), sum.errors), (3, 1, 1));
        one.end(RequestKind::Write, 512);
        other.begin(RequestKind::Read);
        drop((one, other));
        let after = source.snapshot();
        assert_eq!((after.connections.len(), after.accepted), (0, 2));
        let sum = after.exports[0].traffic;
        assert_eq!((sum.all_requests(), sum.in_flight(), sum.errors), (4, 0, 1));
        assert_eq!((sum.read_bytes, sum.written_bytes), (4096, 512));
    }

    #[test]
    fn numbers_of_connections_are_not_used_again() {
        let source = source();
        assert_eq!(source.open_connection().id(), 1);
        assert_eq!(source.open_connection().id(), 2);
        assert_eq!(source.snapshot().accepted, 2);
    }

    #[test]
    fn times_of_all_workers_are_added_up() {
        let source = source();
        source.worker().record(0, Stage::Disk, 1000);
        source.worker().record(0, Stage::Disk, 500);
        source.worker().record(0, Stage::Receive, 7);
        let stages = &source.snapshot().exports[0].stages;
        assert_eq!(stages.each_ref().map(TimesSum::sum_ns), [7, 1500]);
    }
}
