//! The smallest logs of each anomaly, and of legal histories that look like anomalies.

use crate::sectors::{Crash, End, Kind, Op, Rule, Sectors, Stamp, Value};

fn write(sequence: u64, began: u64, end: End) -> Op {
    let kind = Kind::Write { stamp: Stamp::new(1, sequence), nr_sectors: 1, fua: false };
    Op { kind, first: 0, began, end }
}

fn value(sequence: u64) -> Value {
    Value::Stamp(Stamp::new(1, sequence))
}

fn read(value: Value, began: u64, ended: u64) -> Op {
    Op { kind: Kind::Read(vec![value]), first: 0, began, end: End::Ok(ended) }
}

fn of_nr_sectors(kind: Kind, began: u64, ended: u64) -> Op {
    Op { kind, first: 0, began, end: End::Ok(ended) }
}

fn flush(began: u64, ended: u64) -> Op {
    of_nr_sectors(Kind::Flush, began, ended)
}

fn rule(ops: &[Op]) -> Option<Rule> {
    Sectors::new(1).check(ops).err().map(|anomaly| anomaly.rule)
}

fn rule_after(ops: &[Op], crash: Crash, found: Value) -> Option<Rule> {
    Sectors::new(1).crash(ops, crash, &[found]).err().map(|anomaly| anomaly.rule)
}

#[test]
fn a_read_brings_the_last_write() {
    let first = write(1, 10, End::Ok(20));
    assert_eq!(rule(&[first.clone(), read(value(1), 30, 40)]), None);
    assert_eq!(rule(&[first.clone(), read(Value::Zero, 30, 40)]), Some(Rule::Fresh), "lost");
    assert_eq!(rule(&[first.clone(), read(Value::Zero, 15, 40)]), None, "at once");
    assert_eq!(rule(&[first.clone(), read(value(1), 5, 9)]), Some(Rule::Written), "too early");
    assert_eq!(rule(&[first.clone(), read(value(2), 30, 40)]), Some(Rule::Written));
    let second = write(2, 21, End::Ok(29));
    assert_eq!(rule(&[first, second, read(value(1), 30, 40)]), Some(Rule::Fresh), "overwritten");
}

#[test]
fn no_read_returns_an_old_value_after_a_new_one() {
    let writes = [write(1, 10, End::Ok(100)), write(2, 10, End::Ok(100))];
    let reads = [read(value(1), 20, 30), read(value(2), 31, 40), read(value(1), 41, 50)];
    assert_eq!(rule(&[&writes[..], &reads[..2]].concat()), None);
    assert_eq!(rule(&[&writes[..], &reads[..]].concat()), Some(Rule::Fresh));
}

#[test]
fn failed_write_may_be_late_and_a_refused_one_may_not() {
    let lost = write(1, 10, End::Unknown);
    let other = write(2, 20, End::Ok(30));
    let late = [lost, other.clone(), read(value(2), 40, 50), read(value(1), 60, 70)];
    assert_eq!(rule(&late), None);
    let back = [&late[..], &[read(value(2), 80, 90)]].concat();
    assert_eq!(rule(&back), Some(Rule::Fresh), "it came once");
    let refused = write(1, 10, End::Refused);
    assert_eq!(rule(&[refused, other, read(value(1), 60, 70)]), Some(Rule::Written));
}

#[test]
fn a_trim_leaves_the_old_data_or_zeroes() {
    let first = write(1, 10, End::Ok(20));
    let trim = of_nr_sectors(Kind::Trim { nr_sectors: 1 }, 30, 40);
    for found in [value(1), Value::Zero] {
        assert_eq!(rule(&[first.clone(), trim.clone(), read(found, 50, 60)]), None);
    }
    let zero = of_nr_sectors(Kind::Zero { nr_sectors: 1, fua: false }, 30, 40);
    assert_eq!(rule(&[first.clone(), zero.clone(), read(Value::Zero, 50, 60)]), None);
    assert_eq!(rule(&[first, zero, read(value(1), 50, 60)]), Some(Rule::Fresh));
    let second = write(1, 50, End::Ok(60));
    assert_eq!(rule(&[trim, second, read(Value::Zero, 70, 80)]), Some(Rule::Fresh), "overwritten");
}

#[test]
fn a_crash_may_undo_unflushed_writes_only() {
    let log = [write(1, 10, End::Ok(20)), flush(21, 30), write(2, 31, End::Ok(40))];
    for found in [value(1), value(2)] {
        assert_eq!(rule_after(&log, Crash::Power, found), None);
    }
    assert_eq!(rule_after(&log, Crash::Power, Value::Zero), Some(Rule::Durable));
    assert_eq!(rule_after(&log, Crash::Power, Value::Torn), Some(Rule::Whole));
    assert_eq!(rule_after(&log, Crash::Power, value(3)), Some(Rule::Written));
    assert_eq!(rule_after(&log, Crash::Server, value(1)), Some(Rule::Fresh));
    assert_eq!(rule_after(&log, Crash::Server, value(2)), None);
    let too_late = [write(1, 10, End::Ok(20)), flush(15, 30)];
    assert_eq!(rule_after(&too_late, Crash::Power, Value::Zero), None, "it had not ended");
}

#[test]
fn log_after_a_crash_begins_with_the_found_data() {
    let log = [write(1, 10, End::Ok(20)), write(2, 30, End::Unknown), write(3, 30, End::Ok(40))];
    let mut power = Sectors::new(1);
    power.crash(&log, Crash::Power, &[value(1)]).expect("a legal crash");
    assert!(power.check(&[read(value(1), 50, 60)]).is_ok());
    assert!(power.check(&[read(value(2), 50, 60)]).is_err(), "it was at the device");
    assert!(power.check(&[read(value(3), 50, 60)]).is_err(), "it was undone");
    let mut server = Sectors::new(1);
    server.crash(&log, Crash::Server, &[value(3)]).expect("a legal crash");
    assert!(server.check(&[read(value(2), 50, 60)]).is_ok(), "the kernel may still do it");
    assert!(server.check(&[read(value(1), 50, 60)]).is_err());
}

#[test]
fn a_server_that_dies_makes_nothing_durable() {
    let log = [write(1, 10, End::Ok(20)), flush(21, 30), write(2, 31, End::Ok(40))];
    let behind = |more: &[Op], found| {
        let mut sectors = Sectors::new(1);
        sectors.crash(&log, Crash::Server, &[value(2)]).expect("a legal crash");
        sectors.crash(more, Crash::Power, &[found]).err().map(|anomaly| anomaly.rule)
    };
    for found in [value(1), value(2)] {
        assert_eq!(behind(&[], found), None);
        assert_eq!(behind(&[read(value(2), 50, 60)], found), None, "it was in the cache");
    }
    assert_eq!(behind(&[], Value::Zero), Some(Rule::Durable), "it was overwritten, and flushed");
    assert_eq!(behind(&[], value(3)), Some(Rule::Written));
    assert_eq!(behind(&[flush(50, 60)], value(1)), Some(Rule::Durable));
    assert_eq!(behind(&[flush(50, 60)], value(2)), None);
    let third = [write(3, 50, End::Ok(60)), flush(61, 70), write(4, 71, End::Ok(80))];
    for (nr_ops, found, rule) in [
        (1, value(1), None),
        (1, value(2), None),
        (1, value(3), None),
        (2, value(2), Some(Rule::Durable)),
        (3, value(1), Some(Rule::Durable)),
        (3, value(3), None),
    ] {
        assert_eq!(behind(&third[..nr_ops], found), rule, "{nr_ops} {found:?}");
    }
}

#[test]
fn a_sector_names_its_write_and_whether_it_is_whole() {
    let (stamp, mut bytes) = (Stamp::new(7, 99), [0; 512]);
    assert_eq!(Value::of(5, &bytes), Value::Zero);
    stamp.fill(5, &mut bytes);
    assert_eq!(Value::of(5, &bytes), Value::Stamp(stamp));
    assert_eq!((stamp.writer(), stamp.sequence()), (7, 99));
    assert_eq!(Value::of(6, &bytes), Value::Misdirected(stamp, 5));
    Stamp::new(7, 100).fill(5, &mut bytes[256..]);
    assert_eq!(Value::of(5, &bytes), Value::Torn);
    assert_eq!(Value::of(5, &[0xaa; 512]), Value::Foreign);
}
