//! Models of retries and of quarantined ranges, for loom: the two contexts of the module's
//! argument, with its letters.
//!
//! The device is a word without order of its own. A thread sees its value only through the
//! orderings of the code under test.

use super::{Retries, WriteLog};
use crate::tag::Tag;
use alloc::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{AcqRel, Relaxed};
use loom::thread;

/// The range that is tried again, and one that overlaps it: start and length.
const RANGE: (u64, u64) = (10, 40);
const OVERLAP: (u64, u64) = (10, 10);

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(model);
}

fn one(range: (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    core::iter::once(range)
}

/// Whether a request of the second context may be issued (D).
fn may_issue(retries: &Retries, range: (u64, u64)) -> bool {
    !retries.any() || !retries.hold_back(None, one(range))
}

/// The first context's write has failed. It enters the range, and tries again if no other write was
/// issued since (A, the fence, B).
fn enters_and_tries_again(retries: &Retries) -> bool {
    let (log, own) = (WriteLog::new(), Tag::from_index(0));
    let since = retries.moment(0, &log);
    let slot = retries.enter(RANGE.0, RANGE.0 + RANGE.1);
    assert!(slot.is_some(), "there is room");
    !retries.was_overtaken(0, &log, since, own, one(RANGE))
}

/// Runs a retry of the first context beside a write of the second. Not both may reach the device.
fn retry_beside(
    setup: fn() -> Arc<Retries>,
    retry: fn(&Retries) -> bool,
    write: fn(&Retries) -> bool,
) {
    explore(move || {
        let retries = setup();
        let since_before = retries.moment(0, &WriteLog::new());
        let other = Arc::clone(&retries);
        let writer = thread::spawn(move || write(&other));
        // The moment of the failed write is before the other thread's.
        let (log, own) = (WriteLog::new(), Tag::from_index(0));
        let is_tried =
            retry(&retries) && !retries.was_overtaken(0, &log, since_before, own, one(RANGE));
        let is_issued = writer.join().unwrap();
        assert!(!(is_tried && is_issued), "a retry overwrites a later write");
    });
}

/// Two contexts of one disk.
fn two_contexts() -> Arc<Retries> {
    let retries = Arc::new(Retries::with_counts(2));
    let counts = retries.writes.join(2);
    assert_eq!((counts.of(0), counts.of(1)), (0, 1));
    retries
}

/// The second context counts its write, reads the ranges, and issues the write (C, the fence, D).
fn counts_and_issues(retries: &Retries) -> bool {
    retries.writes.count_write(1);
    let is_issued = may_issue(retries, OVERLAP);
    retries.writes.write_is_out(1);
    is_issued
}

/// A1, A2.
#[test]
fn retry_and_overlapping_write_of_another_context_exclude_each_other() {
    retry_beside(two_contexts, enters_and_tries_again, counts_and_issues);
}

/// A1, A2: the slot had another range before, whose start would let the write pass.
#[test]
fn retry_in_a_slot_that_is_used_again_holds_its_own_range_back() {
    retry_beside(
        two_contexts,
        |retries| {
            let slot = retries.enter(100, 200).expect("there is room");
            retries.leave(slot);
            enters_and_tries_again(retries)
        },
        counts_and_issues,
    );
}

/// A2: a disk without counts marks its presence when it is opened.
#[test]
fn retry_and_write_of_an_uncounted_disk_exclude_each_other() {
    retry_beside(
        || {
            let retries = Arc::new(Retries::with_counts(1));
            assert_eq!(retries.writes.join(1).of(0), 0);
            retries
        },
        enters_and_tries_again,
        |retries| {
            retries.writes.join(2);
            may_issue(retries, OVERLAP)
        },
    );
}

/// A1: a request that was held back is issued after the retry's effect.
#[test]
fn range_that_is_gone_shows_the_effects_of_its_retries() {
    explore(|| {
        let shared = Arc::new((Retries::with_counts(0), AtomicU32::new(0)));
        let slot = shared.0.enter(RANGE.0, RANGE.0 + RANGE.1).expect("there is room");
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            let (retries, device) = &*other;
            // The two checks of a writer, each of which may find the range gone.
            let is_gone = !retries.any() || !retries.hold_back(None, one(OVERLAP));
            assert!(!is_gone || device.load(Relaxed) == 1, "the retry was not seen");
        });
        let (retries, device) = &*shared;
        device.store(1, Relaxed);
        retries.leave(slot);
        writer.join().unwrap();
    });
}

/// A2: the write counts as issued before the moment that includes it.
#[test]
fn moment_after_a_write_comes_after_its_issue() {
    explore(|| {
        let shared = Arc::new((two_contexts(), AtomicU32::new(0)));
        let other = Arc::clone(&shared);
        // The thread that only reads is the second one: loom does not move its loads behind the
        // changes of a thread that reads the same word before it changes it.
        let reader = thread::spawn(move || {
            let (retries, device) = &*other;
            if retries.writes.of_others(0) == Some(2) {
                assert_eq!(device.load(Relaxed), 1, "the write was not issued");
            }
        });
        let (retries, device) = &*shared;
        retries.writes.count_write(1);
        device.store(1, Relaxed);
        retries.writes.write_is_out(1);
        reader.join().unwrap();
    });
}

/// A2: the writes of an uncounted disk have ended before the moment that no longer includes it.
#[test]
fn moment_after_an_uncounted_disk_comes_after_its_writes() {
    explore(|| {
        let shared = Arc::new((Retries::with_counts(1), AtomicU32::new(0)));
        assert_eq!(shared.0.writes.join(1).of(0), 0);
        let uncounted = shared.0.writes.join(2);
        let other = Arc::clone(&shared);
        let closer = thread::spawn(move || {
            let (retries, device) = &*other;
            device.store(1, Relaxed);
            retries.writes.part(&uncounted);
        });
        let (retries, device) = &*shared;
        if retries.writes.of_others(0).is_some() {
            assert_eq!(device.load(Relaxed), 1, "a write has not ended");
        }
        closer.join().unwrap();
    });
}

/// A1: two retries that overlap do not hold each other's requests back and go on both. One of them
/// takes the slot that another retry leaves, and the other the next slot.
#[test]
fn one_of_two_overlapping_retries_sees_the_other() {
    explore(|| {
        let retries = Arc::new(Retries::with_counts(0));
        let before = retries.enter(100, 200).expect("there is room");
        let enters = |retries: &Retries| {
            let slot = retries.enter(RANGE.0, RANGE.0 + RANGE.1);
            retries.hold_back(slot, one(RANGE))
        };
        let other = Arc::clone(&retries);
        let second = thread::spawn(move || {
            other.leave(before);
            enters(&other)
        });
        let sees_second = enters(&retries);
        let sees_first = second.join().unwrap();
        assert!(sees_first || sees_second, "both are tried again");
    });
}

/// A2: a count is never set back by its next owner.
#[test]
fn count_continues_with_its_next_owner() {
    explore(|| {
        let retries = Arc::new(Retries::with_counts(2));
        let first = retries.writes.join(2);
        let other = Arc::clone(&retries);
        let closer = thread::spawn(move || {
            other.writes.count_write(1);
            other.writes.write_is_out(1);
            other.writes.part(&first);
        });
        // Another disk, with one context. It gets a free count, or is uncounted.
        let second = retries.writes.join(1).of(0);
        let is_counted = second < 2;
        if is_counted {
            retries.writes.count_write(second);
            retries.writes.write_is_out(second);
        }
        closer.join().unwrap();
        if is_counted {
            // Each call returns the other's count.
            let nr = [0, 1].map(|at| retries.writes.of_others(at).expect("no write is under way"));
            assert_eq!(nr[0] + nr[1], 4, "a count went back");
        }
    });
}

/// H6: a thread that sees that a range is in quarantine sees the range.
#[test]
fn range_in_quarantine_is_seen_with_its_count() {
    explore(|| {
        let retries = Arc::new(Retries::with_counts(0));
        let other = Arc::clone(&retries);
        let keeper = thread::spawn(move || other.quarantine(one(RANGE)));
        if retries.any() {
            assert!(retries.is_quarantined(one(OVERLAP)), "the count is seen, not the range");
        }
        keeper.join().unwrap();
        assert!(retries.any() && retries.is_quarantined(one(OVERLAP)));
        assert!(!retries.is_quarantined(one((0, 10))) && !retries.is_quarantined(one((50, 1))));
    });
}

/// H6: the same, for a thread that has seen another retry first.
#[test]
fn range_in_quarantine_is_seen_with_its_own_count() {
    explore(|| {
        let retries = Arc::new(Retries::with_counts(0));
        let other = Arc::clone(&retries);
        let keeper = thread::spawn(move || other.quarantine(one(RANGE)));
        if retries.nr_quarantined.load(Relaxed) > 0 {
            assert!(retries.is_quarantined(one(OVERLAP)), "the count is seen, not the range");
        }
        keeper.join().unwrap();
    });
}

/// H6: an overlapping request is issued after the last effect of the one that was given up.
#[test]
fn range_that_leaves_quarantine_shows_the_late_effects() {
    explore(|| {
        let shared = Arc::new((Retries::with_counts(0), AtomicU32::new(0)));
        shared.0.quarantine(one(RANGE));
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            let (retries, device) = &*other;
            let is_gone = !retries.any() || !retries.is_quarantined(one(OVERLAP));
            assert!(!is_gone || device.load(Relaxed) == 1, "the late write was not seen");
        });
        let (retries, device) = &*shared;
        device.store(1, Relaxed);
        retries.release();
        writer.join().unwrap();
    });
}

/// Planted: the writer reads the ranges before it counts its write (D before C).
#[test]
#[should_panic(expected = "a retry overwrites a later write")]
fn planted_a_write_is_counted_after_the_ranges_were_read() {
    retry_beside(two_contexts, enters_and_tries_again, |retries| {
        let is_issued = may_issue(retries, OVERLAP);
        retries.writes.count_write(1);
        retries.writes.write_is_out(1);
        is_issued
    });
}

/// Planted: the range is announced after its bios have ended.
#[test]
#[should_panic(expected = "a later bio passes")]
fn planted_a_bio_ends_before_its_range_is_in_quarantine() {
    explore(|| {
        let shared = Arc::new((Retries::with_counts(0), AtomicU32::new(0)));
        let other = Arc::clone(&shared);
        let keeper = thread::spawn(move || {
            let (retries, ended) = &*other;
            ended.swap(1, AcqRel);
            retries.quarantine(one(RANGE));
        });
        let (retries, ended) = &*shared;
        if ended.fetch_or(0, AcqRel) == 1 {
            assert!(retries.is_quarantined(one(OVERLAP)), "a later bio passes");
        }
        keeper.join().unwrap();
    });
}
