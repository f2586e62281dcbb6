//! More hostile requests: ranges, serial numbers, long chains, and buffers in the ring itself.

use super::super::driver::{
    BEHIND_HOLE, DATA, Driver, EVENT_IDX, HEADER, HOLE, INDIRECT, NEXT, NR_SECTORS, PLAIN, SIZE,
    STATUS, Served, WRITE, memory,
};
use super::{Answers, Beside, Case, GoesOn, Stops, case, run, with_data};

const OUT: u32 = 1;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;
/// Features without DISCARD and WRITE_ZEROES.
const FLUSH: u64 = 1 << 9;

/// Offers a request whose readable data are these bytes.
fn request(driver: &mut Driver, kind: u32, sector: u64, data: &[u8]) {
    driver.offer_read(0, sector);
    driver.header(HEADER, kind, sector);
    driver.write(DATA, data);
    let first = if data.is_empty() { 2 } else { 1 };
    driver.descriptor(0, (HEADER, 16), NEXT, first);
    driver.descriptor(1, (DATA, data.len() as u32), NEXT, 2);
}

/// Returns ranges of sectors, with flags.
fn ranges(list: &[(u64, u32, u32)]) -> Vec<u8> {
    let bytes = |&(sector, nr, flags): &(u64, u32, u32)| {
        [&sector.to_le_bytes()[..], &nr.to_le_bytes(), &flags.to_le_bytes()].concat()
    };
    list.iter().flat_map(bytes).collect()
}

fn discard(driver: &mut Driver, list: &[(u64, u32, u32)]) {
    request(driver, DISCARD, 0, &ranges(list));
}

fn zeroes(driver: &mut Driver, list: &[(u64, u32, u32)]) {
    request(driver, WRITE_ZEROES, 0, &ranges(list));
}

const ALL: u32 = NR_SECTORS as u32;

const RANGES: &[Case] = &[
    case("a discard without a range", PLAIN, |driver| discard(driver, &[]), Answers(1)),
    case("zeroes without a range", PLAIN, |driver| zeroes(driver, &[]), Answers(1)),
    case("a discard of 17 ranges", PLAIN, |driver| discard(driver, &[(0, 1, 0); 17]), Answers(1)),
    case("zeroes of 17 ranges", PLAIN, |driver| zeroes(driver, &[(0, 1, 0); 17]), Answers(1)),
    case("a discard with a flag", PLAIN, |driver| discard(driver, &[(0, 1, 1)]), Answers(2)),
    case("zeroes with all flags", PLAIN, |driver| zeroes(driver, &[(0, 1, !0)]), Answers(2)),
    case(
        "a discard of half a range",
        PLAIN,
        |driver| request(driver, DISCARD, 0, &[0; 24]),
        Answers(1),
    ),
    case(
        "zeroes of half a range",
        PLAIN,
        |driver| request(driver, WRITE_ZEROES, 0, &[0; 15]),
        Answers(1),
    ),
    case(
        "a discard of overlapping ranges",
        PLAIN,
        |driver| discard(driver, &[(20, 4, 0), (22, 4, 0), (20, 8, 0)]),
        Answers(0),
    ),
    case(
        "zeroes of overlapping ranges",
        PLAIN,
        |driver| zeroes(driver, &[(20, 4, 1), (22, 4, 0), (20, 8, 0)]),
        Answers(0),
    ),
    case("a discard that wraps", PLAIN, |driver| discard(driver, &[(!0, 2, 0)]), Answers(1)),
    case("zeroes that wrap", PLAIN, |driver| zeroes(driver, &[(u64::MAX / 512, 8, 0)]), {
        Answers(1)
    }),
    case("a discard of 2 TiB", PLAIN, |driver| discard(driver, &[(0, !0, 0)]), Answers(1)),
    case("zeroes across the end", PLAIN, |driver| zeroes(driver, &[(1, ALL, 0)]), Answers(1)),
    case("a discard behind the end", PLAIN, |driver| discard(driver, &[(64, 1, 0)]), Answers(1)),
    case("a discard of the last sector", PLAIN, |driver| discard(driver, &[(63, 1, 0)]), {
        Answers(0)
    }),
    case("zeroes of the last sector", PLAIN, |driver| zeroes(driver, &[(63, 1, 0)]), Answers(0)),
    case(
        "a discard that was not negotiated",
        FLUSH,
        |driver| discard(driver, &[(0, 1, 0)]),
        Answers(2),
    ),
    case(
        "zeroes that were not negotiated",
        FLUSH,
        |driver| zeroes(driver, &[(0, 1, 0)]),
        Answers(2),
    ),
];

/// Offers a request for the serial number with a buffer of this length.
fn serial(driver: &mut Driver, len: u32) {
    driver.offer_read(0, 0);
    driver.header(HEADER, GET_ID, 0);
    driver.descriptor(1, (DATA, len), NEXT | WRITE, 2);
}

/// Offers a read with a chain of these segments.
fn chain(driver: &mut Driver, table: u64, lens: &[u32]) {
    driver.header(HEADER, 0, 9);
    driver.write(STATUS, &[0xaa]);
    driver.describe(table, (HEADER, 16), NEXT, 1);
    for (nth, len) in (1_u16..).zip(lens) {
        let place = DATA + 16 * u64::from(nth);
        driver.describe(table + 16 * u64::from(nth), (place, *len), NEXT | WRITE, nth + 1);
    }
    let last = 1 + lens.len() as u16;
    driver.describe(table + 16 * u64::from(last), (STATUS, 1), WRITE, 0);
}

const EDGES: &[Case] = &[
    case("a short serial number", PLAIN, |driver| serial(driver, 6), Answers(0)),
    case("a long serial number", PLAIN, |driver| serial(driver, 100), Answers(0)),
    case("a read of no whole sector", PLAIN, |driver| read_of(driver, 511), Answers(1)),
    case("a read of one byte", PLAIN, |driver| read_of(driver, 1), Answers(1)),
    case(
        "a write of no whole sector",
        PLAIN,
        |driver| request(driver, OUT, 1, &[7; 513]),
        Answers(1),
    ),
    case(
        "a write behind the end",
        PLAIN,
        |driver| request(driver, OUT, NR_SECTORS, &[7; 512]),
        Answers(1),
    ),
    case(
        "a write whose end wraps",
        PLAIN,
        |driver| request(driver, OUT, u64::MAX / 512, &[7; 1024]),
        Answers(1),
    ),
    case(
        "a type whose high bit is set",
        PLAIN,
        |driver| request(driver, 1 << 31, 0, &[7; 512]),
        Answers(2),
    ),
    case(
        "a status of 0 bytes",
        PLAIN,
        |driver| {
            driver.offer_read(0, 9);
            driver.descriptor(2, (STATUS, 0), WRITE, 0);
        },
        Stops("empty"),
    ),
    case(
        "the longest chain of the ring",
        PLAIN,
        |driver| {
            let lens = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 499];
            chain(driver, driver.table, &lens);
            driver.offer(0);
        },
        Answers(0),
    ),
    case(
        "the longest indirect table",
        INDIRECT,
        |driver| {
            let mut lens = [1; 1022];
            lens[1021] = 3;
            chain(driver, BEHIND_HOLE, &lens);
            driver.descriptor(0, (BEHIND_HOLE, 1024 * 16), super::IS_INDIRECT, 0);
            driver.offer(0);
        },
        Answers(0),
    ),
    case(
        "data that end with a region",
        PLAIN,
        |driver| with_data(driver, (HOLE - 512, 512), NEXT | WRITE, 2),
        Answers(0),
    ),
    case(
        "data in the used ring",
        PLAIN,
        |driver| with_data(driver, (driver.used, 512), NEXT | WRITE, 2),
        Answers(0),
    ),
    case(
        "data in the available ring",
        PLAIN,
        |driver| with_data(driver, (driver.available, 512), NEXT | WRITE, 2),
        // The request is answered, and the data are a jump of the index.
        Stops("entries ahead in a ring of"),
    ),
    case(
        "an index one ahead of the entries",
        PLAIN,
        |driver| driver.move_index(1),
        // The entry names descriptor 0, which has never been written.
        Stops("empty"),
    ),
    case("an event index of the past", EVENT_IDX, |driver| with_event(driver, 0), GoesOn(1)),
    case("an event index of the next", EVENT_IDX, |driver| with_event(driver, 1), GoesOn(1)),
    case("the middle event index", EVENT_IDX, |driver| with_event(driver, 0x8000), GoesOn(1)),
];

/// Offers a read with a buffer of this length.
fn read_of(driver: &mut Driver, len: u32) {
    with_data(driver, (DATA, len), NEXT | WRITE, 2);
}

/// Offers a read, with an event index of the driver.
fn with_event(driver: &mut Driver, index: u16) {
    driver.write(driver.available + 4 + 2 * u64::from(SIZE), &index.to_le_bytes());
    driver.offer_read(0, 9);
}

#[test]
fn malformed_ranges_get_a_status() {
    RANGES.iter().for_each(run);
}

#[test]
fn requests_at_the_edges_hurt_only_their_ring() {
    EDGES.iter().for_each(run);
}

/// Both take the same requests, and answer them in the same used ring.
#[test]
fn two_rings_at_one_place_hurt_only_themselves() {
    let memory = memory();
    let (mut served, mut other) = (Served::new(), Beside::new());
    let mut twins = [0; 2].map(|nr| Driver::new(&memory, nr, PLAIN));
    let mut second = Driver::new(&memory, 1, EVENT_IDX);
    served.start(&second);
    for twin in &twins {
        served.start(twin);
    }
    for _ in 0..3 * SIZE {
        twins[0].offer_read(0, 9);
        served.run();
        let index = twins[0].index;
        twins[1].index = index;
        served.run();
    }
    assert_eq!(served.host().broken, [""; 0], "the rings are in order, each by itself");
    second.write(STATUS, &[0xaa]);
    served.check_alive(&mut second, 0);
    other.check_alive();
}

#[test]
fn writes_to_a_read_only_disk_get_an_error() {
    let mut other = Beside::new();
    let memory = memory();
    let mut served = Served::read_only();
    let mut driver = Driver::new(&memory, 0, PLAIN);
    served.start(&driver);
    let attacks: [fn(&mut Driver); 3] = [
        |driver| request(driver, OUT, 9, &[7; 512]),
        |driver| discard(driver, &[(9, 1, 0)]),
        |driver| zeroes(driver, &[(9, 1, 0)]),
    ];
    for attack in attacks {
        attack(&mut driver);
        served.run();
        assert_eq!(driver.read(STATUS), [1]);
        // It reads what the sector had at first.
        served.check_alive(&mut driver, 4);
        other.check_alive();
    }
}
