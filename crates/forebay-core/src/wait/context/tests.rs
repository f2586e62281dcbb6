//! Tests of the steps around the token.

use super::{
    block, commit_and_turn, finish, hand_off, publish, release, release_to_wait, run_turn,
};
use crate::hctx::Turned;
use crate::wait::scripted::{Scripted, Token, parked};
use crate::wait::{WaitCell, WaitState};
use alloc::sync::Arc;

/// Returns a thread that holds the token.
fn holder() -> (Scripted, Token) {
    let host = Scripted::new([Turned::NOTHING]);
    assert!(host.run.run());
    (host, Token)
}

#[test]
fn token_is_kept_if_something_was_published() {
    let (mut host, token) = holder();
    assert!(!host.run.run());
    let token = release(&mut host, token).expect("it is kept");
    assert!(host.log().is_empty() && host.run.is_running());
    assert!(release(&mut host, token).is_none());
    assert_eq!(host.log(), ["released"]);
    assert!(!host.run.is_running());
}

#[test]
fn wait_is_announced_unless_something_was_published() {
    let (mut host, token) = holder();
    assert!(!host.run.run());
    let token = release_to_wait(&mut host, token).expect("it is kept");
    assert!(!host.run.is_blocked());
    assert!(release_to_wait(&mut host, token).is_none());
    assert!(host.run.is_blocked() && !host.run.is_running());
}

#[test]
fn own_call_is_withdrawn_before_wakers_run() {
    for (yes, expected) in [
        (None, &["withdraw", "released"][..]),
        (Some("withdraw"), &["withdraw", "turn Now", "released"]),
    ] {
        let (mut host, token) = holder();
        host.runs_wakers = true;
        host.yes.extend(yes);
        assert!(release(&mut host, token).is_none());
        assert_eq!(host.log(), expected);
    }
}

#[test]
fn turns_follow_as_long_as_something_is_published() {
    let (mut host, token) = holder();
    for _ in 0..2 {
        host.at("Finished", |host| assert!(!host.run.run()));
    }
    finish(&mut host, token);
    assert_eq!(host.log(), ["turn Now", "turn Now", "released"]);
}

#[test]
fn requested_turn_is_made_unless_another_thread_holds_the_token() {
    let mut host = Scripted::default();
    run_turn(&mut host);
    assert_eq!(host.log(), ["turn Now", "released"]);
    assert!(host.run.run());
    run_turn(&mut host);
    assert!(host.log().is_empty());
    assert!(!host.run.release() && host.run.release(), "its mark costs the holder a turn");
}

#[test]
fn work_is_published_before_a_turn_is_requested() {
    for is_held in [true, false] {
        let (mut host, _token) = holder();
        host.at("Published", move |host| assert!(is_held || host.run.release()));
        let is_running = |host: &mut Scripted| assert!(host.run.is_running());
        assert_eq!(publish(&mut host, is_running).is_some(), !is_held);
        assert_eq!(host.run.release(), !is_held, "R2");
    }
}

#[test]
fn commit_that_completes_requests_is_followed_by_a_turn() {
    let (mut host, mut token) = holder();
    commit_and_turn(&mut host, &mut token);
    assert_eq!(host.log(), ["commit"]);
    host.yes.push("commit");
    commit_and_turn(&mut host, &mut token);
    assert_eq!(host.log(), ["commit", "turn Now"]);
}

#[test]
fn leader_without_the_token_takes_it_or_leaves_a_mark_before_it_waits() {
    let mut host = Scripted::default();
    assert!(host.run.try_lead() && host.run.run());
    assert!(block(&mut host, None).is_none());
    assert!(host.run.is_blocked() && !host.run.release() && host.run.release());
    host.run.unblock();
    // The token is free: a turn is due before the wait.
    assert!(block(&mut host, None).is_some());
    assert!(host.run.is_running() && !host.run.is_blocked());
}

#[test]
fn baton_goes_to_the_first_follower_that_is_parked() {
    let mut host = Scripted::default();
    assert!(host.run.try_lead());
    let followers = [Arc::new(WaitCell::new()), parked(), parked()];
    followers.iter().for_each(|cell| assert!(cell.list()));
    host.followers.extend(followers.iter().cloned());
    assert!(hand_off(&mut host));
    assert_eq!(host.log(), ["wake follower"]);
    let states = followers.each_ref().map(|cell| (cell.state(), cell.is_listed()));
    let expected =
        [(WaitState::Awake, false), (WaitState::Baton, false), (WaitState::Parked, true)];
    assert_eq!(states, expected);
    assert!(host.run.has_leader(), "the follower leads");
}

#[test]
fn leader_without_followers_resigns() {
    let mut host = Scripted::default();
    assert!(host.run.try_lead());
    assert!(!hand_off(&mut host));
    assert!(!host.run.has_leader() && host.log().is_empty());
}

#[test]
fn follower_that_comes_before_the_resignation_gets_the_baton() {
    let mut host = Scripted::default();
    assert!(host.run.try_lead());
    host.at("Resigned", |host| host.followers.push_back(parked()));
    assert!(hand_off(&mut host));
    assert_eq!(host.log(), ["wake follower"]);
    assert!(host.run.has_leader());
    // Another thread leads by then, and has the follower in its list.
    let mut host = Scripted::default();
    assert!(host.run.try_lead());
    host.at("Resigned", |host| {
        host.followers.push_back(parked());
        assert!(host.run.try_lead());
    });
    assert!(hand_off(&mut host));
    assert_eq!((host.log().len(), host.followers.len()), (0, 1));
}
