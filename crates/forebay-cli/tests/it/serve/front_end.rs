//! A virtual machine without QEMU: a front end of vhost-user and the drivers of its rings, in the
//! process of the test. Its memory and its in-flight region outlive the server, as QEMU's do.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{VhostUserInflight, VhostUserProtocolFeatures as Protocol};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of descriptors of a ring.
pub(crate) const SIZE: u16 = 64;
/// Requests in flight of a ring.
pub(crate) const NR_SLOTS: u16 = 8;
/// Longest data of a request, bytes.
pub(crate) const DATA_MAX: u32 = 8192;

/// The start of the memory in both address spaces, and the length of each ring's part.
pub(crate) const BASE: u64 = 1 << 32;
const PART: u64 = 1 << 18;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const HEADERS: u64 = 0x3000;
const DATA: u64 = 0x4000;

/// FLUSH, indirect descriptors, protocol features, and VERSION_1.
const FEATURES: u64 = 1 << 9 | 1 << 28 | 1 << 30 | 1 << 32;

/// Flags of descriptors.
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITABLE: u16 = 2;

/// Types of requests.
pub(crate) const READ: u32 = 0;
pub(crate) const WRITE: u32 = 1;
pub(crate) const FLUSH: u32 = 4;

/// A virtual machine with a device. Dropping its connection leaves memory and rings as they are.
pub(crate) struct FrontEnd {
    memory: GuestMemoryMmap,
    file: File,
    /// The in-flight region, which the first server creates.
    inflight: Option<(VhostUserInflight, File)>,
    rings: Vec<[EventFd; 2]>,
    connection: Option<Frontend>,
}

impl FrontEnd {
    /// Creates a machine with memory for these many rings.
    pub(crate) fn new(nr_rings: u16) -> FrontEnd {
        let len = u64::from(nr_rings) * PART;
        let memfd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC);
        let file = File::from(memfd.expect("memory to share"));
        file.set_len(len).expect("memory");
        let mapped = FileOffset::new(file.try_clone().expect("a descriptor"), 0);
        let range = (GuestAddress(BASE), len as usize, Some(mapped));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).expect("a mapping");
        let event = || EventFd::new(0).expect("a descriptor");
        let rings = (0..nr_rings).map(|_| [event(), event()]).collect();
        FrontEnd { memory, file, inflight: None, rings, connection: None }
    }

    /// Connects to a device, or to its successor, and starts the rings.
    pub(crate) fn connect(&mut self, socket: &Path) {
        let nr_rings = self.rings.len();
        // A device serves the next connection when the last one has ended.
        self.connection = None;
        // A server that was just started may not listen yet.
        let start = Instant::now();
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{socket:?}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut frontend = Frontend::from_stream(stream, nr_rings as u64);
        frontend.set_owner().expect("SET_OWNER");
        let offered = frontend.get_features().expect("GET_FEATURES");
        assert_eq!(offered & FEATURES, FEATURES);
        let wanted = Protocol::MQ | Protocol::INFLIGHT_SHMFD;
        let offered = frontend.get_protocol_features().expect("GET_PROTOCOL_FEATURES");
        assert!(offered.contains(wanted));
        frontend.set_protocol_features(wanted).expect("SET_PROTOCOL_FEATURES");
        assert!(frontend.get_queue_num().expect("GET_QUEUE_NUM") >= nr_rings as u64);
        frontend.set_features(FEATURES).expect("SET_FEATURES");
        let table = VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE,
            memory_size: nr_rings as u64 * PART,
            userspace_addr: BASE,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        };
        frontend.set_mem_table(&[table]).expect("SET_MEM_TABLE");
        let (region, file) = self.inflight.get_or_insert_with(|| {
            let asked = VhostUserInflight::new(0, 0, nr_rings as u16, SIZE);
            frontend.get_inflight_fd(&asked).expect("GET_INFLIGHT_FD")
        });
        frontend.set_inflight_fd(region, file.as_raw_fd()).expect("SET_INFLIGHT_FD");
        self.connection = Some(frontend);
        (0..nr_rings).for_each(|nth| self.start(nth));
    }

    /// Ends the connection: the device stops its rings.
    pub(crate) fn disconnect(&mut self) {
        self.connection = None;
    }

    fn connection(&mut self) -> &mut Frontend {
        self.connection.as_mut().expect("it is connected")
    }

    fn start(&mut self, nth: usize) {
        let part = BASE + nth as u64 * PART;
        let places = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: part,
            used_ring_addr: part + USED,
            avail_ring_addr: part + AVAILABLE,
            log_addr: None,
        };
        let used: u16 =
            self.memory.load(GuestAddress(part + USED + 2), Ordering::Acquire).expect("it");
        let events = self.rings[nth].each_ref();
        let [kick, call] = events.map(|event| event.try_clone().expect("a descriptor"));
        let frontend = self.connection();
        frontend.set_vring_num(nth, SIZE).expect("SET_VRING_NUM");
        frontend.set_vring_addr(nth, &places).expect("SET_VRING_ADDR");
        frontend.set_vring_base(nth, u16::from_le(used)).expect("SET_VRING_BASE");
        frontend.set_vring_call(nth, &call).expect("SET_VRING_CALL");
        frontend.set_vring_kick(nth, &kick).expect("SET_VRING_KICK");
        frontend.set_vring_enable(nth, true).expect("SET_VRING_ENABLE");
    }

    /// Stops a ring, and starts it again where it has stopped. Returns that place.
    pub(crate) fn restart_ring(&mut self, nth: usize) -> u32 {
        let kick = self.rings[nth][0].try_clone().expect("a descriptor");
        let frontend = self.connection();
        let base = frontend.get_vring_base(nth).expect("GET_VRING_BASE");
        frontend.set_vring_base(nth, base as u16).expect("SET_VRING_BASE");
        frontend.set_vring_kick(nth, &kick).expect("SET_VRING_KICK");
        base
    }

    /// Returns the driver of a ring. A ring has one driver at a time.
    pub(crate) fn driver(&self, nth: usize) -> Driver {
        let [kick, call] =
            self.rings[nth].each_ref().map(|event| event.try_clone().expect("a descriptor"));
        let part = BASE + nth as u64 * PART;
        let memory = self.memory.clone();
        let mut driver = Driver { memory, part, kick, call, next: 0, nr_used: 0 };
        driver.next = driver.index(AVAILABLE);
        driver.nr_used = driver.index(USED);
        driver
    }
}

/// The driver of a ring.
pub(crate) struct Driver {
    memory: GuestMemoryMmap,
    part: u64,
    kick: EventFd,
    call: EventFd,
    /// Index of the next available entry to write, and of the next used one to read.
    next: u16,
    nr_used: u16,
}

impl Driver {
    fn index(&self, of: u64) -> u16 {
        let at = GuestAddress(self.part + of + 2);
        u16::from_le(self.memory.load(at, Ordering::Acquire).expect("in memory"))
    }

    /// Writes to the memory of the ring: its descriptors are at 0.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(self.part + at)).expect("in memory");
    }

    /// Writes a descriptor.
    pub(crate) fn describe(&self, index: u16, (addr, len): (u64, u32), flags: u16, next: u16) {
        let (addr, len) = (addr.to_le_bytes(), len.to_le_bytes());
        let bytes = [&addr[..], &len, &flags.to_le_bytes(), &next.to_le_bytes()].concat();
        self.write(16 * u64::from(index), &bytes);
    }

    /// Returns the address of a slot's header and of its data. The status follows the header.
    pub(crate) fn buffers(&self, slot: u16) -> (u64, u64) {
        let (slot, part) = (u64::from(slot), self.part);
        (part + HEADERS + 32 * slot, part + DATA + u64::from(DATA_MAX) * slot)
    }

    /// Fills a request of three descriptors, and makes it available. Its data are in the slot.
    pub(crate) fn submit(&mut self, slot: u16, kind: u32, sector: u64, len: u32) {
        self.fill(slot, kind, sector, len);
        self.offer(3 * slot);
        self.publish();
    }

    /// Fills a request of three descriptors. A flush has two.
    pub(crate) fn fill(&mut self, slot: u16, kind: u32, sector: u64, len: u32) {
        let (header, data) = self.buffers(slot);
        let bytes = [&u64::from(kind).to_le_bytes()[..], &sector.to_le_bytes(), &[0xaa]].concat();
        self.write(header - self.part, &bytes);
        let first = 3 * slot;
        let second = if len == 0 { first + 2 } else { first + 1 };
        self.describe(first, (header, 16), NEXT, second);
        let flags = if kind == READ { NEXT | WRITABLE } else { NEXT };
        self.describe(first + 1, (data, len), flags, first + 2);
        self.describe(first + 2, (header + 16, 1), WRITABLE, 0);
    }

    /// Writes an available entry.
    pub(crate) fn offer(&mut self, head: u16) {
        let at = AVAILABLE + 4 + 2 * u64::from(self.next % SIZE);
        self.write(at, &head.to_le_bytes());
        self.next = self.next.wrapping_add(1);
    }

    /// Moves the available index without entries.
    pub(crate) fn jump(&mut self, nr: u16) {
        self.next = self.next.wrapping_add(nr);
    }

    /// Makes the entries available, and kicks the ring.
    pub(crate) fn publish(&self) {
        let index = GuestAddress(self.part + AVAILABLE + 2);
        self.memory.store(self.next.to_le(), index, Ordering::Release).expect("in memory");
        self.kick.write(1).expect("a kick");
    }

    /// Returns the slot and the status of the next request that was answered, if any.
    pub(crate) fn take_used(&mut self) -> Option<(u16, u8)> {
        if self.index(USED) == self.nr_used {
            return None;
        }
        let at = self.part + USED + 4 + 8 * u64::from(self.nr_used % SIZE);
        let head: u32 = self.memory.read_obj(GuestAddress(at)).expect("in memory");
        self.nr_used = self.nr_used.wrapping_add(1);
        let slot = u16::try_from(u32::from_le(head) / 3).expect("a head");
        let status = GuestAddress(self.buffers(slot).0 + 16);
        Some((slot, self.memory.read_obj(status).expect("in memory")))
    }

    /// Waits until the next request is answered. Returns its status.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> u8 {
        let start = Instant::now();
        loop {
            if let Some((_, status)) = self.take_used() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "no answer");
            self.wait();
        }
    }

    /// Waits for a notification, or for a short time: the server makes the eventfd non-blocking.
    pub(crate) fn wait(&self) {
        if self.call.read().is_err() {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Reads the data of a slot.
    pub(crate) fn read_data(&self, slot: u16, bytes: &mut [u8]) {
        let at = GuestAddress(self.buffers(slot).1);
        self.memory.read_slice(bytes, at).expect("in memory");
    }

    /// Writes the data of a slot.
    pub(crate) fn write_data(&self, slot: u16, bytes: &[u8]) {
        self.write(self.buffers(slot).1 - self.part, bytes);
    }
}
