//! Tests of reaping.

use super::{Reaper, reap, wait_for_tags};
use crate::hctx::{Commit, Turned};
use crate::wait::TAGS;
use crate::wait::scripted::busy;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A queue that records the steps of its thread. Mail brings bios.
#[derive(Default)]
struct Queue {
    is_shared: bool,
    cannot_turn: bool,
    lacks_tags: bool,
    /// The time limit is over after so many waits.
    nr_waits_left: Option<u32>,
    /// How many bios each taking of the mail makes ready.
    mail: Vec<usize>,
    nr_ready: usize,
    nr_in_layer: usize,
    nr_mailed: u64,
    /// `None` if another thread holds the token.
    turned: Option<Turned>,
    log: Vec<String>,
}

impl Queue {
    /// Reaps. Returns the number of bios and the steps.
    fn reap(&mut self, min: usize, max: usize) -> (usize, Vec<String>) {
        (reap(self, min, max), core::mem::take(&mut self.log))
    }

    fn call(&mut self, text: String) {
        assert!(self.log.len() < 50, "no end");
        self.log.push(text);
    }
}

impl Reaper for Queue {
    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn can_turn(&self) -> bool {
        !self.cannot_turn
    }

    fn nr_ready(&self) -> usize {
        self.nr_ready
    }

    fn nr_in_layer(&self) -> usize {
        self.nr_in_layer
    }

    fn nr_mailed(&self) -> u64 {
        self.nr_mailed
    }

    fn take_mail(&mut self) {
        let nr = if self.mail.is_empty() { 0 } else { self.mail.remove(0) };
        self.nr_ready += nr;
        self.nr_in_layer -= nr;
        self.nr_mailed += nr as u64;
    }

    fn is_timed_out(&self) -> bool {
        self.nr_waits_left == Some(0)
    }

    fn lacks_tags(&self) -> bool {
        self.lacks_tags
    }

    fn unplug(&mut self) {
        self.call("unplug".into());
    }

    fn turn(&mut self, commit: Commit) -> Option<Turned> {
        self.call(format!("turn {commit:?}"));
        self.turned
    }

    fn skip_turn(&mut self) {
        self.call("skip".into());
    }

    fn commit(&mut self) {
        self.call("commit".into());
    }

    fn wait(&mut self, goal: u64) {
        self.nr_waits_left = self.nr_waits_left.map(|nr| nr - 1);
        self.call(if goal == TAGS { "wait for tags".into() } else { format!("wait {goal}") });
    }

    fn wait_as_owner(&mut self, _turned: Turned, nr: u32) {
        self.nr_waits_left = self.nr_waits_left.map(|nr| nr - 1);
        self.call(format!("wait as owner {nr}"));
    }
}

#[test]
fn enough_ready_bios_cost_no_turn() {
    let mut queue = Queue { nr_ready: 5, nr_in_layer: 3, ..Queue::default() };
    for (min, max, nr, expected) in [
        (3, 4, 4, &["skip"][..]),
        (3, 8, 5, &["skip"]),
        (5, 8, 5, &["skip"]),
        (0, 5, 5, &["skip"]),
        (0, 6, 5, &["unplug", "turn Now"]),
    ] {
        assert_eq!(queue.reap(min, max), (nr, expected.iter().map(|&s| s.into()).collect()));
    }
    queue.cannot_turn = true;
    assert_eq!(queue.reap(6, 8), (5, ["skip".into()].into()));
}

#[test]
fn reap_returns_at_most_the_maximum() {
    let mut queue = Queue { nr_in_layer: 9, mail: [0, 7].into(), ..Queue::default() };
    assert_eq!(queue.reap(2, 4).0, 4);
}

#[test]
fn owner_waits_for_its_missing_bios_and_commits_in_that_wait() {
    let (turned, mail) = (Some(busy(3)), [1, 0, 3].into());
    let mut queue = Queue { nr_in_layer: 4, turned, mail, ..Queue::default() };
    let expected = ["unplug", "turn Later", "wait as owner 2", "turn Later", "commit"];
    assert_eq!(queue.reap(3, 8), (4, expected.map(String::from).into()));
}

#[test]
fn owner_beside_bios_of_other_queues_waits_for_one_completion() {
    for (nr_in_flight, expected) in [(2, "wait as owner 2"), (3, "wait as owner 1")] {
        let turned = Some(busy(nr_in_flight));
        let mut queue =
            Queue { nr_in_layer: 2, turned, mail: [0, 0, 2].into(), ..Queue::default() };
        assert_eq!(queue.reap(2, 8).1[2], expected);
    }
}

#[test]
fn owner_whose_turn_another_thread_makes_turns_again() {
    let mut queue = Queue { nr_in_layer: 2, mail: [0, 0, 2].into(), ..Queue::default() };
    let expected = ["unplug", "turn Later", "turn Later", "commit"];
    assert_eq!(queue.reap(2, 8), (2, expected.map(String::from).into()));
}

#[test]
fn thread_in_a_shared_context_waits_until_its_missing_bios_are_delivered() {
    let mail = [1, 0, 1, 0, 1];
    let queue = Queue { is_shared: true, nr_in_layer: 4, nr_mailed: 10, ..Queue::default() };
    let mut queue = Queue { mail: mail.into(), ..queue };
    let expected = ["unplug", "turn Now", "wait 13", "turn Now", "wait 13", "turn Now"];
    assert_eq!(queue.reap(3, 8), (3, expected.map(String::from).into()));
    // No more bios are under way than these.
    let queue = Queue { is_shared: true, nr_in_layer: 2, nr_mailed: 10, ..Queue::default() };
    let mut queue = Queue { mail: [0, 0, 2].into(), ..queue };
    assert_eq!(
        queue.reap(8, 8),
        (2, ["unplug", "turn Now", "wait 12", "turn Now"].map(String::from).into())
    );
}

#[test]
fn thread_without_tags_waits_for_them_in_a_shared_context() {
    let new = || Queue { lacks_tags: true, is_shared: true, nr_in_layer: 1, ..Queue::default() };
    let mut queue = Queue { mail: [0, 1].into(), ..new() };
    let expected = ["unplug", "turn Now", "unplug", "wait for tags"];
    assert_eq!(queue.reap(1, 1), (1, expected.map(String::from).into()));
    let mut queue = Queue { mail: [0, 1].into(), ..new() };
    assert_eq!(queue.reap(0, 1).1, ["unplug", "turn Now"], "it does not wait at all");
    let mut queue = Queue { mail: [0, 1].into(), is_shared: false, ..new() };
    assert_eq!(queue.reap(1, 1).1, ["unplug", "turn Later", "commit"]);
    let mut queue = Queue { lacks_tags: false, ..new() };
    wait_for_tags(&mut queue);
    assert!(queue.log.is_empty());
}

#[test]
#[should_panic(expected = "min <= max")]
fn minimum_above_the_maximum_panics() {
    Queue::default().reap(2, 1);
}

#[test]
fn reap_turns_once_more_after_its_time_limit_and_returns_what_is_ready() {
    let limited = || Queue { nr_in_layer: 4, nr_waits_left: Some(1), ..Queue::default() };
    let (turned, mail) = (Some(busy(4)), [0, 0, 1].into());
    let mut owner = Queue { turned, mail, ..limited() };
    let expected = ["unplug", "turn Later", "wait as owner 2", "turn Later", "commit"];
    assert_eq!(owner.reap(2, 8), (1, expected.map(String::from).into()));
    let mut follower = Queue { is_shared: true, mail: [0, 0, 0, 1].into(), ..limited() };
    let expected = ["unplug", "turn Now", "wait 2", "turn Now"];
    assert_eq!(follower.reap(2, 8), (1, expected.map(String::from).into()));
    let mut late = Queue { nr_waits_left: Some(0), turned: Some(busy(4)), ..limited() };
    assert_eq!(late.reap(2, 8), (0, ["unplug", "turn Later", "commit"].map(String::from).into()));
}
