//! Four rings of one device: each sector is a register (P3), also across kills of the server, which
//! repeats the requests in flight.

use super::front_end::{Driver, FLUSH, FrontEnd, NR_SLOTS, READ, WRITE};
use super::load::{NR_SECTORS, Numbers, SECTOR, for_ms};
use super::server::Server;
use crate::common::folder;
use forebay_sim::sectors::{End, Kind, Op, Sectors, Stamp, Value};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NR_RINGS: u16 = 4;
const MOST_SECTORS: u64 = 12;
/// How long a ring may answer nothing. A restart takes a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// I/O in flight of a sector.
#[derive(Clone, Copy, Default)]
struct InFlight {
    reads: u32,
    writes: u32,
    /// Whether a read may have returned the data of a write that is still in flight.
    is_seen: bool,
}

/// State shared by the drivers of all rings.
struct Shared {
    start: Instant,
    /// A server that is killed may repeat writes, though a read has returned their data. So while
    /// one is in flight, its sector may be read, or another write may join it, but not both: then
    /// the old data of one could come back after those of the other.
    sectors: Option<Mutex<Vec<InFlight>>>,
    is_over: AtomicBool,
}

impl Shared {
    fn new(is_killed: bool) -> Shared {
        let sectors = vec![InFlight::default(); NR_SECTORS as usize];
        let sectors = is_killed.then(|| Mutex::new(sectors));
        Shared { start: Instant::now(), sectors, is_over: AtomicBool::new(false) }
    }

    fn now(&self) -> u64 {
        1 + self.start.elapsed().as_nanos() as u64
    }

    fn sectors(&self) -> Option<MutexGuard<'_, Vec<InFlight>>> {
        Some(self.sectors.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins an operation, unless it must not join those in flight.
    fn may_begin(&self, op: &Op) -> bool {
        let Some(mut sectors) = self.sectors() else { return true };
        let (range, is_write) = range(op);
        let sectors = &mut sectors[range];
        let allows = |sector: &InFlight| match is_write {
            true => sector.writes == 0 || sector.reads == 0 && !sector.is_seen,
            false => sector.writes <= 1,
        };
        if !sectors.iter().all(allows) {
            return false;
        }
        for sector in sectors {
            sector.writes += u32::from(is_write);
            sector.reads += u32::from(!is_write);
            sector.is_seen |= sector.writes > 0 && sector.reads > 0;
        }
        true
    }

    fn end(&self, op: &Op) {
        let Some(mut sectors) = self.sectors() else { return };
        let (range, is_write) = range(op);
        for sector in &mut sectors[range] {
            sector.writes -= u32::from(is_write);
            sector.reads -= u32::from(!is_write);
            sector.is_seen &= sector.writes > 0;
        }
    }
}

/// Returns the sectors of an operation, and whether it writes.
fn range(op: &Op) -> (std::ops::Range<usize>, bool) {
    let (nr, is_write) = match &op.kind {
        Kind::Write { nr_sectors, .. } => (*nr_sectors, true),
        Kind::Read(values) => (values.len() as u64, false),
        _ => (0, false),
    };
    (op.first as usize..(op.first + nr) as usize, is_write)
}

/// The client of one ring.
struct Client<'a> {
    driver: Driver,
    shared: &'a Shared,
    numbers: Numbers,
    writer: u16,
    sequence: u64,
    in_flight: [Option<Op>; NR_SLOTS as usize],
    log: Vec<Op>,
}

impl Client<'_> {
    /// Sends requests until the test is over, and waits for the last ones.
    fn work(mut self) -> Vec<Op> {
        let mut progress = Instant::now();
        loop {
            let is_over = self.shared.is_over.load(Ordering::Relaxed);
            if is_over && self.in_flight.iter().all(Option::is_none) {
                return self.log;
            }
            for slot in 0..NR_SLOTS {
                if !is_over && self.in_flight[usize::from(slot)].is_none() {
                    self.begin(slot);
                }
            }
            while let Some((slot, status)) = self.driver.take_used() {
                progress = Instant::now();
                self.end(slot, status);
            }
            assert!(progress.elapsed() < PATIENCE, "ring {} answers nothing", self.writer);
            self.driver.wait();
        }
    }

    fn begin(&mut self, slot: u16) {
        let nr_sectors = 1 + self.numbers.below(MOST_SECTORS);
        let first = self.numbers.below(NR_SECTORS - nr_sectors);
        let stamp = Stamp::new(self.writer, self.sequence);
        let (code, kind) = match self.numbers.below(16) {
            0 => (FLUSH, Kind::Flush),
            1..=7 => (READ, Kind::Read(vec![Value::Unseen; nr_sectors as usize])),
            _ => (WRITE, Kind::Write { stamp, nr_sectors, fua: false }),
        };
        let first = if code == FLUSH { 0 } else { first };
        let op = Op { kind, first, began: self.shared.now(), end: End::Unknown };
        if !self.shared.may_begin(&op) {
            return;
        }
        let len = if code == FLUSH { 0 } else { nr_sectors as usize * SECTOR };
        if code == WRITE {
            self.sequence += 1;
            let mut data = vec![0; len];
            for (sector, bytes) in (first..).zip(data.chunks_mut(SECTOR)) {
                stamp.fill(sector, bytes);
            }
            self.driver.write_data(slot, &data);
        }
        self.in_flight[usize::from(slot)] = Some(op);
        self.driver.submit(slot, code, first, len as u32);
    }

    fn end(&mut self, slot: u16, status: u8) {
        let mut op = self.in_flight[usize::from(slot)].take().expect("a request ends once");
        assert_eq!(status, 0, "{op:?}");
        if let Kind::Read(values) = &mut op.kind {
            let mut data = vec![0; values.len() * SECTOR];
            self.driver.read_data(slot, &mut data);
            for ((sector, bytes), value) in (op.first..).zip(data.chunks(SECTOR)).zip(values) {
                *value = Value::of(sector, bytes);
            }
        }
        op.end = End::Ok(self.shared.now());
        self.shared.end(&op);
        self.log.push(op);
    }
}

/// Runs a client on each ring until `until` returns. Checks their log.
#[track_caller]
fn check(front_end: &mut FrontEnd, is_killed: bool, until: impl FnOnce(&mut FrontEnd)) {
    let shared = Shared::new(is_killed);
    let ops: Vec<Op> = std::thread::scope(|scope| {
        let work = |writer: u16| {
            let client = Client {
                driver: front_end.driver(writer.into()),
                shared: &shared,
                numbers: Numbers(1000 + u64::from(writer)),
                writer,
                sequence: 0,
                in_flight: [const { None }; NR_SLOTS as usize],
                log: Vec::new(),
            };
            scope.spawn(|| client.work())
        };
        let clients: Vec<_> = (0..NR_RINGS).map(work).collect();
        until(front_end);
        shared.is_over.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().expect("its log")).collect()
    });
    let tally = Sectors::new(NR_SECTORS).check(&ops);
    let tally = tally.unwrap_or_else(|anomaly| panic!("{anomaly:?}"));
    // Otherwise the run tested nothing.
    assert!(tally.racing_reads > 50 && ops.len() > 300, "{} operations, {tally:?}", ops.len());
}

fn image(folder: &TempDir) {
    let file = std::fs::File::create(folder.path().join("disk.img")).expect("a file");
    file.set_len(NR_SECTORS * SECTOR as u64).expect("room for it");
}

fn start(folder: &TempDir, spec: &str) -> Server {
    Server::start(folder, &format!("{spec} --vhost-user-blk=unix:v --num-queues={NR_RINGS}"))
}

fn socket(folder: &TempDir) -> std::path::PathBuf {
    Path::new(folder.path()).join("v")
}

#[test]
fn sectors_are_registers_for_four_rings() {
    for spec in
        ["ram:48k", "disk.img?direct=on", "fault:disk.img?direct=on&rule=any:delay=1ms:rate=0.3"]
    {
        let folder = folder();
        image(&folder);
        let server = start(&folder, spec);
        let mut front_end = FrontEnd::new(NR_RINGS);
        front_end.connect(&socket(&folder));
        check(&mut front_end, false, |_| for_ms(500)());
        front_end.disconnect();
        assert!(server.terminate().success());
    }
}

/// The successor of a killed server repeats a write only if it was in flight, so it undoes no write
/// that began after an answer.
#[test]
fn sectors_are_registers_across_kills_of_the_server() {
    let nr_kills = std::env::var("FOREBAY_GUEST_KILLS").map_or(5, |nr| nr.parse().expect("it"));
    let folder = folder();
    image(&folder);
    // At each kill, writes have reached the disk and are not answered.
    let faults = "rule=write:delay=40ms:rate=0.2&rule=any:delay=1ms:rate=0.5";
    let spec = format!("fault:disk.img?direct=on&{faults}");
    let mut server = Some(start(&folder, &spec));
    let mut front_end = FrontEnd::new(NR_RINGS);
    front_end.connect(&socket(&folder));
    check(&mut front_end, true, |front_end| {
        for nth in 0..nr_kills {
            for_ms(100 + 17 * (nth % 7))();
            server.take().expect("it runs").kill();
            server = Some(start(&folder, &spec));
            front_end.connect(&socket(&folder));
        }
        for_ms(200)();
    });
    front_end.disconnect();
    assert!(server.expect("it runs").terminate().success());
}
