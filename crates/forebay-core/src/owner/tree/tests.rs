//! Unit tests of the tree of owners: charges of all levels or none (OL4, OL5).

use super::*;
use crate::owner::limits::Rate;
use crate::owner::list::Owners;
use alloc::vec::Vec;
use proptest::prelude::*;

const S: u64 = 1_000_000_000;

/// The number of random histories.
const CASES: u32 = 300;

/// Returns a root and an owner below it.
fn of_two() -> (Arc<Owner>, Arc<Owner>) {
    let mut owners = Owners::new();
    let root = owners.add("root", None, 0).expect("free");
    let child = owners.add("child", Some(root.id()), 0).expect("free");
    (root, child)
}

fn limit(owner: &Owner, to: impl FnOnce(&mut Limits)) {
    let mut limits = owner.limits();
    to(&mut limits);
    owner.set_limits(&limits, 0).expect("no other change");
}

/// Returns the levels of all limited buckets, in their units.
fn levels(owner: &Owner, now: u64) -> Vec<Option<i64>> {
    Which::ALL.iter().map(|which| owner.bucket(*which).level(now)).collect()
}

#[test]
fn io_without_limits_is_free() {
    let (_, child) = of_two();
    let charge = child.charge(Op::Write, 1, 4096, 0).expect("no limit");
    assert!(charge.is_none());
    child.refund(charge);
    assert_eq!(child.limits(), Limits::default());
}

#[test]
fn owner_has_full_burst_once_each_of_its_own_limits_has() {
    let (root, child) = of_two();
    assert!(child.has_full_burst(0));
    limit(&root, |limits| limits.both.iops = Rate { per_s: 1, burst: Some(0) });
    limit(&child, |limits| limits.both.iops = Rate { per_s: 10, burst: Some(2) });
    limit(&child, |limits| limits.read.bps = Rate { per_s: 1000, burst: Some(0) });
    assert!(child.has_full_burst(0));
    child.charge(Op::Read, 1, 500, 0).expect("full");
    assert_eq!((child.has_full_burst(S / 2 - 1), child.has_full_burst(S / 2)), (false, true));
    child.charge(Op::Write, 3, 1, S).expect("the root has paid");
    assert!(!child.has_full_burst(S + 3 * S / 10 - 1_000_000));
    assert!(child.has_full_burst(S + 3 * S / 10) && !root.has_full_burst(S + 3 * S / 10));
}

#[test]
fn io_counts_against_the_owner_and_its_parent() {
    let (root, child) = of_two();
    limit(&root, |limits| limits.both.iops = Rate { per_s: 10, burst: Some(1) });
    limit(&child, |limits| limits.read.bps = Rate { per_s: 1000, burst: Some(100) });
    assert!(child.charge(Op::Read, 1, 600, 0).is_ok());
    assert_eq!(child.bucket(Which::ReadBps).level(0), Some(-500));
    assert_eq!(root.bucket(Which::Iops).level(0), Some(0));
    // A write is free of the limit for reads, and takes the root's last I/O. A flush is free.
    assert!(child.charge(Op::Write, 1, 600, 0).is_ok());
    assert_eq!(child.charge(Op::Write, 1, 600, 0), Err(RetryAt(S / 10)));
    assert_eq!(child.charge(Op::Read, 1, 1, 0), Err(RetryAt(S / 2)));
    assert!(child.charge(Op::Flush, 1, 0, 0).is_ok_and(|charge| charge.is_none()));
}

#[test]
fn refusal_by_the_root_leaves_no_charge_below() {
    let (root, child) = of_two();
    limit(&root, |limits| limits.both.bps = Rate { per_s: 1000, burst: Some(0) });
    limit(&child, |limits| {
        limits.both.iops = Rate::per_s(1000);
        limits.both.bps = Rate::per_s(1 << 20);
        limits.write.iops = Rate::per_s(10);
        limits.write.bps = Rate::per_s(1 << 20);
    });
    assert!(root.charge(Op::Write, 1, 500, 0).is_ok());
    let before = levels(&child, 0);
    for bytes in [0, 1, 4096, u64::MAX] {
        assert_eq!(child.charge(Op::Write, 1, bytes, 0), Err(RetryAt(S / 2)));
        assert_eq!(levels(&child, 0), before);
    }
    assert_eq!(root.bucket(Which::Bps).level(0), Some(-500));
    let charge = child.charge(Op::Discard, 1, u64::MAX, S / 2).expect("the debt is paid");
    assert_eq!(root.bucket(Which::Bps).level(S / 2), Some(-(Bucket::COST_MAX as i64)));
    child.refund(charge);
    assert_eq!(root.bucket(Which::Bps).level(S / 2), Some(0));
    assert_eq!(levels(&child, S / 2), before);
}

#[test]
fn second_rate_of_an_owner_that_refuses_refunds_the_first() {
    let (root, child) = of_two();
    limit(&root, |limits| {
        limits.both.iops = Rate::per_s(100);
        limits.both.bps = Rate { per_s: 1000, burst: Some(0) };
    });
    assert!(child.charge(Op::Read, 1, 1000, 0).is_ok());
    let before = levels(&root, 0);
    assert_eq!(child.charge(Op::Read, 1, 1000, 0), Err(RetryAt(S)));
    assert_eq!(levels(&root, 0), before);
}

#[test]
fn refund_takes_back_only_what_was_charged() {
    let (root, child) = of_two();
    limit(&root, |limits| limits.both.bps = Rate { per_s: 100, burst: Some(10) });
    let charge = child.charge(Op::Read, 1, 8, 0).expect("full");
    limit(&root, |limits| limits.read.iops = Rate { per_s: 100, burst: Some(10) });
    assert!(child.charge(Op::Read, 1, 1, 0).is_ok());
    child.refund(charge);
    // The second I/O remains, in the rate that began after the first one, too.
    assert_eq!(root.bucket(Which::Bps).level(0), Some(9));
    let io = Bucket::UNITS_PER_IO as i64;
    assert_eq!(root.bucket(Which::ReadIops).level(0), Some(9 * io));
}

#[test]
fn limits_and_weights_read_back_with_their_bursts() {
    let (root, _) = of_two();
    limit(&root, |limits| {
        limits.write.iops = Rate::per_s(300_000);
        limits.read.bps = Rate { per_s: 5, burst: Some(3) };
    });
    let limits = root.limits();
    assert_eq!(limits.write.iops, Rate { per_s: 300_000, burst: Some(30_000) });
    assert_eq!(limits.read.bps, Rate { per_s: 5, burst: Some(3) });
    assert_eq!(limits.both.iops, Rate::default());
    root.set_limits(&Limits::default(), 0).expect("no other change");
    assert!(root.charge(Op::Write, 1, 1, 0).is_ok_and(|charge| charge.is_none()));
    assert_eq!(root.weight(), WEIGHT_DEFAULT);
    for (weight, expected) in [(0, WEIGHT_MIN), (7, 7), (u32::MAX, WEIGHT_MAX)] {
        root.set_weight(weight);
        assert_eq!(root.weight(), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    /// OL4: the charges on each level are those of the I/Os that have started.
    #[test]
    fn parent_is_charged_exactly_the_started_io_of_its_children(
        rates in proptest::collection::vec(1..2000u64, 4),
        ios in proptest::collection::vec((0..3usize, 0..20_000_000u64, 1..200u64), 1..100),
    ) {
        let mut owners = Owners::new();
        let root = owners.add("root", None, 0).expect("free");
        let names = ["a", "b", "c"];
        let children: Vec<_> = names
            .iter()
            .map(|name| owners.add(name, Some(root.id()), 0).expect("free"))
            .collect();
        for (owner, rate) in [&root].into_iter().chain(&children).zip(&rates) {
            limit(owner, |limits| limits.both.bps = Rate { per_s: *rate, burst: Some(100) });
        }
        // The same buckets, of which only those of started I/Os are ever charged.
        let alone: Vec<Bucket> = rates.iter().map(|rate| Bucket::new(*rate, 100, 0)).collect();
        let mut now = 0;
        for (child, wait, bytes) in ios {
            now += wait;
            let may = |at: usize| alone[at].level(now).is_some_and(|level| level >= 0);
            let expected = may(0) && may(child + 1);
            let charge = children[child].charge(Op::Read, 1, bytes, now);
            prop_assert_eq!(charge.is_ok(), expected);
            if expected {
                prop_assert!(alone[0].try_start(bytes, now).is_ok());
                prop_assert!(alone[child + 1].try_start(bytes, now).is_ok());
            }
            for (owner, bucket) in [&root].into_iter().chain(&children).zip(&alone) {
                prop_assert_eq!(owner.bucket(Which::Bps).level(now), bucket.level(now));
            }
        }
    }
}
