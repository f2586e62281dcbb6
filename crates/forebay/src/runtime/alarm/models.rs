//! Models of the alarm: an event loop misses neither a gate that opens nor a deadline, and is not
//! woken forever (B1-B3).
//!
//! The token of the context is a lock here, and the loop sleeps while no descriptor is readable.

use super::Alarm;
use crate::sys::clock::{self, model_time::ModelTime};
use crate::sys::primitive::{Arc, AtomicBool, Mutex, Ordering, check, check_within, lock, thread};
use std::time::Duration;

/// The largest number of consecutive turns without work: one for a descriptor whose work another
/// turn has done already, and one for a flag that the loop reads late.
const IDLE_TURNS_MAX: u32 = 2;

/// A hardware context with one request behind a gate, and with deadlines.
struct Context {
    alarm: Alarm,
    is_open: AtomicBool,
    work: Mutex<Work>,
}

/// State that only the holder of the token accesses.
#[derive(Default)]
struct Work {
    /// A request waits behind the gate.
    is_held: bool,
    /// A request that the driver does not take before [`BUSY_NS`].
    is_refused: bool,
    deadlines: Vec<u64>,
}

impl Context {
    fn new(work: Work) -> Arc<Context> {
        let (alarm, is_open) = (Alarm::new(), AtomicBool::new(false));
        alarm.fds().expect("two descriptors");
        Arc::new(Context { alarm, is_open, work: Mutex::new(work) })
    }

    /// Runs a turn to which `add` adds work. Returns whether it made progress.
    fn turn(&self, add: impl FnOnce(&mut Work)) -> bool {
        let mut work = lock(&self.work);
        // B1. Relaxed: only the alarm orders the gate.
        self.alarm.clear();
        let is_open = self.is_open.load(Ordering::Relaxed);
        add(&mut work);
        let now_ns = clock::now_ns();
        let nr_deadlines = work.deadlines.len();
        work.deadlines.retain(|at_ns| *at_ns > now_ns);
        let is_taken = work.is_refused && now_ns >= BUSY_NS;
        let is_entered = work.is_held && is_open;
        let progress = is_entered || is_taken || nr_deadlines > work.deadlines.len();
        work.is_held &= !is_entered;
        work.is_refused &= !is_taken;
        // B2.
        if work.is_refused {
            self.alarm.set(Duration::from_nanos(BUSY_NS));
        }
        if let Some(at_ns) = work.deadlines.iter().min() {
            self.alarm.limit(*at_ns);
        }
        progress
    }

    /// Runs the event loop beside other threads. One of them may be within a change of the alarm,
    /// and the loop is woken until that is over.
    fn run_loop_beside(&self) {
        for _ in 0..2 {
            if self.alarm.is_readable() {
                self.turn(|_| ());
            }
        }
    }

    /// Runs the event loop as long as a descriptor is readable. The other threads have ended.
    fn run_loop(&self) {
        let mut nr_idle = 0;
        while self.alarm.is_readable() {
            nr_idle = if self.turn(|_| ()) { 0 } else { nr_idle + 1 };
            assert!(nr_idle <= IDLE_TURNS_MAX, "the loop is woken forever");
        }
    }

    /// Lets time pass until each deadline of the last turn. The loop serves each.
    fn pass_deadlines(&self, time: &ModelTime) {
        loop {
            let next_ns = lock(&self.work).deadlines.iter().min().copied();
            let Some(at_ns) = next_ns else { break };
            time.pass(at_ns + LATE_NS);
            assert!(self.alarm.is_readable(), "the loop sleeps past a deadline");
            self.run_loop();
        }
        time.pass(clock::now_ns() + 2 * BUSY_NS);
        self.run_loop();
    }
}

/// The time until which a driver is busy, and the delay after which it is tried again.
const BUSY_NS: u64 = 10_000;

/// How late a timer may be: each reading of the clock takes a nanosecond.
const LATE_NS: u64 = 16;

/// Opens the gate in a thread of its own.
fn open_in_thread(context: &Arc<Context>) -> thread::JoinHandle<()> {
    let context = Arc::clone(context);
    thread::spawn(move || {
        context.is_open.store(true, Ordering::Relaxed);
        context.alarm.fire();
    })
}

/// B1, B3.
#[test]
fn gate_that_opens_beside_turns_wakes_the_loop() {
    check_within(4, || {
        let _time = ModelTime::begin();
        let context = Context::new(Work { is_held: true, ..Work::default() });
        let opener = open_in_thread(&context);
        context.run_loop_beside();
        opener.join().unwrap();
        context.run_loop();
        assert!(!lock(&context.work).is_held, "the loop sleeps before an open gate");
    });
}

/// B1, B3: two gates, one after another, and turns of a thread that is not the loop.
#[test]
fn gates_of_two_threads_beside_a_turn_of_a_third_wake_the_loop() {
    check_within(2, || {
        let _time = ModelTime::begin();
        let context = Context::new(Work { is_held: true, ..Work::default() });
        let open = || {
            let context = Arc::clone(&context);
            thread::spawn(move || {
                context.is_open.store(true, Ordering::Relaxed);
                context.alarm.fire();
            })
        };
        let openers = [open(), open()];
        context.turn(|_| ());
        context.run_loop_beside();
        openers.into_iter().for_each(|opener| opener.join().unwrap());
        context.run_loop();
        assert!(!lock(&context.work).is_held, "the loop sleeps before an open gate");
    });
}

/// B2, W7: each of two threads has a deadline. Time passes while they turn.
#[test]
fn deadlines_of_two_threads_wake_the_loop() {
    for (first_ns, second_ns) in [(1_000, 2_000), (2_000, 1_000)] {
        check_within(3, move || {
            let time = ModelTime::begin();
            let context = Context::new(Work::default());
            let other = {
                let context = Arc::clone(&context);
                thread::spawn(move || context.turn(|work| work.deadlines.push(second_ns)))
            };
            context.turn(|work| work.deadlines.push(first_ns));
            time.pass(1_500);
            context.run_loop_beside();
            other.join().unwrap();
            context.run_loop();
            context.pass_deadlines(&time);
        });
    }
}

/// B2, B3: a busy driver, a deadline and a gate use the descriptors of one alarm.
#[test]
fn deadline_beside_a_busy_driver_and_a_gate_wakes_the_loop() {
    check_within(3, || {
        let time = ModelTime::begin();
        let context = Context::new(Work { is_held: true, ..Work::default() });
        let opener = open_in_thread(&context);
        context.turn(|work| work.deadlines.push(1_000));
        context.turn(|work| work.is_refused = true);
        time.pass(1_500);
        context.run_loop_beside();
        opener.join().unwrap();
        context.run_loop();
        assert!(!lock(&context.work).is_held, "the loop sleeps before an open gate");
        context.pass_deadlines(&time);
    });
}

/// A busy driver is tried again once the delay is over, whether or not a deadline had started the
/// timer.
#[test]
fn busy_driver_wakes_the_loop_after_its_delay() {
    for deadline_ns in [None, Some(1_000), Some(5 * BUSY_NS)] {
        check(move || {
            let time = ModelTime::begin();
            let context = Context::new(Work::default());
            let other = {
                let context = Arc::clone(&context);
                thread::spawn(move || context.turn(|work| work.deadlines.extend(deadline_ns)))
            };
            context.turn(|work| work.is_refused = true);
            other.join().unwrap();
            time.pass(BUSY_NS + LATE_NS);
            context.run_loop();
            assert!(
                !lock(&context.work).is_refused,
                "the loop sleeps before a driver that was busy"
            );
            context.pass_deadlines(&time);
        });
    }
}
