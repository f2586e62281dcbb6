//! Registry of all counters: which thread writes them, and how a scrape reads them.
//!
//! A connection belongs to one worker at a time, which is the only writer of its counters. When it
//! ends, its counters are added to those of its export, under the lock that a scrape holds while it
//! sums up the open connections. So nothing is counted twice or lost. Times are counted per worker
//! and export. The counts of an export end when it is removed.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay::Disk;
use forebay_front::{PollSums, Stage};

use super::counter::{Counter, SharedCounter, Times, TimesSum};
use super::kinds::{ConnectionRefusal, HandshakeFailure};
use super::rings::{RingCounters, RingEvents};
use super::traffic::{Traffic, TrafficSum};
use crate::tenant::Tenant;

/// Number, export and counters of a connection. Only its worker writes them.
#[derive(Debug)]
pub(crate) struct ConnectionCounters {
    id: u64,
    /// Index of the export; `NO_EXPORT` before one is chosen.
    export: AtomicUsize,
    traffic: Traffic,
}

const NO_EXPORT: usize = usize::MAX;

impl ConnectionCounters {
    /// Returns the number of the connection: the first is 1, and none is reused.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Records the chosen export.
    pub(crate) fn set_export(&self, export: usize) {
        self.export.store(export, Ordering::Relaxed);
    }

    /// Returns the chosen export.
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

/// Counters of an open connection. Dropped when it ends.
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
        // Its requests in flight get no reply.
        sum.end_all();
        match self.counters.export() {
            Some(export) => {
                if let Some(Some(counted)) = open.exports.get_mut(export) {
                    counted.ended.add(&sum);
                }
            }
            None => open.without_export.add(&sum),
        }
    }
}

/// Times of one thread's requests to one export. The thread is the only writer.
#[derive(Debug, Default)]
pub(crate) struct StageTimes([Times; Stage::ALL.len()]);

impl StageTimes {
    /// Records the time that each of `nr` requests has spent in a stage, ns.
    #[inline]
    pub(crate) fn record(&self, stage: Stage, ns: u64, nr: u64) {
        self.0[stage as usize].record(ns, nr);
    }
}

/// Polling of one thread, which is the only writer.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters {
    polled_ns: Counter,
    nr_found: Counter,
    nr_missed: Counter,
}

impl WorkerCounters {
    /// Records the sums over all waits of the worker.
    #[inline]
    pub(crate) fn record_polling(&self, sums: PollSums) {
        self.polled_ns.set(sums.polled_ns);
        self.nr_found.set(sums.nr_found);
        self.nr_missed.set(sums.nr_missed);
    }
}

/// Counters of rare events, which any thread may write.
#[derive(Debug, Default)]
pub(crate) struct ServerCounters {
    refused: [SharedCounter; ConnectionRefusal::ALL.len()],
    handshake_failures: [SharedCounter; HandshakeFailure::ALL.len()],
    /// Panics that ended one connection. Each is a bug in the server.
    pub(crate) panics: SharedCounter,
    /// Errors of accept(2) that did not concern a single connection.
    pub(crate) accept_errors: SharedCounter,
}

impl ServerCounters {
    /// Counts a connection that was closed immediately.
    pub(crate) fn refuse(&self, why: ConnectionRefusal) {
        self.refused[why as usize].count();
    }

    /// Counts a connection that ended before it sent a request.
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

/// An export, as shown in the metrics.
#[derive(Clone, Debug)]
pub(crate) struct CountedExport {
    /// Label `device`.
    pub(crate) name: String,
    /// Disk of the export.
    pub(crate) disk: Disk,
    /// Its limits and its clients.
    pub(crate) tenant: Arc<Tenant>,
}

#[cfg(test)]
impl CountedExport {
    /// Creates an export without limits.
    pub(crate) fn of(name: &str, disk: Disk) -> CountedExport {
        let tenant = Arc::new(Tenant::new(&disk, name, forebay::Priority::default()));
        CountedExport { name: name.to_owned(), disk, tenant }
    }
}

/// All counters of a server.
#[derive(Debug)]
pub(crate) struct Counters {
    server: ServerCounters,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    next_id: u64,
    connections: Vec<Arc<ConnectionCounters>>,
    workers: Vec<Arc<WorkerCounters>>,
    rings: Vec<Arc<RingCounters>>,
    /// By index. `None`: the export was removed.
    exports: Vec<Option<Counted>>,
    /// Traffic of ended connections that chose no export.
    without_export: TrafficSum,
}

/// An export with its counts.
#[derive(Debug)]
struct Counted {
    export: CountedExport,
    /// Traffic of ended connections.
    ended: TrafficSum,
    /// Times of each thread.
    times: Vec<Arc<StageTimes>>,
}

impl Counted {
    fn new(export: CountedExport) -> Option<Counted> {
        Some(Counted { export, ended: TrafficSum::default(), times: Vec::new() })
    }
}

/// All connections and times at one moment. Exports have the index in `counted` and `exports`.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) connections: Vec<ConnectionSnapshot>,
    pub(super) counted: Vec<CountedExport>,
    pub(super) exports: Vec<ExportSnapshot>,
    pub(super) rings: Vec<RingSnapshot>,
    /// Accepted connections.
    pub(super) accepted: u64,
    /// Waits of all workers.
    pub(super) polls: PollSums,
}

#[derive(Debug)]
pub(super) struct ConnectionSnapshot {
    pub(super) id: u64,
    pub(super) export: Option<usize>,
    pub(super) traffic: TrafficSum,
}

#[derive(Debug)]
pub(super) struct RingSnapshot {
    pub(super) export: usize,
    pub(super) number: usize,
    pub(super) traffic: TrafficSum,
    pub(super) events: RingEvents,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ExportSnapshot {
    pub(super) connections: u64,
    pub(super) traffic: TrafficSum,
    pub(super) stages: [TimesSum; Stage::ALL.len()],
}

impl Counters {
    /// Creates the counters of a server with these exports. Other calls take their indices.
    pub(crate) fn new(exports: Vec<CountedExport>) -> Arc<Counters> {
        let open = Open {
            next_id: 1,
            connections: Vec::new(),
            workers: Vec::new(),
            rings: Vec::new(),
            exports: exports.into_iter().map(Counted::new).collect(),
            without_export: TrafficSum::default(),
        };
        Arc::new(Counters { server: ServerCounters::default(), open: Mutex::new(open) })
    }

    /// Adds an export at an index that no export has. Its label becomes unique.
    pub(crate) fn add_export(&self, index: usize, mut export: CountedExport) {
        let mut open = self.lock();
        let mut taken = open.exports.iter().flatten().map(|counted| &counted.export.name);
        if taken.any(|label| *label == export.name) {
            export.name = format!("{} ({index})", export.name);
        }
        if open.exports.len() <= index {
            open.exports.resize_with(index + 1, || None);
        }
        open.exports[index] = Counted::new(export);
    }

    /// Returns the label of the export with this index.
    pub(crate) fn label(&self, index: usize) -> Option<String> {
        let open = self.lock();
        let counted = open.exports.get(index)?.as_ref()?;
        Some(counted.export.name.clone())
    }

    /// Removes an export, which no connection has chosen, and its rings.
    pub(crate) fn remove_export(&self, index: usize) {
        let mut open = self.lock();
        open.exports[index] = None;
        open.rings.retain(|ring| ring.export != index);
    }

    /// Creates the counters of an accepted connection.
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

    /// Creates the counters of a worker.
    pub(crate) fn worker(&self) -> Arc<WorkerCounters> {
        let worker = Arc::<WorkerCounters>::default();
        self.lock().workers.push(Arc::clone(&worker));
        worker
    }

    /// Creates the times of a thread's requests to an export.
    pub(crate) fn times(&self, export: usize) -> Arc<StageTimes> {
        let times = Arc::<StageTimes>::default();
        if let Some(Some(counted)) = self.lock().exports.get_mut(export) {
            counted.times.push(Arc::clone(&times));
        }
        times
    }

    /// Creates the counters of the next ring of an export. The rings of all devices of an export
    /// are numbered in turn.
    pub(crate) fn ring(&self, export: usize) -> Arc<RingCounters> {
        let mut open = self.lock();
        let number = open.rings.iter().filter(|ring| ring.export == export).count();
        let ring = Arc::new(RingCounters::new(export, number));
        open.rings.push(Arc::clone(&ring));
        ring
    }

    /// Returns the counters of the whole server.
    pub(crate) fn server(&self) -> &ServerCounters {
        &self.server
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let open = self.lock();
        let (mut counted, mut exports, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for export in &open.exports {
            places.push(export.as_ref().map(|_| exports.len()));
            let Some(Counted { export, ended, times }) = export else { continue };
            let mut of_export = ExportSnapshot { traffic: *ended, ..ExportSnapshot::default() };
            for times in times {
                for (sum, times) in of_export.stages.iter_mut().zip(&times.0) {
                    times.add_to(sum);
                }
            }
            counted.push(export.clone());
            exports.push(of_export);
        }
        let place = |export: usize| places.get(export).copied().flatten();
        let connections = open
            .connections
            .iter()
            .map(|connection| {
                let export = connection.export().and_then(place);
                let traffic = connection.sum();
                if let Some(export) = export {
                    exports[export].traffic.add(&traffic);
                    exports[export].connections += 1;
                }
                ConnectionSnapshot { id: connection.id, export, traffic }
            })
            .collect();
        let mut polls = PollSums::default();
        for worker in &open.workers {
            polls.polled_ns += worker.polled_ns.get();
            polls.nr_found += worker.nr_found.get();
            polls.nr_missed += worker.nr_missed.get();
        }
        let snapshot = |ring: &Arc<RingCounters>| {
            Some(RingSnapshot {
                export: place(ring.export)?,
                number: ring.number,
                traffic: ring.traffic().sum(),
                events: ring.events(),
            })
        };
        let rings: Vec<_> = open.rings.iter().filter_map(snapshot).collect();
        for ring in &rings {
            exports[ring.export].traffic.add(&ring.traffic);
        }
        let accepted = open.next_id - 1;
        Snapshot { connections, counted, exports, rings, accepted, polls }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Each change under this lock is complete even if a panic follows.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_front::RequestKind;

    fn counters() -> Arc<Counters> {
        let disk = Disk::open("null:1M").unwrap();
        Counters::new(vec![CountedExport::of("a", disk)])
    }

    #[test]
    fn counts_of_a_connection_stay_with_its_export() {
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
        counters.times(0).record(Stage::Disk, 1000, 1);
        counters.times(0).record(Stage::Disk, 500, 1);
        counters.times(0).record(Stage::Receive, 7, 1);
        let stages = &counters.snapshot().exports[0].stages;
        assert_eq!(stages.each_ref().map(TimesSum::sum_ns), [7, 1500]);
    }

    #[test]
    fn counts_of_an_export_end_with_it() {
        let counters = counters();
        let export = |name| CountedExport::of(name, Disk::open("null:1M").unwrap());
        counters.add_export(1, export("a"));
        let connection = counters.open_connection();
        connection.set_export(1);
        connection.begin(RequestKind::Read);
        connection.end(RequestKind::Read, 512);
        drop(connection);
        counters.remove_export(0);
        let snapshot = counters.snapshot();
        assert_eq!(snapshot.counted.len(), 1);
        assert_eq!(snapshot.counted[0].name, "a (1)", "the label of the other one was taken");
        assert_eq!(snapshot.exports[0].traffic.read_bytes, 512);
        counters.remove_export(1);
        counters.add_export(1, export("b"));
        assert_eq!(counters.snapshot().exports[0].traffic.read_bytes, 0);
    }
}
