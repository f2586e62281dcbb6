//! A closed loop of deep writes and one read on a flash device: many channels behind one pipe.

use super::*;
use alloc::collections::VecDeque;

/// The number of writes that are outstanding: 64 jobs of depth 8.
const NR_WRITES: usize = 512;

/// The time in a channel, and in the pipe for a write of 256 KiB or a read of 4 KiB, in
/// nanoseconds: `model:ssd-sas`.
const LATENCY_NS: u64 = 90_000;
const WRITE_NS: u64 = 232_000;
const READ_NS: u64 = 5_000;

/// The figures of the last second of a run.
#[derive(Debug, PartialEq)]
struct Measured {
    read_max_ns: u64,
    nr_writes: u64,
    write_depth: u32,
}

/// Runs the loop for `run_ns`, which is more than a second.
fn run(params: KyberParams, device_depth: u32, run_ns: u64) -> Measured {
    let depth = NR_WRITES as u32 + 1;
    let mut kyber = Kyber::new(params, depth);
    kyber.set_depths(device_depth, depth);
    let (mut now, mut free_at_ns) = (0, 0);
    let mut at_device: VecDeque<(u64, u64, Tag)> = VecDeque::new();
    let insert = |kyber: &mut Kyber, tag: Tag, now| {
        let op = if tag.index() == NR_WRITES { Op::Read } else { Op::Write };
        let start = 1000 * tag.index() as u64;
        let rq = Queued { tag, op, origin: Origin::NONE, start, len: 1, since_ns: now };
        kyber.insert(rq, Position::Tail, now);
    };
    (0..=NR_WRITES).for_each(|nth| insert(&mut kyber, Tag::from_index(nth), now));
    let mut measured = Measured { read_max_ns: 0, nr_writes: 0, write_depth: 0 };
    while now < run_ns {
        while at_device.len() < device_depth as usize
            && let Some(tag) = kyber.next(now)
        {
            let cost_ns = if tag.index() == NR_WRITES { READ_NS } else { WRITE_NS };
            free_at_ns = (now + LATENCY_NS).max(free_at_ns) + cost_ns;
            at_device.push_back((free_at_ns, now, tag));
        }
        let (done_at_ns, since_ns, tag) = at_device.pop_front().expect("the device has work");
        now = done_at_ns;
        let total_ns = now - kyber.row(tag).inserted_ns;
        kyber.completed(tag, now, now - since_ns);
        if now > run_ns - 1_000_000_000 {
            match tag.index() == NR_WRITES {
                true => measured.read_max_ns = measured.read_max_ns.max(total_ns),
                false => measured.nr_writes += 1,
            }
        }
        insert(&mut kyber, tag, now);
    }
    measured.write_depth = kyber.tuning.depth(Domain::Write);
    measured
}

/// The writes of a second that the device can do.
const NR_WRITES_MAX: u64 = 1_000_000_000 / WRITE_NS;

#[test]
fn reads_keep_their_target_beside_writes_that_keep_theirs() {
    // 512 writes take 119 ms, whatever the order. That is within this target.
    let params = KyberParams::default().write_lat_ns(500 * MS);
    let measured = run(params, 512, 4_000_000_000);
    assert_eq!(measured.write_depth, 8, "{measured:?}");
    assert!(measured.read_max_ns <= params.read_lat_ns, "{measured:?}");
    assert!(measured.nr_writes * 100 >= NR_WRITES_MAX * 95, "{measured:?}");
}

#[test]
fn writes_that_miss_their_own_target_keep_the_greatest_depth() {
    // KY5, as in Linux: 119 ms are twelve times the default target.
    let measured = run(KyberParams::default(), 512, 4_000_000_000);
    assert_eq!(measured.write_depth, 128, "{measured:?}");
    assert!(measured.read_max_ns > 10 * 2 * MS, "{measured:?}");
    // The share of a small device depth is not tuned away.
    let measured = run(KyberParams::default(), 16, 4_000_000_000);
    assert_eq!(measured.write_depth, 8, "{measured:?}");
    assert!(measured.read_max_ns <= 2 * MS, "{measured:?}");
    assert!(measured.nr_writes * 100 >= NR_WRITES_MAX * 95, "{measured:?}");
}
