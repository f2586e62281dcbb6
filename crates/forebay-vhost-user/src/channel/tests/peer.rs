//! Both sides of a message channel under test: raw messages of a front end, and rings that record
//! their commands.

use crate::{Capabilities, Config, RingCommand, RingSetup, Rings, Shape, WriteCache, serve};
use forebay_core::QueueLimits;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vm_memory::{GuestAddress, GuestMemoryBackend};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

/// Numbers of messages.
pub(super) const SET_FEATURES: u32 = 2;
pub(super) const SET_OWNER: u32 = 3;
pub(super) const RESET_OWNER: u32 = 4;
pub(super) const SET_MEM_TABLE: u32 = 5;
pub(super) const SET_VRING_NUM: u32 = 8;
pub(super) const SET_VRING_ADDR: u32 = 9;
pub(super) const SET_VRING_BASE: u32 = 10;
pub(super) const GET_VRING_BASE: u32 = 11;
pub(super) const SET_VRING_KICK: u32 = 12;
pub(super) const SET_VRING_CALL: u32 = 13;
pub(super) const SET_VRING_ERR: u32 = 14;
pub(super) const GET_PROTOCOL_FEATURES: u32 = 15;
pub(super) const SET_PROTOCOL_FEATURES: u32 = 16;
pub(super) const GET_QUEUE_NUM: u32 = 17;
pub(super) const SET_VRING_ENABLE: u32 = 18;
pub(super) const SET_BACKEND_REQ_FD: u32 = 21;
pub(super) const GET_CONFIG: u32 = 24;
pub(super) const SET_CONFIG: u32 = 25;
pub(super) const GET_INFLIGHT_FD: u32 = 31;
pub(super) const SET_INFLIGHT_FD: u32 = 32;
pub(super) const GET_MAX_MEM_SLOTS: u32 = 36;
pub(super) const ADD_MEM_REG: u32 = 37;
pub(super) const REM_MEM_REG: u32 = 38;
/// The largest number of a message, and more.
pub(super) const LAST: u32 = 50;

/// Features that the tests negotiate: protocol features, VERSION_1, and CONFIG_WCE.
pub(super) const FEATURES: u64 = 1 << 30 | 1 << 32 | 1 << 11;
/// MQ, REPLY_ACK, BACKEND_REQ, CONFIG, INFLIGHT_SHMFD, CONFIGURE_MEM_SLOTS.
pub(super) const PROTOCOL: u64 = 1 << 0 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 12 | 1 << 15;

/// Size of the region of [`Peer::share`], and its address in both address spaces.
pub(super) const REGION: u64 = 64 << 10;
pub(super) const GUEST: u64 = 0x10_0000;
pub(super) const USER: u64 = 0x7000_0000_0000;

/// Most rings of the device under test.
pub(super) const NR_RINGS: u16 = 3;
pub(super) const QUEUE_SIZE: u16 = 256;

/// Rings that record their commands, and check them.
#[derive(Debug, Default)]
pub(super) struct Fake {
    running: Mutex<[Option<Box<RingSetup>>; NR_RINGS as usize]>,
    pub(super) log: Mutex<Vec<String>>,
    /// Rings that have taken new memory.
    pub(super) nr_moved: Arc<AtomicUsize>,
    /// Times that a ring was enabled or disabled.
    pub(super) nr_switched: Arc<AtomicUsize>,
}

/// Counts up and answers later, as a thread that is in the middle of a round.
fn answer_later(count: &Arc<AtomicUsize>, answer: SyncSender<()>) {
    let count = Arc::clone(count);
    std::thread::spawn(move || {
        (0..1000).for_each(|_| std::thread::yield_now());
        count.fetch_add(1, Ordering::Relaxed);
        answer.send(()).expect("the channel waits");
    });
}

impl Fake {
    /// Returns the commands since the last call.
    pub(super) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().expect("no panic"))
    }

    pub(super) fn nr_running(&self) -> usize {
        self.running.lock().expect("no panic").iter().flatten().count()
    }
}

/// Checks that a ring is inside the memory that comes with it.
#[track_caller]
fn check(setup: &RingSetup) {
    let size = usize::from(setup.size);
    assert!(setup.size.is_power_of_two() && setup.size <= QUEUE_SIZE);
    for (start, len) in [
        (setup.descriptors, 16 * size),
        (setup.available, 6 + 2 * size),
        (setup.used, 6 + 8 * size),
    ] {
        let regions = setup.memory.regions();
        assert!(regions.check_range(GuestAddress(start), len), "{start:#x} {len}");
        let slice = regions.get_slice(GuestAddress(start), len);
        assert_eq!(slice.expect("in one region").len(), len);
    }
}

impl Rings for Fake {
    fn send(&self, ring: u16, command: RingCommand) -> bool {
        let mut running = self.running.lock().expect("no panic");
        let place = &mut running[usize::from(ring)];
        let text = match command {
            RingCommand::Start(setup) => {
                check(&setup);
                let mut text = format!("start {} {}", setup.base, setup.is_enabled);
                if let Some((region, ring)) = &setup.inflight {
                    let (_, left) = region.recover(*ring, setup.size, 0).expect("its record");
                    text += &format!(" in flight {:?}", left.heads);
                }
                assert!(place.replace(setup).is_none(), "ring {ring} starts once");
                text
            }
            RingCommand::Stop(answer) => {
                let setup = place.take().expect("a ring that runs is stopped");
                answer.send(setup.base.wrapping_add(7)).expect("the channel waits");
                "stop".to_owned()
            }
            RingCommand::Memory(memory, answer) => {
                answer_later(&self.nr_moved, answer);
                let setup = place.as_mut().expect("it runs");
                setup.memory = memory;
                check(setup);
                format!("memory {}", setup.memory.regions().num_regions())
            }
            RingCommand::Enable(enable, answer) => {
                answer_later(&self.nr_switched, answer);
                place.as_mut().expect("it runs").is_enabled = enable;
                format!("enable {enable}")
            }
            RingCommand::Call(call, answer) => {
                answer.send(()).expect("the channel waits");
                place.as_mut().expect("it runs").call = call;
                "call".to_owned()
            }
            RingCommand::Err(err, answer) => {
                answer.send(()).expect("the channel waits");
                place.as_mut().expect("it runs").err = err;
                "err".to_owned()
            }
        };
        self.log.lock().expect("no panic").push(format!("{ring}: {text}"));
        true
    }

    fn stopped(&self, _: u16) {}

    fn panicked(&self) {
        panic!("a panic while serving a message");
    }
}

/// Reply to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Body(Vec<u8>),
    Closed,
}

/// A front end that sends raw messages.
pub(super) struct Peer {
    pub(super) stream: UnixStream,
}

impl Peer {
    /// Sends a message with these descriptors, and does not wait. Returns whether it was sent.
    pub(super) fn send(&self, code: u32, flags: u32, body: &[u8], fds: &[RawFd]) -> bool {
        let header = [code, flags, body.len() as u32].map(u32::to_le_bytes).concat();
        self.stream.send_with_fds(&[&[&header[..], body].concat()[..]], fds).is_ok()
    }

    /// Sends a message that demands a reply, and returns the body of the reply.
    pub(super) fn call(&self, code: u32, body: &[u8], fds: &[RawFd]) -> Reply {
        if !self.send(code, 1 | 8, body, fds) {
            return Reply::Closed;
        }
        let mut header = [0; 12];
        if (&self.stream).read_exact(&mut header).is_err() {
            return Reply::Closed;
        }
        let word = |at| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((word(0), word(4)), (code, 1 | 4), "the reply to this message");
        let mut body = vec![0; word(8) as usize];
        (&self.stream).read_exact(&mut body).expect("a whole reply");
        Reply::Body(body)
    }

    /// Sends a message that must be accepted.
    #[track_caller]
    pub(super) fn accept(&self, code: u32, body: &[u8], fds: &[RawFd]) {
        let reply = self.call(code, body, fds);
        assert_eq!(reply, Reply::Body(vec![0; 8]), "message {code}");
    }

    /// Negotiates features, so that each message can demand a reply.
    #[track_caller]
    pub(super) fn negotiate(&self) {
        let Reply::Body(_) = self.call(1, &[], &[]) else { panic!("GET_FEATURES") };
        let offered = self.call(GET_PROTOCOL_FEATURES, &[], &[]);
        assert_eq!(offered, Reply::Body(PROTOCOL.to_le_bytes().to_vec()));
        assert!(self.send(SET_PROTOCOL_FEATURES, 1, &PROTOCOL.to_le_bytes(), &[]));
        self.accept(SET_OWNER, &[], &[]);
        self.accept(SET_FEATURES, &FEATURES.to_le_bytes(), &[]);
    }

    /// Shares one region.
    #[track_caller]
    pub(super) fn share(&self) {
        let file = memory(REGION);
        self.accept(SET_MEM_TABLE, &table(&[(GUEST, REGION, USER, 0)]), &[file.as_raw_fd()]);
    }

    /// Sets a ring up, without its kick descriptor.
    #[track_caller]
    pub(super) fn prepare_ring(&self, ring: u32, size: u32) {
        self.accept(SET_VRING_NUM, &state(ring, size), &[]);
        self.accept(SET_VRING_ADDR, &addresses(ring, USER), &[]);
        self.accept(SET_VRING_BASE, &state(ring, 5), &[]);
    }

    /// Starts a ring.
    #[track_caller]
    pub(super) fn start_ring(&self, ring: u32) {
        self.prepare_ring(ring, 128);
        let kick = event();
        self.accept(SET_VRING_KICK, &u64::from(ring).to_le_bytes(), &[kick.as_raw_fd()]);
    }
}

/// Serves a connection on a thread, and calls `front_end` with the other side. Returns how the
/// connection has ended.
#[track_caller]
pub(super) fn connection(
    rings: &Fake,
    cache: &WriteCache,
    front_end: impl FnOnce(&Peer),
) -> Result<(), String> {
    connection_to(&device(), (rings, cache), front_end)
}

/// Returns the configuration of the device under test.
pub(super) fn device() -> Config {
    let capabilities =
        Capabilities { read_only: false, discard: true, write_zeroes: true, unmap: true };
    let shape = Shape { nr_queues: NR_RINGS, queue_size: QUEUE_SIZE };
    Config::new(&QueueLimits::default(), 1 << 30, capabilities, shape)
}

/// Does the same as [`connection`] with this device.
#[track_caller]
pub(super) fn connection_to(
    config: &Config,
    (rings, cache): (&Fake, &WriteCache),
    front_end: impl FnOnce(&Peer),
) -> Result<(), String> {
    let (front, back) = UnixStream::pair().expect("a pair");
    front.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let ended = std::thread::scope(|scope| {
        let served = scope.spawn(|| serve(back, config, cache, rings));
        front_end(&Peer { stream: front });
        served.join().expect("no panic")
    });
    assert_eq!(rings.nr_running(), 0, "all rings are stopped");
    ended
}

/// Returns an eventfd.
pub(super) fn event() -> EventFd {
    EventFd::new(EFD_NONBLOCK).expect("an eventfd")
}

/// Returns memory that can be shared.
pub(super) fn memory(len: u64) -> File {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
    let file = File::from(fd);
    file.set_len(len).expect("memory");
    file
}

/// Returns the body of SET_MEM_TABLE: guest address, length, user address, and offset each.
pub(super) fn table(regions: &[(u64, u64, u64, u64)]) -> Vec<u8> {
    let mut body = (regions.len() as u64).to_le_bytes().to_vec();
    for (guest, len, user, offset) in regions {
        body.extend([guest, len, user, offset].iter().flat_map(|number| number.to_le_bytes()));
    }
    body
}

/// Returns the body of ADD_MEM_REG or REM_MEM_REG.
pub(super) fn region(guest: u64, len: u64, user: u64, offset: u64) -> Vec<u8> {
    [0, guest, len, user, offset].map(u64::to_le_bytes).concat()
}

/// Returns the body of a message with the index of a ring and a number.
pub(super) fn state(ring: u32, number: u32) -> Vec<u8> {
    [ring, number].map(u32::to_le_bytes).concat()
}

/// Returns the body of SET_VRING_ADDR, with the parts of a ring in the first 16 KiB of the region.
pub(super) fn addresses(ring: u32, start: u64) -> Vec<u8> {
    let mut body = state(ring, 0);
    let places = [start, start + 0x3000, start + 0x2000, 0];
    body.extend(places.iter().flat_map(|place| place.to_le_bytes()));
    body
}

/// Returns the body of GET_CONFIG or SET_CONFIG.
pub(super) fn config(offset: u32, bytes: &[u8]) -> Vec<u8> {
    let mut body = [offset, bytes.len() as u32, 0].map(u32::to_le_bytes).concat();
    body.extend(bytes);
    body
}
