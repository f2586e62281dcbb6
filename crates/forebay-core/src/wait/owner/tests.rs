//! Tests of waits in an owned context.

use super::{await_admitted, drain_owned, wait_as_owner, wait_owned};
use crate::hctx::Turned;
use crate::run_state::Gate;
use crate::wait::NEVER;
use crate::wait::scripted::{Scripted, busy, stuck};

#[test]
fn owner_waits_for_the_requests_that_may_end_its_missing_bios() {
    let mut host = Scripted::new([Turned::new(4, false, false, 70), busy(1)]);
    host.deliver_at("turn with own", 1);
    host.deliver_at("wait for", 4);
    wait_owned(&mut host, 5);
    let expected = [
        "turn with own Later",
        "released",
        // Four of five bios are missing.
        "prepare 4",
        "released",
        "wait for 2 until Some(70)",
        "turn with own Later",
        "released",
        "commit",
        "released",
    ];
    assert_eq!(host.log(), expected);
    assert!(!host.run.is_blocked() && !host.run.is_running());
}

#[test]
#[should_panic(expected = "it waits for one bio")]
fn owner_without_a_number_of_bios_waits_for_one() {
    let mut host = Scripted::new([busy(9)]);
    host.deliver_at("turn with own", 3);
    // No number of bios ends this wait.
    host.at("prepare", |host| {
        assert!(host.log().ends_with(&["prepare 1".into()]), "another number");
        panic!("it waits for one bio");
    });
    wait_owned(&mut host, NEVER);
}

#[test]
fn owner_with_nothing_under_way_waits_outside() {
    let mut host = Scripted::new([busy(0)]);
    host.deliver_at("wait outside", 2);
    wait_owned(&mut host, 2);
    assert!(host.log().contains(&"wait outside 2".into()));
}

#[test]
fn owner_sleeps_before_a_busy_driver_is_asked_again() {
    let mut host = Scripted::new([stuck()]);
    wait_as_owner(&mut host, stuck(), 1);
    assert_eq!(host.log(), ["sleep"]);
    wait_as_owner(&mut host, busy(0), 1);
    assert!(host.log().is_empty());
}

#[test]
fn owner_turns_instead_of_waiting_if_something_was_published() {
    let mut host = Scripted::new([busy(1)]);
    host.at("PreparedWait", |host| assert!(!host.run.run()));
    wait_as_owner(&mut host, busy(1), 1);
    assert_eq!(host.log(), ["prepare 1", "turn Now", "released"]);
    assert!(!host.run.is_blocked());
}

#[test]
fn owner_drains_its_context_before_it_gives_it_up() {
    let drained_but_outside = Turned::new(0, true, true, u64::MAX);
    let mut host = Scripted::new([busy(2), drained_but_outside, busy(0)]);
    drain_owned(&mut host);
    let expected = [
        "turn Now",
        "released",
        "prepare 1",
        "released",
        "wait for 1 until None",
        "turn Now",
        "released",
        "sleep",
        "turn Now",
        "released",
    ];
    assert_eq!(host.log(), expected);
}

#[test]
fn owner_waits_for_admitted_requests_and_for_no_others() {
    let outside = Turned::new(0, true, true, u64::MAX);
    let mut host = Scripted::new([busy(1), outside]);
    await_admitted(&mut host, || false);
    let expected = [
        "turn Now",
        "released",
        "prepare 1",
        "released",
        "wait for 1 until None",
        "turn Now",
        "released",
    ];
    assert_eq!(host.log(), expected);
    // These never end: the device is gone, or a gate is closed.
    let mut host = Scripted::new([busy(1)]);
    await_admitted(&mut host, || true);
    assert_eq!(host.log(), ["turn Now", "released"]);
    let mut host = Scripted::new([stuck()]);
    host.run.close(Gate::Stopped);
    await_admitted(&mut host, || false);
    assert_eq!(host.log(), ["turn Now", "released"]);
    // With an open gate the driver takes them later; behind a closed one the driver may have some.
    let mut host = Scripted::new([stuck(), busy(0)]);
    await_admitted(&mut host, || false);
    assert!(host.log().contains(&"sleep".into()));
    let mut host = Scripted::new([Turned::new(1, true, false, u64::MAX), busy(0)]);
    host.run.close(Gate::Stopped);
    await_admitted(&mut host, || false);
    assert!(host.log().contains(&"wait for 1 until None".into()));
    // A waker within a turn of the context.
    let mut host = Scripted::new([busy(1)]);
    assert!(host.run.run());
    await_admitted(&mut host, || false);
    assert!(host.log().is_empty());
}
