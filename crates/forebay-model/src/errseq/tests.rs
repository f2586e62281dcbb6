//! Unit tests of `errseq`.

use super::*;
use crate::Random;
use BlockStatus::{Io, NoSpace};
use alloc::vec::Vec;

#[test]
fn each_description_that_was_open_reports_an_error_once() {
    let mut word = ErrSeq::new();
    let (mut one, mut other) = (word.sample(), word.sample());
    assert_eq!(word.check_and_advance(&mut one), Ok(()));
    word.set(Io);
    assert!(word.differs(one) && word.is_unseen());
    assert_eq!(word.check_and_advance(&mut one), Err(Io));
    assert_eq!(word.check_and_advance(&mut one), Ok(()));
    assert_eq!(word.check_and_advance(&mut other), Err(Io));
    assert_eq!(word.check_and_advance(&mut other), Ok(()));
    word.set(Io);
    assert_eq!(word.check_and_advance(&mut one), Err(Io), "another error of the same kind");
}

#[test]
fn description_that_is_opened_late_reports_an_error_only_if_it_was_not_seen() {
    let mut word = ErrSeq::new();
    word.set(NoSpace);
    let (mut one, mut other) = (word.sample(), word.sample());
    assert_eq!(word.check_and_advance(&mut one), Err(NoSpace));
    assert!(!word.is_unseen());
    assert_eq!(word.check_and_advance(&mut word.sample()), Ok(()), "it was seen by then");
    assert_eq!(word.check_and_advance(&mut other), Err(NoSpace), "it was not seen then");
}

#[test]
fn description_reports_the_last_of_several_errors() {
    let mut word = ErrSeq::new();
    let mut one = word.sample();
    word.set(Io);
    word.set(NoSpace);
    assert_eq!(word.check_and_advance(&mut one), Err(NoSpace));
    assert_eq!(word.check_and_advance(&mut one), Ok(()));
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Error(BlockStatus),
    Open(usize),
    Sync(usize),
}

/// How many descriptions histories have, each opened anew by `Open`.
const NR: usize = 3;

impl Event {
    const ALL: [Event; 2 + 2 * NR] = [
        Event::Error(Io),
        Event::Error(NoSpace),
        Event::Open(0),
        Event::Open(1),
        Event::Open(2),
        Event::Sync(0),
        Event::Sync(1),
        Event::Sync(2),
    ];
}

/// Returns the report of the sync at the end of a history, given which earlier events reported
/// an error. All descriptions are open from the start.
fn expected(history: &[Event], has_reported: &[bool], one: usize) -> Option<BlockStatus> {
    let is_its = |event: &Event| matches!(*event, Event::Open(of) | Event::Sync(of) if of == one);
    let own = history.iter().rposition(is_its);
    let error = history.iter().rposition(|event| matches!(event, Event::Error(_)))?;
    let is_inherited = |own: usize| {
        let is_seen = has_reported[error..own].contains(&true);
        matches!(history[own], Event::Open(_)) && !is_seen
    };
    let is_due = own.is_none_or(|own| error > own || is_inherited(own));
    let Event::Error(error) = history[error] else { unreachable!("it is one") };
    is_due.then_some(error)
}

/// Runs a history, and compares each sync with the oracle.
fn check(history: &[Event]) {
    let mut word = ErrSeq::new();
    let mut cursors = [word.sample(); NR];
    let mut has_reported = Vec::new();
    for (nth, event) in history.iter().enumerate() {
        let mut reports = false;
        match *event {
            Event::Error(error) => word.set(error),
            Event::Open(one) => cursors[one] = word.sample(),
            Event::Sync(one) => {
                let reported = word.check_and_advance(&mut cursors[one]).err();
                let expected = expected(&history[..nth], &has_reported, one);
                assert_eq!(reported, expected, "event {nth} of {history:?}");
                reports = reported.is_some();
            }
        }
        has_reported.push(reports);
    }
}

fn check_all(history: &mut Vec<Event>, length: usize) {
    if history.len() == length {
        return check(history);
    }
    for event in Event::ALL {
        history.push(event);
        check_all(history, length);
        history.pop();
    }
}

#[test]
fn every_short_history_reports_the_expected_results() {
    check_all(&mut Vec::new(), 6);
}

#[test]
fn random_long_histories_report_the_expected_results() {
    for seed in 0..2000 {
        let mut random = Random::new(seed, 0);
        let history: Vec<_> = (0..60).map(|_| random.pick(&Event::ALL)).collect();
        check(&history);
    }
}
