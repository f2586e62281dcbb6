//! The session on a ring in memory.

use super::testing::{Driven, NR_SECTORS, header};
use super::wire::{F_DISCARD, F_FLUSH, F_WRITE_ZEROES, RANGES_MAX};
use forebay_core::{BlockStatus, Op};

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

const OK: u8 = 0;
const IO_ERROR: u8 = 1;
const UNSUPPORTED: u8 = 2;

const ALL: u64 = F_FLUSH | F_DISCARD | F_WRITE_ZEROES;

fn driven() -> Driven {
    Driven::new(ALL, |_| {})
}

/// Returns a request with data.
fn with(kind: u32, sector: u64, data: &[u8]) -> Vec<u8> {
    [&header(kind, sector)[..], data].concat()
}

fn range(sector: u64, nr: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &nr.to_le_bytes(), &flags.to_le_bytes()].concat()
}

#[test]
fn data_move_between_the_ring_and_the_disk() {
    let mut driven = driven();
    assert_eq!(driven.ask(&with(OUT, 3, &[7; 1024]), 0), (OK, 1, vec![]));
    let (status, written, data) = driven.ask(&header(IN, 2), 1536);
    assert_eq!((status, written), (OK, 1537));
    assert_eq!(data, [&[2; 512][..], &[7; 1024]].concat());
    let ios = [(Op::Write, 1536, 1024, false), (Op::Read, 1024, 1536, false)];
    assert_eq!(driven.submitted(), ios);
    assert_eq!(driven.state.borrow().nr_recycled, 2);
}

#[test]
fn serial_number_is_cut_to_the_length_of_its_buffer() {
    let mut driven = driven();
    let id = *b"serial number\0\0\0\0\0\0\0";
    assert_eq!(driven.ask(&header(GET_ID, 0), 20), (OK, 21, id.to_vec()));
    assert_eq!(driven.ask(&header(GET_ID, 0), 6), (OK, 7, id[..6].to_vec()));
    let (status, written, data) = driven.ask(&header(GET_ID, 0), 30);
    assert_eq!((status, written, &data[20..]), (OK, 21, &[0xaa; 10][..]));
    assert_eq!(driven.ask(&header(GET_ID, 0), 0), (OK, 1, vec![]));
    assert_eq!(driven.submitted(), []);
}

/// Bad requests get a status, start no I/O, and the ring goes on.
#[test]
fn bad_request_gets_a_status_and_the_ring_goes_on() {
    let sectors = NR_SECTORS;
    let ranges = vec![range(0, 1, 0); RANGES_MAX + 1].concat();
    let table: Vec<(&str, Vec<u8>, usize, u8)> = vec![
        ("no header", vec![], 0, IO_ERROR),
        ("short header", vec![0; 15], 512, IO_ERROR),
        ("unknown type", header(2, 0), 0, UNSUPPORTED),
        ("type with a high bit", header(1 << 31, 0), 512, UNSUPPORTED),
        ("read of no whole sector", header(IN, 0), 511, IO_ERROR),
        ("read behind the end", header(IN, sectors), 512, IO_ERROR),
        ("read across the end", header(IN, sectors - 1), 1024, IO_ERROR),
        ("read at the largest sector", header(IN, u64::MAX), 512, IO_ERROR),
        ("read whose end wraps", header(IN, u64::MAX / 512), 512, IO_ERROR),
        ("read with data", with(IN, 0, &[0; 512]), 512, IO_ERROR),
        ("write of no whole sector", with(OUT, 0, &[0; 513]), 0, IO_ERROR),
        ("write behind the end", with(OUT, sectors, &[0; 512]), 0, IO_ERROR),
        ("write whose sum wraps", with(OUT, u64::MAX, &[0; 1024]), 0, IO_ERROR),
        ("write with writable data", with(OUT, 0, &[0; 512]), 512, IO_ERROR),
        ("discard of nothing", header(DISCARD, 0), 0, IO_ERROR),
        ("discard of half a range", with(DISCARD, 0, &[0; 24]), 0, IO_ERROR),
        ("discard of too many ranges", with(DISCARD, 0, &ranges), 0, IO_ERROR),
        ("discard with unmap", with(DISCARD, 0, &range(0, 1, 1)), 0, UNSUPPORTED),
        ("discard with a reserved flag", with(DISCARD, 0, &range(0, 1, 2)), 0, UNSUPPORTED),
        ("discard of too much", with(DISCARD, 0, &range(0, 33, 0)), 0, IO_ERROR),
        ("discard behind the end", with(DISCARD, 0, &range(sectors, 1, 0)), 0, IO_ERROR),
        ("discard whose end wraps", with(DISCARD, 0, &range(u64::MAX, 2, 0)), 0, IO_ERROR),
        ("zeroes with a reserved flag", with(WRITE_ZEROES, 0, &range(0, 1, 4)), 0, UNSUPPORTED),
        ("zeroes across the end", with(WRITE_ZEROES, 0, &range(sectors - 1, 2, 0)), 0, IO_ERROR),
        (
            "one of two ranges is bad",
            with(WRITE_ZEROES, 0, &[range(0, 1, 0), range(sectors, 1, 0)].concat()),
            0,
            IO_ERROR,
        ),
    ];
    let mut driven = driven();
    for (what, readable, nr_writable, status) in table {
        let (got, written, data) = driven.ask(&readable, nr_writable);
        assert_eq!((got, written), (status, 1), "{what}");
        assert!(data.iter().all(|byte| *byte == 0xaa), "{what}");
        assert_eq!(driven.submitted(), [], "{what}");
    }
    assert_eq!(driven.ask(&header(IN, 9), 512), (OK, 513, vec![9; 512]));
    assert!(driven.state.borrow().broken.is_empty());
}

#[test]
fn resized_disk_accepts_requests_up_to_its_new_end() {
    let mut driven = driven();
    let zeroes = |sector| with(WRITE_ZEROES, 0, &range(sector, 1, 0));
    for end in [NR_SECTORS - 8, NR_SECTORS, NR_SECTORS - 1] {
        driven.front.resize(end);
        assert_eq!(driven.ask(&with(OUT, end - 1, &[1; 512]), 0).0, OK);
        assert_eq!(driven.ask(&zeroes(end - 1), 0).0, OK);
        assert_eq!(driven.ask(&with(OUT, end, &[1; 512]), 0).0, IO_ERROR);
        assert_eq!(driven.ask(&with(OUT, end - 1, &[1; 1024]), 0).0, IO_ERROR);
        assert_eq!(driven.ask(&zeroes(end), 0).0, IO_ERROR);
    }
}

#[test]
fn ranges_become_an_io_each() {
    let mut driven = driven();
    let two = [range(1, 2, 0), range(9, 0, 0), range(4, 1, 0)].concat();
    assert_eq!(driven.ask(&with(DISCARD, 0, &two), 0), (OK, 1, vec![]));
    assert_eq!(
        driven.submitted(),
        [(Op::Discard, 512, 1024, false), (Op::Discard, 2048, 512, false)]
    );
    assert_eq!(driven.ask(&with(WRITE_ZEROES, 0, &range(5, 1, 1)), 0).0, OK);
    assert_eq!(driven.ask(&with(WRITE_ZEROES, 0, &range(5, 1, 0)), 0).0, OK);
    let mixed = [range(5, 1, 1), range(6, 1, 0)].concat();
    assert_eq!(driven.ask(&with(WRITE_ZEROES, 0, &mixed), 0).0, OK);
    let ops: Vec<_> = driven.submitted().iter().map(|io| io.0).collect();
    assert_eq!(ops, [Op::Discard, Op::WriteZeroes, Op::WriteZeroes, Op::WriteZeroes]);
    assert_eq!(driven.ask(&with(DISCARD, 0, &range(3, 0, 0)), 0), (OK, 1, vec![]));
}

#[test]
fn operations_that_were_not_negotiated_are_unsupported() {
    let mut driven = Driven::new(F_FLUSH, |_| {});
    assert_eq!(driven.ask(&with(DISCARD, 0, &range(0, 1, 0)), 0).0, UNSUPPORTED);
    assert_eq!(driven.ask(&with(WRITE_ZEROES, 0, &range(0, 1, 0)), 0).0, UNSUPPORTED);
    assert_eq!(driven.submitted(), []);
}

#[test]
fn read_only_disk_refuses_changes() {
    let mut driven = Driven::new(ALL, |disk| disk.read_only = true);
    assert_eq!(driven.ask(&with(OUT, 0, &[1; 512]), 0).0, IO_ERROR);
    assert_eq!(driven.ask(&with(DISCARD, 0, &range(0, 1, 0)), 0).0, IO_ERROR);
    assert_eq!(driven.ask(&with(WRITE_ZEROES, 0, &range(0, 1, 0)), 0).0, IO_ERROR);
    assert_eq!(driven.submitted(), []);
    assert_eq!(driven.ask(&header(IN, 1), 512).0, OK);
    assert_eq!(driven.ask(&header(FLUSH, 0), 0).0, OK);
}

/// Y2: FUA without a write cache, or without FLUSH.
#[test]
fn writes_are_durable_unless_the_driver_flushes_a_cache() {
    let changes = [
        with(OUT, 0, &[1; 512]),
        with(DISCARD, 0, &range(0, 1, 0)),
        with(WRITE_ZEROES, 0, &range(0, 1, 0)),
    ];
    for (features, write_cache, is_fua) in [
        (ALL, true, false),
        (ALL, false, true),
        (ALL & !F_FLUSH, true, true),
        (ALL & !F_FLUSH, false, true),
    ] {
        let mut driven = Driven::new(features, |_| {});
        driven.state.borrow_mut().write_cache = write_cache;
        for change in &changes {
            assert_eq!(driven.ask(change, 0).0, OK);
        }
        let flags: Vec<_> = driven.submitted().iter().map(|io| io.3).collect();
        assert_eq!(flags, [is_fua; 3], "features {features:#x}, cache {write_cache}");
    }
    let mut driven = driven();
    driven.ask(&changes[0], 0);
    driven.state.borrow_mut().write_cache = false;
    driven.ask(&changes[0], 0);
    let flags: Vec<_> = driven.submitted().iter().map(|io| io.3).collect();
    assert_eq!(flags, [false, true], "a toggle counts for later writes");
}

#[test]
fn failure_of_the_disk_is_the_status() {
    let mut driven = driven();
    driven.host().failure = Some(BlockStatus::Io);
    assert_eq!(driven.ask(&header(FLUSH, 0), 0).0, IO_ERROR);
    assert_eq!(driven.ask(&header(IN, 0), 512).1, 1);
    driven.host().failure = Some(BlockStatus::NotSupported);
    assert_eq!(driven.ask(&with(DISCARD, 0, &range(0, 1, 0)), 0).0, UNSUPPORTED);
    assert_eq!(driven.host().nr_failed, 3);
    driven.host().failure = None;
    assert_eq!(driven.ask(&header(FLUSH, 0), 0).0, OK);
}

/// Y1.
#[test]
fn request_without_a_status_byte_stops_the_ring_after_the_accepted_ones() {
    let mut driven = driven();
    driven.host().is_held = true;
    driven.chain(&header(IN, 1), 512);
    driven.run();
    let (mut chain, _) = driven.make(&header(IN, 2), 512);
    chain.has_status = false;
    driven.state.borrow_mut().available.push_back(chain);
    driven.chain(&header(IN, 3), 512);
    driven.run();
    assert_eq!(driven.state.borrow().broken, ["request 1 has no writable byte for its status"]);
    driven.host().is_held = false;
    driven.run();
    let state = driven.state.borrow();
    assert_eq!(state.used, [(0, OK, 513)]);
    assert_eq!(state.available.len(), 1, "nothing more is taken");
    assert_eq!((state.broken.len(), state.is_closed), (1, false));
}

#[test]
fn broken_ring_is_reported_once_and_drains() {
    for is_in_flight in [false, true] {
        let mut driven = driven();
        if is_in_flight {
            driven.host().is_held = true;
            driven.chain(&header(IN, 1), 512);
            driven.run();
        }
        driven.state.borrow_mut().error = Some("the ring is gone".to_owned());
        driven.chain(&header(IN, 1), 512);
        driven.run();
        driven.run();
        assert_eq!(driven.state.borrow().broken, ["the ring is gone"]);
        driven.front.round(|front| front.stop_rings());
        assert_eq!(driven.front.has_drained(), !is_in_flight);
        driven.host().is_held = false;
        driven.run();
        assert!(driven.front.has_drained() && driven.state.borrow().is_closed);
    }
}

/// A panic during a submission leaves open whether the disk has the I/O.
#[test]
fn ring_whose_thread_has_panicked_drains_once_the_disk_is_idle() {
    for is_submitted in [false, true] {
        for kind in [IN, DISCARD] {
            let mut driven = driven();
            driven.host().is_held = true;
            driven.chain(&header(IN, 1), 512);
            driven.run();
            // The I/O that panics is the second one of the discard.
            driven.host().panics_at = Some((5 * 512, is_submitted));
            let ranges = [range(3, 1, 0), range(5, 1, 0)].concat();
            match kind {
                IN => driven.chain(&header(IN, 5), 512),
                _ => driven.chain(&[header(DISCARD, 0), ranges].concat(), 0),
            };
            driven.run();
            assert_eq!(driven.host().nr_panics, 1);
            assert!(driven.state.borrow().is_closed && !driven.front.has_drained());
            driven.front.round(|front| front.stop_rings());
            assert!(!driven.front.has_drained(), "the disk uses the memory of the first request");
            driven.host().is_held = false;
            driven.run();
            assert!(driven.front.has_drained(), "{kind} {is_submitted}");
        }
    }
}

/// Y1.
#[test]
fn driver_is_notified_of_requests_that_end_in_the_round_that_breaks_the_ring() {
    let mut driven = driven();
    // It is answered at once, under the plug in which the next one breaks the ring.
    driven.chain(&header(GET_ID, 0), 20);
    let (mut chain, _) = driven.make(&header(IN, 2), 512);
    chain.has_status = false;
    driven.state.borrow_mut().available.push_back(chain);
    driven.run();
    let state = driven.state.borrow();
    assert_eq!((state.broken.len(), state.used.len()), (1, 1));
    assert_eq!(state.notified_at, [1]);
}

/// Y3.
#[test]
fn all_available_requests_are_taken_and_answered_in_one_round() {
    let mut driven = driven();
    for sector in 0..20 {
        driven.chain(&header(IN, sector), 512);
    }
    driven.front.round(|front| {
        front.look_at_rings();
        assert_eq!(front.host().submitted.len(), 20);
    });
    assert!(!driven.front.is_unfinished());
    {
        let state = driven.state.borrow();
        assert_eq!((state.used.len(), &state.notified_at[..], state.kicks), (20, &[20][..], false));
    }
    assert!(!driven.front.prepare_sleep());
    assert!(driven.state.borrow().kicks);
}

/// A round takes a bounded number of requests, and a ring that is then disabled takes no more.
#[test]
fn ring_with_endless_requests_can_be_disabled_and_stopped() {
    let mut driven = driven();
    for _ in 0..10 * 1024 {
        driven.chain(&header(GET_ID, 0), 20);
    }
    for _ in 0..3 {
        let before = driven.state.borrow().used.len();
        driven.front.round(|front| front.look_at_rings());
        assert!(driven.state.borrow().used.len() - before <= 2 * 1024);
    }
    let before = driven.state.borrow().used.len();
    driven.state.borrow_mut().is_enabled = false;
    driven.front.round(|_| {});
    assert_eq!(driven.state.borrow().used.len(), before);
    driven.state.borrow_mut().is_enabled = true;
    driven.front.round(|front| front.look_at_rings());
    driven.front.round(|front| front.stop_rings());
    assert!(driven.front.has_drained());
}

/// A driver that polls sees answers before a long round ends.
#[test]
fn each_reap_publishes_its_answers() {
    let mut driven = driven();
    driven.host().reap_max = 1;
    for sector in 0..4 {
        driven.chain(&header(IN, sector), 512);
    }
    driven.front.round(|front| front.look_at_rings());
    assert_eq!(driven.state.borrow().published_at, [1, 2, 3, 4]);
}

/// Y3: no request is left behind when the front is about to wait.
#[test]
fn request_that_arrives_before_the_sleep_is_taken() {
    let mut driven = driven();
    let (late, _) = driven.make(&header(IN, 1), 512);
    driven.state.borrow_mut().late.push_back(late);
    driven.run();
    assert_eq!(driven.state.borrow().used, [(0, OK, 513)]);
}

/// Y4.
#[test]
fn long_round_notifies_the_driver_before_its_end() {
    for (reap_ns, nr_notified) in [(10_000, 1), (60_000, 4)] {
        let mut driven = driven();
        driven.host().reap_max = 1;
        driven.host().reap_ns = reap_ns;
        for sector in 0..4 {
            driven.chain(&header(IN, sector), 512);
        }
        driven.front.round(|front| front.look_at_rings());
        assert_eq!(driven.state.borrow().used.len(), 4);
        assert!(driven.state.borrow().notified_at.len() <= nr_notified, "{reap_ns} ns");
        assert_eq!(driven.state.borrow().notified_at.len() > 1, reap_ns > 50_000, "{reap_ns} ns");
        assert_eq!(driven.state.borrow().notified_at.last(), Some(&4));
    }
}

/// Y4: an answer that needs no I/O does not wait until all requests behind it are submitted.
#[test]
fn driver_is_notified_while_many_requests_are_taken() {
    for (submit_ns, notified_at) in [(100, &[2][..]), (2000, &[1, 2])] {
        let mut driven = driven();
        let host = driven.host();
        (host.room, host.is_held, host.submit_ns) = (200, true, submit_ns);
        driven.chain(&header(2, 0), 512);
        // A round takes all adjacent requests.
        for sector in 0..60 {
            driven.chain(&header(IN, sector), 512);
        }
        driven.chain(&header(2, 0), 512);
        driven.front.round(|front| front.look_at_rings());
        assert_eq!(driven.state.borrow().notified_at, notified_at, "{submit_ns} ns");
    }
}

/// Y3, Y4.
#[test]
fn scattered_requests_are_submitted_in_growing_batches_and_the_driver_is_notified_once() {
    let mut driven = driven();
    driven.host().room = 200;
    for nr in 0..40 {
        driven.chain(&header(IN, 2 * (nr % 32) + 2), 512);
    }
    for nr_used in [2, 6, 14, 30, 40] {
        driven.front.round(|front| front.look_at_rings());
        assert_eq!(driven.state.borrow().used.len(), nr_used);
        assert_eq!(driven.front.is_unfinished(), nr_used < 40, "{nr_used} answers");
    }
    assert_eq!(driven.state.borrow().notified_at, [40]);
}

#[test]
fn requests_without_room_wait_for_completions() {
    let mut driven = driven();
    driven.host().room = 2;
    driven.host().is_held = true;
    for sector in 0..5 {
        driven.chain(&header(IN, sector), 512);
    }
    let ranges = [range(0, 1, 0), range(2, 1, 0)].concat();
    driven.chain(&with(DISCARD, 0, &ranges), 0);
    driven.run();
    assert_eq!(driven.submitted().len(), 2);
    assert!(!driven.state.borrow().kicks, "a full disk needs no notifications");
    driven.host().is_held = false;
    driven.run();
    assert_eq!(driven.submitted().len(), 3 + 2);
    let heads: Vec<_> = driven.state.borrow().used.iter().map(|used| used.0).collect();
    assert_eq!(heads, [0, 1, 2, 3, 4, 5]);
    assert!(driven.state.borrow().kicks);
}

#[test]
fn stopped_ring_takes_no_more_and_is_closed_after_its_last_answer() {
    let mut driven = driven();
    driven.host().is_held = true;
    driven.chain(&header(IN, 1), 512);
    driven.run();
    driven.front.round(|front| front.stop_rings());
    driven.chain(&header(IN, 2), 512);
    driven.run();
    assert!(!driven.front.has_drained() && !driven.state.borrow().is_closed);
    // However long the disk takes.
    driven.host().now_ns += 3_600_000_000_000;
    driven.front.round(|front| front.tick());
    assert!(!driven.state.borrow().is_closed);
    driven.host().is_held = false;
    driven.run();
    let state = driven.state.borrow();
    assert!(driven.front.has_drained() && state.is_closed);
    assert_eq!((state.used.len(), state.notified_at.len(), state.available.len()), (1, 1, 1));
}

#[test]
fn disabled_ring_takes_nothing_until_it_is_enabled() {
    let mut driven = driven();
    driven.state.borrow_mut().is_enabled = false;
    driven.chain(&header(IN, 1), 512);
    driven.run();
    assert_eq!(driven.submitted(), []);
    driven.front.round(|front| {
        front.change_rings(|ring| {
            ring.0.borrow_mut().is_enabled = true;
            Ok(())
        });
        front.look_at_rings();
    });
    assert_eq!(driven.state.borrow().used, [(0, OK, 513)]);
}
