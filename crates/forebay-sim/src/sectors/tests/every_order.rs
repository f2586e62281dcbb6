//! Short random logs of one sector: the zones must agree with a search through all orders.

use crate::sectors::{Crash, End, Kind, Op, Sectors, Stamp, Value};
use forebay_model::Random;

const NR_LOGS: u64 = 60_000;

/// A search through all orders: whether any is legal, and the values that a crash may leave.
struct Search<'a> {
    ops: &'a [Op],
    last_flush: u64,
    /// The values that a loss of power may leave after some order.
    may_be_found: Vec<Value>,
    has_order: bool,
}

impl Search<'_> {
    fn is_durable(&self, op: &Op) -> bool {
        matches!(op.end, End::Ok(ended) if ended < self.last_flush)
    }

    /// Tries each operation that may be next, after those in `done`. `alive` has the values that
    /// the medium may hold.
    fn go(&mut self, done: u32, now: Value, alive: &[Value]) {
        let ended = |op: &Op| match op.end {
            End::Ok(ended) => ended,
            End::Refused | End::Unknown => u64::MAX,
        };
        let left = || (0..self.ops.len()).filter(|nth| done >> nth & 1 == 0);
        let must_before = left().map(|nth| ended(&self.ops[nth])).min().unwrap_or(u64::MAX);
        // An operation whose end is unknown need not have taken effect.
        if must_before == u64::MAX {
            self.has_order = true;
            self.may_be_found.extend(alive);
        }
        for nth in left().collect::<Vec<_>>() {
            let op = &self.ops[nth];
            if op.began > must_before {
                continue;
            }
            match &op.kind {
                Kind::Read(values) if values[0] != now => {}
                Kind::Write { stamp, .. } => {
                    let value = Value::Stamp(*stamp);
                    let kept: &[Value] = if self.is_durable(op) { &[] } else { alive };
                    self.go(done | 1 << nth, value, &[kept, &[value]].concat());
                }
                Kind::Zero { .. } => {
                    let kept: &[Value] = if self.is_durable(op) { &[] } else { alive };
                    self.go(done | 1 << nth, Value::Zero, &[kept, &[Value::Zero]].concat());
                }
                _ => self.go(done | 1 << nth, now, alive),
            }
        }
    }
}

/// Returns two to six operations within a few ticks, so that most overlap, and a time before which
/// writes were flushed.
fn log(random: &mut Random, with_zeroes: bool) -> (Vec<Op>, u64) {
    let nr_ops = 2 + random.below(5);
    let mut ops = Vec::new();
    for nth in 0..nr_ops {
        let began = 1 + random.below(12);
        let end = match random.below(8) {
            0 => End::Unknown,
            _ => End::Ok(began + random.below(8)),
        };
        let kind = match random.below(5) {
            0 if with_zeroes => Kind::Zero { nr_sectors: 1, fua: false },
            0..=2 => Kind::Write { stamp: Stamp::new(0, nth), nr_sectors: 1, fua: false },
            _ => Kind::Read(vec![match random.below(nr_ops + 1) {
                0 => Value::Zero,
                nth => Value::Stamp(Stamp::new(0, nth - 1)),
            }]),
        };
        // The search has no reads without a result either.
        let end = match (&kind, end) {
            (Kind::Read(_), End::Unknown) => End::Ok(began + 3),
            _ => end,
        };
        ops.push(Op { kind, first: 0, began, end });
    }
    (ops, random.below(24))
}

fn search(ops: &[Op], last_flush: u64) -> (bool, Vec<Value>) {
    let mut search = Search { ops, last_flush, may_be_found: Vec::new(), has_order: false };
    search.go(0, Value::Zero, &[Value::Zero]);
    (search.has_order, search.may_be_found)
}

fn flush(began: u64) -> Op {
    Op { kind: Kind::Flush, first: 0, began, end: End::Ok(u64::MAX - 2) }
}

#[test]
fn zones_give_the_result_of_all_orders() {
    let mut random = Random::new(1, 0);
    let (mut nr_good, mut nr_lost) = (0, 0);
    for _ in 0..NR_LOGS {
        let (mut ops, last_flush) = log(&mut random, false);
        let (has_order, may_be_found) = search(&ops, last_flush);
        let said = Sectors::new(1).check(&ops);
        assert_eq!(said.is_ok(), has_order, "{said:?} of {ops:?}");
        nr_good += u64::from(has_order);
        if !has_order {
            continue;
        }
        let values: Vec<Value> = (0..ops.len() as u64)
            .map(|nth| Value::Stamp(Stamp::new(0, nth)))
            .chain([Value::Zero])
            .collect();
        ops.push(flush(last_flush));
        for value in values {
            let said = Sectors::new(1).crash(&ops, Crash::Power, &[value]);
            let may_be = may_be_found.contains(&value);
            assert_eq!(said.is_ok(), may_be, "{value:?}: {said:?} of {ops:?}");
            nr_lost += u64::from(!may_be);
        }
    }
    assert!(nr_good > NR_LOGS / 10 && nr_good < NR_LOGS, "{nr_good} good logs");
    assert!(nr_lost > 1000, "{nr_lost} bad finds");
}

#[test]
fn zeroes_raise_no_false_alarm_and_few_slip_through() {
    let mut random = Random::new(2, 0);
    let (mut nr_bad, mut nr_missed) = (0, 0);
    for _ in 0..NR_LOGS {
        let (mut ops, last_flush) = log(&mut random, true);
        let (has_order, may_be_found) = search(&ops, last_flush);
        let said = Sectors::new(1).check(&ops);
        assert!(said.is_ok() || !has_order, "{said:?} of {ops:?}");
        nr_bad += u64::from(!has_order);
        nr_missed += u64::from(said.is_ok() && !has_order);
        ops.push(flush(last_flush));
        for value in may_be_found {
            let said = Sectors::new(1).crash(&ops, Crash::Power, &[value]);
            assert!(said.is_ok(), "{value:?}: {said:?} of {ops:?}");
        }
    }
    assert!(nr_missed * 20 < nr_bad, "{nr_missed} of {nr_bad} were missed");
}

/// Moves operations later by `by`.
fn later(ops: Vec<Op>, by: u64) -> Vec<Op> {
    let end = |end| if let End::Ok(ended) = end { End::Ok(ended + by) } else { end };
    ops.into_iter().map(|op| Op { began: op.began + by, end: end(op.end), ..op }).collect()
}

/// Gives the second log other stamps than the first.
fn by_another_writer(ops: &mut [Op]) {
    let other = |stamp: &mut Stamp| *stamp = Stamp::new(1, stamp.sequence());
    for op in ops {
        match &mut op.kind {
            Kind::Write { stamp, .. } => other(stamp),
            Kind::Read(values) => values.iter_mut().for_each(|value| {
                if let Value::Stamp(stamp) = value {
                    other(stamp);
                }
            }),
            _ => {}
        }
    }
}

/// A log, the death of the server, another log, and a loss of power must give the same verdict as
/// one log with a read of the found value between the two. Returns how many found values were
/// legal, and how many were not.
fn two_crashes(seed: u64, with_zeroes: bool) -> (u64, u64) {
    const BETWEEN: u64 = 100;
    let mut random = Random::new(seed, 0);
    let (mut nr_legal, mut nr_not) = (0, 0);
    for _ in 0..NR_LOGS / 30 {
        let (mut first, flushed) = log(&mut random, with_zeroes);
        if random.below(2) == 0 {
            first.push(Op { end: End::Ok(30), ..flush(flushed) });
        }
        let (mut second, flushed) = log(&mut random, with_zeroes);
        by_another_writer(&mut second);
        if random.below(2) == 0 {
            second.push(Op { end: End::Ok(30), ..flush(flushed + 1) });
        }
        let stamps = (0..2).flat_map(|writer| (0..6).map(move |nth| Stamp::new(writer, nth)));
        let values: Vec<Value> = stamps.map(Value::Stamp).chain([Value::Zero]).collect();
        for &found in &values {
            let mut in_two = Sectors::new(1);
            if in_two.crash(&first, Crash::Server, &[found]).is_err() {
                continue;
            }
            let (began, end) = (BETWEEN - 1, End::Ok(BETWEEN - 1));
            let read = Op { kind: Kind::Read(vec![found]), first: 0, began, end };
            let whole = [first.clone(), vec![read], later(second.clone(), BETWEEN)].concat();
            for &left in &values {
                let said = in_two.clone().crash(&second, Crash::Power, &[left]);
                let of_whole = Sectors::new(1).crash(&whole, Crash::Power, &[left]);
                assert_eq!(
                    said.is_ok(),
                    of_whole.is_ok(),
                    "{found:?}, {left:?}: {said:?}, {of_whole:?} of {whole:?}"
                );
                match said.is_ok() {
                    true => nr_legal += 1,
                    false => nr_not += 1,
                }
            }
        }
    }
    (nr_legal, nr_not)
}

#[test]
fn a_dead_server_and_a_loss_of_power_are_judged_as_one_log() {
    for (seed, with_zeroes) in [(3, false), (4, true)] {
        let (nr_legal, nr_not) = two_crashes(seed, with_zeroes);
        assert!(nr_legal.min(nr_not) > 1000, "{nr_legal} legal finds, {nr_not} others");
    }
}
