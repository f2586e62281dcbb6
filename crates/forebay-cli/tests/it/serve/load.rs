//! Clients that write stamps and read them back, with many requests in flight. They log requests
//! and results for [`Sectors`], which checks whether a disk can have behaved that way.
//!
//! [`Sectors`]: forebay_sim::sectors::Sectors

use std::collections::BTreeMap;
use std::io::{Read, Result};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::client::{Client, command};
use forebay_sim::sectors::{End, Kind, Op, Stamp, Value};

pub(crate) const SECTOR: usize = 512;
/// Few sectors, so that clients conflict.
pub(crate) const NR_SECTORS: u64 = 96;
const MOST_SECTORS: u64 = 12;
/// Requests that a client keeps in flight. All their data fit into a socket buffer, so a client and
/// the server never both block in a send.
const DEPTH: usize = 8;
/// NBD's error "the server is about to shut down".
const ESHUTDOWN: u32 = 108;

/// How long the writes that a test waits for may take, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Parameters shared by all clients of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    /// Epoch of all times.
    pub(crate) start: Instant,
    /// The kernel copies through its cache in pieces, so a read of a sector during a write may be
    /// torn. Such a read proves nothing.
    pub(crate) reads_may_tear: bool,
    /// The disk may fail. A failed request may have been executed or not.
    pub(crate) may_fail: bool,
    /// Whether clients also zero and discard ranges.
    pub(crate) has_ranges: bool,
}

impl Shared {
    fn now(&self) -> u64 {
        1 + self.start.elapsed().as_nanos() as u64
    }
}

/// Random number generator with a seed.
#[derive(Debug)]
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // xorshift64*, by S. Vigna.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }
}

/// One client.
#[derive(Debug)]
struct Worker {
    client: Client,
    shared: Shared,
    numbers: Numbers,
    writer: u16,
    sequence: u64,
    /// The client sends no further requests.
    is_over: bool,
    under_way: BTreeMap<u64, Op>,
    log: Vec<Op>,
}

/// Runs four clients until `duration` has passed, the server is gone, or `until` returns. Returns
/// the log of all of them. The stamps of each writer begin with `sequence`.
pub(crate) fn run(socket: &Path, shared: Shared, sequence: u64, until: impl FnOnce()) -> Vec<Op> {
    run_counted(socket, shared, sequence, |_| until())
}

/// Does the same, and passes the number of acknowledged writes to `until`.
pub(crate) fn run_counted(
    socket: &Path,
    shared: Shared,
    sequence: u64,
    until: impl FnOnce(&NrWrites),
) -> Vec<Op> {
    let (stop, nr_writes) = (AtomicBool::new(false), NrWrites::default());
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|writer| {
                let client = Client::connect(socket, "").expect("a connection");
                let numbers = Numbers((sequence + 1) * 1000 + u64::from(writer) + 1);
                let (under_way, log) = (BTreeMap::new(), Vec::new());
                let worker = Worker {
                    client,
                    shared,
                    numbers,
                    writer,
                    sequence,
                    is_over: false,
                    under_way,
                    log,
                };
                let (stop, nr_writes) = (&stop, &nr_writes);
                scope.spawn(move || worker.work(stop, nr_writes))
            })
            .collect();
        until(&nr_writes);
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().expect("its log")).collect()
    })
}

/// Returns a function that sleeps.
pub(crate) fn for_ms(ms: u64) -> impl FnOnce() {
    move || std::thread::sleep(Duration::from_millis(ms))
}

/// Number of writes that the server has acknowledged to the clients of a run.
#[derive(Debug, Default)]
pub(crate) struct NrWrites(AtomicUsize);

impl NrWrites {
    /// Waits until there are at least `nr` of them, or [`PATIENCE`] is over. The caller checks the
    /// log, because a panic here would leave the clients running.
    pub(crate) fn await_at_least(&self, nr: usize) {
        let start = Instant::now();
        while self.0.load(Ordering::Relaxed) < nr && start.elapsed() < PATIENCE {
            for_ms(1)();
        }
    }
}

/// Returns the number of writes in a log that the server has acknowledged.
pub(crate) fn nr_acknowledged_writes(ops: &[Op]) -> usize {
    ops.iter().filter(|op| is_acknowledged_write(op)).count()
}

fn is_acknowledged_write(op: &Op) -> bool {
    matches!((&op.kind, &op.end), (Kind::Write { .. }, End::Ok(_)))
}

impl Worker {
    fn work(mut self, stop: &AtomicBool, nr_writes: &NrWrites) -> Vec<Op> {
        loop {
            let is_over = self.is_over || stop.load(Ordering::Relaxed);
            if is_over && self.under_way.is_empty() {
                break;
            }
            let sent = if is_over { Ok(()) } else { self.fill() };
            if sent.and_then(|()| self.take_one()).is_err() {
                break;
            }
            let is_write = self.log.last().is_some_and(is_acknowledged_write);
            nr_writes.0.fetch_add(usize::from(is_write), Ordering::Relaxed);
        }
        // An unanswered request may have been executed or not.
        self.log.extend(self.under_way.into_values());
        self.log
    }

    fn fill(&mut self) -> Result<()> {
        while self.under_way.len() < DEPTH {
            self.send_one()?;
        }
        Ok(())
    }

    fn send_one(&mut self) -> Result<()> {
        let nr_sectors = 1 + self.numbers.below(MOST_SECTORS);
        let first = self.numbers.below(NR_SECTORS - nr_sectors);
        let fua = self.numbers.below(8) == 0;
        let stamp = Stamp::new(self.writer, self.sequence);
        let mut payload = Vec::new();
        let (command, kind) = match self.numbers.below(32) {
            0..=1 => (command::FLUSH, Kind::Flush),
            2 if self.shared.has_ranges => (command::WRITE_ZEROES, Kind::Zero { nr_sectors, fua }),
            3 if self.shared.has_ranges => (command::TRIM, Kind::Trim { nr_sectors }),
            2..=17 => (command::READ, Kind::Read(vec![Value::Unseen; nr_sectors as usize])),
            _ => (command::WRITE, Kind::Write { stamp, nr_sectors, fua }),
        };
        if command == command::WRITE {
            self.sequence += 1;
            payload.resize(nr_sectors as usize * SECTOR, 0);
            for (sector, bytes) in (first..).zip(payload.chunks_mut(SECTOR)) {
                stamp.fill(sector, bytes);
            }
        }
        let may_fua = matches!(command, command::WRITE | command::WRITE_ZEROES);
        let flags = if fua && may_fua { command::FUA } else { 0 };
        let (at, len) = match command {
            command::FLUSH => (0, 0),
            _ => (first * SECTOR as u64, nr_sectors as u32 * SECTOR as u32),
        };
        let op = Op { kind, first, began: self.shared.now(), end: End::Unknown };
        // The request is logged first, because the server may execute a request that was sent only
        // in part.
        let cookie = self.client.next_cookie();
        self.under_way.insert(cookie, op);
        self.client.send((command, flags), at, len, &payload).map(drop)
    }

    fn take_one(&mut self) -> Result<()> {
        let reply = self.client.reply()?;
        let op = self.under_way.get_mut(&reply.cookie).expect("a reply to a request");
        if let Kind::Read(values) = &mut op.kind
            && reply.error == 0
        {
            let mut data = vec![0; values.len() * SECTOR];
            self.client.stream.read_exact(&mut data)?;
            let sectors = (op.first..).zip(data.chunks(SECTOR)).zip(values);
            for ((sector, bytes), value) in sectors {
                *value = match Value::of(sector, bytes) {
                    Value::Torn if self.shared.reads_may_tear => Value::Unseen,
                    value => value,
                };
            }
        }
        // A server that shuts down reports it for each request that it did not execute.
        if reply.error == 0 {
            op.end = End::Ok(self.shared.now());
        } else {
            assert!(self.shared.may_fail || reply.error == ESHUTDOWN, "{}: {op:?}", reply.error);
            // Later failures could explain any result.
            self.is_over = true;
        }
        self.log.extend(self.under_way.remove(&reply.cookie));
        Ok(())
    }
}

/// Returns the values of the sectors of an image.
pub(crate) fn values_of(image: &[u8]) -> Vec<Value> {
    let sectors = (0..).zip(image[..NR_SECTORS as usize * SECTOR].chunks(SECTOR));
    sectors.map(|(sector, bytes)| Value::of(sector, bytes)).collect()
}
