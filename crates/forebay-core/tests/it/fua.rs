//! Tests of FUA writes that are syncs (F8): which writes a failed one loses, and which flushes
//! wait.

use crate::common::{Bench, TestQueue, limits};
use forebay_core::{Bio, BioFlags, BlockStatus, LostWrites, Op, Policy, QueueLimits};
use std::sync::Arc;

const K4: u64 = 4096;
const NONE: BioFlags = BioFlags::NONE;
const FUA: BioFlags = BioFlags::FUA;
const IO: Result<u64, BlockStatus> = Err(BlockStatus::Io);

/// Returns the limits of a file with direct I/O.
fn direct() -> QueueLimits {
    limits().volatile_cache(true).fua(true).fua_is_sync(true)
}

/// Returns the limits of a file in the page cache.
fn buffered() -> QueueLimits {
    direct().fua_queueable(false)
}

fn bench(limits: QueueLimits) -> Bench {
    Bench::new(limits, Policy::default())
}

fn write(bench: &mut Bench, flags: BioFlags, number: u64) {
    bench.issue(Op::Write, flags, number * K4, K4, number);
}

fn flush(bench: &mut Bench, number: u64) {
    bench.issue(Op::Flush, NONE, 0, 0, number);
}

/// Writes and completes a page. Returns its durable point.
fn wrote(bench: &mut Bench, number: u64) -> u64 {
    write(bench, NONE, number);
    bench.complete(bench.toy.running.len() - 1, Ok(K4));
    bench.ends();
    bench.queue.device.durability().point()
}

/// Completes all requests in full, except the one that was issued as number `nth`, which fails.
fn complete_but(bench: &mut Bench, nth: usize) {
    while let Some(&first) = bench.toy.running.first() {
        let len = bench.toy.seen[first].len;
        bench.complete(0, if first == nth { IO } else { Ok(len) });
    }
}

/// Returns the issued requests: operation, and whether with FUA.
fn issued(bench: &Bench) -> Vec<(Op, bool)> {
    bench.toy.seen.iter().map(|seen| (seen.op, seen.fua)).collect()
}

#[test]
fn failed_fua_write_is_a_failed_flush_whatever_its_status() {
    let statuses = BlockStatus::ALL.map(Err).into_iter().chain([Ok(0), Ok(512)]);
    for (result, limits) in statuses.flat_map(|result| [(result, direct()), (result, buffered())]) {
        let mut bench = bench(limits);
        let safe = wrote(&mut bench, 1);
        flush(&mut bench, 2);
        bench.finish();
        let lost = wrote(&mut bench, 3);
        bench.ends();
        write(&mut bench, FUA, 4);
        bench.complete(0, result);
        let durability = Arc::clone(bench.queue.device.durability());
        assert!(durability.lost().is_some_and(|range| range.after == safe && range.up_to >= lost));
        assert!(durability.is_durable(safe) && !durability.is_durable(lost), "{result:?}");
        bench.finish_running();
        let device_is_gone = result == Err(BlockStatus::Offline);
        let expected = if device_is_gone { Err(BlockStatus::Offline) } else { IO };
        bench.ends();
        flush(&mut bench, 5);
        assert!(bench.queue_bio(Bio { user_data: 6, ..Bio::flush_up_to(lost) }, 0));
        assert!(bench.queue_bio(Bio { user_data: 7, ..Bio::flush_up_to(safe) }, 0));
        bench.turn();
        assert_eq!(bench.ends(), [(5, expected), (6, expected), (7, Ok(0))], "{result:?}");
        assert!(durability.acknowledge_loss().is_some());
    }
}

#[test]
fn failed_native_fua_write_loses_nothing_else() {
    let mut bench = bench(direct().fua_is_sync(false));
    wrote(&mut bench, 1);
    write(&mut bench, FUA, 2);
    bench.complete(0, IO);
    assert_eq!(bench.queue.device.durability().lost(), None);
    flush(&mut bench, 3);
    bench.finish();
    assert_eq!(bench.ends(), [(2, IO), (3, Ok(0))]);
}

#[test]
fn point_of_a_failed_fua_write_is_lost() {
    let mut bench = bench(direct());
    write(&mut bench, FUA, 1);
    bench.toy.complete(0, IO);
    let ended = bench.queue.turn_on(&mut bench.toy, 1 << 20);
    let (number, _, result, point) = ended[0];
    assert_eq!((number, result), (1, IO));
    let durability = bench.queue.device.durability();
    let lost = durability.lost().expect("a loss");
    assert!(lost.after < point && point <= lost.up_to, "{point} is not in {lost:?}");
    assert_eq!(durability.acknowledge_loss(), Some(lost));
    // A write that is issued after the failure is not part of the loss.
    let late = wrote(&mut bench, 2);
    bench.ends();
    flush(&mut bench, 3);
    bench.finish();
    assert_eq!(bench.ends(), [(3, Ok(0))]);
    assert!(bench.queue.device.durability().is_durable(late));
}

#[test]
fn flush_ends_after_the_fua_writes_beside_it() {
    // The kernel may have reported the flush's error to the write.
    for (fua_fails, in_one_reap) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut bench = bench(direct());
        let point = wrote(&mut bench, 1);
        write(&mut bench, FUA, 2);
        flush(&mut bench, 3);
        assert_eq!(bench.toy.running.len(), 2, "they run beside each other");
        bench.toy.complete(1, Ok(0));
        if !in_one_reap {
            bench.turn();
            assert_eq!(bench.ends(), []);
            assert!(!bench.queue.device.durability().is_durable(point));
            assert_eq!(bench.queue.hctx.prepare_wait(2), 1, "one completion ends both");
            // The flush does not wait for later writes, and a later flush does not overtake it.
            write(&mut bench, FUA, 4);
            flush(&mut bench, 5);
            assert_eq!(bench.toy.running.len(), 2);
        }
        bench.complete(0, if fua_fails { IO } else { Ok(K4) });
        let ends = bench.ends();
        let (of_write, of_flush) = if fua_fails { (IO, IO) } else { (Ok(K4), Ok(0)) };
        assert!(ends.starts_with(&[(2, of_write), (3, of_flush)]), "{ends:?}");
        assert_eq!(bench.queue.device.durability().is_durable(point), !fua_fails);
        bench.finish();
        if !in_one_reap {
            let of_next = if fua_fails { IO } else { Ok(0) };
            let mut rest = ends[2..].to_vec();
            rest.extend(bench.ends());
            rest.sort_by_key(|(number, _)| *number);
            assert_eq!(rest, [(4, Ok(K4)), (5, of_next)]);
        }
    }
}

#[test]
fn flush_ends_after_each_of_the_fua_writes_beside_it() {
    for last_fails in [false, true] {
        let mut bench = bench(direct());
        let point = wrote(&mut bench, 1);
        write(&mut bench, FUA, 2);
        write(&mut bench, FUA, 3);
        flush(&mut bench, 4);
        bench.complete(2, Ok(0));
        bench.complete(0, Ok(K4));
        assert_eq!(bench.ends(), [(2, Ok(K4))], "another write may have received the error");
        assert!(!bench.queue.device.durability().is_durable(point));
        bench.complete(0, if last_fails { IO } else { Ok(K4) });
        let ends = if last_fails { [(3, IO), (4, IO)] } else { [(3, Ok(K4)), (4, Ok(0))] };
        assert_eq!(bench.ends(), ends);
        assert_eq!(bench.queue.device.durability().is_durable(point), !last_fails);
    }
}

#[test]
fn flush_that_waits_for_its_turn_fails_with_the_fua_write() {
    let mut bench = bench(direct());
    wrote(&mut bench, 1);
    write(&mut bench, FUA, 2);
    flush(&mut bench, 3);
    flush(&mut bench, 4);
    bench.complete(0, IO);
    assert_eq!(bench.ends(), [(2, IO), (4, IO)], "another flush proves nothing");
    bench.finish();
    assert_eq!(bench.ends(), [(3, IO)]);
}

#[test]
fn other_contexts_see_the_loss_of_a_fua_write() {
    let mut one = bench(direct());
    let mut other = bench(direct());
    let device = Arc::clone(&one.queue.device);
    other.queue = TestQueue::with_device(direct(), Policy::default(), 0, &device);
    let ended = wrote(&mut other, 1);
    // The data may be in the cache already.
    write(&mut other, NONE, 2);
    flush(&mut other, 3);
    write(&mut one, FUA, 4);
    one.complete(0, IO);
    assert!(!device.durability().is_durable(ended));
    other.finish();
    assert_eq!(other.ends(), [(2, Ok(K4)), (3, IO)]);
    let lost = device.durability().acknowledge_loss();
    assert!(lost.is_some_and(|lost| lost.up_to >= ended));
    flush(&mut other, 5);
    other.finish();
    assert_eq!(other.ends(), [(5, Ok(0))]);
}

/// The driver may report the bytes before a failed sync instead of the failure.
#[test]
fn short_fua_write_fails_since_its_first_bytes_may_be_lost() {
    for limits in [direct(), buffered()] {
        let mut bench = bench(limits);
        bench.issue(Op::Write, FUA, 0, 3 * K4, 7);
        bench.complete(0, Ok(K4));
        assert_eq!(bench.ends(), [(7, IO)]);
        assert!(bench.queue.device.durability().lost().is_some());
    }
}

#[test]
fn part_of_a_fua_write_that_fails_is_a_failed_flush() {
    for limits in [direct(), buffered()] {
        for failing in 0..3 {
            let limits = limits.max_sectors(8).max_hw_sectors(8);
            let mut bench = bench(limits);
            let lost = wrote(&mut bench, 1);
            bench.issue(Op::Write, FUA, 0, 3 * K4, 7);
            complete_but(&mut bench, 1 + failing);
            assert_eq!(bench.ends(), [(7, IO)]);
            assert_eq!(
                bench.queue.device.durability().lost().is_some(),
                limits.fua_queueable || failing == 0,
                "only a write with FUA is a sync"
            );
            flush(&mut bench, 8);
            bench.finish();
            let is_lost = !bench.queue.device.durability().is_durable(lost);
            assert_eq!(bench.ends(), [(8, if is_lost { IO } else { Ok(0) })]);
        }
    }
}

#[test]
fn one_sync_of_a_page_cache_is_at_the_device_at_a_time() {
    let mut bench = bench(buffered());
    write(&mut bench, FUA, 1);
    write(&mut bench, FUA, 2);
    write(&mut bench, FUA, 3);
    flush(&mut bench, 4);
    let (native, plain, sync) = ((Op::Write, true), (Op::Write, false), (Op::Flush, false));
    assert_eq!(issued(&bench), [native, plain, plain], "the flush waits for the first");
    bench.complete(1, Ok(K4));
    bench.complete(1, Ok(K4));
    assert_eq!(bench.ends(), []);
    bench.complete(0, Ok(K4));
    assert_eq!(bench.ends(), [(1, Ok(K4))]);
    assert_eq!(issued(&bench)[3..], [sync], "one flush for all others");
    write(&mut bench, FUA, 5);
    assert_eq!(issued(&bench)[4..], [plain], "a flush is at the device");
    bench.complete(0, Ok(0));
    assert_eq!(bench.ends(), [(4, Ok(0)), (2, Ok(K4)), (3, Ok(K4))]);
    bench.finish();
    assert_eq!(issued(&bench)[5..], [sync]);
    write(&mut bench, FUA, 6);
    assert_eq!(issued(&bench)[6..], [native], "nothing else is synced");
    bench.finish();
    assert_eq!(bench.ends(), [(5, Ok(K4)), (6, Ok(K4))]);
}

#[test]
fn fua_writes_that_are_followed_by_a_flush_fail_with_the_native_one() {
    // Their data may be those whose error the kernel reported to the native write.
    let mut bench = bench(buffered());
    write(&mut bench, FUA, 1);
    write(&mut bench, FUA, 2);
    bench.complete(1, Ok(K4));
    bench.complete(0, IO);
    bench.finish();
    assert_eq!(bench.ends(), [(1, IO), (2, IO)]);
    assert!(bench.queue.device.durability().acknowledge_loss().is_some());
}

#[test]
fn fua_of_other_operations_fails_with_its_flush() {
    for op in [Op::Discard, Op::WriteZeroes] {
        let limits = direct()
            .discard_granularity(512)
            .max_discard_sectors(1 << 10)
            .max_write_zeroes_sectors(1 << 10);
        let mut bench = bench(limits);
        let lost = wrote(&mut bench, 1);
        bench.issue(op, FUA, 0, K4, 2);
        bench.complete(0, Ok(K4));
        assert_eq!(issued(&bench)[1..], [(op, false), (Op::Flush, false)]);
        bench.complete(0, IO);
        assert_eq!(bench.ends(), [(2, IO)]);
        let durability = bench.queue.device.durability();
        let range = durability.lost().expect("a loss");
        assert!(range.up_to >= lost);
        assert_eq!(range, LostWrites { after: 0, ..range });
    }
}

#[test]
fn fua_write_that_the_driver_was_too_busy_for_is_counted_once() {
    let mut bench = bench(direct());
    bench.toy.answers.push_back(forebay_core::Issue::Busy);
    write(&mut bench, FUA, 1);
    flush(&mut bench, 2);
    bench.turn();
    assert_eq!(bench.toy.running.len(), 2);
    bench.finish();
    flush(&mut bench, 3);
    bench.complete(0, Ok(0));
    assert_eq!(bench.ends().last(), Some(&(3, Ok(0))), "no FUA write is at the device");
}
