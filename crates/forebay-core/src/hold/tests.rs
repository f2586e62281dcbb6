//! The rules I7 to I9.

use super::*;
use crate::bio::Segment;

const PAST: HoldStep = HoldStep { release_before: false, hold: false, release_after: false };
const HOLD: HoldStep = HoldStep { hold: true, ..PAST };
const LAST: HoldStep = HoldStep { release_after: true, ..HOLD };
const BREAK: HoldStep = HoldStep { release_before: true, ..PAST };

fn read(block: u64) -> Bio {
    Bio::data(Op::Read, block * 4096, Segment { addr: 0, len: 4096 })
}

/// Returns a hold whose stream ends before block 1. A group may be all outstanding bios.
fn started() -> Hold {
    let mut hold = Hold::new(HoldLimits { groups: 1, ..HoldLimits::default() });
    assert_eq!(hold.next(&read(0), 9, 9, 0), PAST, "the first bio of a stream is not held");
    hold
}

#[test]
fn stream_is_passed_on_in_groups_of_sixteen() {
    let mut hold = started();
    for group in 0..3 {
        for nth in 0..16 {
            let step = hold.next(&read(1 + group * 16 + nth), 100, 1, 0);
            assert_eq!(step, if nth == 15 { LAST } else { HOLD });
            assert_eq!(u64::from(hold.nr_held()), (nth + 1) % 16);
        }
    }
}

#[test]
fn few_outstanding_bios_or_an_idle_device_hold_nothing() {
    let mut hold = started();
    assert_eq!(hold.next(&read(1), 3, 1, 0), PAST);
    assert_eq!(hold.next(&read(2), 4, 0, 0), PAST);
    assert_eq!((hold.nr_held(), hold.deadline()), (0, None));
    assert_eq!(hold.next(&read(3), 4, 1, 0), HOLD);
    // A bio that may not wait takes the held ones with it.
    assert_eq!(hold.next(&read(4), 4, 0, 0), LAST);
    assert_eq!(hold.next(&read(5), 4, 1, 0), HOLD);
    assert_eq!(hold.next(&read(6), 3, 1, 0), LAST);
}

#[test]
fn group_is_an_eighth_of_the_outstanding_bios() {
    let steps = |outstanding: u32| {
        let mut hold = Hold::new(HoldLimits::default());
        hold.next(&read(0), outstanding, 1, 0);
        let mut steps = (1..40).map(|block| hold.next(&read(block), outstanding, 1, 0));
        steps.position(|step| step != HOLD).map(|nr| nr + 1)
    };
    assert_eq!([14, 15, 31, 63, 127, 300].map(steps), [1, 2, 4, 8, 16, 16].map(Some));
    let mut hold = Hold::new(HoldLimits::default());
    hold.next(&read(0), 14, 1, 0);
    assert_eq!(hold.next(&read(1), 14, 1, 0), PAST);
}

#[test]
fn bio_elsewhere_passes_the_held_ones_on_and_starts_a_stream() {
    let mut hold = started();
    assert_eq!(hold.next(&read(1), 9, 1, 0), HOLD);
    assert_eq!(hold.next(&read(50), 9, 1, 0), BREAK);
    assert_eq!(hold.next(&read(51), 9, 1, 0), HOLD);
    assert_eq!(hold.next(&read(51), 9, 1, 0), BREAK, "it overlaps the one before");
    assert_eq!(hold.next(&read(3), 9, 1, 0), PAST);
}

#[test]
fn writes_and_flags_end_the_stream() {
    let write = |block| Bio { op: Op::Write, ..read(block) };
    let mut hold = started();
    assert_eq!(hold.next(&read(1), 9, 1, 0), HOLD);
    assert_eq!(hold.next(&write(2), 9, 1, 0), BREAK);
    assert_eq!(hold.next(&write(3), 9, 1, 0), PAST);
    assert_eq!(hold.next(&read(4), 9, 1, 0), PAST, "the bio before it is a write");
    assert_eq!(hold.next(&read(5), 9, 1, 0), HOLD);
    let flagged = Bio { flags: BioFlags::NOMERGE, ..read(6) };
    assert_eq!(hold.next(&flagged, 9, 1, 0), BREAK);
    assert_eq!(hold.next(&Bio::flush(), 9, 1, 0), PAST);
    let limits = HoldLimits { writes: true, groups: 1, ..HoldLimits::default() };
    let mut hold = Hold::new(limits);
    assert_eq!(hold.next(&write(0), 9, 1, 0), PAST);
    assert_eq!(hold.next(&write(1), 9, 1, 0), HOLD);
    assert_eq!(hold.next(&read(2), 9, 1, 0), BREAK);
}

#[test]
fn size_and_age_are_bounded() {
    let mut hold = started();
    assert_eq!(hold.next(&read(1), 9, 1, 1000), HOLD);
    assert_eq!(hold.deadline(), Some(201_000));
    assert_eq!(hold.next(&read(2), 9, 1, 200_999), HOLD);
    assert_eq!(hold.next(&read(3), 9, 1, 201_000), LAST);
    assert_eq!(hold.deadline(), None);
    assert_eq!(hold.next(&read(4), 9, 1, 202_000), HOLD);
    hold.release();
    assert_eq!(hold.next(&read(5), 9, 1, 500_000), HOLD);
    assert_eq!(hold.deadline(), Some(700_000));
    let long = Bio::range(Op::Read, 6 * 4096, 1 << 20);
    assert_eq!(hold.next(&long, 9, 1, 500_000), LAST);
    let end = Bio::range(Op::Read, u64::MAX, 4096);
    assert_eq!(hold.next(&end, 9, 1, 0), PAST);
}
