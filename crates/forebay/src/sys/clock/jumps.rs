//! Tests of the clock on a machine with a counter that jumps.

use super::{Clocks, Counter, Pair, Rate, SKEW, STEP, Scale};
use std::cell::Cell;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const GHZ: u64 = 1_000_000_000;

/// A machine with a counter of 1 GHz, and the kernel's clock.
struct Machine {
    ticks: Cell<u64>,
    at: Cell<Instant>,
    nr_reads: Cell<u32>,
}

impl Machine {
    fn booted(ago: Duration) -> Machine {
        let ticks = Cell::new(ago.as_nanos() as u64);
        Machine { ticks, at: Cell::new(Instant::now()), nr_reads: Cell::new(0) }
    }

    fn clock(&self) -> Counter {
        let rate = Rate::of(1_000_000, 1_000_000).expect("1 GHz");
        Counter::new(Box::leak(Box::new(Scale::new())), self.both(), rate)
    }

    /// Advances both clocks by `time`, and the counter by `ppm` parts in a million more.
    fn pass(&self, time: Duration, ppm: i64) {
        let ns = time.as_nanos() as i64;
        self.ticks.set(self.ticks.get() + (ns + ns / 1_000_000 * ppm) as u64);
        self.at.set(self.at.get() + time);
    }

    fn read(&self, clock: &Counter) -> u64 {
        clock.ns_at(self.ticks.get(), self)
    }
}

impl Clocks for Machine {
    fn kernel(&self) -> Instant {
        self.nr_reads.set(self.nr_reads.get() + 1);
        self.at.get()
    }

    fn both(&self) -> Pair {
        Pair { ticks: self.ticks.get(), at: self.kernel() }
    }
}

/// Reads for a minute after a jump. Checks that the clock continues from `before_ns`, at the
/// kernel's rate.
fn goes_on(machine: &Machine, clock: &Counter, before_ns: u64) {
    let begin = machine.read(clock);
    let skipped = begin.checked_sub(before_ns).expect("it goes back");
    assert!(skipped <= STEP + GHZ, "{skipped} ns are skipped");
    for second in 1..=60 {
        machine.pass(SECOND, 0);
        assert_eq!(machine.read(clock), begin + second * GHZ);
    }
}

#[test]
fn a_counter_that_a_suspend_resets_is_left_for_the_kernels_clock() {
    // The process started long after boot, or soon after it.
    for ago in [Duration::from_secs(100_000), Duration::from_millis(10)] {
        let machine = Machine::booted(ago);
        let clock = machine.clock();
        for _ in 0..10_000 {
            machine.pass(SECOND, 20);
            machine.read(&clock);
        }
        let before = machine.read(&clock);
        machine.ticks.set(5 * GHZ);
        machine.pass(SECOND, 0);
        goes_on(&machine, &clock, before);
        // The counter passes through its old values again.
        machine.ticks.set(before - 30 * GHZ);
        goes_on(&machine, &clock, before + 60 * GHZ);
    }
}

/// The process slept until the counter had passed its last value again.
#[test]
fn a_reset_that_nothing_has_seen_is_found_afterwards() {
    let machine = Machine::booted(SECOND);
    let clock = machine.clock();
    machine.pass(100 * SECOND, 0);
    let before = machine.read(&clock);
    machine.ticks.set(0);
    machine.pass(3600 * SECOND, 0);
    let found = machine.read(&clock);
    assert!(found >= before + 3600 * GHZ, "{found}");
}

#[test]
fn a_counter_that_runs_on_in_a_suspend_does_not_take_the_clock_with_it() {
    let machine = Machine::booted(SECOND);
    let clock = machine.clock();
    for _ in 0..100 {
        machine.pass(SECOND, 0);
        machine.read(&clock);
    }
    let before = machine.read(&clock);
    machine.ticks.set(machine.ticks.get() + 8 * 3600 * GHZ);
    machine.pass(SECOND, 0);
    goes_on(&machine, &clock, before);
}

#[test]
fn a_counter_that_drifts_or_differs_between_processors_has_not_jumped() {
    for ppm in [-100, 100] {
        let machine = Machine::booted(SECOND);
        let clock = machine.clock();
        for step in [1, 1000, 1_000_000, 400_000_000, 1_000_000_000, 86_400_000_000_000] {
            for _ in 0..100 {
                machine.pass(Duration::from_nanos(step), ppm);
                machine.read(&clock);
                // The counter of another processor is slightly behind.
                let behind = machine.ticks.get().saturating_sub(SKEW / 2);
                clock.ns_at(behind, &machine);
            }
        }
        assert!(clock.kernel.get().is_none());
    }
}

/// Reading the kernel's clock costs several times as much as reading the counter.
#[test]
fn the_kernels_clock_is_read_about_once_a_second() {
    let machine = Machine::booted(SECOND);
    let clock = machine.clock();
    for _ in 0..10_000 {
        machine.pass(Duration::from_millis(1), 0);
        machine.read(&clock);
    }
    assert!((1..=11).contains(&machine.nr_reads.get()), "{:?}", machine.nr_reads);
}
