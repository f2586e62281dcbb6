//! Clients that write stamps and read them back, many requests at a time, and log what they asked
//! for and what came of it: for [`Sectors`], which says whether a disk can have done that.
//!
//! [`Sectors`]: forebay_sim::sectors::Sectors

use std::collections::BTreeMap;
use std::io::{Read, Result};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::client::{Client, command};
use forebay_sim::sectors::{End, Kind, Op, Stamp, Value};

pub(crate) const SECTOR: usize = 512;
/// Few, so that clients meet.
pub(crate) const NR_SECTORS: u64 = 96;
const MOST_SECTORS: u64 = 12;
/// How many requests of a client are under way. All of their data fits into a socket, so that who
/// sends never waits for who sends.
const DEPTH: usize = 8;
/// "The server is about to end", as NBD has it.
const ESHUTDOWN: u32 = 108;

/// What all clients of a log share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    /// All times are since then.
    pub(crate) start: Instant,
    /// A sector that is read while it is written may be torn: by the kernel, which copies through
    /// its cache. Then such a read proves nothing.
    pub(crate) reads_may_tear: bool,
    /// The disk may go away. What fails may be done or not.
    pub(crate) may_fail: bool,
    /// Whether ranges are zeroed and discarded, too.
    pub(crate) has_ranges: bool,
}

impl Shared {
    fn now(&self) -> u64 {
        1 + self.start.elapsed().as_nanos() as u64
    }
}

/// Random numbers that a seed decides.
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

/// One client at work.
#[derive(Debug)]
struct Worker {
    client: Client,
    shared: Shared,
    numbers: Numbers,
    writer: u16,
    sequence: u64,
    /// It asks for nothing more.
    is_over: bool,
    under_way: BTreeMap<u64, Op>,
    log: Vec<Op>,
}

/// Runs four clients until `duration` has passed, or the server is gone, or `until` returns. Gives
/// what all of them did. Each writer's stamps begin with `sequence`.
pub(crate) fn run(socket: &Path, shared: Shared, sequence: u64, until: impl FnOnce()) -> Vec<Op> {
    let stop = AtomicBool::new(false);
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
                let stop = &stop;
                scope.spawn(move || worker.work(stop))
            })
            .collect();
        until();
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().expect("its log")).collect()
    })
}

/// Waits.
pub(crate) fn for_ms(ms: u64) -> impl FnOnce() {
    move || std::thread::sleep(Duration::from_millis(ms))
}

impl Worker {
    fn work(mut self, stop: &AtomicBool) -> Vec<Op> {
        loop {
            let is_over = self.is_over || stop.load(Ordering::Relaxed);
            if is_over && self.under_way.is_empty() {
                break;
            }
            let sent = if is_over { Ok(()) } else { self.fill() };
            if sent.and_then(|()| self.take_one()).is_err() {
                break;
            }
        }
        // What was not answered may be done or not.
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
        // It is logged first: what is sent in part may be done.
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
        // Who ends says so, and of what it did not do.
        if reply.error == 0 {
            op.end = End::Ok(self.shared.now());
        } else {
            assert!(self.shared.may_fail || reply.error == ESHUTDOWN, "{}: {op:?}", reply.error);
            // What fails from now on could explain everything.
            self.is_over = true;
        }
        self.log.extend(self.under_way.remove(&reply.cookie));
        Ok(())
    }
}

/// What the sectors of an image hold.
pub(crate) fn values_of(image: &[u8]) -> Vec<Value> {
    let sectors = (0..).zip(image[..NR_SECTORS as usize * SECTOR].chunks(SECTOR));
    sectors.map(|(sector, bytes)| Value::of(sector, bytes)).collect()
}
