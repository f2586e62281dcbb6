//! Short random logs of one sector: the zones say what a search through all orders says.

use crate::sectors::{Crash, End, Kind, Op, Sectors, Stamp, Value};
use forebay_model::Random;

const NR_LOGS: u64 = 60_000;

/// Where the last write of some order stands, and whether any order is legal at all.
struct Search<'a> {
    ops: &'a [Op],
    last_flush: u64,
    /// The values that a loss of power may leave behind some order.
    may_be_found: Vec<Value>,
    has_order: bool,
}

impl Search<'_> {
    fn is_durable(&self, op: &Op) -> bool {
        matches!(op.end, End::Ok(ended) if ended < self.last_flush)
    }

    /// Puts each operation next that may be, once `done` are. `alive` is what the medium may hold.
    fn go(&mut self, done: u32, now: Value, alive: &[Value]) {
        let ended = |op: &Op| match op.end {
            End::Ok(ended) => ended,
            End::Refused | End::Unknown => u64::MAX,
        };
        let left = || (0..self.ops.len()).filter(|nth| done >> nth & 1 == 0);
        let must_before = left().map(|nth| ended(&self.ops[nth])).min().unwrap_or(u64::MAX);
        // What nobody knows the end of need not have been done.
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

/// Two to six operations within a few ticks, so that most overlap, and a time before which writes
/// were flushed.
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
        // A read that brought nothing is not in the search either.
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
fn zones_say_what_all_orders_say() {
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
