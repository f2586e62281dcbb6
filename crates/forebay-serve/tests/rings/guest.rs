//! A guest without a virtual machine: a front end and a driver of one ring, in this process.

use forebay_serve::{DeviceOptions, DeviceSocket, ExportOptions, Observer, Options, Server};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserVirtioFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

/// Number of descriptors of the ring.
pub(crate) const SIZE: u16 = 256;
/// Places in the memory of the guest.
pub(crate) const BASE: u64 = 1 << 32;
const AVAILABLE: u64 = BASE + 0x2000;
pub(crate) const USED: u64 = BASE + 0x4000;
pub(crate) const HEADERS: u64 = BASE + 0x8000;
pub(crate) const DATA: u64 = BASE + 0x1_0000;
pub(crate) const LEN: u64 = 4 << 20;

/// The features that the guest accepts: FLUSH and VERSION_1.
const FEATURES: u64 = 1 << 9 | 1 << 32;

/// Reports that the server accepts connections.
struct Ready(Sender<()>);

impl Observer for Ready {
    fn ready(&mut self) {
        self.0.send(()).expect("the test waits");
    }
}

/// Runs a server with a device for each disk while `test` uses its socket. The server must end
/// without an error.
pub(crate) fn serve(folder: &Path, specs: &[&str], log: Option<OwnedFd>, test: impl FnOnce()) {
    serve_with(options(folder, specs, log), test);
}

/// Returns options of a server with a device for each disk.
pub(crate) fn options(folder: &Path, specs: &[&str], log: Option<OwnedFd>) -> Options {
    let name = |nr: usize| if nr == 0 { String::new() } else { nr.to_string() };
    let export = |(nr, spec): (usize, &&str)| ExportOptions {
        spec: (*spec).to_owned(),
        name: name(nr),
        ..ExportOptions::default()
    };
    let device = |nr: usize| DeviceOptions {
        export: nr,
        socket: DeviceSocket::Path(folder.join(nr.to_string())),
        nr_queues: 1,
        queue_size: SIZE,
        block_size: None,
        serial: String::from("serial"),
    };
    Options {
        exports: specs.iter().enumerate().map(export).collect(),
        devices: (0..specs.len()).map(device).collect(),
        log,
        ..Options::default()
    }
}

/// Runs a server while `test` uses its sockets. The server must end without an error.
pub(crate) fn serve_with(options: Options, test: impl FnOnce()) {
    let server = Server::open(options).expect("a server");
    let (stop, stopped) = UnixStream::pair().expect("a pair of sockets");
    let (sender, ready) = channel();
    std::thread::scope(|scope| {
        let running = scope.spawn(move || server.run(stopped, &mut Ready(sender)));
        ready.recv().expect("the server runs");
        test();
        drop(stop);
        running.join().expect("no panic").expect("a clean end");
    });
}

/// A guest that has set up its ring.
pub(crate) struct Guest {
    pub(crate) frontend: Frontend,
    pub(crate) memory: GuestMemoryMmap,
    file: File,
    kick: EventFd,
    pub(crate) call: EventFd,
    pub(crate) index: u16,
    nr_used: u16,
}

impl Guest {
    /// Connects to a device.
    pub(crate) fn connect(socket: &Path) -> Guest {
        let memfd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC);
        Guest::connect_with(socket, File::from(memfd.expect("memory to share")))
    }

    /// Connects to a device, and shares this file as its memory.
    pub(crate) fn connect_with(socket: &Path, file: File) -> Guest {
        file.set_len(LEN).expect("memory");
        let mapped = FileOffset::new(file.try_clone().expect("a descriptor"), 0);
        let range = (GuestAddress(BASE), LEN as usize, Some(mapped));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).expect("a mapping");
        let mut frontend = Frontend::connect(socket, 1).expect("a connection");
        frontend.set_owner().expect("SET_OWNER");
        let offered = frontend.get_features().expect("GET_FEATURES");
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        assert_eq!(offered & (FEATURES | protocol), FEATURES | protocol);
        let _ = frontend.get_protocol_features().expect("GET_PROTOCOL_FEATURES");
        frontend.set_features(FEATURES | protocol).expect("SET_FEATURES");
        let table = VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE,
            memory_size: LEN,
            userspace_addr: BASE,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        };
        frontend.set_mem_table(&[table]).expect("SET_MEM_TABLE");
        let event = || EventFd::new(0).expect("a descriptor");
        let (kick, call) = (event(), event());
        let places = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: BASE,
            used_ring_addr: USED,
            avail_ring_addr: AVAILABLE,
            log_addr: None,
        };
        frontend.set_vring_num(0, SIZE).expect("SET_VRING_NUM");
        frontend.set_vring_addr(0, &places).expect("SET_VRING_ADDR");
        frontend.set_vring_base(0, 0).expect("SET_VRING_BASE");
        frontend.set_vring_call(0, &call).expect("SET_VRING_CALL");
        frontend.set_vring_kick(0, &kick).expect("SET_VRING_KICK");
        frontend.set_vring_enable(0, true).expect("SET_VRING_ENABLE");
        Guest { frontend, memory, file, kick, call, index: 0, nr_used: 0 }
    }

    /// Truncates the memory of the guest, as a broken front end may do.
    pub(crate) fn truncate(&self, len: u64) {
        self.file.set_len(len).expect("the memory is truncated");
    }

    /// Stops the ring, and returns its base.
    pub(crate) fn stop(&mut self) -> u32 {
        self.frontend.get_vring_base(0).expect("GET_VRING_BASE")
    }

    pub(crate) fn write(&self, addr: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(addr)).expect("in memory");
    }

    /// Writes descriptor `index`.
    pub(crate) fn describe(&self, index: u16, addr: u64, len: u32, flags: u16) {
        let at = BASE + 16 * u64::from(index);
        self.write(at, &addr.to_le_bytes());
        self.write(at + 8, &len.to_le_bytes());
        self.write(at + 12, &flags.to_le_bytes());
        self.write(at + 14, &(index + 1).to_le_bytes());
    }

    /// Makes a request with its first descriptor, header and status. `is_write`: its `nr` segments
    /// of 512 bytes at `data`, with gaps between them, are written to the disk.
    pub(crate) fn request(
        &mut self,
        first: u16,
        is_write: bool,
        sector: u64,
        (data, nr): (u64, u16),
    ) {
        let segment = |nr: u16| (data + 1024 * u64::from(nr), 512);
        self.request_of(first, is_write, sector, (0..nr).map(segment));
    }

    /// Makes a request of these segments: addresses and lengths.
    pub(crate) fn request_of(
        &mut self,
        first: u16,
        is_write: bool,
        sector: u64,
        segments: impl IntoIterator<Item = (u64, u32)>,
    ) {
        const NEXT: u16 = 1;
        const WRITABLE: u16 = 2;
        let header = HEADERS + 32 * u64::from(first);
        self.write(header, &u64::from(is_write).to_le_bytes());
        self.write(header + 8, &sector.to_le_bytes());
        self.write(header + 16, &[0xaa]);
        self.describe(first, header, 16, NEXT);
        let flags = if is_write { NEXT } else { NEXT | WRITABLE };
        let mut next = first + 1;
        for (addr, len) in segments {
            self.describe(next, addr, len, flags);
            next += 1;
        }
        self.describe(next, header + 16, 1, WRITABLE);
        let entry = AVAILABLE + 4 + 2 * u64::from(self.index % SIZE);
        self.write(entry, &first.to_le_bytes());
        self.index = self.index.wrapping_add(1);
    }

    /// Makes the requests available, and kicks the ring.
    pub(crate) fn kick(&self) {
        self.publish();
        self.signal();
    }

    /// Makes the requests available.
    pub(crate) fn publish(&self) {
        let index = GuestAddress(AVAILABLE + 2);
        self.memory.store(self.index.to_le(), index, Ordering::Release).expect("in memory");
    }

    /// Kicks the ring.
    pub(crate) fn signal(&self) {
        self.kick.write(1).expect("a kick");
    }

    /// Waits until all requests are answered.
    pub(crate) fn wait(&mut self) {
        let used = GuestAddress(USED + 2);
        loop {
            let index: u16 = self.memory.load(used, Ordering::Acquire).expect("in memory");
            self.nr_used = u16::from_le(index);
            if self.nr_used == self.index {
                return;
            }
            // The server has made the eventfd non-blocking, which concerns both sides.
            if self.call.read().is_err() {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// Returns the status of a request.
    pub(crate) fn status(&self, first: u16) -> u8 {
        let status = GuestAddress(HEADERS + 32 * u64::from(first) + 16);
        self.memory.read_obj(status).expect("in memory")
    }
}
