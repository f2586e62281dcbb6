//! Orders of service that were recorded from Linux 6.12, replayed here.
//!
//! `figures sched-order` recorded them from the trace of a kernel in a guest (`block_rq_issue`).
//! The device serves one request at a time, in 100 ms, and all requests come while it serves the
//! first. Linux takes a request from its scheduler when it issues the one before: it looks for a
//! free place at the device only then. So deadlines are compared one service earlier than here.

use super::kyber::Kyber;
use super::mq_deadline::MqDeadline;
use super::{Position, Queued, Scheduler};
use crate::bio::Op;
use crate::origin::Origin;
use crate::scheduling::{KyberParams, MqDeadlineParams};
use crate::tag::Tag;
use alloc::vec::Vec;

const MS: u64 = 1_000_000;

/// How long the device serves a request, and how long after the one before a request comes.
const SERVICE_NS: u64 = 100 * MS;
const APART_NS: u64 = MS / 10;

/// A letter for the operation, and the address.
const REQUESTS: &str = "\
    R0 R1 R2 W9 R22 W27 W41 R14 R3 W4 R26 R7 W16 R37 W20 W19 W17 R24 R43 R34 R5 R45 W18 R10 R31 \
    W11 W6 R30 R12 W25 R8 R39 W28 R38 W13 W47 W33 R21 W35 W36 W29 W40 R42 W23 W15 R32 W46 R44";

/// When the next request is taken from the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Take {
    /// When the device is free for it.
    InTime,
    /// When the request before it goes to the device, as in Linux.
    Ahead,
}

const BOTH: [Take; 2] = [Take::InTime, Take::Ahead];

/// Returns the order in which the scheduler hands the requests out.
fn order(mut scheduler: impl Scheduler, take: Take) -> Vec<&'static str> {
    let names: Vec<&str> = REQUESTS.split_whitespace().collect();
    let tag = Tag::from_index;
    // Linux does not adapt the depths of kyber to the device.
    scheduler.set_depths(if take == Take::Ahead { 256 } else { 1 }, 256);
    let insert = |scheduler: &mut dyn Scheduler, nth: usize| {
        let op = if names[nth].starts_with('R') { Op::Read } else { Op::Write };
        let start = names[nth][1..].parse::<u64>().expect("a number") << 16;
        let now = nth as u64 * APART_NS;
        let rq =
            Queued { tag: tag(nth), op, origin: Origin::NONE, start, len: 4096, since_ns: now };
        scheduler.insert(rq, Position::Tail, now);
    };
    insert(&mut scheduler, 0);
    let mut at_device = scheduler.next(0).expect("it is queued");
    insert(&mut scheduler, 1);
    let mut taken = (take == Take::Ahead).then(|| scheduler.next(APART_NS).expect("it is queued"));
    (2..names.len()).for_each(|nth| insert(&mut scheduler, nth));
    let mut order = Vec::from([names[at_device.index()]]);
    let mut now = 0;
    while order.len() < names.len() {
        now += SERVICE_NS;
        scheduler.completed(at_device, now, SERVICE_NS);
        at_device = taken.take().or_else(|| scheduler.next(now)).expect("some are queued");
        if take == Take::Ahead {
            taken = scheduler.next(now);
        }
        order.push(names[at_device.index()]);
    }
    order
}

/// Asserts that the scheduler hands the requests out in this order.
#[track_caller]
fn check(scheduler: &(impl Scheduler + Clone), takes: &[Take], recorded: &str) {
    let recorded: Vec<&str> = recorded.split_whitespace().collect();
    for take in takes {
        assert_eq!(order(scheduler.clone(), *take), recorded, "{take:?}");
    }
}

fn mq_deadline(read_expire_ms: u64, write_expire_ms: u64) -> MqDeadlineParams {
    MqDeadlineParams::default()
        .read_expire_ns(read_expire_ms * MS)
        .write_expire_ns(write_expire_ms * MS)
}

const LATE: u64 = 100_000;

#[test]
fn mq_deadline_has_the_batches_of_linux() {
    let check = |params| move |recorded| check(&MqDeadline::new(params, 64), &BOTH, recorded);
    check(mq_deadline(LATE, LATE))(
        "R0 R1 R2 R3 R5 R7 R8 R10 R12 R14 R21 R22 R24 R26 R30 R31 R32 R34 R37 R38 R39 R42 R43 R44 \
         R45 W4 W6 W9 W11 W13 W15 W16 W17 W18 W19 W20 W23 W25 W27 W28 W29 W33 W35 W36 W40 W41 W46 \
         W47",
    );
    check(mq_deadline(LATE, LATE).fifo_batch(4).writes_starved(1))(
        "R0 R1 R2 R3 R5 R7 R8 R10 W4 W6 W9 W11 R12 R14 R21 R22 W13 W15 W16 W17 R24 R26 R30 R31 \
         W18 W19 W20 W23 R32 R34 R37 R38 W25 W27 W28 W29 R39 R42 R43 R44 W33 W35 W36 W40 R45 W41 \
         W46 W47",
    );
    check(mq_deadline(LATE, LATE).fifo_batch(3).writes_starved(3))(
        "R0 R1 R2 R3 R5 R7 R8 R10 R12 R14 R21 R22 W4 W6 W9 R24 R26 R30 R31 R32 R34 R37 R38 R39 \
         W11 W13 W15 R42 R43 R44 R45 W16 W17 W18 W19 W20 W23 W25 W27 W28 W29 W33 W35 W36 W40 W41 \
         W46 W47",
    );
}

#[test]
fn mq_deadline_has_the_deadlines_of_linux() {
    let params = mq_deadline(450, 2050).fifo_batch(4);
    check(
        &MqDeadline::new(params, 64),
        &BOTH,
        "R0 R1 R2 R3 R5 R7 R8 R10 R22 R24 R26 R30 W4 W6 W9 W11 R14 R21 R31 R32 R37 R38 R39 R42 \
         W27 W28 W29 W33 R43 R44 R45 R34 W41 W46 W47 R12 W16 W17 W18 W19 W20 W23 W25 W35 W13 W15 \
         W36 W40",
    );
    // A batch of writes begins after 2.2 s in Linux, and after 2.3 s here.
    let params = mq_deadline(1250, 2250).fifo_batch(8);
    check(
        &MqDeadline::new(params, 64),
        &[Take::Ahead],
        "R0 R1 R2 R3 R5 R7 R8 R10 R12 R14 R21 R22 R24 R26 R30 R31 R37 R38 R39 R42 R43 R44 R45 W4 \
         W6 W9 W11 W13 W15 W16 W17 R34 R32 W27 W28 W29 W33 W35 W36 W40 W41 W20 W23 W25 W46 W47 \
         W19 W18",
    );
}

#[test]
fn kyber_has_the_turns_of_linux() {
    check(
        &Kyber::new(KyberParams::default(), 64),
        &BOTH,
        "R0 R1 R2 R22 R14 R3 R26 R7 R37 R24 R43 R34 R5 R45 R10 R31 W9 W27 W41 W4 W16 W20 W19 W17 \
         R30 R12 R8 R39 R38 R21 R42 R32 R44 W18 W11 W6 W25 W28 W13 W47 W33 W35 W36 W29 W40 W23 \
         W15 W46",
    );
}
