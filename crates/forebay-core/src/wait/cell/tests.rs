//! Unit tests of `cell`.

use super::{NEVER, Notice, TAGS, WaitCell, WaitState};

#[test]
fn delivery_wakes_an_owner_whose_goal_it_reaches() {
    let cell = WaitCell::new();
    let deliver = |nr| cell.deliver(nr, || ());
    assert_eq!(deliver(1), Notice::Nothing, "an owner that is awake looks by itself");
    cell.begin_wait(3, WaitState::Parked);
    assert_eq!(deliver(1), Notice::Nothing, "one is missing");
    assert_eq!((deliver(1), cell.state()), (Notice::Wake, WaitState::Woken));
    assert_eq!(deliver(1), Notice::Nothing, "it was woken before");
    assert_eq!((cell.end_wait(), cell.nr_delivered()), (WaitState::Woken, 4));
    cell.begin_wait(5, WaitState::Leading);
    assert_eq!(deliver(1), Notice::Kick);
    cell.end_wait();
}

#[test]
fn baton_goes_to_a_parked_owner_only() {
    let cell = WaitCell::new();
    assert!(!cell.give_baton());
    cell.begin_wait(1, WaitState::Leading);
    assert!(!cell.give_baton());
    cell.end_wait();
    cell.begin_wait(1, WaitState::Parked);
    assert!(cell.give_baton());
    assert!(!cell.give_baton(), "it has the baton");
    assert_eq!(cell.end_wait(), WaitState::Baton);
}

#[test]
fn flush_wakes_only_an_owner_that_makes_flushes() {
    let cell = WaitCell::new();
    assert!(!cell.wake_for_flush());
    cell.begin_wait(1, WaitState::Parked);
    assert!(!cell.wake_for_flush());
    cell.end_wait();
    cell.begin_wait(1, WaitState::ParkedForFlush);
    assert!(cell.wake_for_flush());
    assert!(!cell.wake_for_flush() && !cell.give_baton(), "it was woken before");
    assert_eq!(cell.end_wait(), WaitState::Woken);
    cell.begin_wait(1, WaitState::ParkedForFlush);
    assert_eq!(cell.deliver(1, || ()), Notice::Wake);
    assert!(!cell.wake_for_flush(), "its bio has ended");
    cell.end_wait();
    cell.begin_wait(2, WaitState::ParkedForFlush);
    assert!(cell.give_baton());
    assert_eq!(cell.end_wait(), WaitState::Baton);
}

#[test]
fn cell_is_freed_by_its_owner_or_by_the_delivery_and_by_one_of_them() {
    let late = WaitCell::new();
    assert!(late.abandon());
    assert_eq!(late.deliver(1, || ()), Notice::Free);
    let early = WaitCell::new();
    assert_eq!(early.deliver(1, || ()), Notice::Nothing);
    assert!(!early.abandon());
}

#[test]
fn free_tag_wakes_any_waiter_and_the_last_one_a_waiter_for_tags() {
    let cell = WaitCell::new();
    assert_eq!(cell.set_lacks_tags(true), Notice::Nothing);
    assert!(!cell.is_reached(TAGS));
    assert_eq!(cell.wake_for_tags(), Notice::Nothing, "the owner is awake");
    cell.begin_wait(NEVER, WaitState::Parked);
    assert_eq!(cell.set_lacks_tags(false), Notice::Nothing, "it waits for more than tags");
    assert_eq!(cell.wake_for_tags(), Notice::Wake);
    cell.end_wait();
    cell.begin_wait(TAGS, WaitState::Leading);
    assert_eq!(cell.set_lacks_tags(false), Notice::Kick);
    assert!(cell.is_reached(TAGS));
    cell.end_wait();
}

#[test]
fn wake_up_is_prepared_for_a_parked_owner_only() {
    for (state, is_prepared) in [(WaitState::Parked, true), (WaitState::Leading, false)] {
        let cell = WaitCell::new();
        cell.begin_wait(2, state);
        assert_eq!((cell.goal(), cell.state()), (2, state));
        cell.deliver(1, || panic!("the goal is not reached"));
        let mut nr_prepared = 0;
        cell.deliver(1, || nr_prepared += 1);
        assert_eq!(nr_prepared > 0, is_prepared, "{state:?}");
    }
}

#[test]
fn goal_of_tags_is_reached_by_tags_and_others_by_deliveries() {
    let cell = WaitCell::new();
    assert!(cell.is_reached(TAGS) && cell.is_reached(0) && !cell.is_reached(1));
    cell.set_lacks_tags(true);
    cell.deliver(3, || ());
    assert!(!cell.is_reached(TAGS) && !cell.is_reached(NEVER) && !cell.is_reached(4));
    assert!(cell.is_reached(3) && cell.lacks_tags());
}

#[test]
fn cell_is_listed_once() {
    let cell = WaitCell::new();
    assert!(!cell.is_listed() && cell.list() && !cell.list() && cell.is_listed());
    cell.unlist();
    assert!(!cell.is_listed() && cell.list());
}

#[test]
#[should_panic(expected = "a waiter was awake before")]
fn wait_within_a_wait_is_an_error() {
    let cell = WaitCell::new();
    cell.begin_wait(1, WaitState::Parked);
    cell.begin_wait(1, WaitState::Parked);
}
