//! Models of charges on two levels, for loom: no charge counts twice, and no refund is lost.

use super::*;
use crate::owner::limits::Rate;
use loom::thread;

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(model);
}

/// Returns an owner with a limit on bytes, or without one.
fn owner(id: u32, parent: Option<Arc<Owner>>, burst: Option<u64>) -> Arc<Owner> {
    let owner = Owner::new(OwnerId(id), "", parent, Arc::default(), 0);
    if burst.is_some() {
        let mut limits = Limits::default();
        limits.both.bps = Rate { per_s: 1, burst };
        owner.set_limits(&limits, 0).expect("no other change");
    }
    Arc::new(owner)
}

fn level(owner: &Owner) -> i64 {
    owner.bucket(Which::Bps).level(0).expect("there is a limit")
}

/// Two owners below one parent, which has room for one I/O.
#[test]
fn one_of_two_owners_is_refused_by_their_parent_and_keeps_its_level() {
    explore(|| {
        let root = owner(1, None, Some(0));
        let owners = [2, 3].map(|id| owner(id, Some(Arc::clone(&root)), Some(4)));
        let other = Arc::clone(&owners[1]);
        let second = thread::spawn(move || other.charge(Op::Read, 1, 3, 0).is_ok());
        let first = owners[0].charge(Op::Read, 1, 3, 0).is_ok();
        let starts = [first, second.join().unwrap()];
        assert!(starts[0] != starts[1], "one of them starts: {starts:?}");
        assert_eq!(level(&root), -3, "the parent is charged once");
        for (owner, starts) in owners.iter().zip(starts) {
            assert_eq!(level(owner), if starts { 1 } else { 4 }, "a refusal leaves no charge");
        }
    });
}

/// Two threads of one owner, whose parent has room for one I/O.
#[test]
fn two_threads_of_an_owner_leave_the_charge_of_one_io() {
    explore(|| {
        let root = owner(1, None, Some(0));
        let child = owner(2, Some(Arc::clone(&root)), Some(1));
        let other = Arc::clone(&child);
        let second = thread::spawn(move || other.charge(Op::Read, 1, 2, 0).is_ok());
        let first = child.charge(Op::Read, 1, 2, 0).is_ok();
        let second = second.join().unwrap();
        assert!(!(first && second), "more starts than the parent allows");
        // A charge that is refunded may refuse the other thread, but not both.
        assert!(first || second, "none starts");
        assert_eq!((level(&root), level(&child)), (-2, -1), "a charge counts twice");
    });
}

/// A change of the limits beside a charge: the charge can be refunded exactly.
#[test]
fn charge_beside_a_change_of_the_limits_is_refunded_exactly() {
    explore(|| {
        let root = owner(1, None, None);
        let child = owner(2, Some(Arc::clone(&root)), Some(4));
        let other = Arc::clone(&root);
        let setter = thread::spawn(move || {
            let mut limits = Limits::default();
            limits.both.bps = Rate { per_s: 1, burst: Some(7) };
            other.set_limits(&limits, 0)
        });
        let charge = child.charge(Op::Read, 1, 3, 0).expect("not negative");
        setter.join().unwrap().expect("no other change");
        assert_eq!(level(&child), 1);
        child.refund(charge);
        assert_eq!((level(&root), level(&child)), (7, 4));
    });
}
