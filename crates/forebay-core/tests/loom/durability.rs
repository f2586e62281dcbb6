//! Models of durable points: writes that end, flushes that succeed or fail, and queries, all at
//! once.
//!
//! The device is a few cells. A completed write has set its cell. A flush reads the cells when it
//! is issued, and makes durable what it read.

use std::sync::Arc;

use forebay_core::{Durability, LostWrites};
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

use crate::common::explore;

/// Issues a flush. Returns its durable point and the cells that it read.
fn issue(durability: &Durability, cells: &[AtomicU32], in_time: bool) -> (u64, Vec<u32>) {
    let look = || cells.iter().map(|cell| cell.load(Relaxed)).collect();
    match in_time {
        true => {
            let in_hand = durability.point();
            (in_hand, look())
        }
        // Planted: a write that ends between the two reads is covered by the point, but not read.
        false => {
            let seen = look();
            (durability.point(), seen)
        }
    }
}

fn a_flush_against_two_writes(in_time: bool) {
    let durability = Arc::new(Durability::new());
    let cells = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    let writers: Vec<_> = (0..2)
        .map(|at| {
            let (durability, cells) = (Arc::clone(&durability), Arc::clone(&cells));
            thread::spawn(move || {
                cells[at].store(1, Relaxed);
                durability.writes_end()
            })
        })
        .collect();
    let (in_hand, seen) = issue(&durability, &*cells, in_time);
    durability.flushed(in_hand);
    for (at, writer) in writers.into_iter().enumerate() {
        let point = writer.join().expect("a writer");
        assert!(!durability.is_durable(point) || seen[at] == 1, "a durable write was flushed");
    }
}

#[test]
fn durable_write_completed_before_its_flush() {
    explore(None, || a_flush_against_two_writes(true));
}

#[test]
#[should_panic(expected = "a durable write was flushed")]
fn planted_flush_that_covers_later_writes_is_caught() {
    explore(None, || a_flush_against_two_writes(false));
}

#[test]
fn thread_that_sees_a_durable_point_sees_the_end_of_its_flush() {
    explore(None, || {
        let durability = Arc::new(Durability::new());
        let ended = Arc::new(AtomicU32::new(0));
        let point = durability.writes_end();
        let flusher = {
            let (durability, ended) = (Arc::clone(&durability), Arc::clone(&ended));
            thread::spawn(move || {
                let in_hand = durability.point();
                ended.store(1, Relaxed);
                durability.flushed(in_hand);
            })
        };
        if durability.is_durable(point) {
            assert_eq!(ended.load(Relaxed), 1);
        }
        flusher.join().expect("a flusher");
    });
}

#[test]
fn a_lost_point_is_never_durable_after_a_later_flush() {
    explore(None, || {
        let durability = Arc::new(Durability::new());
        let lost = durability.writes_end();
        let flusher = {
            let durability = Arc::clone(&durability);
            thread::spawn(move || {
                durability.flush_failed();
                durability.flushed(durability.point());
            })
        };
        assert!(!durability.is_durable(lost));
        flusher.join().expect("a flusher");
        assert!(!durability.is_durable(lost));
        assert_eq!(durability.lost(), Some(LostWrites { after: 0, up_to: lost }));
    });
}

#[test]
fn an_acknowledgement_does_not_hide_a_loss_that_it_has_not_seen() {
    explore(None, || {
        let durability = Arc::new(Durability::new());
        let flusher = {
            let durability = Arc::clone(&durability);
            thread::spawn(move || durability.flush_failed())
        };
        let known = durability.acknowledge_loss();
        flusher.join().expect("a flusher");
        assert!(known.is_some() || durability.lost().is_some(), "the loss is reported");
    });
}

/// A write was issued before a flush failed, and ends at about the same time. Either the loss of
/// the failure covers its point, or the write sees the failure and records a loss of its own.
#[test]
fn write_in_flight_when_a_flush_fails_is_lost() {
    explore(None, || {
        let durability = Arc::new(Durability::new());
        let nr_failures = durability.nr_failures();
        let flusher = {
            let durability = Arc::clone(&durability);
            thread::spawn(move || durability.flush_failed())
        };
        let mut point = durability.writes_end();
        if durability.nr_failures() != nr_failures {
            point = durability.doubtful_writes_end();
        }
        flusher.join().expect("a flusher");
        let lost = durability.lost().expect("a flush has failed");
        assert!(lost.after < point && point <= lost.up_to, "{point} is not in {lost:?}");
    });
}

/// The number of losses whose ranges a disk keeps.
const NR_LOSSES: u64 = 8;

/// The newest loss replaces the record of the oldest one, which still counts.
#[test]
fn loss_counts_while_its_record_is_replaced() {
    explore(None, || {
        let durability = Arc::new(Durability::new());
        let lost = durability.writes_end();
        for _ in 0..NR_LOSSES {
            durability.flush_failed();
            // The range of the next loss begins behind this one.
            durability.flushed(durability.writes_end());
        }
        let flusher = {
            let durability = Arc::clone(&durability);
            thread::spawn(move || durability.flush_failed())
        };
        assert!(!durability.is_durable(lost), "a range of the new loss, for the old one");
        flusher.join().expect("a flusher");
    });
}
