//! Rules of a zone with a write pointer, on zones of 16 bytes.

use super::*;

pub(in crate::generator) const RULES: Zoned = Zoned {
    size: 16,
    capacity: 16,
    max_open: 0,
    job_max_open: 0,
    reset_frequency: 0.0,
    reset_threshold: 0.0,
    read_beyond_wp: false,
    has_io_bytes: false,
};

fn limits(rules: Zoned, random: bool, stream: u64) -> Limits {
    Limits { rules, region: Region { offset: 0, len: 64 }, random, backward: false, stream }
}

#[test]
fn writes_go_to_the_write_pointer_and_a_full_zone_is_reset() {
    let (zones, limits) = (WritePointers::default(), limits(RULES, true, 0));
    let write = |offset| zones.place(&limits, Direction::Write, (offset, 8), 4);
    assert_eq!(write(20), Ok((16, 8)));
    assert_eq!(write(16), Ok((24, 8)));
    assert_eq!(zones.nr_resets(0), 0);
    assert_eq!(write(28), Ok((16, 8)), "the zone is full");
    assert_eq!(write(0), Ok((0, 8)));
    assert_eq!((zones.nr_resets(0), zones.nr_resets(1)), (1, 0));
}

#[test]
fn writes_end_at_the_capacity_of_a_zone() {
    let limits = limits(Zoned { capacity: 12, ..RULES }, true, 0);
    let zones = WritePointers::default();
    let write = || zones.place(&limits, Direction::Write, (0, 8), 4);
    assert_eq!([write(), write(), write()], [Ok((0, 8)), Ok((8, 4)), Ok((0, 8))]);
    assert_eq!((limits.skip_to(11), limits.skip_to(12)), (None, Some(16)));
}

#[test]
fn open_zones_take_the_writes_until_they_are_full() {
    let limits = limits(Zoned { max_open: 1, ..RULES }, true, 0);
    let zones = WritePointers::default();
    let write = |offset| zones.place(&limits, Direction::Write, (offset, 8), 8);
    assert_eq!([write(48), write(0)], [Ok((48, 8)), Ok((56, 8))]);
    assert_eq!(write(0), Ok((0, 8)), "the open zone was full and is closed");
}

#[test]
fn a_stream_opens_at_most_its_own_number_of_zones() {
    let rules = Zoned { max_open: 2, job_max_open: 1, ..RULES };
    let zones = WritePointers::default();
    let write = |stream, offset| {
        zones.place(&limits(rules, true, stream), Direction::Write, (offset, 4), 4)
    };
    assert_eq!(write(0, 0), Ok((0, 4)));
    assert_eq!(write(0, 16), Ok((4, 4)), "the stream has a zone open");
    assert_eq!(write(1, 16), Ok((16, 4)), "another stream opens another");
}

#[test]
fn reads_stay_below_the_write_pointer() {
    let zones = WritePointers::default();
    let (sequential, random) = (limits(RULES, false, 0), limits(RULES, true, 0));
    let read = |limits: &Limits, offset| zones.place(limits, Direction::Read, (offset, 4), 4);
    let no_data = Err(Stop::Blocked(Blocked::NoData));
    assert_eq!((read(&sequential, 0), read(&random, 0)), (no_data, no_data));
    assert!(!zones.can_read(&random, 0, 4));
    assert!(zones.place(&random, Direction::Write, (32, 4), 4).is_ok());
    assert!(zones.can_read(&random, 0, 4) && !zones.can_read(&random, 0, 8));
    assert_eq!(read(&sequential, 0), Ok((32, 4)), "the next zone with data");
    assert_eq!(read(&sequential, 36), no_data, "no zone with data follows");
    assert_eq!(read(&random, 60), Ok((32, 4)), "the nearest zone with data");
    let beyond = Limits { rules: Zoned { read_beyond_wp: true, ..RULES }, ..sequential };
    assert_eq!(read(&beyond, 4), Ok((4, 4)));
}

#[test]
fn zones_are_reset_at_the_frequency_above_the_threshold() {
    let rules = Zoned { reset_frequency: 0.5, reset_threshold: 0.125, ..RULES };
    let (zones, limits) = (WritePointers::default(), limits(rules, false, 0));
    let write = || zones.place(&limits, Direction::Write, (0, 4), 4).map(|io| io.0);
    // The first two writes are below the threshold of 8 bytes.
    assert_eq!([write(), write(), write(), write()], [Ok(0), Ok(4), Ok(8), Ok(0)]);
}

#[test]
fn reads_stay_in_a_region_that_begins_and_ends_inside_of_zones() {
    let zones = WritePointers::default();
    let writer = limits(RULES, false, 0);
    (0..8).for_each(|nth| {
        assert!(zones.place(&writer, Direction::Write, (nth * 8, 8), 8).is_ok());
    });
    for (offset, len) in [(12, 24), (4, 8), (20, 44)] {
        let end = offset + len;
        for random in [false, true] {
            let region = Region { offset, len };
            let limits = Limits { region, ..limits(RULES, random, 1) };
            for at in offset..end - 4 {
                let Ok((found, bytes)) = zones.place(&limits, Direction::Read, (at, 4), 4) else {
                    assert!(!random && at > end - 8, "{offset}+{len}: {at}: no data");
                    continue;
                };
                let inside = found >= offset && found + u64::from(bytes) <= end;
                assert!(inside, "{offset}+{len}: {at} is read at {found}");
            }
        }
    }
}

#[test]
fn io_is_as_long_as_the_smallest_block_of_its_direction() {
    // A map cuts I/O to the smallest block of all directions.
    let (zones, limits) = (WritePointers::default(), limits(RULES, true, 0));
    let io = |direction| zones.place(&limits, direction, (0, 4), 8);
    let (write, read) = (io(Direction::Write), io(Direction::Read));
    assert_eq!((write, read), (Ok((0, 8)), Ok((0, 8))));
}

#[test]
fn zones_that_a_stream_has_opened_are_closed_when_it_ends() {
    let zones = WritePointers::default();
    let rules = Zoned { max_open: 1, ..RULES };
    let write = |stream, offset| {
        let region = Region { offset: stream * 32, len: 32 };
        let limits = Limits { region, ..limits(rules, true, stream) };
        zones.place(&limits, Direction::Write, (offset, 4), 4)
    };
    assert_eq!(write(0, 0), Ok((0, 4)));
    let blocked = Err(Stop::Blocked(Blocked::NoOpenZone));
    assert_eq!(write(1, 32), blocked, "the open zone is not in its region");
    zones.close(1);
    assert_eq!(write(1, 32), blocked, "it is that of another stream");
    zones.close(0);
    assert_eq!(write(1, 32), Ok((32, 4)));
    zones.close(1);
    assert_eq!(write(0, 0), Ok((4, 4)), "at the write pointer");
}

#[test]
fn sequential_reads_have_passed_a_last_zone_that_is_full() {
    let limits = limits(Zoned { capacity: 12, ..RULES }, false, 0);
    let zones = WritePointers::default();
    let write = |offset, len| zones.place(&limits, Direction::Write, (offset, len), 4);
    let read = |offset| zones.place(&limits, Direction::Read, (offset, 4), 4);
    assert_eq!(write(48, 8), Ok((48, 8)));
    assert_eq!(read(56), Err(Stop::Blocked(Blocked::NoData)), "more may be written");
    assert_eq!(write(56, 4), Ok((56, 4)));
    assert_eq!((read(56), read(60)), (Ok((56, 4)), Err(Stop::End)));
}

#[test]
fn last_zone_whose_rest_is_smaller_than_a_read_can_still_be_read() {
    let limits = limits(RULES, false, 0);
    let zones = WritePointers::default();
    let write = |len| zones.place(&limits, Direction::Write, (48, len), 4);
    let read = || zones.place(&limits, Direction::Read, (48, 16), 16);
    assert_eq!((write(12), read()), (Ok((48, 12)), Err(Stop::Blocked(Blocked::NoData))));
    assert!(zones.lacks_data(&Limits { region: Region { offset: 48, len: 16 }, ..limits }, 16));
    assert_eq!((write(4), read()), (Ok((60, 4)), Ok((48, 16))));
}

#[test]
fn reads_that_go_backwards_continue_at_the_last_block_of_the_zone_before() {
    let rules = Zoned { capacity: 12, ..RULES };
    let zones = WritePointers::default();
    let backward = Limits { backward: true, ..limits(rules, false, 0) };
    let write = |offset, len| zones.place(&backward, Direction::Write, (offset, len), 4);
    let read = |offset| zones.place(&backward, Direction::Read, (offset, 4), 4);
    assert_eq!(read(60), Err(Stop::Blocked(Blocked::NoData)));
    assert_eq!([write(16, 8), write(48, 12)], [Ok((16, 8)), Ok((48, 12))]);
    assert_eq!(read(60), Ok((56, 4)), "the zone itself, behind its capacity");
    assert_eq!([read(52), read(48)], [Ok((52, 4)), Ok((48, 4))]);
    assert_eq!(read(44), Ok((20, 4)), "the zone before");
    assert_eq!(read(8), Ok((56, 4)), "the last zone follows the first one");
}
