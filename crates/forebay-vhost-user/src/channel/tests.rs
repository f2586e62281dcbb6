//! Tests of the message channel: each message at a wrong time and with wrong contents.

mod backend;
mod inflight;
mod peer;

use self::peer::*;
use crate::WriteCache;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use virtio_bindings::virtio_blk::virtio_blk_config;

/// Offset of the write cache in the configuration space.
const WCE: u32 = offset_of!(virtio_blk_config, wce) as u32;

fn well(rings: &Fake, front_end: impl FnOnce(&Peer)) {
    let ended = connection(rings, &WriteCache::default(), front_end);
    assert_eq!(ended, Ok(()));
}

#[test]
fn ring_starts_with_its_kick_descriptor_and_stops_with_its_base() {
    let rings = Fake::default();
    well(&rings, |peer| {
        peer.negotiate();
        peer.share();
        peer.prepare_ring(1, 128);
        assert_eq!(rings.take_log(), [""; 0]);
        let kick = event();
        peer.accept(SET_VRING_KICK, &1_u64.to_le_bytes(), &[kick.as_raw_fd()]);
        assert_eq!(rings.take_log(), ["1: start 5 false"]);
        peer.accept(SET_VRING_ENABLE, &state(1, 1), &[]);
        peer.accept(SET_VRING_CALL, &1_u64.to_le_bytes(), &[kick.as_raw_fd()]);
        peer.accept(SET_VRING_ERR, &(1_u64 | 0x100).to_le_bytes(), &[]);
        assert_eq!(rings.take_log(), ["1: enable true", "1: call", "1: err"]);
        let base = peer.call(GET_VRING_BASE, &state(1, 0), &[]);
        assert_eq!(base, Reply::Body(state(1, 12)));
        assert_eq!(rings.take_log(), ["1: stop"]);
        // It is not stopped twice, and starts again where it stopped.
        assert_eq!(peer.call(GET_VRING_BASE, &state(1, 0), &[]), Reply::Body(state(1, 12)));
        peer.accept(SET_VRING_KICK, &1_u64.to_le_bytes(), &[kick.as_raw_fd()]);
        assert_eq!(rings.take_log(), ["1: start 12 true"]);
    });
    assert_eq!(rings.take_log(), ["1: stop"], "the end of the connection stops it");
}

#[test]
fn ring_starts_in_any_order_of_its_messages() {
    let rings = Fake::default();
    well(&rings, |peer| {
        peer.negotiate();
        peer.share();
        let kick = event();
        peer.accept(SET_VRING_KICK, &0_u64.to_le_bytes(), &[kick.as_raw_fd()]);
        peer.accept(SET_VRING_ADDR, &addresses(0, USER), &[]);
        assert_eq!(rings.take_log(), [""; 0]);
        peer.accept(SET_VRING_NUM, &state(0, 16), &[]);
        assert_eq!(rings.take_log(), ["0: start 0 false"]);
    });
}

#[test]
fn new_kick_descriptor_restarts_a_ring_where_it_stopped() {
    let rings = Fake::default();
    well(&rings, |peer| {
        peer.negotiate();
        peer.share();
        peer.start_ring(2);
        let kick = event();
        peer.accept(SET_VRING_KICK, &2_u64.to_le_bytes(), &[kick.as_raw_fd()]);
        assert_eq!(rings.take_log(), ["2: start 5 false", "2: stop", "2: start 12 false"]);
    });
}

#[test]
fn ring_without_protocol_features_is_enabled_at_its_start() {
    let rings = Fake::default();
    well(&rings, |peer| {
        peer.negotiate();
        peer.share();
        let plain = FEATURES & !(1 << 30);
        peer.accept(SET_FEATURES, &plain.to_le_bytes(), &[]);
        peer.start_ring(0);
        assert_eq!(rings.take_log(), ["0: start 5 true"]);
    });
}

#[test]
fn front_end_that_closes_at_the_number_of_queues_has_a_reason_in_the_log() {
    let nr_queues = u64::from(NR_RINGS).to_le_bytes().to_vec();
    let ask = |peer: &Peer| {
        peer.negotiate();
        assert_eq!(peer.call(GET_QUEUE_NUM, &[], &[]), Reply::Body(nr_queues.clone()));
    };
    let ended = connection(&Fake::default(), &WriteCache::default(), ask);
    let why = ended.expect_err("it may need more queues");
    assert!(why.contains("it may ask for more, and the device has 3 (lower num-queues"), "{why}");
    well(&Fake::default(), |peer| {
        ask(peer);
        peer.share();
        peer.start_ring(2);
    });
}

#[test]
fn deprecated_reset_disables_all_rings() {
    let rings = Fake::default();
    well(&rings, |peer| {
        peer.negotiate();
        peer.share();
        peer.start_ring(0);
        peer.accept(SET_VRING_ENABLE, &state(0, 1), &[]);
        peer.accept(RESET_OWNER, &[], &[]);
        let expected = ["0: start 5 false", "0: enable true", "0: enable false"];
        assert_eq!(rings.take_log(), expected);
    });
}

#[test]
fn memory_changes_reach_the_rings_that_run() {
    let rings = Fake::default();
    well(&rings, |peer| {
        peer.negotiate();
        peer.share();
        peer.start_ring(0);
        let file = memory(REGION);
        let (guest, user) = (GUEST + 2 * REGION, USER + 2 * REGION);
        peer.accept(ADD_MEM_REG, &region(guest, REGION, user, 0), &[file.as_raw_fd()]);
        peer.accept(REM_MEM_REG, &region(guest, REGION, user, 0), &[]);
        let table = table(&[(GUEST, REGION, USER, 0), (guest, REGION, user, 0)]);
        let fds = [file.as_raw_fd(), file.as_raw_fd()];
        peer.accept(SET_MEM_TABLE, &table, &fds);
        let expected = ["0: start 5 false", "0: memory 2", "0: memory 1", "0: memory 2"];
        assert_eq!(rings.take_log(), expected);
    });
}

#[test]
fn message_about_memory_is_answered_when_all_rings_have_the_memory() {
    let rings = Fake::default();
    well(&rings, |peer| {
        peer.negotiate();
        peer.share();
        peer.start_ring(0);
        peer.start_ring(2);
        let file = memory(REGION);
        let added = region(GUEST + 2 * REGION, REGION, USER + 2 * REGION, 0);
        for (message, fds, nr) in [(ADD_MEM_REG, &[file.as_raw_fd()][..], 2), (REM_MEM_REG, &[], 4)]
        {
            // The guest may use the region, or the front end reuse it, as soon as it is answered.
            peer.accept(message, &added, fds);
            assert_eq!(rings.nr_moved.load(Ordering::Relaxed), nr);
        }
    });
}

#[test]
fn message_that_disables_a_ring_is_answered_when_the_ring_is_disabled() {
    let rings = Fake::default();
    well(&rings, |peer| {
        peer.negotiate();
        peer.share();
        peer.start_ring(0);
        for (enable, nr) in [(1, 1), (0, 2)] {
            peer.accept(SET_VRING_ENABLE, &state(0, enable), &[]);
            assert_eq!(rings.nr_switched.load(Ordering::Relaxed), nr);
        }
        peer.start_ring(2);
        peer.accept(RESET_OWNER, &[], &[]);
        assert_eq!(rings.nr_switched.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn memory_cannot_shrink_while_it_is_shared() {
    use rustix::fs::MemfdFlags;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = std::fs::File::from(rustix::fs::memfd_create("test", flags).expect("a memfd"));
    file.set_len(REGION).expect("memory");
    well(&Fake::default(), |peer| {
        peer.negotiate();
        peer.accept(ADD_MEM_REG, &region(GUEST, REGION, USER, 0), &[file.as_raw_fd()]);
        assert!(file.set_len(0).is_err());
    });
}

#[test]
fn driver_switches_the_write_cache() {
    let (rings, cache) = (Fake::default(), WriteCache::default());
    for _ in 0..2 {
        let ended = connection(&rings, &cache, |peer| {
            peer.negotiate();
            assert!(cache.is_on(), "it is on for each connection");
            peer.accept(SET_CONFIG, &config(WCE, &[0]), &[]);
            assert!(!cache.is_on());
            let read = peer.call(GET_CONFIG, &config(WCE, &[9]), &[]);
            assert_eq!(read, Reply::Body(config(WCE, &[0])));
        });
        assert_eq!(ended, Ok(()));
    }
}

#[test]
fn limits_are_those_of_the_device() {
    well(&Fake::default(), |peer| {
        peer.negotiate();
        let number = |number: u64| Reply::Body(number.to_le_bytes().to_vec());
        assert_eq!(peer.call(GET_QUEUE_NUM, &[], &[]), number(NR_RINGS.into()));
        assert_eq!(peer.call(GET_MAX_MEM_SLOTS, &[], &[]), number(64));
        // An empty payload is the error of this message.
        let refused = [250_u32, 0, 0].map(u32::to_le_bytes).concat();
        assert_eq!(
            peer.call(GET_CONFIG, &config(250, &[0; 6]), &[]),
            Reply::Body(config(250, &[0; 6]))
        );
        assert_ne!(peer.call(GET_CONFIG, &config(0, &[0; 8]), &[]), Reply::Body(refused));
    });
}

/// Sends a message after a good handshake. It must be refused: with an error reply, or without a
/// reply, and with this reason.
#[track_caller]
fn assert_refused(expected: &str, send: impl FnOnce(&Peer) -> Reply) {
    let rings = Fake::default();
    let ended = connection(&rings, &WriteCache::default(), |peer| {
        peer.negotiate();
        peer.share();
        peer.start_ring(0);
        let error = Reply::Body(1_u64.to_le_bytes().to_vec());
        let reply = send(peer);
        assert!(reply == error || reply == Reply::Closed, "{expected}: {reply:?}");
        assert_eq!(peer.call(GET_QUEUE_NUM, &[], &[]), Reply::Closed, "the connection has ended");
    });
    let why = ended.expect_err(expected);
    assert!(why.contains(expected), "{why}");
}

#[test]
fn messages_with_wrong_numbers_are_refused() {
    let table: [(u32, Vec<u8>, &str); 22] = [
        (SET_FEATURES, (1_u64 << 40).to_le_bytes().into(), "features 0x10000000000, which are not"),
        (
            SET_FEATURES,
            (FEATURES | 1 << 9).to_le_bytes().into(),
            "the features cannot change while a ring",
        ),
        (SET_PROTOCOL_FEATURES, (1_u64 << 13).to_le_bytes().into(), "features 0x2000, which"),
        (
            SET_VRING_NUM,
            state(3, 64),
            "SET_VRING_NUM: the front end asks for 4 queues or more, and the device has 3 (lower",
        ),
        (SET_VRING_NUM, state(u32::MAX, 64), "asks for 4294967296 queues or more"),
        (SET_VRING_NUM, state(1, 0), "a ring of 0 descriptors"),
        (SET_VRING_NUM, state(1, 2), "a ring of 2 descriptors"),
        (SET_VRING_NUM, state(1, 100), "expected a power of two, 4 to 256"),
        (SET_VRING_NUM, state(1, 512), "a ring of 512 descriptors"),
        (SET_VRING_NUM, state(1, 1 << 31), "a ring of 2147483648 descriptors"),
        (SET_VRING_NUM, state(0, 64), "ring 0 runs"),
        (SET_VRING_ADDR, addresses(0, USER), "ring 0 runs"),
        (SET_VRING_ADDR, addresses(9, USER), "asks for 10 queues or more"),
        (SET_VRING_ADDR, addresses(1, USER + 1), "broke the protocol"),
        (SET_VRING_BASE, state(0, 1), "ring 0 runs"),
        (SET_VRING_BASE, state(1, 1 << 16), "index 65536"),
        (GET_VRING_BASE, state(3, 0), "asks for 4 queues or more"),
        (SET_VRING_ENABLE, state(3, 1), "asks for 4 queues or more"),
        (SET_VRING_ENABLE, state(0, 2), "broke the protocol"),
        (SET_CONFIG, config(WCE, &[2]), "only wce, 0 or 1"),
        (SET_CONFIG, config(0, &[0; 8]), "8 bytes at 0"),
        (REM_MEM_REG, region(GUEST + 1, REGION, USER, 0), "no memory region"),
    ];
    for (code, body, expected) in table {
        assert_refused(expected, |peer| peer.call(code, &body, &[]));
    }
}

#[test]
fn messages_that_are_not_offered_are_refused() {
    well(&Fake::default(), |peer| {
        peer.negotiate();
        // CHECK_DEVICE_STATE has an error reply of its own.
        assert_eq!(peer.call(43, &[], &[]), Reply::Body(1_u64.to_le_bytes().to_vec()));
    });
    // Log, IOTLB, RESET_DEVICE, status, and numbers of no message.
    for code in [6, 7, 19, 20, 21, 22, 23, 26, 33, 34, 35, 39, 40, 41, 0, 99] {
        assert_refused("", |peer| peer.call(code, &[0; 8], &[]));
    }
}

#[test]
fn descriptors_that_do_not_belong_are_refused() {
    let (kick, file) = (event(), memory(4096));
    let [kick, file] = [kick.as_raw_fd(), file.as_raw_fd()];
    let ring = 1_u64.to_le_bytes();
    assert_refused("is not an eventfd", |peer| peer.call(SET_VRING_KICK, &ring, &[file]));
    assert_refused("is not an eventfd", |peer| peer.call(SET_VRING_CALL, &ring, &[file]));
    assert_refused("is not an eventfd", |peer| peer.call(SET_VRING_ERR, &ring, &[file]));
    let polls = (1_u64 | 0x100).to_le_bytes();
    assert_refused("polling", |peer| peer.call(SET_VRING_KICK, &polls, &[]));
    let unknown = 200_u64.to_le_bytes();
    assert_refused("asks for 201 queues or more", |peer| {
        peer.call(SET_VRING_KICK, &unknown, &[kick])
    });
    for nr in 0..=8 {
        let many = vec![kick; nr];
        if nr != 1 {
            assert_refused("", |peer| peer.call(SET_VRING_CALL, &ring, &many));
        }
        if nr > 0 {
            assert_refused("", |peer| peer.call(GET_VRING_BASE, &state(1, 0), &many));
            assert_refused("", |peer| peer.call(SET_VRING_NUM, &state(1, 64), &many));
            assert_refused("", |peer| peer.call(SET_CONFIG, &config(WCE, &[0]), &many));
        }
    }
    // The kernel drops the rest of them, and the crate the message. So the next one is garbage.
    let ended = connection(&Fake::default(), &WriteCache::default(), |peer| {
        peer.negotiate();
        assert!(peer.send(SET_VRING_CALL, 1, &ring, &[kick; 100]));
    });
    assert!(ended.is_err(), "the message was not obeyed");
}

#[test]
fn memory_that_cannot_be_used_is_refused() {
    let file = memory(REGION);
    let fd = file.as_raw_fd();
    let (kick, far) = (event(), GUEST + 16 * REGION);
    let user = USER + 16 * REGION;
    for (body, fd, expected) in [
        (region(GUEST, REGION, user, 0), fd, "overlaps another"),
        (region(far, REGION, USER + 1, 0), fd, "overlaps another"),
        (region(far, REGION + 4096, user, 0), fd, "its file, which has 65536 bytes"),
        (region(far, REGION, user, 4096), fd, "its file, which"),
        (region(far, 4096, user, 1), fd, "cannot map"),
        (region(far, 0, user, 0), fd, "a memory region of 0 bytes"),
        (region(u64::MAX - 4095, 4096, user, 0), fd, "a memory region of"),
        (region(far, REGION, u64::MAX, 0), fd, "a memory region of"),
        (region(far, REGION, user, u64::MAX), fd, "a memory region of"),
        (region(far, u64::MAX, user, 0), fd, "a memory region of"),
        (region(far, REGION, user, 0), kick.as_raw_fd(), "is not a file"),
    ] {
        assert_refused(expected, |peer| peer.call(ADD_MEM_REG, &body, &[fd]));
    }
    // No server is behind sysfs, but the list of file systems does not have it either.
    let other = std::fs::File::open("/sys/kernel/mm/transparent_hugepage/enabled")
        .or_else(|_| std::fs::File::open("/proc/self/status"))
        .expect("a file that is not in memory");
    assert_refused("on a file system of type", |peer| {
        peer.call(ADD_MEM_REG, &region(far, 4096, user, 0), &[other.as_raw_fd()])
    });
    assert_refused("", |peer| peer.call(ADD_MEM_REG, &region(far, REGION, user, 0), &[]));
    let body = table(&[(GUEST, REGION, USER, 0), (GUEST + 4096, REGION, user, 0)]);
    assert_refused("overlaps another", |peer| peer.call(SET_MEM_TABLE, &body, &[fd, fd]));
    let body = table(&[(far, REGION, USER, 0)]);
    assert_refused("memory that moves", |peer| peer.call(SET_MEM_TABLE, &body, &[fd]));
    let body = table(&[(far, REGION, user, 0)]);
    assert_refused("memory that goes away", |peer| peer.call(SET_MEM_TABLE, &body, &[fd]));
    let body = region(GUEST, REGION, USER, 0);
    assert_refused("memory that goes away", |peer| peer.call(REM_MEM_REG, &body, &[]));
}

#[test]
fn ring_outside_of_the_memory_is_refused() {
    for start in [0, USER - 0x1000, USER + REGION - 0x3000, u64::MAX - 0x3fff] {
        let kick = event();
        assert_refused("", |peer| {
            peer.accept(SET_VRING_NUM, &state(1, 256), &[]);
            peer.accept(SET_VRING_ADDR, &addresses(1, start & !0xfff), &[]);
            peer.call(SET_VRING_KICK, &1_u64.to_le_bytes(), &[kick.as_raw_fd()])
        });
    }
}

/// The sum of the region's guest address and the distance of the ring wraps.
#[test]
fn ring_far_above_a_region_at_the_end_of_the_address_space_is_refused() {
    let (file, kick) = (memory(REGION), event());
    let ended = connection(&Fake::default(), &WriteCache::default(), |peer| {
        peer.negotiate();
        let body = table(&[(u64::MAX - REGION, REGION, 0x1000, 0)]);
        peer.accept(SET_MEM_TABLE, &body, &[file.as_raw_fd()]);
        peer.prepare_ring(0, 128);
        peer.call(SET_VRING_KICK, &0_u64.to_le_bytes(), &[kick.as_raw_fd()]);
    });
    let why = ended.expect_err("the ring is in no region");
    assert!(why.contains("outside of the shared memory regions"), "{why}");
}

/// A source of numbers with a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        // Constants of Knuth's MMIX.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Returns one of these, or rarely any number.
    fn one_of(&mut self, usual: &[u64]) -> u64 {
        match self.below(150) {
            0 => self.below(1 << 31) << 33 | self.below(1 << 31),
            _ => usual[self.below(usual.len() as u64) as usize],
        }
    }

    /// Returns the body of a message, which is often a good one.
    fn body(&mut self, code: u32) -> Vec<u8> {
        let ring = self.one_of(&[0, 1, 2]) as u32;
        let guest = self.one_of(&[GUEST, GUEST + 2 * REGION, GUEST + 4 * REGION]);
        let user = guest.wrapping_sub(GUEST).wrapping_add(USER);
        let len = self.one_of(&[REGION, REGION, REGION, REGION, 4096]);
        let mut body = match code {
            SET_FEATURES => {
                self.one_of(&[FEATURES, FEATURES, FEATURES & !(1 << 30)]).to_le_bytes().to_vec()
            }
            SET_PROTOCOL_FEATURES => self.one_of(&[PROTOCOL]).to_le_bytes().to_vec(),
            SET_VRING_NUM => state(ring, self.one_of(&[4, 16, 64, 256]) as u32),
            SET_VRING_BASE => state(ring, self.one_of(&[0, 1, 65535]) as u32),
            SET_VRING_ENABLE => state(ring, self.one_of(&[0, 1, 1]) as u32),
            GET_VRING_BASE => state(ring, 0),
            SET_VRING_ADDR => addresses(ring, user & ((1 << 62) - 1)),
            SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR => {
                u64::from(ring).to_le_bytes().to_vec()
            }
            SET_MEM_TABLE => {
                let nr = self.below(4);
                let step = |at: u64, nth| at.wrapping_add(2 * nth * REGION);
                let place = |nth| (step(guest, nth), len, step(user, nth), 0);
                table(&(0..nr).map(place).collect::<Vec<_>>())
            }
            ADD_MEM_REG | REM_MEM_REG => region(guest, len, user, self.one_of(&[0, 0, 4096])),
            GET_CONFIG | SET_CONFIG => config(self.one_of(&[WCE.into(), 0]) as u32, &[ring as u8]),
            _ => Vec::new(),
        };
        match self.below(200) {
            0 => body.truncate(self.below(body.len() as u64 + 1) as usize),
            1 => body.extend([0; 4]),
            _ => {}
        }
        body
    }
}

/// Any message at any time: rings start and stop in turn, always inside of the memory, and none
/// runs after the connection.
#[test]
fn random_messages_break_no_rule_of_the_rings() {
    const CODES: [u32; 19] = [
        SET_OWNER,
        RESET_OWNER,
        SET_FEATURES,
        SET_MEM_TABLE,
        SET_VRING_NUM,
        SET_VRING_ADDR,
        SET_VRING_ADDR,
        SET_VRING_BASE,
        GET_VRING_BASE,
        SET_VRING_KICK,
        SET_VRING_KICK,
        SET_VRING_CALL,
        SET_VRING_ERR,
        SET_VRING_ENABLE,
        GET_CONFIG,
        SET_CONFIG,
        GET_QUEUE_NUM,
        ADD_MEM_REG,
        REM_MEM_REG,
    ];
    let (mut nr_started, mut nr_commands) = (0, 0);
    let (file, kick) = (memory(REGION), event());
    for seed in 0..3000 {
        let rings = Fake::default();
        let mut numbers = Numbers(seed);
        let _ = connection(&rings, &WriteCache::default(), |peer| {
            if numbers.below(8) > 0 {
                peer.negotiate();
                if numbers.below(3) > 0 {
                    peer.share();
                }
                if numbers.below(3) == 0 {
                    peer.share();
                    (0..2).for_each(|ring| peer.start_ring(ring));
                }
            }
            for _ in 0..40 {
                let code = match numbers.below(200) {
                    0 => numbers.below(LAST.into()) as u32,
                    _ => CODES[numbers.below(CODES.len() as u64) as usize],
                };
                let body = numbers.body(code);
                let usual = match code {
                    SET_MEM_TABLE => body.len() / 32,
                    ADD_MEM_REG => 1,
                    SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR => {
                        usize::from(body.get(1) == Some(&0))
                    }
                    _ => 0,
                };
                let nr = if numbers.below(200) == 0 { numbers.below(9) as usize } else { usual };
                let is_memory = [SET_MEM_TABLE, ADD_MEM_REG].contains(&code);
                let good = if is_memory { file.as_raw_fd() } else { kick.as_raw_fd() };
                let bad = if is_memory { kick.as_raw_fd() } else { file.as_raw_fd() };
                let fd = if numbers.below(200) == 0 { bad } else { good };
                // Without protocol features no reply comes, so that none may be waited for.
                if !peer.send(code, 1, &body, &vec![fd; nr]) {
                    break;
                }
            }
        });
        for line in rings.take_log() {
            nr_started += usize::from(line.contains("start"));
            nr_commands += 1;
        }
    }
    assert!(nr_started > 1000 && nr_commands > 3000, "{nr_started} {nr_commands}");
}
