//! Tests of waits in a shared context.

use super::{commit_all, wait_shared};
use crate::wait::scripted::{Scripted, busy};

#[test]
fn thread_whose_bios_end_in_its_turn_commits_and_does_not_wait() {
    let mut host = Scripted::new([busy(0)]);
    host.deliver_at("turn with own", 1);
    wait_shared(&mut host, 1, 3);
    let expected = ["offer", "turn with own Unless(3)", "released", "commit", "released"];
    assert_eq!(host.log(), expected);
    assert!(!host.run.has_leader());
}

#[test]
fn thread_leads_if_no_other_does_and_follows_otherwise() {
    let mut host = Scripted::new([busy(1)]);
    host.deliver_at("wait", 1);
    wait_shared(&mut host, 1, 3);
    let expected = [
        "turn with own Unless(3)",
        "released",
        "turn Later",
        "leave to wait",
        "released",
        "wait",
        "take back",
        "turn Now",
        "released",
    ];
    assert_eq!(without_offers(&mut host), expected);
    let mut host = Scripted::new([busy(1)]);
    assert!(host.run.try_lead());
    host.deliver_at("park", 1);
    wait_shared(&mut host, 1, 3);
    let expected = [
        "turn with own Unless(3)",
        "released",
        "push follower",
        "park",
        // After its wait it has nothing to send.
        "turn with own Unless(3)",
        "released",
        "commit",
        "released",
    ];
    assert_eq!(without_offers(&mut host), expected);
}

/// Returns the calls without those that offer to make the I/O.
fn without_offers(host: &mut Scripted) -> alloc::vec::Vec<alloc::string::String> {
    host.log().into_iter().filter(|call| call != "offer").collect()
}

#[test]
fn follower_with_the_baton_leads() {
    let mut host = Scripted::new([busy(1)]);
    assert!(host.run.try_lead());
    host.at("park", |host| assert!(host.cell.give_baton()));
    host.deliver_at("wait", 1);
    wait_shared(&mut host, 1, 3);
    assert!(host.log().contains(&"wait".into()) && !host.run.has_leader());
}

#[test]
fn thread_that_leads_from_the_start_submits_with_its_wait() {
    let mut host = Scripted::new([busy(1)]);
    host.begins = true;
    host.deliver_at("wait", 1);
    wait_shared(&mut host, 1, 3);
    let expected = [
        "turn with own Later",
        "leave to wait",
        "released",
        "wait",
        "take back",
        "turn Now",
        "released",
    ];
    assert_eq!(without_offers(&mut host), expected);
}

#[test]
fn thread_does_not_lead_from_the_start_beside_a_blocked_one_or_if_waits_begin_nothing() {
    for is_blocked in [true, false] {
        let mut host = Scripted::new([busy(1)]);
        host.begins = is_blocked;
        if is_blocked {
            assert!(host.run.try_lead() && host.run.run() && host.run.release_to_wait());
        }
        host.at("turn with own", move |host| {
            assert_eq!(host.run.has_leader(), is_blocked);
            host.cell.deliver(1, || ());
        });
        wait_shared(&mut host, 1, 3);
        assert_eq!(without_offers(&mut host)[0], "turn with own Unless(3)");
    }
}

#[test]
fn thread_that_makes_its_own_call_neither_leads_nor_follows() {
    let mut host = Scripted::new([busy(1)]);
    host.begins = true;
    host.yes.extend(["offer", "make own call"]);
    host.at("make own call", |host| {
        // The second turn reaps the result.
        host.deliver_at("turn with own", 1);
    });
    wait_shared(&mut host, 1, 3);
    let expected = [
        "offer",
        "turn with own Now",
        "released",
        "make own call",
        "offer",
        "turn with own Now",
        "released",
    ];
    assert_eq!(host.log(), expected);
}

#[test]
fn thread_whose_offer_was_not_taken_waits_like_others() {
    let mut host = Scripted::new([busy(1)]);
    host.yes.push("offer");
    host.deliver_at("wait", 1);
    wait_shared(&mut host, 1, 3);
    let log = host.log();
    let expected = ["offer", "turn with own Now", "released", "make own call", "turn Later"];
    assert_eq!(log[..5], expected);
    // Its bios have ended by then.
    let mut host = Scripted::new([busy(1)]);
    host.yes.push("offer");
    host.deliver_at("turn with own", 1);
    wait_shared(&mut host, 1, 3);
    assert_eq!(host.log(), ["offer", "turn with own Now", "released", "make own call"]);
}

#[test]
fn commit_of_a_thread_without_the_token_is_left_to_its_holder() {
    let mut host = Scripted::default();
    assert!(host.run.run());
    commit_all(&mut host);
    assert!(host.log().is_empty());
    assert!(!host.run.release(), "the holder turns once more");
}
