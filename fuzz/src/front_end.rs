//! A front end of vhost-user whose messages come from the bytes of a fuzzer.
//!
//! Most messages are well-formed and refer to what earlier ones have set up, so that sequences get
//! far. The rest have wrong numbers, a wrong size, or descriptors that do not belong.

use crate::Choices;
use forebay_vhost_user::{InflightMemory, InflightShape};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

/// Numbers of messages.
pub const GET_FEATURES: u32 = 1;
pub const SET_FEATURES: u32 = 2;
pub const SET_OWNER: u32 = 3;
pub const SET_MEM_TABLE: u32 = 5;
pub const SET_VRING_NUM: u32 = 8;
pub const SET_VRING_ADDR: u32 = 9;
pub const SET_VRING_BASE: u32 = 10;
pub const GET_VRING_BASE: u32 = 11;
pub const SET_VRING_KICK: u32 = 12;
pub const SET_VRING_CALL: u32 = 13;
pub const SET_VRING_ERR: u32 = 14;
pub const GET_PROTOCOL_FEATURES: u32 = 15;
pub const SET_PROTOCOL_FEATURES: u32 = 16;
pub const GET_QUEUE_NUM: u32 = 17;
pub const SET_VRING_ENABLE: u32 = 18;
pub const SET_BACKEND_REQ_FD: u32 = 21;
pub const GET_CONFIG: u32 = 24;
pub const SET_CONFIG: u32 = 25;
pub const GET_INFLIGHT_FD: u32 = 31;
pub const SET_INFLIGHT_FD: u32 = 32;
pub const GET_MAX_MEM_SLOTS: u32 = 36;
pub const ADD_MEM_REG: u32 = 37;
pub const REM_MEM_REG: u32 = 38;

/// The messages that an input chooses from. RESET_OWNER has number 4.
pub const CODES: [u32; 25] = [
    SET_FEATURES,
    SET_OWNER,
    4,
    SET_MEM_TABLE,
    SET_VRING_NUM,
    SET_VRING_ADDR,
    SET_VRING_BASE,
    GET_VRING_BASE,
    SET_VRING_KICK,
    SET_VRING_CALL,
    SET_VRING_ERR,
    GET_PROTOCOL_FEATURES,
    SET_PROTOCOL_FEATURES,
    GET_QUEUE_NUM,
    SET_VRING_ENABLE,
    GET_CONFIG,
    SET_CONFIG,
    GET_INFLIGHT_FD,
    SET_INFLIGHT_FD,
    GET_MAX_MEM_SLOTS,
    ADD_MEM_REG,
    REM_MEM_REG,
    GET_FEATURES,
    SET_VRING_KICK,
    SET_BACKEND_REQ_FD,
];

/// VERSION_1, protocol features, event indices, indirect descriptors, FLUSH and CONFIG_WCE.
pub const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 29 | 1 << 28 | 1 << 11 | 1 << 9;
/// MQ, REPLY_ACK, BACKEND_REQ, CONFIG, INFLIGHT_SHMFD, CONFIGURE_MEM_SLOTS.
const PROTOCOL: u64 = 1 << 0 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 12 | 1 << 15;
/// Flags of a message: version 1, and a reply is needed.
const VERSION: u32 = 1;
const NEED_REPLY: u32 = 8;

/// Length of a region of memory, and addresses of the first one. Each ring takes a part of it.
pub const REGION: u64 = 64 << 10;
pub const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7000_0000_0000;
const RING_STRIDE: u64 = 0x4000;
/// Buffers of requests.
pub const BUFFERS: u64 = GUEST + 0xe000;

/// Rings of the device, and descriptors of each.
pub const NR_RINGS: u16 = 3;
pub const QUEUE_SIZE: u16 = 64;
const SHAPE: InflightShape = InflightShape { nr_queues: NR_RINGS, queue_size: QUEUE_SIZE };

/// The length of an encoded message in an input, bytes.
pub const STEP: usize = 7;

/// Descriptors that messages carry. They are created once, and their contents are reset.
pub struct Files {
    /// The second one can be sealed, and the first one can be truncated.
    pub memory: [File; 2],
    inflight: File,
    event: OwnedFd,
    /// The device's end of a backend channel, and that of the front end.
    channel: [UnixStream; 2],
    /// Descriptors of other kinds.
    others: Vec<OwnedFd>,
}

impl Files {
    #[expect(clippy::new_without_default, reason = "it creates files")]
    pub fn new() -> Files {
        let memory = [MemfdFlags::CLOEXEC, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING];
        let memory = memory.map(|flags| File::from(memfd_create("fuzz", flags).expect("a memfd")));
        let (_, inflight) = InflightMemory::create(SHAPE).expect("memory");
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let channel = <[UnixStream; 2]>::from(UnixStream::pair().expect("a pair"));
        let (pipe, _) = std::io::pipe().expect("a pipe");
        let others = vec![
            File::open("/dev/null").expect("a device").into(),
            File::open("/").expect("a folder").into(),
            File::open("/proc/self/exe").expect("a file").into(),
            epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor"),
            pipe.into(),
            UnixStream::pair().expect("a pair").0.into(),
        ];
        Files { memory, inflight, event, channel, others }
    }

    /// Empties the memory, and writes `record` into the in-flight region of the first ring. The
    /// requests that it has in flight are whole in the memory.
    pub fn reset(&self, record: &[u8]) {
        let empty = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for file in &self.memory {
            file.set_len(REGION).expect("memory");
            fallocate(file, empty, 0, REGION).expect("memory");
        }
        fallocate(&self.inflight, empty, 0, SHAPE.len_bytes()).expect("memory");
        if record.iter().any(|byte| *byte != 0) {
            // A record that was used: version 1, its size, the head of its last batch, and its used
            // index. Entry 3 follows: in flight, with a counter.
            let size = QUEUE_SIZE.to_le_bytes();
            let head = [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, size[0], size[1], record[0] & 3, 0];
            self.inflight.write_all_at(&head, 0).expect("memory");
            self.inflight.write_all_at(&record[1..3], 14).expect("memory");
            self.inflight.write_all_at(&[1], 16 + 16 * 3).expect("memory");
            self.inflight.write_all_at(&record[3..4], 16 + 16 * 5).expect("memory");
            // The request of entry 3 has a header, data and a status, that of entry 5 only a
            // status.
            let chain = [(16, 1, 4), (512, 3, 5), (1, 2, 0)];
            let bytes = chain.map(|(len, flags, next)| {
                [numbers([BUFFERS]), halves([len, next << 16 | flags])].concat()
            });
            for file in &self.memory {
                file.write_all_at(&bytes.concat(), 16 * 3).expect("memory");
            }
        }
    }
}

fn numbers<const N: usize>(numbers: [u64; N]) -> Vec<u8> {
    numbers.map(u64::to_le_bytes).concat()
}

fn halves<const N: usize>(numbers: [u32; N]) -> Vec<u8> {
    numbers.map(u32::to_le_bytes).concat()
}

/// Addresses of a ring in its part of the first region.
fn addresses(ring: u32, start: u64) -> Vec<u8> {
    let places = [start, start.wrapping_add(0x3000), start.wrapping_add(0x2000), 0];
    [halves([ring, 0]), numbers(places)].concat()
}

/// The numbers of an encoded message.
struct Numbers {
    ring: u32,
    a: u8,
    b: u8,
    c: u8,
}

impl Numbers {
    fn of<T: Copy, const N: usize>(choice: u8, values: [T; N]) -> T {
        values[usize::from(choice) % N]
    }

    /// Returns the place of a region in both address spaces, its length, and its offset.
    fn region(&self, nth: u64) -> [u64; 4] {
        let far = GUEST + 16 * REGION;
        let (half, odd) = (GUEST + REGION / 2, GUEST + 4 * REGION + 1);
        let guest = [GUEST, GUEST + 2 * REGION, far, half, 0, u64::MAX - REGION, odd];
        let mut guest = Numbers::of(self.a & 15, guest);
        if self.a >= 240 {
            guest = Numbers::of(self.a, [u64::MAX - 4095, 1 << 63, u64::MAX]);
        }
        let guest = guest.wrapping_add(2 * nth * REGION);
        let near = guest.wrapping_sub(GUEST).wrapping_add(USER);
        let user = Numbers::of(self.b >> 4, [near, near, near, near, USER, u64::MAX - 4095]);
        let len = [REGION, REGION, REGION, 4096, REGION / 2, 0, u64::MAX, REGION + 4096];
        let offset = [0, 0, 0, 0, 4096, 1, REGION, u64::MAX];
        [guest, Numbers::of(self.b, len), user, Numbers::of(self.c >> 1, offset)]
    }

    /// Returns the body of a message.
    fn body(&self, code: u32) -> Vec<u8> {
        let Numbers { ring, a, b, c } = *self;
        match code {
            SET_FEATURES => {
                let features = [FEATURES, FEATURES & !(1 << 30), 1 << 32, 0, FEATURES | 1 << 50];
                numbers([Numbers::of(a, features)])
            }
            SET_PROTOCOL_FEATURES => {
                numbers([Numbers::of(a, [PROTOCOL, PROTOCOL & !8, 0, PROTOCOL | 1 << 13])])
            }
            SET_MEM_TABLE => {
                let nr = u64::from(c % 5);
                let mut body = halves([u32::from(c % 5) + u32::from(c > 250), 0]);
                (0..nr).for_each(|nth| body.extend(numbers(self.region(nth))));
                body
            }
            ADD_MEM_REG | REM_MEM_REG => [numbers([0]), numbers(self.region(0))].concat(),
            SET_VRING_NUM => {
                halves([ring, Numbers::of(a, [64, 16, 4, 32, 0, 3, 128, 1 << 15, u32::MAX])])
            }
            SET_VRING_BASE => halves([ring, Numbers::of(a, [0, 1, 0xffff, 0x1_0000])]),
            SET_VRING_ENABLE => halves([ring, Numbers::of(a, [1, 0, 1, 2])]),
            GET_VRING_BASE => halves([ring, 0]),
            SET_VRING_ADDR => {
                let [_, _, user, _] = self.region(0);
                let part = u64::from(ring % 3) * RING_STRIDE;
                let shift = Numbers::of(c, [0, 0, 0, 0, 16, 2, REGION - 0x3000, 0x1000]);
                let mut body = addresses(ring, user.wrapping_add(part).wrapping_add(shift));
                body[4] = u8::from(b > 240);
                body
            }
            SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR => {
                numbers([u64::from(ring) | u64::from(a > 200) << 8])
            }
            GET_CONFIG | SET_CONFIG => {
                // The write cache is at offset 32.
                let offset = Numbers::of(a, [32, 0, 8, 255, 256, u32::MAX]);
                let len = Numbers::of(b, [1, 8, 60, 0, 256]);
                let stated = if c > 250 { len + 1 } else { len };
                [halves([offset, stated, 0]), vec![c & 1; len as usize]].concat()
            }
            GET_INFLIGHT_FD | SET_INFLIGHT_FD => {
                let len = Numbers::of(a, [SHAPE.len_bytes(), 0, 1 << 20, u64::MAX]);
                let offset = Numbers::of(b, [0, 4096, 1, u64::MAX]);
                let nr_queues = Numbers::of(c, [NR_RINGS, 1, 0, NR_RINGS + 1, 0xffff]);
                let size = Numbers::of(c >> 4, [QUEUE_SIZE, 16, 0, QUEUE_SIZE + 1, 0xffff]);
                let counts = [nr_queues, size, 0, 0].map(u16::to_le_bytes).concat();
                [numbers([len, offset]), counts].concat()
            }
            _ if a < 250 => Vec::new(),
            _ => numbers([u64::from(b), u64::from(c)]),
        }
    }
}

/// The side of a connection that sends messages. They wait in the socket until they are served.
pub struct FrontEnd<'a> {
    stream: UnixStream,
    files: &'a Files,
    /// The messages that were sent.
    sent: Vec<u32>,
    /// Whether each of them was well-formed, so that replies are those to them.
    is_regular: bool,
}

impl<'a> FrontEnd<'a> {
    pub fn new(stream: UnixStream, files: &'a Files) -> FrontEnd<'a> {
        FrontEnd { stream, files, sent: Vec::new(), is_regular: true }
    }

    fn send(&mut self, code: u32, flags: u32, size: u32, body: &[u8], fds: &[BorrowedFd<'_>]) {
        let bytes = [&halves([code, flags, size])[..], body].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(40))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "at most 40 descriptors");
        }
        // A full socket drops the message.
        let sent =
            sendmsg(&self.stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::DONTWAIT);
        if let Ok(nr) = sent {
            self.is_regular &= nr == bytes.len();
            self.sent.push(code);
        }
    }

    /// Sends a well-formed message that needs a reply.
    fn well(&mut self, code: u32, body: &[u8], fds: &[BorrowedFd<'_>]) {
        self.send(code, VERSION | NEED_REPLY, body.len() as u32, body, fds);
    }

    /// Negotiates all features.
    pub fn negotiate(&mut self) {
        self.well(GET_FEATURES, &[], &[]);
        self.well(GET_PROTOCOL_FEATURES, &[], &[]);
        self.well(SET_PROTOCOL_FEATURES, &numbers([PROTOCOL]), &[]);
        self.well(SET_OWNER, &[], &[]);
        self.well(SET_FEATURES, &numbers([FEATURES]), &[]);
    }

    /// Shares the first region, which cannot be sealed or can.
    pub fn share(&mut self, which: usize) {
        let files = self.files;
        let body = [halves([1, 0]), numbers([GUEST, REGION, USER, 0])].concat();
        self.well(SET_MEM_TABLE, &body, &[files.memory[which].as_fd()]);
    }

    /// Sets the in-flight region.
    pub fn set_inflight(&mut self) {
        let files = self.files;
        let numbers = Numbers { ring: 0, a: 0, b: 0, c: 0 };
        self.well(SET_INFLIGHT_FD, &numbers.body(SET_INFLIGHT_FD), &[files.inflight.as_fd()]);
    }

    /// Starts and enables a ring.
    pub fn start_ring(&mut self, ring: u32) {
        let files = self.files;
        let event = files.event.as_fd();
        self.well(SET_VRING_NUM, &halves([ring, 64]), &[]);
        self.well(SET_VRING_BASE, &halves([ring, 0]), &[]);
        self.well(SET_VRING_ADDR, &addresses(ring, USER + RING_STRIDE * u64::from(ring)), &[]);
        self.well(SET_VRING_CALL, &numbers([ring.into()]), &[event]);
        self.well(SET_VRING_KICK, &numbers([ring.into()]), &[event]);
        self.well(SET_VRING_ENABLE, &halves([ring, 1]), &[]);
    }

    /// Sends the message that the next bytes of an input encode.
    pub fn step(&mut self, choices: &mut Choices<'_>) {
        let [code, ring, a, b, c, damage, fds] = [(); STEP].map(|()| choices.byte());
        let code = match code {
            240.. => a.into(),
            _ => Numbers::of(code, CODES),
        };
        let ring = match ring {
            240..248 => 3,
            248.. => u32::MAX,
            _ => u32::from(ring % 3),
        };
        let mut body = Numbers { ring, a, b, c }.body(code);
        let files = self.files;
        let memory = |nth: u8| files.memory[usize::from((c ^ nth) & 1)].as_fd();
        let mut carried: Vec<BorrowedFd<'_>> = match code {
            SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR if a <= 200 => {
                vec![files.event.as_fd()]
            }
            SET_MEM_TABLE => (0..c % 5).map(memory).collect(),
            ADD_MEM_REG => vec![memory(0)],
            SET_INFLIGHT_FD => vec![files.inflight.as_fd()],
            SET_BACKEND_REQ_FD => vec![files.channel[0].as_fd()],
            _ => Vec::new(),
        };
        if fds >= 200 {
            let other = files.others[usize::from(a) % files.others.len()].as_fd();
            match fds % 6 {
                0 => carried.clear(),
                1 => carried.push(other),
                2 => carried = vec![other; 8],
                3 => {
                    // The crate loses the header of a message with so many descriptors, and takes
                    // what follows for another message.
                    self.is_regular = false;
                    carried = vec![files.event.as_fd(); 33];
                }
                4 => carried = vec![memory(0)],
                _ => carried = vec![other],
            }
        }
        let mut flags = VERSION | NEED_REPLY;
        let mut size = body.len() as u32;
        if damage >= 200 {
            self.is_regular = false;
            match damage % 8 {
                0 => size = size.wrapping_sub(1 + u32::from(b & 7)),
                1 => size += 1 + u32::from(b),
                2 => size = 0x1001,
                3 => size = u32::MAX,
                4 => flags = b.into(),
                5 => body.truncate(usize::from(b) % (body.len() + 1)),
                6 => {
                    body.truncate(usize::from(b) % (body.len() + 1));
                    size = body.len() as u32;
                }
                _ => {
                    body.extend([b; 9]);
                    size = body.len() as u32;
                }
            }
        } else if damage >= 190 {
            flags = VERSION;
        }
        self.send(code, flags, size, &body, &carried);
    }

    /// Announces that no more messages follow.
    pub fn finish(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    }

    /// Reads all replies after the end of the connection, and closes their descriptors. Each must
    /// be a whole reply to a message, in order. Calls `note` with the message of each.
    pub fn check_replies(self, mut note: impl FnMut(u32, &[u8])) {
        let (bytes, nr_fds) = self.receive();
        let mut sent = self.sent.iter();
        let mut rest = &bytes[..];
        let mut nr_regions = 0;
        while !rest.is_empty() {
            let (header, after) = rest.split_at(12);
            let word = |at| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
            let (code, flags, size) = (word(0), word(4), word(8));
            assert_eq!(flags & 7, VERSION | 4, "the flags of a reply");
            assert!(size <= 4096, "a reply of {size} bytes");
            let (body, after) = after.split_at(size as usize);
            if self.is_regular {
                let is_sent = sent.any(|one| *one == code);
                assert!(is_sent, "a reply to message {code}, which is not one of {:?}", self.sent);
            }
            nr_regions += usize::from(code == GET_INFLIGHT_FD);
            note(code, body);
            rest = after;
        }
        assert!(nr_fds <= nr_regions, "{nr_fds} descriptors in {nr_regions} replies");
    }

    /// Returns all that the device has sent, and the number of descriptors.
    fn receive(&self) -> (Vec<u8>, usize) {
        let (mut all, mut nr_fds) = (Vec::new(), 0);
        loop {
            let mut part = [0; 8192];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let got = recvmsg(&self.stream, &mut [IoSliceMut::new(&mut part)], &mut control, flags);
            // A device that closes the connection before it has read all resets it.
            let nr = got.map_or(0, |got| got.bytes);
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    nr_fds += fds.map(drop).count();
                }
            }
            if nr == 0 {
                return (all, nr_fds);
            }
            all.extend(&part[..nr]);
        }
    }
}
