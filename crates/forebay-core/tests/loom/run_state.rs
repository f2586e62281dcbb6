//! The token, its mark, and its gates: R1, R2, R4, R5.

use std::sync::Arc;
use std::sync::atomic::AtomicU32 as Ghost;

use forebay_core::{Gate, RunState};
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;

use crate::common::explore;

/// A context with an inbox that has a place for the one item of each producer.
struct Hctx {
    state: RunState,
    inbox: Vec<AtomicU32>,
    /// The number of threads that hold the token, as they count themselves.
    holders: Ghost,
    /// How often each item was dispatched.
    dispatched: Vec<Ghost>,
    /// Whether the thread that closed a gate relies on the absence of dispatches.
    silent: Ghost,
}

impl Hctx {
    fn new(nr_items: usize) -> Arc<Hctx> {
        Arc::new(Hctx {
            state: RunState::new(),
            inbox: (0..nr_items).map(|_| AtomicU32::new(0)).collect(),
            holders: Ghost::new(0),
            dispatched: (0..nr_items).map(|_| Ghost::new(0)).collect(),
            silent: Ghost::new(0),
        })
    }

    fn produce(&self, item: usize) {
        self.inbox[item].store(1, Relaxed);
        self.run();
    }

    fn run(&self) {
        if self.state.run() {
            self.turn_until(|| self.state.release());
        }
    }

    fn turn_until(&self, release: impl Fn() -> bool) {
        loop {
            assert_eq!(self.holders.fetch_add(1, Relaxed), 0, "two hold the token");
            (0..self.inbox.len()).for_each(|item| self.dispatch(item));
            self.holders.fetch_sub(1, Relaxed);
            if release() {
                break;
            }
        }
    }

    /// Dispatches an item. A holder that has not acquired the last holder's changes would load a
    /// stale value of the place and dispatch the item twice.
    fn dispatch(&self, item: usize) {
        if self.state.gates().dispatch && self.inbox[item].load(Relaxed) == 1 {
            assert_eq!(self.silent.load(Relaxed), 0, "dispatched behind a closed gate");
            self.inbox[item].store(0, Relaxed);
            assert_eq!(self.dispatched[item].fetch_add(1, Relaxed), 0, "dispatched twice");
        }
    }

    fn close_then_open(&self, gate: Gate) {
        self.state.close(gate);
        while self.state.is_running() {
            thread::yield_now();
        }
        self.silent.store(1, Relaxed);
        for (place, nr) in self.inbox.iter().zip(&self.dispatched) {
            let is_done = nr.load(Relaxed) == 1;
            assert!(!is_done || place.load(Relaxed) == 0, "the last holder's work is not seen");
        }
        // A point where loom may run other threads.
        thread::yield_now();
        self.silent.store(0, Relaxed);
        self.state.open(gate);
        self.run();
    }

    fn check_all_done(&self) {
        assert!(!self.state.is_running());
        assert!(self.dispatched.iter().all(|nr| nr.load(Relaxed) == 1), "an item was lost");
    }
}

/// Runs the first step on this thread and the others on threads of their own. In the end all items
/// are dispatched.
fn check(nr_items: usize, bound: Option<usize>, steps: &'static [fn(&Hctx)]) {
    explore(bound, move || {
        let hctx = Hctx::new(nr_items);
        let spawn = |step: &'static fn(&Hctx)| {
            let hctx = hctx.clone();
            thread::spawn(move || step(&hctx))
        };
        let others: Vec<_> = steps[1..].iter().map(spawn).collect();
        steps[0](&hctx);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        hctx.check_all_done();
    });
}

/// Loom tries a load before and after a change by another thread, which the other models rely on.
/// See `guess!` in the core: the change must not begin with a load of the word.
#[test]
fn load_is_tried_before_and_after_a_change() {
    for change in [(|state| assert!(state.run())) as fn(&RunState), |state| {
        assert!(state.try_take());
    }] {
        let seen = Arc::new([Ghost::new(0), Ghost::new(0)]);
        let counts = Arc::clone(&seen);
        explore(None, move || {
            let state = Arc::new(RunState::new());
            let other = state.clone();
            let thread = thread::spawn(move || change(&other));
            counts[usize::from(state.is_running())].fetch_add(1, Relaxed);
            thread.join().unwrap();
        });
        assert!(seen.iter().all(|nr| nr.load(Relaxed) > 0), "{seen:?}");
    }
}

/// R1, R2: every item that two producers publish is dispatched once, by one holder at a time. When
/// all threads are done, no item is left.
#[test]
fn two_producers_lose_nothing() {
    check(2, None, &[|hctx| hctx.produce(0), |hctx| hctx.produce(1)]);
}

/// As above with three producers: the third finds the mark set, and its item counts as well. Bound
/// 4: 15 s; 5 takes over a minute.
#[test]
fn three_producers_lose_nothing() {
    check(3, Some(4), &[|hctx| hctx.produce(0), |hctx| hctx.produce(1), |hctx| hctx.produce(2)]);
}

/// A poller that only tries to take the token causes no producer's item to be lost. Bound 4: 15 s.
#[test]
fn a_poller_takes_nothing_away() {
    let poll: fn(&Hctx) = |hctx| {
        if hctx.state.try_take() {
            hctx.turn_until(|| hctx.state.release());
        }
    };
    let steps = Box::leak(Box::new([poll, |hctx| hctx.produce(0), |hctx| hctx.produce(1)]));
    check(2, Some(4), steps);
}

/// The owner of an idle context takes the token with all gates open, and does not read them again.
/// Once the thread that closes a gate has found the token free, no such turn is in progress (R5),
/// and the effects of the last turn are visible. A closed gate is never taken for an open one.
#[test]
fn an_idle_context_is_taken_with_its_gates_open() {
    fn turn_as_owner(hctx: &Hctx) {
        if !hctx.state.try_take_idle() {
            return hctx.run();
        }
        assert_eq!(hctx.holders.fetch_add(1, Relaxed), 0, "two hold the token");
        if hctx.inbox[0].load(Relaxed) == 1 {
            assert_eq!(hctx.silent.load(Relaxed), 0, "dispatched behind a closed gate");
            hctx.inbox[0].store(0, Relaxed);
            // A point where loom may run other threads.
            thread::yield_now();
            assert_eq!(hctx.silent.load(Relaxed), 0, "dispatched behind a closed gate");
            assert_eq!(hctx.dispatched[0].fetch_add(1, Relaxed), 0, "dispatched twice");
        }
        hctx.holders.fetch_sub(1, Relaxed);
        if !hctx.state.release() {
            hctx.turn_until(|| hctx.state.release());
        }
    }
    let own: fn(&Hctx) = |hctx| {
        hctx.inbox[0].store(1, Relaxed);
        turn_as_owner(hctx);
        turn_as_owner(hctx);
    };
    let close: fn(&Hctx) = |hctx| hctx.close_then_open(Gate::Quiesced);
    check(1, None, Box::leak(Box::new([own, close])));
    let close: fn(&Hctx) = |hctx| hctx.close_then_open(Gate::Stopped);
    check(1, None, Box::leak(Box::new([own, close])));
}

/// A thread that gets the token, by any method, sees everything that the last holder did, before it
/// reads anything else.
#[test]
fn changes_of_a_holder_are_visible_to_the_next() {
    explore(None, || {
        let shared = Arc::new((RunState::new(), AtomicU32::new(0), Ghost::new(0)));
        fn turn((state, inner, nr_turns): &(RunState, AtomicU32, Ghost)) {
            loop {
                inner.store(inner.load(Relaxed) + 1, Relaxed);
                nr_turns.fetch_add(1, Relaxed);
                if state.release() {
                    break;
                }
            }
        }
        let spawn = |take: fn(&RunState) -> bool| {
            let shared = shared.clone();
            thread::spawn(move || take(&shared.0).then(|| turn(&shared)))
        };
        let others = [spawn(RunState::try_take), spawn(RunState::run)];
        for thread in others {
            thread.join().unwrap();
        }
        assert_eq!(shared.1.load(Relaxed), shared.2.load(Relaxed), "the last holder is not seen");
    });
}

/// R1, planted: the holder reads the inbox and clears the mark *afterwards*. If a producer sets the
/// mark in between, the mark is lost, and the producer's item with it.
#[test]
#[should_panic(expected = "an item was lost")]
fn planted_the_mark_is_cleared_after_the_inbox_was_read() {
    const RUNNING: u32 = 1;
    const QUEUED: u32 = 2;
    fn produce(word: &AtomicU32, hctx: &Hctx, item: usize) {
        hctx.inbox[item].store(1, Relaxed);
        if word.fetch_or(RUNNING | QUEUED, loom::sync::atomic::Ordering::AcqRel) & RUNNING == 0 {
            hctx.turn_until(|| {
                word.fetch_and(!QUEUED, loom::sync::atomic::Ordering::AcqRel);
                word.fetch_and(!RUNNING, loom::sync::atomic::Ordering::AcqRel);
                true
            });
        }
    }
    explore(None, || {
        let shared = Arc::new((AtomicU32::new(0), Hctx::new(2)));
        let other = shared.clone();
        let thread = thread::spawn(move || produce(&other.0, &other.1, 1));
        produce(&shared.0, &shared.1, 0);
        thread.join().unwrap();
        shared.1.check_all_done();
    });
}

/// R2, planted: a producer that finds the token taken loads the mark, and writes it only if it is
/// clear. By then the holder may have cleared the mark and read the inbox.
#[test]
#[should_panic(expected = "an item was lost")]
fn planted_a_mark_that_looks_set_is_not_written() {
    const RUNNING: u32 = 1;
    const QUEUED: u32 = 2;
    use loom::sync::atomic::Ordering::{AcqRel, Acquire};
    fn produce(word: &AtomicU32, hctx: &Hctx, item: usize) {
        hctx.inbox[item].store(1, Relaxed);
        if word.load(Acquire) == RUNNING | QUEUED {
            return;
        }
        let mark = |now| Some(if now & RUNNING == 0 { RUNNING } else { RUNNING | QUEUED });
        if word.fetch_update(AcqRel, Relaxed, mark).unwrap() & RUNNING == 0 {
            let leave = |now| Some(if now & QUEUED == 0 { 0 } else { RUNNING });
            let release = || word.fetch_update(AcqRel, Relaxed, leave).unwrap() & QUEUED == 0;
            hctx.turn_until(release);
        }
    }
    explore(None, || {
        let shared = Arc::new((AtomicU32::new(0), Hctx::new(3)));
        let spawn = |item| {
            let shared = shared.clone();
            thread::spawn(move || produce(&shared.0, &shared.1, item))
        };
        let others = [spawn(1), spawn(2)];
        produce(&shared.0, &shared.1, 0);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        shared.1.check_all_done();
    });
}

/// R2, planted: a turn is requested before the work is published.
#[test]
#[should_panic(expected = "an item was lost")]
fn planted_a_turn_is_asked_for_before_the_work_is_published() {
    check(
        2,
        None,
        &[
            |hctx| hctx.produce(0),
            |hctx| {
                hctx.run();
                hctx.inbox[1].store(1, Relaxed);
            },
        ],
    );
}

/// R5, planted: the holder reads the gate before it takes the token. A thread that closed the gate
/// in between saw no turn in progress, and relies on that.
#[test]
#[should_panic(expected = "dispatched behind a closed gate")]
fn planted_the_gate_is_asked_before_the_token_is_taken() {
    check(
        1,
        None,
        &[
            |hctx| hctx.close_then_open(Gate::Quiesced),
            |hctx| {
                hctx.inbox[0].store(1, Relaxed);
                let may_dispatch = hctx.state.gates().dispatch;
                if hctx.state.run() {
                    if may_dispatch && hctx.inbox[0].load(Relaxed) == 1 {
                        assert_eq!(hctx.silent.load(Relaxed), 0, "dispatched behind a closed gate");
                        hctx.inbox[0].store(0, Relaxed);
                        hctx.dispatched[0].fetch_add(1, Relaxed);
                    }
                    while !hctx.state.release() {}
                }
            },
        ],
    );
}

/// R4, planted: the thread that opens the gate requests no turn.
#[test]
#[should_panic(expected = "an item was lost")]
fn planted_a_gate_is_opened_and_no_turn_asked_for() {
    check(
        1,
        None,
        &[
            |hctx| {
                hctx.state.close(Gate::Stopped);
                hctx.state.open(Gate::Stopped);
            },
            |hctx| hctx.produce(0),
        ],
    );
}

/// R6: every requested run is made or skipped. Three threads request runs, and each request is
/// counted once. The holder of the token counts the runs that are made, without a locked
/// instruction; other threads count skipped runs with one. Bound 4.
fn check_counts(skip: fn(&AtomicU32)) {
    explore(Some(4), move || {
        let shared = Arc::new((RunState::new(), AtomicU32::new(0), AtomicU32::new(0)));
        let ask = move |(state, made, skipped): &(RunState, AtomicU32, AtomicU32)| {
            if !state.run() {
                return skip(skipped);
            }
            made.store(made.load(Relaxed) + 1, Relaxed);
            while !state.release() {}
        };
        let spawn = |_| {
            let shared = shared.clone();
            thread::spawn(move || ask(&shared))
        };
        let others: Vec<_> = (0..2).map(spawn).collect();
        ask(&shared);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        let (made, skipped) = (shared.1.load(Relaxed), shared.2.load(Relaxed));
        assert_eq!(made + skipped, 3, "the counts do not add up");
    });
}

#[test]
fn runs_that_are_made_and_skipped_add_up_to_those_asked_for() {
    check_counts(|skipped| {
        skipped.fetch_add(1, Relaxed);
    });
}

/// R6, planted: skipped runs are counted as if one thread at a time did so.
#[test]
#[should_panic(expected = "the counts do not add up")]
fn planted_skipped_runs_are_counted_by_a_load_and_a_store() {
    check_counts(|skipped| skipped.store(skipped.load(Relaxed) + 1, Relaxed));
}

/// R4, R5: after `close(Quiesced)` and one check that finds no turn in progress, nothing is
/// dispatched until `open`. After `open` and `run` everything is dispatched.
#[test]
fn quiesce_against_run() {
    check(1, None, &[|hctx| hctx.close_then_open(Gate::Quiesced), |hctx| hctx.produce(0)]);
}

/// As above with two producers. Bound 3: 5 s.
#[test]
fn quiesce_against_two_runs() {
    let close: fn(&Hctx) = |hctx| hctx.close_then_open(Gate::Quiesced);
    let steps = Box::leak(Box::new([close, |hctx| hctx.produce(0), |hctx| hctx.produce(1)]));
    check(2, Some(3), steps);
}

/// R4: the holder stops the context in the middle of a turn, as for a full driver, and later opens
/// and runs it. No item is left. Bound 3: 16 s.
#[test]
fn stop_against_run() {
    let stop: fn(&Hctx) = |hctx| {
        if hctx.state.run() {
            hctx.state.close(Gate::Stopped);
            hctx.turn_until(|| hctx.state.release());
        }
        hctx.state.open(Gate::Stopped);
        hctx.run();
    };
    let steps = Box::leak(Box::new([stop, |hctx| hctx.produce(0), |hctx| hctx.produce(1)]));
    check(2, Some(3), steps);
}
