//! Hostile drivers: each breaks one rule of the standard, beside a ring that keeps them, and beside
//! another device.

mod requests;

use super::driver::{
    BEHIND_HOLE, DATA, Driver, EVENT_IDX, HEADER, HOLE, INDIRECT, IS_INDIRECT, NEXT, NR_SECTORS,
    PLAIN, SIZE, STATUS, Served, TOP, WRITE, memory,
};

/// The expected behaviour of the ring.
enum Outcome {
    /// It stops, and the reason contains this text.
    Stops(&'static str),
    /// It answers the request with this status, and goes on.
    Answers(u8),
    /// It answers this number of requests with any status, and goes on.
    GoesOn(u16),
}
use Outcome::{Answers, GoesOn, Stops};

/// A driver that breaks a rule.
struct Case {
    name: &'static str,
    features: u64,
    attack: fn(&mut Driver),
    outcome: Outcome,
}

const fn case(
    name: &'static str,
    features: u64,
    attack: fn(&mut Driver),
    outcome: Outcome,
) -> Case {
    Case { name, features, attack, outcome }
}

/// Offers a read of sector 9 whose data descriptor is replaced.
fn with_data(driver: &mut Driver, buffer: (u64, u32), flags: u16, next: u16) {
    driver.offer_read(0, 9);
    driver.descriptor(1, buffer, flags, next);
}

/// Offers a request of these descriptors in an indirect table.
fn in_table(driver: &mut Driver, table: u64, len: u32) {
    driver.header(HEADER, 0, 9);
    driver.write(STATUS, &[0xaa]);
    driver.describe(table, (HEADER, 16), NEXT, 1);
    driver.describe(table + 16, (DATA, 512), NEXT | WRITE, 2);
    driver.describe(table + 32, (STATUS, 1), WRITE, 0);
    driver.descriptor(0, (table, len), IS_INDIRECT, 0);
    driver.offer(0);
}

const TABLE: u64 = HEADER + 0x100;

const CHAINS: &[Case] = &[
    case(
        "a descriptor that is its own next",
        PLAIN,
        |driver| with_data(driver, (DATA, 512), NEXT | WRITE, 1),
        Stops("longer than its table"),
    ),
    case(
        "a loop of two descriptors",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.descriptor(2, (STATUS, 1), NEXT | WRITE, 1);
        },
        Stops("longer than its table"),
    ),
    case(
        "a next one behind the table",
        PLAIN,
        |driver| with_data(driver, (DATA, 512), NEXT | WRITE, SIZE),
        Stops("not in its table"),
    ),
    case(
        "the largest next one",
        PLAIN,
        |driver| with_data(driver, (DATA, 512), NEXT | WRITE, u16::MAX),
        Stops("not in its table"),
    ),
    case(
        "address 0",
        PLAIN,
        |driver| with_data(driver, (0, 512), NEXT | WRITE, 2),
        Stops("not in the memory"),
    ),
    case(
        "an address beyond the memory",
        PLAIN,
        |driver| with_data(driver, (1 << 60, 512), NEXT | WRITE, 2),
        Stops("not in the memory"),
    ),
    case(
        "an address in a hole",
        PLAIN,
        |driver| with_data(driver, (HOLE + 512, 512), NEXT | WRITE, 2),
        Stops("not in the memory"),
    ),
    case(
        "a range that begins before a hole",
        PLAIN,
        |driver| with_data(driver, (HOLE - 256, 512), NEXT | WRITE, 2),
        Stops("not in the memory"),
    ),
    case(
        "a range across a hole",
        PLAIN,
        |driver| with_data(driver, (HOLE - 512, 0x1_0000 + 1024), NEXT | WRITE, 2),
        Stops("not in the memory"),
    ),
    case(
        "a range that ends before a region",
        PLAIN,
        |driver| with_data(driver, (BEHIND_HOLE - 512, 512), NEXT | WRITE, 2),
        Stops("not in the memory"),
    ),
    case(
        "a range that wraps",
        PLAIN,
        |driver| with_data(driver, (u64::MAX - 255, 512), NEXT | WRITE, 2),
        Stops("not in the memory"),
    ),
    case(
        "a range at the end of the address space",
        PLAIN,
        |driver| with_data(driver, (TOP + 0xff00, 512), NEXT | WRITE, 2),
        Stops("not in the memory"),
    ),
    case(
        "data in the descriptor table",
        PLAIN,
        |driver| with_data(driver, (driver.table + 0x100, 512), NEXT | WRITE, 2),
        Answers(0),
    ),
    case(
        "an empty descriptor",
        PLAIN,
        |driver| with_data(driver, (DATA, 0), NEXT | WRITE, 2),
        Stops("empty"),
    ),
    case(
        "4 GiB less one byte",
        PLAIN,
        |driver| with_data(driver, (DATA, u32::MAX), NEXT | WRITE, 2),
        Stops("4 GiB or more"),
    ),
    case(
        "lengths whose sum wraps",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.descriptor(1, (DATA, 512), NEXT | WRITE, 3);
            driver.descriptor(3, (DATA, u32::MAX - 500), WRITE, 0);
        },
        Stops("4 GiB or more"),
    ),
    case(
        "a readable descriptor behind a writable one",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.descriptor(2, (STATUS, 1), NEXT | WRITE, 3);
            driver.descriptor(3, (DATA, 16), 0, 0);
        },
        Stops("readable descriptor follows"),
    ),
    case(
        "a writable header",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.descriptor(0, (HEADER, 16), NEXT | WRITE, 1);
        },
        Answers(1),
    ),
    case(
        "a readable status",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.descriptor(1, (DATA, 512), NEXT, 2);
            driver.descriptor(2, (STATUS, 1), 0, 0);
        },
        Stops("no writable byte for its status"),
    ),
    case(
        "no status",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.descriptor(0, (HEADER, 16), 0, 0);
        },
        Stops("no writable byte for its status"),
    ),
    case(
        "unknown flags",
        PLAIN,
        |driver| with_data(driver, (DATA, 512), NEXT | WRITE | 0xfff8, 2),
        Answers(0),
    ),
    case(
        "all descriptors are garbage",
        INDIRECT,
        |driver| {
            driver.write(driver.table, &[0xff; 256]);
            driver.offer(3);
        },
        Stops("request 3"),
    ),
];

const INDIRECTS: &[Case] = &[
    case("a good table", INDIRECT, |driver| in_table(driver, TABLE, 48), Answers(0)),
    case(
        "a table that was not negotiated",
        PLAIN,
        |driver| in_table(driver, TABLE, 48),
        Stops("not negotiated"),
    ),
    case(
        "a table in a table",
        INDIRECT,
        |driver| {
            in_table(driver, TABLE, 48);
            driver.describe(TABLE + 16, (TABLE, 48), IS_INDIRECT, 0);
        },
        Stops("within an indirect table"),
    ),
    case(
        "a table that is its own entry",
        INDIRECT,
        |driver| {
            in_table(driver, TABLE, 48);
            driver.describe(TABLE, (TABLE, 48), IS_INDIRECT, 0);
        },
        Stops("within an indirect table"),
    ),
    case(
        "a table with a next descriptor",
        INDIRECT,
        |driver| {
            in_table(driver, TABLE, 48);
            driver.descriptor(0, (TABLE, 48), IS_INDIRECT | NEXT, 1);
        },
        Stops("with a next one"),
    ),
    case(
        "a table of no whole descriptors",
        INDIRECT,
        |driver| in_table(driver, TABLE, 47),
        Stops("bad length"),
    ),
    case("an empty table", INDIRECT, |driver| in_table(driver, TABLE, 0), Stops("bad length")),
    case("a huge table", INDIRECT, |driver| in_table(driver, TABLE, !15), Stops("bad length")),
    case(
        "a table of 1025 descriptors",
        INDIRECT,
        |driver| in_table(driver, TABLE, 1025 * 16),
        Stops("bad length"),
    ),
    case(
        "a table across pages",
        INDIRECT,
        |driver| in_table(driver, DATA + 0x2000 - 24, 48),
        Answers(0),
    ),
    case(
        "a table in a hole",
        INDIRECT,
        |driver| {
            driver.descriptor(0, (HOLE, 48), IS_INDIRECT, 0);
            driver.offer(0);
        },
        Stops("not in the memory"),
    ),
    case(
        "a table at the end of the address space",
        INDIRECT,
        |driver| {
            driver.descriptor(0, (u64::MAX - 7, 48), IS_INDIRECT, 0);
            driver.offer(0);
        },
        Stops("not in the memory"),
    ),
    case(
        "a table with a loop",
        INDIRECT,
        |driver| {
            in_table(driver, TABLE, 48);
            driver.describe(TABLE + 16, (DATA, 512), NEXT | WRITE, 1);
        },
        Stops("longer than its table"),
    ),
    case(
        "a table whose next one is behind it",
        INDIRECT,
        |driver| in_table(driver, TABLE, 32),
        Stops("not in its table"),
    ),
    case(
        "a direct header, then a table",
        INDIRECT,
        |driver| {
            in_table(driver, TABLE, 48);
            driver.descriptor(1, (TABLE + 16, 32), IS_INDIRECT, 0);
            driver.describe(TABLE + 16, (DATA, 512), NEXT | WRITE, 1);
            driver.descriptor(0, (HEADER, 16), NEXT, 1);
        },
        Answers(0),
    ),
    case(
        "a table in the ring itself",
        INDIRECT,
        |driver| in_table(driver, driver.used + 0x100, 48),
        Answers(0),
    ),
];

const ENTRIES: &[Case] = &[
    case("a jump by more than the ring", PLAIN, |driver| driver.move_index(SIZE + 1), {
        Stops("entries ahead in a ring of")
    }),
    case("an index that goes back", PLAIN, |driver| driver.move_index(u16::MAX), {
        Stops("entries ahead in a ring of")
    }),
    case(
        "a head behind the table",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.offer(SIZE);
        },
        Stops("is the head of a request"),
    ),
    case("the largest head", PLAIN, |driver| driver.offer(u16::MAX), {
        Stops("is the head of a request")
    }),
    case(
        "the same head twice",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.offer(0);
        },
        Stops("head of two requests"),
    ),
    case(
        "all entries have the same head",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            (1..SIZE).for_each(|_| driver.offer(0));
        },
        Stops("head of two requests"),
    ),
    case(
        "two requests share descriptors",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.offer(1);
        },
        // The second has no header.
        GoesOn(2),
    ),
    case(
        "a ring full of invalid entries",
        PLAIN,
        |driver| (0..SIZE).for_each(|nr| driver.offer(0x8000 + nr)),
        Stops("is the head of a request"),
    ),
    case("a kick with nothing new", PLAIN, |_| {}, GoesOn(0)),
    case(
        "a used ring that the driver has overwritten",
        PLAIN,
        |driver| {
            driver.write(driver.used, &[0xff; 6 + 8 * SIZE as usize]);
            driver.offer_read(0, 9);
        },
        GoesOn(1),
    ),
    case(
        "an event index far away",
        EVENT_IDX,
        |driver| {
            driver.write(driver.available + 4 + 2 * u64::from(SIZE), &[0xff; 2]);
            driver.offer_read(0, 9);
        },
        Answers(0),
    ),
    case(
        "unknown flags of the available ring",
        PLAIN,
        |driver| {
            driver.write(driver.available, &[0xfe, 0xff]);
            driver.offer_read(0, 9);
        },
        Answers(0),
    ),
];

const REQUESTS: &[Case] = &[
    case(
        "a status of many bytes",
        PLAIN,
        |driver| {
            driver.header(HEADER, 4, 0);
            driver.descriptor(0, (HEADER, 16), NEXT, 1);
            driver.descriptor(1, (STATUS - 99, 100), WRITE, 0);
            driver.offer(0);
        },
        Answers(0),
    ),
    case(
        "a long header",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.descriptor(0, (HEADER, 24), NEXT, 1);
        },
        Answers(1),
    ),
    case(
        "a short header",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.descriptor(0, (HEADER, 8), NEXT, 1);
        },
        Answers(1),
    ),
    case("a read behind the end", PLAIN, |driver| driver.offer_read(0, NR_SECTORS), Answers(1)),
    case("the largest sector", PLAIN, |driver| driver.offer_read(0, u64::MAX), Answers(1)),
    case(
        "a flush with data and a sector",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.header(HEADER, 4, 1 << 40);
        },
        Answers(0),
    ),
    case(
        "a SCSI command",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.header(HEADER, 2, 0);
        },
        Answers(2),
    ),
    case(
        "an unknown type",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.header(HEADER, u32::MAX, 0);
        },
        Answers(2),
    ),
    case(
        "a serial number in pieces",
        PLAIN,
        |driver| {
            driver.offer_read(0, 0);
            driver.header(HEADER, 8, 0);
            driver.descriptor(1, (DATA, 7), NEXT | WRITE, 3);
            driver.descriptor(3, (DATA + 100, 13), NEXT | WRITE, 2);
        },
        Answers(0),
    ),
    case(
        "a readable serial number",
        PLAIN,
        |driver| {
            driver.offer_read(0, 0);
            driver.header(HEADER, 8, 0);
            driver.descriptor(1, (DATA, 20), NEXT, 2);
        },
        Answers(0),
    ),
];

/// Another device, with a driver that keeps the standard.
struct Beside(Served, Driver);

impl Beside {
    fn new() -> Beside {
        let mut served = Served::new();
        let driver = Driver::new(&memory(), 0, EVENT_IDX);
        served.start(&driver);
        Beside(served, driver)
    }

    #[track_caller]
    fn check_alive(&mut self) {
        self.0.check_alive(&mut self.1, 0);
        assert_eq!(self.0.host().broken, [""; 0]);
    }
}

/// Runs one case beside a ring that keeps the standard, and beside another device.
fn run(case: &Case) {
    let name = case.name;
    let mut other = Beside::new();
    let memory = memory();
    let mut served = Served::new();
    let mut good = Driver::new(&memory, 1, EVENT_IDX);
    let mut bad = Driver::new(&memory, 0, case.features);
    served.start(&good);
    served.check_alive(&mut good, 0);
    served.start(&bad);
    good.write(STATUS, &[0xaa]);
    (case.attack)(&mut bad);
    served.run();
    let broken = std::mem::take(&mut served.host().broken);
    match case.outcome {
        Stops(why) => {
            assert_eq!(broken.len(), 1, "{name}: {broken:?}");
            assert!(broken[0].contains(why), "{name}: {}", broken[0]);
            assert_eq!(bad.nr_errors(), 1, "{name}");
            // Nothing more is taken.
            let before = bad.used_index();
            bad.offer_read(0, 9);
            served.run();
            assert_eq!(bad.used_index(), before, "{name}");
        }
        Answers(status) => {
            assert_eq!(broken, [""; 0], "{name}");
            assert_eq!(bad.used_index(), 1, "{name}");
            assert_eq!(bad.read(STATUS), [status], "{name}");
        }
        GoesOn(nr) => {
            assert_eq!(broken, [""; 0], "{name}");
            assert_eq!(bad.used_index(), nr, "{name}");
        }
    }
    if !matches!(case.outcome, Stops(_)) {
        served.check_alive(&mut bad, 4);
    }
    served.check_alive(&mut good, 4);
    other.check_alive();
    // Both stop, and start again.
    served.0.round(|front| front.stop_rings());
    served.run();
    assert!(served.0.has_drained(), "{name}");
    for (nr, features) in [(0, case.features), (1, EVENT_IDX)] {
        let mut again = Driver::new(&memory, nr, features);
        again.write(again.table, &[0; 0x3000]);
        served.start(&again);
        served.check_alive(&mut again, 1);
    }
    assert_eq!(served.host().broken, [""; 0], "{name}");
}

#[test]
fn malformed_chains_hurt_only_their_ring() {
    CHAINS.iter().for_each(run);
}

#[test]
fn malformed_indirect_tables_hurt_only_their_ring() {
    INDIRECTS.iter().for_each(run);
}

#[test]
fn malformed_entries_hurt_only_their_ring() {
    ENTRIES.iter().for_each(run);
}

#[test]
fn malformed_requests_get_a_status() {
    REQUESTS.iter().for_each(run);
}

#[test]
fn accepted_requests_complete_although_the_ring_has_stopped() {
    let mut other = Beside::new();
    let memory = memory();
    let mut served = Served::new();
    let mut driver = Driver::new(&memory, 0, PLAIN);
    let base = served.start(&driver);
    served.host().is_held = true;
    driver.offer_read(0, 9);
    driver.offer(SIZE);
    served.run();
    assert_eq!((driver.nr_errors(), driver.used_index()), (1, 0));
    other.check_alive();
    served.host().is_held = false;
    served.run();
    assert_eq!((driver.used_index(), driver.used_entry(0)), (1, (0, 513)));
    assert_eq!((driver.read(DATA), driver.read(STATUS)), ([9; 512], [0]));
    assert_eq!(driver.nr_calls(), 1, "the driver is notified of it");
    served.0.round(|front| front.stop_rings());
    assert_eq!(*base.borrow(), Some(1), "the bad entry was not taken");
    other.check_alive();
}

/// Changes of descriptors and headers after a request was taken have no effect on it.
#[test]
fn request_does_not_change_after_it_was_taken() {
    let mut other = Beside::new();
    let memory = memory();
    let mut served = Served::new();
    let mut driver = Driver::new(&memory, 0, PLAIN);
    served.start(&driver);
    served.host().is_held = true;
    driver.offer_read(0, 9);
    served.run();
    driver.write(driver.table, &[0xff; 256]);
    driver.header(HEADER, 1, 0);
    driver.write(driver.available + 4, &[0xff; 32]);
    other.check_alive();
    served.host().is_held = false;
    served.run();
    assert_eq!((driver.used_index(), driver.used_entry(0)), (1, (0, 513)));
    assert_eq!((driver.read(DATA), driver.read(STATUS)), ([9; 512], [0]));
    other.check_alive();
}

/// Random bytes in the ring and its tables: no panic, and the other ring and device live.
#[test]
fn random_rings_hurt_only_themselves() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut other = Beside::new();
    let memory = memory();
    let mut served = Served::new();
    let mut good = Driver::new(&memory, 1, EVENT_IDX);
    served.start(&good);
    for _ in 0..1000 {
        let mut bad = Driver::new(&memory, 0, INDIRECT);
        bad.write(bad.available, &[0; 4]);
        // Its own front, so that the good one goes on.
        let mut of_bad = Served::new();
        of_bad.start(&bad);
        for index in 0..SIZE {
            let addr = match next() % 4 {
                0 => next(),
                1 => TABLE + next() % 1024,
                _ => HEADER + next() % 0x1000,
            };
            let flags = (next() % 8) as u16;
            let len = [16, 48, 1, 512, next() as u32][next() as usize % 5];
            bad.descriptor(index, (addr, len), flags, next() as u16 % (SIZE + 1));
            bad.describe(TABLE + 16 * u64::from(index), (addr, len), flags, index + 1);
        }
        bad.header(HEADER, (next() % 16) as u32, next() % 100);
        for _ in 0..1 + next() % 8 {
            bad.offer((next() % 17) as u16);
        }
        of_bad.run();
        of_bad.0.round(|front| front.stop_rings());
        of_bad.run();
        assert!(of_bad.0.has_drained());
        other.check_alive();
    }
    good.write(STATUS, &[0xaa]);
    served.check_alive(&mut good, 0);
}
