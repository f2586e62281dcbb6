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

use super::counter::{SharedCounter, Times, TimesSum};
use super::kinds::{ConnectionRefusal, HandshakeFailure, Stage};
use super::traffic::{Traffic, TrafficSum};

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
    all: Arc<Counters>,
}

impl Deref for OpenConnection {
    type Target = ConnectionCounters;

    fn deref(&self) -> &ConnectionCounters {
        &self.counters
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut open = self.all.lock();
        open.connections.retain(|other| !Arc::ptr_eq(other, &self.counters));
        let mut sum = self.counters.sum();
        // What it has left behind has no reader.
        sum.end_all();
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
    refused: [SharedCounter; ConnectionRefusal::ALL.len()],
    handshake_failures: [SharedCounter; HandshakeFailure::ALL.len()],
    /// Panics that were caught at the border of a connection. Each is a fault of the server.
    pub(crate) panics: SharedCounter,
    /// Failures of accept(2) that were not a connection's own.
    pub(crate) accept_errors: SharedCounter,
}

impl ServerCounters {
    /// A connection was closed as soon as it was there.
    pub(crate) fn refuse(&self, why: ConnectionRefusal) {
        self.refused[why as usize].count();
    }

    /// A connection ended before it came to ask for data.
    pub(crate) fn fail_handshake(&self, why: HandshakeFailure) {
        self.handshake_failures[why as usize].count();
    }

    pub(super) fn refused(&self, why: ConnectionRefusal) -> u64 {
        self.refused[why as usize].get()
    }

    pub(super) fn handshake_failures(&self, why: HandshakeFailure) -> u64 {
        self.handshake_failures[why as usize].get()
    }
}

/// An export, as the metrics show it.
#[derive(Clone, Debug)]
pub(crate) struct CountedExport {
    /// The label `device`.
    pub(crate) name: String,
    /// Its disk.
    pub(crate) disk: Disk,
}

/// All that is counted.
#[derive(Debug)]
pub(crate) struct Counters {
    exports: Vec<CountedExport>,
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

impl Counters {
    /// Counters for a server of these exports, whose indices are what the others here take.
    pub(crate) fn new(exports: Vec<CountedExport>) -> Arc<Counters> {
        let open = Open {
            next_id: 1,
            connections: Vec::new(),
            workers: Vec::new(),
            ended: vec![TrafficSum::default(); exports.len()],
            without_export: TrafficSum::default(),
        };
        Arc::new(Counters { exports, server: ServerCounters::default(), open: Mutex::new(open) })
    }

    /// Counters of a connection that was accepted.
    pub(crate) fn open_connection(self: &Arc<Counters>) -> OpenConnection {
        let mut open = self.lock();
        let counters = Arc::new(ConnectionCounters {
            id: open.next_id,
            export: AtomicUsize::new(NO_EXPORT),
            traffic: Traffic::default(),
        });
        open.next_id += 1;
        open.connections.push(Arc::clone(&counters));
        OpenConnection { counters, all: Arc::clone(self) }
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

    pub(super) fn exports(&self) -> &[CountedExport] {
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
    use crate::metrics::kinds::RequestKind;

    fn counters() -> Arc<Counters> {
        let disk = Disk::open("null:1M").unwrap();
        Counters::new(vec![CountedExport { name: "a".into(), disk }])
    }

    #[test]
    fn what_a_connection_has_counted_stays_with_its_export() {
        let counters = counters();
        let (one, other) = (counters.open_connection(), counters.open_connection());
        one.set_export(0);
        one.begin(RequestKind::Read);
        one.begin(RequestKind::Write);
        one.end(RequestKind::Read, 4096);
        other.set_export(0);
        other.begin(RequestKind::Flush);
        other.fail();
        let before = counters.snapshot();
        assert_eq!((before.connections.len(), before.exports[0].connections), (2, 2));
        let sum = before.exports[0].traffic;
        assert_eq!((sum.all_requests(), sum.in_flight(), sum.errors), (3, 1, 1));
        one.end(RequestKind::Write, 512);
        other.begin(RequestKind::Read);
        drop((one, other));
        let after = counters.snapshot();
        assert_eq!((after.connections.len(), after.accepted), (0, 2));
        let sum = after.exports[0].traffic;
        assert_eq!((sum.all_requests(), sum.in_flight(), sum.errors), (4, 0, 1));
        assert_eq!((sum.read_bytes, sum.written_bytes), (4096, 512));
    }

    #[test]
    fn numbers_of_connections_are_not_used_again() {
        let counters = counters();
        assert_eq!(counters.open_connection().id(), 1);
        assert_eq!(counters.open_connection().id(), 2);
        assert_eq!(counters.snapshot().accepted, 2);
    }

    #[test]
    fn times_of_all_workers_are_added_up() {
        let counters = counters();
        counters.worker().record(0, Stage::Disk, 1000);
        counters.worker().record(0, Stage::Disk, 500);
        counters.worker().record(0, Stage::Receive, 7);
        let stages = &counters.snapshot().exports[0].stages;
        assert_eq!(stages.each_ref().map(TimesSum::sum_ns), [7, 1500]);
    }
}
