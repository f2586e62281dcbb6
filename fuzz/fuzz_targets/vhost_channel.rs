//! Fuzzes the message channel of a vhost-user-blk device, with the rings that it starts.
//!
//! An input is a handshake that goes more or less far, and messages. They wait in a socket, and the
//! channel serves them as it ships, on this thread. The rings are real, in real memory. After each
//! command of the channel, a driver offers a request to the ring, or breaks it, or truncates the
//! memory.
//!
//! Rings start and stop in turn, and lie inside the memory. Replies are whole, and in the order of
//! their messages. A connection leaves no descriptor, mapping or thread behind, and the next front
//! end is served.

#![no_main]

use forebay_core::QueueLimits;
use forebay_front::blk::{Chain, GuestBytes};
use forebay_fuzz::front_end::{BUFFERS, FEATURES, Files, FrontEnd, NR_RINGS, QUEUE_SIZE, STEP};
use forebay_fuzz::{Choices, Feature, reach, start};
use forebay_vhost_user::{
    Capabilities, Config, GuestData, GuestMemory, Ring, RingCommand, RingError, RingSetup, Rings,
    Shape, WriteCache, serve, survive_truncated_memory,
};
use libfuzzer_sys::fuzz_target;
use std::cell::{Cell, LazyCell, RefCell};
use std::fs;
use std::os::unix::net::UnixStream;
use vm_memory::{Bytes, GuestAddress};

/// Why a connection ends: a part of the reason. Its index is the feature.
const REASONS: [&str; 29] = [
    "queues or more",
    "which are not offered",
    "the features cannot change",
    "expected a power of two",
    "GET_VRING_BASE stops it",
    "is above 65535",
    "(polling) is not supported",
    "is not an eventfd",
    "outside of the shared memory",
    "is not aligned",
    "is empty or wraps around",
    "overlaps another",
    "is not a file",
    "its file, which has",
    "cannot map the memory region",
    "no memory region of",
    "in memory that goes away",
    "in memory that moves",
    "in-flight region cannot change",
    "not sealed against shrinking",
    "is too short",
    "can be written",
    "not supported",
    "the front end broke the protocol",
    "it may ask for more",
    "BACKEND_REQ was not negotiated",
    "expected one descriptor",
    "not a unix stream socket",
    "expected version 1 and no body",
];

const WANTED: &[Feature] = &[
    ("command", 0),
    ("command", 1),
    ("command", 2),
    ("command", 3),
    ("command", 4),
    ("command", 5),
    ("rings", 3),
    ("taken", 0),
    ("taken", 3),
    ("left", 0),
    ("not-recovered", 0),
    ("broken", 0),
    ("truncated", 0),
    ("whole", 0),
    ("reply", 11),
    ("reply", 21),
    ("reply", 24),
    ("reply", 31),
    ("reply", 37),
    ("reply", 38),
    ("why", 0),
    ("why", 1),
    ("why", 2),
    ("why", 3),
    ("why", 4),
    ("why", 5),
    ("why", 6),
    ("why", 7),
    ("why", 8),
    ("why", 9),
    ("why", 10),
    ("why", 11),
    ("why", 12),
    ("why", 13),
    ("why", 14),
    ("why", 15),
    ("why", 16),
    ("why", 17),
    ("why", 18),
    ("why", 19),
    ("why", 20),
    ("why", 21),
    ("why", 22),
    ("why", 23),
    ("why", 24),
    ("why", 25),
    ("why", 26),
    ("why", 27),
    ("why", 28),
];

/// A ring that was started.
struct Started {
    /// `None`: its in-flight record could not be used.
    ring: Option<Ring>,
    size: u16,
    descriptors: u64,
    available: u64,
    memory: GuestMemory,
    /// The index of the next entry of the driver.
    next: u16,
    /// Requests in flight.
    held: Vec<Chain<GuestData>>,
    is_broken: bool,
}

/// The rings of the device. Commands are carried out at once.
struct AllRings<'a> {
    rings: RefCell<[Option<Started>; NR_RINGS as usize]>,
    /// Steps of the driver, one after each command.
    script: &'a [u8],
    nr_commands: Cell<usize>,
    files: &'a Files,
}

impl Started {
    fn new(setup: RingSetup) -> Started {
        let RingSetup { size, descriptors, available, base, .. } = setup;
        assert!(size.is_power_of_two() && size <= QUEUE_SIZE);
        assert_eq!(setup.features & !FEATURES, 0);
        let memory = setup.memory.clone();
        let ring = match Ring::start(setup) {
            Ok(ring) => Some(ring),
            // All else is checked by the channel.
            Err((RingError::Recover(_), _)) => {
                reach("not-recovered", 0);
                None
            }
            Err((error, _)) => panic!("a ring that cannot start: {error}"),
        };
        let next = ring.as_ref().map_or(base, Ring::next_available);
        let held = Vec::new();
        Started { ring, size, descriptors, available, memory, next, held, is_broken: false }
    }

    fn write(&self, addr: u64, bytes: &[u8]) {
        self.memory.regions().write_slice(bytes, GuestAddress(addr)).expect("in memory");
    }

    fn describe(&self, index: u16, (addr, len): (u64, u32), flags: u16, next: u16) {
        let (addr, len) = (addr.to_le_bytes(), len.to_le_bytes());
        let bytes = [&addr[..], &len, &flags.to_le_bytes(), &next.to_le_bytes()].concat();
        self.write(self.descriptors + 16 * u64::from(index), &bytes);
    }

    /// Offers a request: a good one, one outside of the memory, a loop, or a jump of the index.
    fn offer(&mut self, choice: u8) {
        let head = self.next.wrapping_mul(4) % self.size;
        let data = match choice % 8 {
            0 => 1 << 50,
            _ => BUFFERS,
        };
        self.describe(head, (data, 16), 1, head + 1);
        let next = if choice % 8 == 1 { head + 1 } else { head + 2 };
        self.describe(head + 1, (data + 512, 512), 3, next);
        self.describe(head + 2, (data + 2048, 1), 2, 0);
        self.write(self.available + 4 + 2 * u64::from(self.next % self.size), &head.to_le_bytes());
        let jump = if choice % 8 == 2 { self.size + 1 } else { 1 };
        self.next = self.next.wrapping_add(jump);
        self.write(self.available + 2, &self.next.to_le_bytes());
    }

    /// Takes requests as a ring's thread does. Answers them unless they stay in flight.
    fn run(&mut self, stay: bool) {
        let Some(ring) = self.ring.as_mut().filter(|ring| ring.is_enabled()) else { return };
        let mut failed = None;
        while !self.is_broken {
            match ring.take() {
                Ok(Some(chain)) => self.held.push(chain),
                Ok(None) => break,
                Err(error) => {
                    self.is_broken = true;
                    failed = Some(error);
                }
            }
        }
        reach("taken", self.held.len().min(3) as u64);
        match failed {
            Some(RingError::Truncated) => reach("truncated", 0),
            Some(RingError::Recover(_) | RingError::Size(_)) => {
                panic!("the ring is in the memory: {failed:?}")
            }
            Some(_) => reach("broken", 0),
            None => {}
        }
        if !stay {
            self.answer();
        }
    }

    fn answer(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        for chain in self.held.drain(..) {
            ring.put(chain.head, 0, 1);
            if let Some(mut readable) = chain.readable {
                readable.take_front(&mut vec![0; readable.len().min(4096) as usize]);
                ring.recycle(readable);
            }
            if let Some(mut writable) = chain.writable {
                writable.fill_front(&vec![0x5a; writable.len().min(4096) as usize]);
                ring.recycle(writable);
            }
        }
        ring.notify();
        let _ = ring.enable_notifications();
    }
}

impl Rings for AllRings<'_> {
    fn send(&self, index: u16, command: RingCommand) -> bool {
        let nr = self.nr_commands.get();
        self.nr_commands.set(nr + 1);
        let choice = self.script.get(nr % 8).copied().unwrap_or(7);
        let mut rings = self.rings.borrow_mut();
        let place = &mut rings[usize::from(index)];
        if let RingCommand::Start(setup) = command {
            assert!(place.is_none(), "ring {index} starts once");
            let mut started = Started::new(*setup);
            // Requests that a predecessor has left come without a new entry.
            started.run(true);
            if !started.held.is_empty() {
                reach("left", 0);
            }
            reach("command", 0);
            *place = Some(started);
            reach("rings", rings.iter().flatten().count() as u64);
            return true;
        }
        let started = place.as_mut().expect("a ring that gets a command runs");
        match command {
            RingCommand::Start(_) => unreachable!("it is above"),
            RingCommand::Enable(is_enabled, answer) => {
                reach("command", 1);
                if let Some(ring) = &mut started.ring {
                    ring.set_enabled(is_enabled);
                }
                answer.send(()).expect("the channel waits");
            }
            RingCommand::Memory(memory, answer) => {
                reach("command", 2);
                started.memory = memory.clone();
                if let Some(ring) = &mut started.ring {
                    ring.set_memory(memory).expect("the channel keeps the ring in its memory");
                }
                answer.send(()).expect("the channel waits");
            }
            RingCommand::Call(call, answer) => {
                reach("command", 3);
                answer.send(()).expect("the channel waits");
                if let Some(ring) = &mut started.ring {
                    ring.set_call(call);
                }
            }
            RingCommand::Err(err, answer) => {
                reach("command", 4);
                answer.send(()).expect("the channel waits");
                if let Some(ring) = &mut started.ring {
                    ring.set_err(err);
                    ring.report_error();
                }
            }
            RingCommand::Stop(answer) => {
                reach("command", 5);
                started.answer();
                let base = started.ring.as_ref().map_or(0, Ring::next_available);
                answer.send(base).expect("the channel waits");
                *place = None;
                return true;
            }
        }
        if choice & 0x30 == 0x10 {
            // Fails if the memory is sealed.
            let _ = self.files.memory[usize::from(choice >> 7)].set_len(0);
        }
        started.offer(choice);
        started.run(choice & 8 != 0);
        true
    }

    fn stopped(&self, _: u16) {}

    fn panicked(&self) {
        panic!("a message has made the channel panic");
    }
}

/// Serves a connection with the messages that `send` has sent.
fn connection(
    config: &Config,
    (files, script): (&Files, &[u8]),
    send: impl FnOnce(&mut FrontEnd<'_>),
) -> Result<(), String> {
    let (front, back) = UnixStream::pair().expect("a pair");
    let mut front_end = FrontEnd::new(front, files);
    send(&mut front_end);
    front_end.finish();
    let nr_commands = Cell::new(0);
    let rings = AllRings { rings: RefCell::default(), script, nr_commands, files };
    let ended = serve(back, config, &WriteCache::default(), &rings);
    assert!(rings.rings.borrow().iter().all(Option::is_none), "no ring runs any more");
    front_end.check_replies(|code, body| {
        // An error reply is not zero.
        if body.len() != 8 || body == [0; 8] || matches!(code, 1 | 15 | 17 | 36) {
            reach("reply", code.into());
        }
    });
    ended
}

/// Returns the numbers of this process's descriptors, of its mappings of the front end's files, and
/// of its threads.
fn nr_resources() -> [usize; 3] {
    let nr = |folder: &str| fs::read_dir(folder).expect("a folder").count();
    let maps = fs::read_to_string("/proc/self/maps").expect("a file");
    let is_mapped = |line: &&str| line.contains("/memfd:");
    [nr("/proc/self/fd"), maps.lines().filter(is_mapped).count(), nr("/proc/self/task")]
}

fn run(files: &Files, input: &[u8]) {
    let Some((prefix, rest)) = input.split_first_chunk::<14>() else { return };
    let (depth, flags) = (prefix[0] & 7, prefix[1]);
    let (record, script) = prefix[2..].split_at(4);
    let capabilities =
        Capabilities { read_only: false, discard: true, write_zeroes: true, unmap: true };
    let shape = Shape { nr_queues: NR_RINGS, queue_size: QUEUE_SIZE };
    let config = Config::new(&QueueLimits::default(), 1 << 30, capabilities, shape);
    files.reset(record);
    let ended = connection(&config, (files, script), |front_end| {
        if depth > 0 {
            front_end.negotiate();
        }
        if depth > 1 {
            front_end.share(usize::from(flags & 1));
        }
        if depth > 1 && flags & 2 != 0 {
            front_end.set_inflight();
        }
        for ring in 0..u32::from(depth.saturating_sub(2)).min(3) {
            front_end.start_ring(ring);
        }
        let mut choices = Choices(rest);
        while !choices.is_empty() {
            front_end.step(&mut choices);
        }
    });
    match &ended {
        Ok(()) => reach("whole", 0),
        Err(why) => {
            for (which, reason) in REASONS.iter().enumerate() {
                if why.contains(reason) {
                    reach("why", which as u64);
                }
            }
        }
    }
    files.reset(&[]);
    let next = connection(&config, (files, &[]), |front_end| {
        front_end.negotiate();
        front_end.share(1);
        front_end.start_ring(2);
    });
    assert_eq!(next, Ok(()), "the next front end is served");
    let after = nr_resources();
    let before = BEFORE.get().unwrap_or(after);
    assert_eq!(after, before, "descriptors, mappings, threads: {ended:?}");
    BEFORE.set(Some(before));
}

thread_local! {
    static FILES: LazyCell<Files> = LazyCell::new(Files::new);
    /// The resources after the first input.
    static BEFORE: Cell<Option<[usize; 3]>> = const { Cell::new(None) };
}

/// Returns inputs that reach most features.
fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for depth in 0..6 {
        for code in 0..=25 {
            let prefix = [depth, code, 0, 0, 0, 0, 7, 15, 7, 7, 8, 9, 10, 7];
            let code = if code == 25 { 250 } else { code };
            // One good message; then three with other numbers.
            let steps =
                [[code, 1, 0, 0, 1, 0, 0], [code, 0, 1, 1, 2, 0, 0], [code, 2, 3, 5, 4, 0, 0]];
            all.push([&prefix[..], &steps.concat()].concat());
            for number in [2_u8, 4, 5, 6, 7] {
                let step = [code, number, number, number, 2 * number, 0, 0];
                all.push([&prefix[..], &step].concat());
            }
            for odd in [201, 203, 205, 212] {
                all.push([&prefix[..], &[code, 0, 0, 0, 1, odd, 0]].concat());
                all.push([&prefix[..], &[code, 0, 0, 0, 1, 0, odd]].concat());
            }
        }
    }
    // Depth, flags, record, what the driver does, and messages.
    type Seed<'a> = (u8, u8, [u8; 4], u8, &'a [[u8; STEP]]);
    let (table, size, places, kick, enable, add) = (3, 4, 5, 8, 14, 20);
    let [enabled, sized, placed, kicked] =
        [enable, size, places, kick].map(|code| [code, 0, 0, 0, 0, 0, 0]);
    let seeds: [Seed<'_>; 10] = [
        // Memory that is truncated.
        (5, 0, [0; 4], 0x17, &[enabled]),
        // Requests that a predecessor has left, and a record of another ring.
        (5, 2, [1, 0, 0, 1], 7, &[enabled]),
        (5, 2, [1, 9, 9, 1], 7, &[enabled]),
        // The same with a ring that is enabled before it starts. It takes the requests at once.
        (2, 2, [1, 0, 0, 0], 7, &[enabled, sized, placed, kicked]),
        (2, 2, [1, 0, 0, 1], 15, &[enabled, sized, placed, kicked, enabled]),
        // Many requests in flight.
        (5, 0, [0; 4], 15, &[enabled; 6]),
        // A ring outside of the memory.
        (
            2,
            0,
            [0; 4],
            7,
            &[[size, 1, 0, 0, 0, 0, 0], [places, 1, 2, 0, 0, 0, 0], [kick, 1, 0, 0, 0, 0, 0]],
        ),
        // A ring whose guest address is odd.
        (
            1,
            0,
            [0; 4],
            7,
            &[
                [add, 0, 6, 0x40, 0, 0, 0],
                [size, 1, 0, 0, 0, 0, 0],
                [places, 1, 6, 0x40, 0, 0, 0],
                [kick, 1, 0, 0, 0, 0, 0],
            ],
        ),
        // A table that moves the rings.
        (5, 0, [0; 4], 7, &[[table, 0, 1, 0x40, 1, 0, 0]]),
        (3, 3, [0; 4], 7, &[[add, 0, 1, 0, 0, 0, 0], [add, 0, 2, 0, 0, 0, 0]]),
    ];
    for (depth, flags, record, script, steps) in seeds {
        all.push([&[depth, flags], &record[..], &[script; 8], &steps.concat()].concat());
    }
    assert!(all.iter().all(|input| (input.len() - 14).is_multiple_of(STEP)));
    all
}

fn begin() {
    survive_truncated_memory().expect("a handler");
    start(WANTED, &seeds(), "");
}

fuzz_target!(init: begin(), |input: &[u8]| FILES.with(|files| run(files, input)));
