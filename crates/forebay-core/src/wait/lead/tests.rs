//! Tests of following and leading.

use super::{RESOURCE_DELAY, follow, lead};
use crate::hctx::Turned;
use crate::wait::scripted::{Scripted, Token, busy, parked, stuck};
use crate::wait::{NEVER, TAGS, WaitState};
use alloc::format;

/// Returns a leader whose turns have these results.
fn leader(turned: impl IntoIterator<Item = Turned>) -> Scripted {
    let host = Scripted::new(turned);
    assert!(host.run.try_lead());
    host
}

/// Returns a follower of another thread.
fn follower() -> Scripted {
    leader([])
}

#[test]
fn leader_turns_before_and_after_its_wait() {
    let mut host = leader([busy(1)]);
    host.deliver_at("wait", 1);
    assert!(lead(&mut host, 1, None));
    let expected = [
        "turn Later",
        "leave to wait",
        "released",
        "wait",
        // W6.
        "take back",
        "turn Now",
        "released",
    ];
    assert_eq!(host.log(), expected);
    assert!(!host.run.has_leader() && !host.run.is_blocked() && !host.run.is_running());
    assert_eq!(host.cell.state(), WaitState::Awake);
}

#[test]
fn leader_waits_again_until_its_goal_is_reached() {
    let mut host = leader([busy(2)]);
    host.deliver_at("wait", 1);
    host.deliver_at("wait", 1);
    assert!(lead(&mut host, 2, None));
    assert_eq!(host.log().iter().filter(|call| *call == "wait").count(), 2);
}

#[test]
fn thread_whose_goal_is_reached_owes_the_turn_that_came_with_the_baton() {
    let mut host = leader([]);
    assert!(lead(&mut host, 0, None));
    assert_eq!(host.log(), ["take back", "turn Now", "released"]);
    // Its own turn was that turn.
    let mut host = leader([]);
    assert!(host.run.run());
    assert!(lead(&mut host, 0, Some((Token, Turned::NOTHING))));
    assert_eq!(host.log(), ["commit", "take back", "released"]);
    // The next leader owes it.
    let mut host = leader([]);
    host.followers.push_back(parked());
    assert!(lead(&mut host, 0, None));
    assert_eq!(host.log(), ["take back", "wake follower"]);
}

#[test]
fn requests_that_are_taken_back_from_the_wait_are_begun_by_a_turn() {
    let mut host = leader([]);
    host.yes.push("take back");
    host.followers.push_back(parked());
    assert!(lead(&mut host, 0, None));
    assert_eq!(host.log(), ["take back", "wake follower", "turn Now", "released"], "W5");
}

#[test]
fn wait_with_nothing_at_the_driver_is_limited() {
    let delay = RESOURCE_DELAY.as_nanos() as u64;
    for (turned, timer, expected) in [
        (stuck(), None, format!("wait {delay}")),
        (stuck(), Some(100), "wait 60".into()),
        (stuck(), Some(2 * delay), format!("wait {delay}")),
        (busy(1), Some(100), "wait 60".into()),
        (busy(1), None, "wait".into()),
    ] {
        let mut host = leader([turned]);
        host.now_ns = 40;
        host.at("AboutToWait", move |host| {
            timer.into_iter().for_each(|at_ns| _ = host.timers.arm_delayed_run(at_ns));
        });
        host.deliver_at("wait", 1);
        assert!(lead(&mut host, 1, None));
        assert!(host.log().contains(&expected), "{expected}");
    }
}

#[test]
fn wait_of_a_thread_without_bios_is_limited_by_the_timers_only() {
    for (timer, expected) in [(None, "wait"), (Some(100), "wait 100")] {
        let mut host = leader([busy(0)]);
        host.serves = true;
        host.at("AboutToWait", move |host| {
            timer.into_iter().for_each(|at_ns| _ = host.timers.arm_delayed_run(at_ns));
        });
        host.deliver_at("wait", 1);
        assert!(lead(&mut host, 1, None));
        assert!(host.log().iter().any(|call| call == expected), "{expected}");
    }
}

#[test]
fn leader_that_was_replaced_in_its_wait_does_nothing_more_at_the_context() {
    for is_over in [true, false] {
        let mut host = leader([busy(0)]);
        host.serves = true;
        host.followers.push_back(parked());
        host.at("wait", move |host| {
            assert!(host.run.run() && host.run.resign_for_blocked());
            host.cell.deliver(u64::from(is_over), || ());
        });
        assert_eq!(lead(&mut host, 1, None), is_over);
        assert_eq!(host.log(), ["turn Later", "leave to wait", "released", "wait"]);
        assert!(!host.run.has_leader() && host.run.is_running(), "the other thread's token");
        assert_eq!((host.cell.state(), host.followers.len()), (WaitState::Awake, 1));
    }
    // A thread that returns before another one looks goes on.
    let mut host = leader([busy(0)]);
    host.serves = true;
    host.deliver_at("wait", 1);
    assert!(lead(&mut host, 1, None));
    assert!(host.log().contains(&"take back".into()) && !host.run.has_leader());
}

#[test]
fn turn_of_a_leader_takes_the_timers() {
    let mut host = leader([busy(1)]);
    host.timers.arm_delayed_run(100);
    host.deliver_at("wait", 1);
    assert!(lead(&mut host, 1, None));
    assert!(host.log().contains(&"wait".into()) && !host.timers.is_set());
}

#[test]
fn requests_that_complete_at_once_are_reaped_before_the_wait() {
    let mut host = leader([busy(1)]);
    host.yes.push("leave to wait");
    host.deliver_at("wait", 1);
    assert!(lead(&mut host, 1, None));
    assert_eq!(host.log()[..4], ["turn Later", "leave to wait", "turn Now", "released"]);
}

#[test]
fn leader_with_wakers_to_run_stops_leading_first() {
    let mut host = leader([busy(1)]);
    host.runs_wakers = true;
    host.followers.push_back(parked());
    assert!(!lead(&mut host, 1, None), "its goal is not reached");
    let expected = ["turn Later", "commit", "take back", "wake follower", "withdraw", "released"];
    assert_eq!(host.log(), expected);
}

#[test]
fn leader_turns_again_if_something_was_published_before_its_wait() {
    let mut host = leader([busy(1)]);
    host.at("AnnouncedLead", |host| assert!(!host.run.run()));
    host.deliver_at("wait", 1);
    assert!(lead(&mut host, 1, None));
    let expected = [
        "turn Later",
        "leave to wait",
        "turn Later",
        "leave to wait",
        "released",
        "wait",
        "take back",
        "turn Now",
        "released",
    ];
    assert_eq!(host.log(), expected);
}

#[test]
fn turn_that_reaches_the_goal_after_such_a_mark_is_not_repeated() {
    let mut host = leader([busy(1)]);
    host.at("AnnouncedLead", |host| assert!(!host.run.run()));
    host.deliver_at("turn Later", 1);
    assert!(lead(&mut host, 1, None));
    let expected = ["turn Later", "leave to wait", "turn Later", "commit", "take back", "released"];
    assert_eq!(host.log(), expected);
}

#[test]
fn leader_beside_a_token_holder_waits_without_a_turn_of_its_own() {
    let mut host = leader([]);
    assert!(host.run.run());
    host.at("wait", |host| {
        assert!(!host.run.release() && host.run.release(), "the holder turns once more");
        host.cell.deliver(1, || ());
    });
    assert!(lead(&mut host, 1, None));
    assert_eq!(host.log(), ["yield", "wait", "take back", "turn Now", "released"]);
}

#[test]
fn leader_that_was_woken_before_its_wait_does_not_wait() {
    for step in ["AnnouncedLead", "AboutToWait"] {
        let mut host = leader([busy(1)]);
        host.deliver_at(step, 1);
        assert!(lead(&mut host, 1, None));
        assert!(!host.log().contains(&"wait".into()), "W2: {step}");
    }
    // It was woken for tags, and its goal is not reached.
    let mut host = leader([busy(1)]);
    host.cell.set_lacks_tags(true);
    host.at("AboutToWait", |host| _ = host.cell.wake_for_tags());
    host.deliver_at("wait", 1);
    assert!(lead(&mut host, 1, None));
    let calls = host.log();
    let expected = ["turn Later", "leave to wait", "released", "ask for tags", "turn Later"];
    assert_eq!(calls[..5], expected);
}

#[test]
fn follower_parks_beside_a_leader_until_its_goal_is_reached() {
    let mut host = follower();
    host.deliver_at("park", 1);
    assert!(!follow(&mut host, 1));
    assert_eq!(host.log(), ["push follower", "park"]);
    // It is in the list still.
    host.deliver_at("park", 1);
    assert!(!follow(&mut host, 2));
    assert_eq!(host.log(), ["park"]);
    assert_eq!(host.cell.state(), WaitState::Awake);
}

#[test]
fn follower_does_not_park_without_a_leader_or_at_its_goal() {
    let mut host = Scripted::default();
    assert!(!follow(&mut host, 1));
    assert_eq!(host.log(), ["push follower"]);
    let mut host = follower();
    host.deliver_at("Listed", 1);
    assert!(!follow(&mut host, 1));
    assert_eq!(host.log(), ["push follower"]);
}

#[test]
fn follower_returns_with_the_baton() {
    let mut host = follower();
    host.at("park", |host| assert!(host.cell.give_baton()));
    assert!(follow(&mut host, 1));
}

#[test]
fn follower_makes_the_flush_for_which_it_was_woken() {
    for (parks_for_flush, is_reached, makes_flush) in
        [(true, false, true), (true, true, false), (false, false, false)]
    {
        let mut host = follower();
        host.parks_for_flush = parks_for_flush;
        host.at("park", move |host| {
            assert_eq!(host.cell.wake_for_flush(), parks_for_flush);
            host.cell.deliver(u64::from(is_reached), || ());
        });
        assert!(!follow(&mut host, 1));
        assert_eq!(host.log().contains(&"makes flush".into()), makes_flush);
    }
    // The baton is not a flush.
    let mut host = follower();
    host.parks_for_flush = true;
    host.at("park", |host| assert!(host.cell.give_baton()));
    assert!(follow(&mut host, 1));
    assert!(!host.log().contains(&"makes flush".into()));
}

#[test]
fn thread_that_was_woken_and_lacks_tags_asks_for_them() {
    for (goal, lacks) in [(TAGS, true), (NEVER, true), (NEVER, false)] {
        let mut host = follower();
        host.cell.set_lacks_tags(true);
        host.at("park", move |host| {
            host.cell.set_lacks_tags(lacks);
            host.cell.wake_for_tags();
        });
        assert!(!follow(&mut host, goal));
        assert_eq!(host.log().contains(&"ask for tags".into()), lacks);
    }
    let mut host = follower();
    host.cell.set_lacks_tags(true);
    host.at("park", |host| assert!(host.cell.give_baton()));
    assert!(follow(&mut host, TAGS));
    assert!(!host.log().contains(&"ask for tags".into()), "its turn as the leader does");
}
