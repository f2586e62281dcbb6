//! Unit tests of `retry`.

use super::*;

/// Returns the retries of a disk with two contexts.
fn of_two() -> Retries {
    let retries = Retries::new(2);
    assert_eq!((retries.writes.join(2).of(0), retries.writes.nr_ever_used()), (0, 2));
    retries
}

#[test]
fn a_write_is_overtaken_by_an_overlapping_one_or_any_of_another_context() {
    let (own, other) = (Tag::from_index(1), Tag::from_index(2));
    let retries = of_two();
    let mut log = WriteLog::new();
    log.push(0, 4096, own);
    let since = retries.moment(0, &log);
    let check = |retries: &Retries, log: &WriteLog, expected| {
        let ranges = [(0u64, 4096u64)].into_iter();
        assert_eq!(retries.was_overtaken(0, log, since, own, ranges), expected);
    };
    log.push(4096, 4096, other);
    log.push(512, 512, own);
    check(&retries, &log, false);
    retries.writes.count_write(0);
    check(&retries, &log, false);
    retries.writes.count_write(1);
    check(&retries, &log, true);
    retries.writes.write_is_out(1);
    check(&retries, &log, true);
    let since = retries.moment(0, &log);
    assert!(!retries.was_overtaken(0, &log, since, own, [(0, 1)].into_iter()));
    retries.writes.count_write(1);
    let since = retries.moment(0, &log);
    retries.writes.write_is_out(1);
    assert!(retries.was_overtaken(0, &log, since, own, [(0, 1)].into_iter()));
    let retries = of_two();
    log.push(4095, 1, other);
    check(&retries, &log, true);
}

#[test]
fn forgotten_range_counts_as_overlapping() {
    let (own, other) = (Tag::from_index(1), Tag::from_index(2));
    let retries = Retries::new(1);
    let mut log = WriteLog::new();
    let since = retries.moment(0, &log);
    for nth in 1..=LOG_LEN as u64 + 1 {
        assert!(!retries.was_overtaken(0, &log, since, own, [(0, 1)].into_iter()));
        log.push(nth * 4096, 4096, other);
    }
    assert!(retries.was_overtaken(0, &log, since, own, [(0, 1)].into_iter()));
}

#[test]
fn a_range_is_held_until_its_retries_end() {
    let retries = Retries::new(1);
    let slot = retries.enter(8192, 12288).expect("a place");
    assert!(retries.any());
    for (start, len, held) in [(0, 8192, false), (8191, 2, true), (12287, 1, true)] {
        assert_eq!(retries.hold_back(None, [(start, len)].into_iter()), held, "{start}+{len}");
    }
    retries.leave(slot);
    assert!(!retries.any() && !retries.hold_back(None, [(8192, 1)].into_iter()));
    let slots: alloc::vec::Vec<_> = (0..RETRIES_MAX).map(|_| retries.enter(0, 1)).collect();
    assert!(slots.iter().all(Option::is_some) && retries.enter(0, 1).is_none());
}

fn one(start: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    core::iter::once((start, len))
}

#[test]
fn retry_does_not_hold_back_its_own_request() {
    let retries = Retries::new(1);
    let first = retries.enter(100, 200);
    let second = retries.enter(300, 400);
    for (own, at_first, at_second) in
        [(None, true, true), (first, false, true), (second, true, false)]
    {
        assert_eq!(retries.hold_back(own, one(150, 1)), at_first);
        assert_eq!(retries.hold_back(own, one(350, 1)), at_second);
    }
    // One of several ranges is enough, and neighbours do not overlap.
    assert!(retries.hold_back(None, [(0, 1), (399, 1)].into_iter()));
    assert!(!retries.hold_back(None, [(0, 100), (200, 100), (400, 1)].into_iter()));
    let slots = [first, second].map(|slot| slot.expect("there is room"));
    retries.leave(slots[0]);
    assert!(retries.any() && retries.hold_back(None, one(350, 1)));
    retries.leave(slots[1]);
    assert!(!retries.any());
}

#[test]
fn retry_that_finds_no_room_leaves_no_trace() {
    let retries = Retries::new(1);
    let slots: alloc::vec::Vec<_> =
        (0..RETRIES_MAX as u64).filter_map(|at| retries.enter(at * 10, at * 10 + 5)).collect();
    assert_eq!((slots.len(), retries.enter(1000, 1001)), (RETRIES_MAX, None));
    slots.into_iter().for_each(|slot| retries.leave(slot));
    assert!(!retries.any());
}

#[test]
fn quarantine_covers_all_its_ranges_until_each_request_is_released() {
    let retries = Retries::new(1);
    assert!(!retries.is_quarantined(one(0, u64::MAX)));
    retries.quarantine([(200, 10), (100, 10)].into_iter());
    retries.quarantine(one(150, 10));
    for (start, len, expected) in
        [(0, 100, false), (0, 101, true), (209, 1, true), (210, 10, false), (120, 1, true)]
    {
        assert_eq!(retries.is_quarantined(one(start, len)), expected, "{start}+{len}");
    }
    assert!(retries.is_quarantined([(0, 1), (150, 1)].into_iter()));
    retries.release();
    assert!(retries.any() && retries.is_quarantined(one(150, 1)));
    retries.release();
    assert!(!retries.any() && !retries.is_quarantined(one(150, 1)));
}

#[test]
fn log_compares_the_ranges_of_all_writes_since_a_moment() {
    let (own, other) = (Tag::from_index(1), Tag::from_index(2));
    let mut log = WriteLog::new();
    log.push(0, 10, other);
    let since = log.count;
    log.push(100, 10, other);
    log.push(300, 10, own);
    for (start, len, expected) in [
        (0, 10, false),
        (90, 10, false),
        (90, 11, true),
        (109, 1, true),
        (110, 10, false),
        (300, 10, false),
    ] {
        assert_eq!(log.overlaps_since(since, own, one(start, len)), expected, "{start}+{len}");
    }
    assert!(log.overlaps_since(since, own, [(0, 1), (105, 1)].into_iter()));
    assert!(log.overlaps_since(0, own, one(0, 1)));
    // The oldest of the remembered writes counts, and one more is forgotten.
    let mut log = WriteLog::new();
    log.push(0, 1, other);
    (1..LOG_LEN as u64).for_each(|nth| log.push(nth * 10, 1, other));
    assert!(log.overlaps_since(0, own, one(0, 1)) && !log.overlaps_since(0, own, one(5, 1)));
    assert!(!log.overlaps_since(1, own, one(0, 1)));
    log.push(0, 1, own);
    assert!(log.overlaps_since(0, own, one(5, 1)), "the first write may have been anywhere");
    assert!(!log.overlaps_since(1, own, one(5, 1)));
}

#[test]
fn disk_of_one_context_has_no_counts_and_shared_ones_have_enough() {
    assert_eq!(Retries::new(1).moment(0, &WriteLog::new()), Moment { own: 0, others: 0 });
    let retries = Retries::shared(20);
    for nth in 0..4 {
        assert_eq!(retries.writes.join(20).of(19), 20 * nth + 19);
    }
    assert_eq!(retries.writes.join(1).of(0), u32::MAX, "no count is left");
}
