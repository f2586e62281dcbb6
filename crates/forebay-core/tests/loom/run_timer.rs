//! Models of delayed runs: the mark, against runs, gates and other delays (R1 to R4).
//!
//! No time passes in a model: "now" is 1, an immediate run is due, and a delayed run is not. So
//! work that waits for a delay although it must not is found undone at the end.

use std::sync::Arc;
use std::sync::atomic::AtomicU32 as Ghost;

use forebay_core::{Gate, RunState, RunTimer};
use loom::sync::atomic::Ordering::{AcqRel, Relaxed};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;

use crate::common::explore;

const NOW: u64 = 1;
const LATER: u64 = 1000;
const NONE: u64 = u64::MAX;

/// The time at which runs are due: the core's implementation, or a faulty one.
trait Timer: Send + Sync + Default + 'static {
    fn delay(&self, at_ns: u64);
    /// Begins a run if the mark is due. Returns whether it did.
    fn begin_if_due(&self) -> bool;
    fn is_set(&self) -> bool;
    /// Cancels the mark, because the context was stopped.
    fn cancel(&self);
}

impl Timer for RunTimer {
    fn delay(&self, at_ns: u64) {
        RunTimer::delay(self, at_ns);
    }
    fn begin_if_due(&self) -> bool {
        RunTimer::begin_if_due(self, NOW)
    }
    fn is_set(&self) -> bool {
        self.left_ns(NOW).is_some()
    }
    fn cancel(&self) {
        RunTimer::cancel(self);
    }
}

/// A context with an inbox that has a place for each item. The timer decides when it dispatches.
struct Hctx<T> {
    timer: T,
    inbox: [AtomicU32; 2],
    dispatched: [Ghost; 2],
}

impl<T: Timer> Hctx<T> {
    fn new() -> Arc<Hctx<T>> {
        Arc::new(Hctx {
            timer: T::default(),
            inbox: [AtomicU32::new(0), AtomicU32::new(0)],
            dispatched: Default::default(),
        })
    }

    fn publish(&self, item: usize, at_ns: u64) {
        self.inbox[item].store(1, Relaxed);
        self.timer.delay(at_ns);
    }

    fn dispatch(&self) {
        for (place, nr) in self.inbox.iter().zip(&self.dispatched) {
            if place.load(Relaxed) == 1 {
                place.store(0, Relaxed);
                nr.fetch_add(1, Relaxed);
            }
        }
    }

    /// Makes the runs that are due. The one worker calls this.
    fn work(&self) {
        while self.timer.begin_if_due() {
            self.dispatch();
        }
    }

    fn is_done(&self, item: usize) -> bool {
        self.dispatched[item].load(Relaxed) == 1
    }
}

/// Runs the first step on this thread and the others on threads of their own; then the worker once
/// more. (The worker has a thread of its own: on the first thread, loom finds fewer interleavings.)
fn settle<T: Timer>(steps: &'static [fn(&Hctx<T>)]) -> Arc<Hctx<T>> {
    let hctx = Hctx::<T>::new();
    let spawn = |step: &'static fn(&Hctx<T>)| {
        let hctx = hctx.clone();
        thread::spawn(move || step(&hctx))
    };
    let others: Vec<_> = steps[1..].iter().map(spawn).collect();
    steps[0](&hctx);
    others.into_iter().for_each(|thread| thread.join().unwrap());
    hctx.work();
    hctx
}

/// R3: one item requests an immediate run and another a delayed one, while a worker makes due runs.
/// The first item is dispatched without waiting for the second, which is dispatched too or still
/// marked.
fn check_immediate_beside_delayed<T: Timer>() {
    explore(None, || {
        let hctx =
            settle::<T>(&[|hctx| hctx.publish(0, 0), |hctx| hctx.publish(1, LATER), Hctx::work]);
        assert!(hctx.is_done(0), "an immediate run waits for a delayed one");
        assert!(hctx.is_done(1) || hctx.timer.is_set(), "a delayed run was lost");
    });
}

/// R3, one thread, in order: run(0), run(delay), run(0).
fn check_the_third_run<T: Timer>() {
    explore(None, || {
        let three: fn(&Hctx<T>) = |hctx| {
            hctx.timer.delay(0);
            hctx.timer.delay(LATER);
            hctx.publish(0, 0);
        };
        let hctx = settle::<T>(Box::leak(Box::new([three, Hctx::work])));
        assert!(hctx.is_done(0), "the third run was dropped");
    });
}

/// R1: two threads request immediate runs, with the worker between them.
fn check_two_at_once<T: Timer>() {
    explore(None, || {
        let hctx = settle::<T>(&[|hctx| hctx.publish(0, 0), |hctx| hctx.publish(1, 0), Hctx::work]);
        assert!(hctx.is_done(0) && hctx.is_done(1), "a run was lost");
    });
}

/// R4: a stop removes the mark, even if another thread sets one meanwhile. A run requested after
/// the stop is made, and it dispatches everything that was published before.
fn check_stop_and_start<T: Timer>() {
    explore(None, || {
        let hctx =
            settle::<T>(&[|hctx| hctx.publish(0, LATER), |hctx| hctx.timer.cancel(), Hctx::work]);
        // The thread that opens the gate requests a turn.
        hctx.timer.delay(0);
        hctx.work();
        assert!(hctx.is_done(0), "what was stopped is never run again");
    });
}

#[test]
fn an_immediate_run_waits_for_no_delayed_one() {
    check_immediate_beside_delayed::<RunTimer>();
}

#[test]
fn of_three_runs_the_third_is_made() {
    check_the_third_run::<RunTimer>();
}

#[test]
fn two_runs_at_once_lose_nothing() {
    check_two_at_once::<RunTimer>();
}

#[test]
fn a_stop_takes_the_mark_and_the_start_runs() {
    check_stop_and_start::<RunTimer>();
}

/// R1, R3: a holder of the token that runs for another reason also makes the delayed run, or leaves
/// its mark.
#[test]
fn a_run_for_another_reason_makes_the_delayed_run_or_leaves_its_mark() {
    explore(None, || {
        let shared = Arc::new((RunState::new(), Hctx::<RunTimer>::new()));
        let other = shared.clone();
        let thread = thread::spawn(move || other.1.publish(1, LATER));
        let (state, hctx) = &*shared;
        assert!(state.run(), "nobody else runs it");
        hctx.timer.begin();
        hctx.dispatch();
        assert!(state.release());
        thread.join().unwrap();
        assert!(hctx.is_done(1) || hctx.timer.is_set(), "a delayed run was lost");
    });
}

/// R4, with the gate: the thread that quiesces cancels the mark and waits until no turn is in
/// progress; the thread that opens the gate runs the context. The holder sets the mark again if it
/// finds the gate closed, as at a busy driver.
#[test]
fn quiesce_against_a_delayed_run() {
    explore(Some(3), || {
        let shared = Arc::new((RunState::new(), Hctx::<RunTimer>::new()));
        let turn = |(state, hctx): &(RunState, Arc<Hctx<RunTimer>>)| {
            if !state.run() {
                return;
            }
            loop {
                hctx.timer.begin();
                match state.gates().dispatch {
                    true => hctx.dispatch(),
                    false => Timer::delay(&hctx.timer, LATER),
                }
                if state.release() {
                    return;
                }
            }
        };
        let other = shared.clone();
        let thread = thread::spawn(move || {
            other.1.inbox[0].store(1, Relaxed);
            turn(&other);
        });
        let (state, hctx) = &*shared;
        state.close(Gate::Quiesced);
        hctx.timer.cancel();
        while state.is_running() {
            thread::yield_now();
        }
        state.open(Gate::Quiesced);
        turn(&shared);
        thread.join().unwrap();
        assert!(hctx.is_done(0), "what was quiesced is never run again");
    });
}

/// A time like the core's, for faults in one method.
struct Word(AtomicU64);

impl Default for Word {
    fn default() -> Word {
        Word(AtomicU64::new(NONE))
    }
}

impl Word {
    fn begin_if_due(&self) -> bool {
        let due = |at| (at <= NOW).then_some(NONE);
        self.0.fetch_update(AcqRel, Relaxed, due).is_ok()
    }

    fn is_set(&self) -> bool {
        self.0.load(Relaxed) != NONE
    }
}

/// R3, planted: the newest time wins, as with `mod_delayed_work`.
type Extends = Delays<false>;

/// R2, planted: a delay that finds an earlier time does not write. The worker that takes that time
/// has not acquired this thread's published work.
type Looks = Delays<true>;

/// A timer in which only `delay` is faulty.
#[derive(Default)]
struct Delays<const LOOKS: bool>(Word);

impl<const LOOKS: bool> Timer for Delays<LOOKS> {
    fn delay(&self, at_ns: u64) {
        if !LOOKS {
            self.0.0.swap(at_ns, AcqRel);
        } else if self.0.0.load(Relaxed) > at_ns {
            self.0.0.fetch_min(at_ns, AcqRel);
        }
    }
    fn begin_if_due(&self) -> bool {
        self.0.begin_if_due()
    }
    fn is_set(&self) -> bool {
        self.0.is_set()
    }
    fn cancel(&self) {
        self.0.0.swap(NONE, AcqRel);
    }
}

#[test]
#[should_panic(expected = "an immediate run waits for a delayed one")]
fn planted_a_delayed_run_extends_an_earlier_one() {
    check_immediate_beside_delayed::<Extends>();
}

/// R1 to R4, planted: one bit records that a run is queued, and another word records when. The
/// third run is dropped, as in the first version of the published change. Without `STOP_CLEARS`, a
/// stop removes the work but leaves the bit, and so stops the context forever.
#[derive(Default)]
struct Bit<const STOP_CLEARS: bool> {
    queued: AtomicU32,
    at: Word,
}

impl<const STOP_CLEARS: bool> Timer for Bit<STOP_CLEARS> {
    fn delay(&self, at_ns: u64) {
        if self.queued.swap(1, AcqRel) == 0 || at_ns > 0 {
            self.at.0.swap(at_ns, AcqRel);
        }
    }
    fn begin_if_due(&self) -> bool {
        let is_due = self.at.begin_if_due();
        if is_due {
            self.queued.swap(0, AcqRel);
        }
        is_due
    }
    fn is_set(&self) -> bool {
        self.at.is_set()
    }
    fn cancel(&self) {
        self.at.0.swap(NONE, AcqRel);
        if STOP_CLEARS {
            self.queued.swap(0, AcqRel);
        }
    }
}

#[test]
#[should_panic(expected = "the third run was dropped")]
fn planted_one_bit_for_immediate_and_delayed_runs() {
    check_the_third_run::<Bit<true>>();
}

#[test]
#[should_panic(expected = "what was stopped is never run again")]
fn planted_a_stop_leaves_the_bit() {
    check_stop_and_start::<Bit<false>>();
}

#[test]
#[should_panic(expected = "a run was lost")]
fn planted_a_delay_that_finds_an_earlier_time_writes_nothing() {
    check_two_at_once::<Looks>();
}

/// R1, planted: the mark is cleared after the inbox was read, not before.
#[test]
#[should_panic(expected = "a delayed run was lost")]
fn planted_the_mark_is_cleared_after_the_inbox_was_read() {
    explore(None, || {
        let hctx = Hctx::<RunTimer>::new();
        let other = hctx.clone();
        let thread = thread::spawn(move || other.publish(1, LATER));
        hctx.dispatch();
        hctx.timer.begin();
        thread.join().unwrap();
        assert!(hctx.is_done(1) || hctx.timer.is_set(), "a delayed run was lost");
    });
}

/// R2, planted: the run is requested before the work is published.
#[test]
#[should_panic(expected = "a run was lost")]
fn planted_a_run_is_asked_for_before_the_work_is_published() {
    explore(None, || {
        let hctx = settle::<RunTimer>(&[Hctx::work, |hctx| {
            hctx.timer.delay(0);
            hctx.inbox[0].store(1, Relaxed);
        }]);
        assert!(hctx.is_done(0), "a run was lost");
    });
}
