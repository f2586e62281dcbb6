//! Driver's side of rings for tests, and a front that serves them from a disk in memory.
//!
//! The driver writes descriptors, entries and indices as it likes: nothing keeps it from breaking
//! the standard.

use super::Ring;
use crate::memory::{GuestData, GuestMemory};
use crate::setup::RingSetup;
use forebay_core::{BlockStatus, Op, SubmitErrorKind};
use forebay_front::blk::{BlkDisk, BlkFront, BlkHost, Chain, GuestBytes};
use forebay_front::{Closed, Failed, Host, Interest, Io, Key, Parts, Peer, RequestKind, Stage};
use rustix::event::EventfdFlags;
use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::resume_unwind;
use std::rc::Rc;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// Features of a ring, without indirect tables and event indices.
pub(super) const PLAIN: u64 =
    1 << VIRTIO_BLK_F_FLUSH | 1 << VIRTIO_BLK_F_DISCARD | 1 << VIRTIO_BLK_F_WRITE_ZEROES;
pub(super) const INDIRECT: u64 = PLAIN | 1 << VIRTIO_RING_F_INDIRECT_DESC;
pub(super) const EVENT_IDX: u64 = PLAIN | 1 << VIRTIO_RING_F_EVENT_IDX;

pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const IS_INDIRECT: u16 = 4;

/// Number of descriptors of a ring.
pub(super) const SIZE: u16 = 16;
/// Sectors of the disk.
pub(super) const NR_SECTORS: u64 = 64;

/// The memory: two regions side by side, a hole, another region, and one at the end of the address
/// space.
pub(super) const START: u64 = 0x10_0000;
pub(super) const SEAM: u64 = 0x11_0000;
pub(super) const HOLE: u64 = 0x12_0000;
pub(super) const BEHIND_HOLE: u64 = 0x13_0000;
pub(super) const TOP: u64 = u64::MAX - 0x1_0000;

/// Buffers of the tests.
pub(super) const HEADER: u64 = SEAM + 0x1000;
pub(super) const DATA: u64 = SEAM + 0x2000;
pub(super) const STATUS: u64 = SEAM + 0x8000;

pub(super) fn memory() -> GuestMemory {
    let len = 0x1_0000;
    let starts = [START, SEAM, BEHIND_HOLE, TOP];
    let ranges = starts.map(|start| (GuestAddress(start), len));
    GuestMemory::new(GuestMemoryMmap::from_ranges(&ranges).expect("memory"))
}

/// A driver of one ring.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) memory: GuestMemory,
    pub(super) table: u64,
    pub(super) available: u64,
    pub(super) used: u64,
    /// The available index.
    pub(super) index: u16,
    features: u64,
    kick: OwnedFd,
    call: OwnedFd,
    err: OwnedFd,
}

impl Driver {
    /// Sets up ring `nr` of this memory.
    pub(super) fn new(memory: &GuestMemory, nr: u64, features: u64) -> Driver {
        let table = START + nr * 0x4000;
        let eventfd = || {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            rustix::event::eventfd(0, flags).expect("a descriptor")
        };
        Driver {
            memory: memory.clone(),
            table,
            available: table + 0x1000,
            used: table + 0x2000,
            index: 0,
            features,
            kick: eventfd(),
            call: eventfd(),
            err: eventfd(),
        }
    }

    pub(super) fn setup(&self) -> RingSetup {
        let fd = |event: &OwnedFd| event.try_clone().expect("a descriptor");
        RingSetup {
            size: SIZE,
            descriptors: self.table,
            available: self.available,
            used: self.used,
            base: self.index,
            features: self.features,
            memory: self.memory.clone(),
            kick: fd(&self.kick),
            call: Some(fd(&self.call)),
            err: Some(fd(&self.err)),
            inflight: None,
            is_enabled: true,
        }
    }

    pub(super) fn write(&self, addr: u64, bytes: &[u8]) {
        self.memory.regions().write_slice(bytes, GuestAddress(addr)).expect("in memory");
    }

    pub(super) fn read<const N: usize>(&self, addr: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.regions().read_slice(&mut bytes, GuestAddress(addr)).expect("in memory");
        bytes
    }

    /// Writes a descriptor to a table.
    pub(super) fn describe(&self, at: u64, (addr, len): (u64, u32), flags: u16, next: u16) {
        let bytes = [
            &addr.to_le_bytes()[..],
            &len.to_le_bytes(),
            &flags.to_le_bytes(),
            &next.to_le_bytes(),
        ];
        self.write(at, &bytes.concat());
    }

    /// Writes descriptor `index` of the ring's table.
    pub(super) fn descriptor(&self, index: u16, buffer: (u64, u32), flags: u16, next: u16) {
        self.describe(self.table + 16 * u64::from(index), buffer, flags, next);
    }

    /// Makes an entry available.
    pub(super) fn offer(&mut self, head: u16) {
        let entry = self.available + 4 + 2 * u64::from(self.index % SIZE);
        self.write(entry, &head.to_le_bytes());
        self.move_index(1);
    }

    /// Adds to the available index.
    pub(super) fn move_index(&mut self, nr: u16) {
        self.index = self.index.wrapping_add(nr);
        self.write(self.available + 2, &self.index.to_le_bytes());
    }

    pub(super) fn header(&self, at: u64, kind: u32, sector: u64) {
        let bytes = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()];
        self.write(at, &bytes.concat());
    }

    /// Offers a read of one sector with descriptors `first` and the two behind it.
    pub(super) fn offer_read(&mut self, first: u16, sector: u64) {
        self.header(HEADER, 0, sector);
        self.write(STATUS, &[0xaa]);
        self.descriptor(first, (HEADER, 16), NEXT, first + 1);
        self.descriptor(first + 1, (DATA, 512), NEXT | WRITE, first + 2);
        self.descriptor(first + 2, (STATUS, 1), WRITE, 0);
        self.offer(first);
    }

    pub(super) fn used_index(&self) -> u16 {
        u16::from_le_bytes(self.read(self.used + 2))
    }

    /// Returns a used entry: its head and its length.
    pub(super) fn used_entry(&self, index: u16) -> (u32, u32) {
        let at = self.used + 4 + 8 * u64::from(index % SIZE);
        (u32::from_le_bytes(self.read(at)), u32::from_le_bytes(self.read(at + 4)))
    }

    /// Returns how often the driver was notified since the last call.
    pub(super) fn nr_calls(&self) -> u64 {
        count(&self.call)
    }

    /// Returns how often an error was reported since the last call.
    pub(super) fn nr_errors(&self) -> u64 {
        count(&self.err)
    }

    /// Returns the used flags.
    pub(super) fn used_flags(&self) -> u16 {
        u16::from_le_bytes(self.read(self.used))
    }
}

/// Returns the counter of an eventfd, and resets it.
fn count(event: &OwnedFd) -> u64 {
    let mut bytes = [0; 8];
    rustix::io::read(event, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
}

/// A ring as the front's peer.
#[derive(Debug)]
pub(super) struct TestPeer {
    pub(super) ring: Ring,
    /// Index of the next available entry when the front closed the ring.
    base: Rc<RefCell<Option<u16>>>,
}

impl Peer for TestPeer {
    fn begin(&mut self, _kind: RequestKind) {}
    fn end(&mut self, _kind: RequestKind, _bytes: u64) {}
    fn fail(&mut self) {}
    fn set_export(&mut self, _export: usize) {}
    fn say_goodbye(&mut self) {}
}

fn text<T>(result: Result<T, super::RingError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

impl forebay_front::blk::Ring for TestPeer {
    type Memory = GuestData;
    type Error = super::RingError;

    fn features(&self) -> u64 {
        self.ring.features()
    }

    fn write_cache(&self) -> bool {
        true
    }

    fn is_enabled(&self) -> bool {
        self.ring.is_enabled()
    }

    fn take(&mut self) -> Result<Option<Chain<GuestData>>, super::RingError> {
        self.ring.take()
    }

    fn put(&mut self, head: u16, status: u8, written: u32) {
        self.ring.put(head, status, written);
    }

    fn publish(&mut self) {
        self.ring.publish();
    }

    fn recycle(&mut self, memory: GuestData) {
        self.ring.recycle(memory);
    }

    fn has_available(&self) -> bool {
        self.ring.has_available()
    }

    fn disable_notifications(&mut self) {
        self.ring.disable_notifications();
    }

    fn enable_notifications(&mut self) -> Result<bool, String> {
        text(self.ring.enable_notifications())
    }

    fn notify(&mut self) {
        self.ring.notify();
    }
}

/// A disk in memory. It completes each I/O in the next reap, unless it is held.
#[derive(Debug, Default)]
pub(super) struct TestHost {
    pub(super) bytes: Vec<u8>,
    pub(super) is_held: bool,
    /// Reasons why rings were stopped.
    pub(super) broken: Vec<String>,
    at_disk: Vec<(Op, u64, u64, u64, Option<GuestData>)>,
}

impl Host for TestHost {
    type Memory = GuestData;
    type Peer = TestPeer;
    type Completion = Parts<GuestData>;
    type Plug = ();

    fn plug(&mut self) {}

    fn now_ns(&self) -> u64 {
        0
    }

    fn submit(
        &mut self,
        _peer: &TestPeer,
        _export: usize,
        io: Io<GuestData>,
        _now_ns: u64,
    ) -> Result<(), (SubmitErrorKind, Option<GuestData>)> {
        self.at_disk.push((io.op, io.offset, io.len, io.user_data, io.memory));
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Parts<GuestData>>, _now_ns: u64) {
        if self.is_held {
            return;
        }
        for (op, offset, len, user_data, mut memory) in self.at_disk.drain(..) {
            let result: Result<u64, BlockStatus> = Ok(len);
            let range = offset as usize..(offset + len) as usize;
            match (op, &mut memory) {
                (Op::Read, Some(memory)) => memory.fill_front(&self.bytes[range]),
                (Op::Write, Some(memory)) => memory.take_front(&mut self.bytes[range]),
                (Op::Discard | Op::WriteZeroes, None) => self.bytes[range].fill(0),
                (Op::Flush, None) => {}
                (op, memory) => panic!("{op:?} with {memory:?}"),
            }
            done.push((user_data, result, memory));
        }
    }

    fn parts(completion: Parts<GuestData>) -> Parts<GuestData> {
        completion
    }

    fn wants_reap(&self) -> bool {
        !self.is_held && self.is_busy()
    }

    fn is_busy(&self) -> bool {
        !self.at_disk.is_empty()
    }

    fn is_busy_with(&self, _export: usize) -> bool {
        self.is_busy()
    }

    fn has_room(&self, _export: usize, _nr: usize) -> bool {
        true
    }

    fn watch(&mut self, _: &mut TestPeer, _: Key, _: Interest) -> io::Result<()> {
        Ok(())
    }

    fn record(&mut self, _export: usize, _stage: Stage, _ns: u64, _nr: u64) {}

    fn panicked(&mut self, panic: Box<dyn Any + Send>) {
        resume_unwind(panic);
    }

    fn failed(&mut self, _peer: &TestPeer, _failed: &Failed<'_>, _now_ns: u64) {}

    fn closed(&mut self, peer: &mut TestPeer, _closed: &Closed<'_>, _now_ns: u64) {
        *peer.base.borrow_mut() = Some(peer.ring.next_available());
    }
}

impl BlkHost for TestHost {
    fn broken(&mut self, peer: &mut TestPeer, why: &str, _now_ns: u64) {
        peer.ring.report_error();
        self.broken.push(why.to_owned());
    }
}

/// A front that serves rings.
pub(super) struct Served(pub(super) BlkFront<TestHost>);

impl Served {
    pub(super) fn new() -> Served {
        Served::with(false)
    }

    /// Returns a front whose disk is read-only.
    pub(super) fn read_only() -> Served {
        Served::with(true)
    }

    fn with(read_only: bool) -> Served {
        let bytes = (0..NR_SECTORS as u8).flat_map(|sector| [sector; 512]).collect();
        let disk = BlkDisk {
            export: 0,
            nr_sectors: NR_SECTORS,
            read_only,
            discards_to_zeroes: true,
            max_discard_sectors: 64,
            max_write_zeroes_sectors: 64,
            serial: *b"serial number\0\0\0\0\0\0\0",
        };
        Served(BlkFront::blk(TestHost { bytes, ..TestHost::default() }, disk))
    }

    /// Starts the ring of a driver. Returns the place of its base, which is set when it is closed.
    pub(super) fn start(&mut self, driver: &Driver) -> Rc<RefCell<Option<u16>>> {
        let base = Rc::new(RefCell::new(None));
        let ring = Ring::start(driver.setup()).map_err(|(error, _)| error).expect("a good ring");
        let peer = TestPeer { ring, base: Rc::clone(&base) };
        self.0.round(|front| front.accept(peer));
        base
    }

    pub(super) fn host(&mut self) -> &mut TestHost {
        self.0.host_mut()
    }

    /// Runs rounds until the front sleeps.
    pub(super) fn run(&mut self) {
        let mut nr_rounds = 0;
        loop {
            self.0.round(|front| front.look_at_rings());
            if !self.0.is_unfinished() && !self.0.prepare_sleep() {
                return;
            }
            nr_rounds += 1;
            assert!(nr_rounds < 1000, "the front does not come to rest");
        }
    }

    /// Checks that the ring of a driver is alive: it answers a read.
    pub(super) fn check_alive(&mut self, driver: &mut Driver, first: u16) {
        let before = driver.used_index();
        driver.offer_read(first, 9);
        self.run();
        assert_eq!(driver.used_index(), before.wrapping_add(1));
        assert_eq!(driver.used_entry(before), (first.into(), 513));
        assert_eq!((driver.read(DATA), driver.read(STATUS)), ([9; 512], [0]));
    }
}
