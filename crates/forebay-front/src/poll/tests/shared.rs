//! Polls that yield the processor, in virtual time: other rings, and busy threads.

use super::super::*;
use super::{POLL_NS, SECOND};

/// Processor time of a request and of a yield to another thread, ns.
const REQUEST_NS: u64 = 500;
const YIELD_CPU_NS: u64 = 1_000;

/// Times of a wait with a poll, and of one without.
#[derive(Clone, Copy)]
struct Machine {
    /// Time of the other threads during a yield, ns.
    yield_ns: u64,
    /// Requests that have arrived after the yield.
    nr_polled: u64,
    /// Time and processor time of a sleep, ns.
    sleep_ns: u64,
    sleep_cpu_ns: u64,
    /// Requests that have arrived after a sleep.
    nr_slept: u64,
}

/// Four rings and their clients on two processors: a thread that sleeps preempts the others when
/// its first request comes.
const RINGS: Machine =
    Machine { yield_ns: 40_000, nr_polled: 8, sleep_ns: 5_000, sleep_cpu_ns: 3_000, nr_slept: 1 };

/// A processor with a busy thread.
const BUSY: Machine = Machine {
    yield_ns: 3_000_000,
    nr_polled: 1,
    sleep_ns: 50_000,
    sleep_cpu_ns: 3_000,
    nr_slept: 1,
};

/// A thread in virtual time.
struct Thread {
    polling: Polling,
    now_ns: u64,
    cpu_ns: u64,
    nr_requests: u64,
    nr_waits: u64,
}

impl Thread {
    fn new(mode: PollMode) -> Thread {
        let polling = Polling::new(mode);
        Thread { polling, now_ns: 1_000_000, cpu_ns: 0, nr_requests: 0, nr_waits: 0 }
    }

    fn run(&mut self, ns: u64) {
        self.now_ns += ns;
        self.cpu_ns += ns;
    }

    /// Waits once, and serves the requests that end the wait.
    fn serve(&mut self, machine: &Machine) {
        let nr = if self.polling.begin(self.now_ns, self.nr_requests, || self.cpu_ns) {
            self.run(POLL_NS);
            assert!(self.polling.goes_on(self.now_ns));
            self.run(YIELD_CPU_NS);
            self.now_ns += machine.yield_ns;
            assert!(self.polling.yielded(self.now_ns));
            self.run(POLL_NS);
            self.polling.found(self.now_ns);
            machine.nr_polled
        } else {
            self.run(machine.sleep_cpu_ns);
            self.now_ns += machine.sleep_ns - machine.sleep_cpu_ns;
            self.polling.woke(self.now_ns);
            machine.nr_slept
        };
        self.run(nr * REQUEST_NS);
        self.nr_requests += nr;
        self.nr_waits += 1;
    }

    fn serve_for(&mut self, ns: u64, machine: &Machine) {
        let until_ns = self.now_ns + ns;
        while self.now_ns < until_ns {
            self.serve(machine);
        }
    }

    /// Returns the part of the time that waits with polls take, in the next `ns`.
    fn polled_part(&mut self, ns: u64, machine: &Machine) -> f64 {
        let (began_ns, nr_before) = (self.now_ns, self.polling.sums().nr_found);
        self.serve_for(ns, machine);
        let nr = self.polling.sums().nr_found - nr_before;
        let wait_ns =
            2 * POLL_NS + YIELD_CPU_NS + machine.yield_ns + machine.nr_polled * REQUEST_NS;
        (nr * wait_ns) as f64 / (self.now_ns - began_ns) as f64
    }
}

/// With polls, a request of one of the rings takes 5.7 us. While the others poll, one that sleeps
/// takes 5.5 us, but four times as much processor time.
#[test]
fn rings_that_share_processors_poll_if_that_saves_processor_time() {
    let mut thread = Thread::new(PollMode::Adaptive);
    thread.serve_for(SECOND, &RINGS);
    let part = thread.polled_part(SECOND, &RINGS);
    assert!(part > 0.9, "{part}");
}

#[test]
fn polling_on_shared_processors_ends_where_it_costs_processor_time() {
    let mut thread = Thread::new(PollMode::Adaptive);
    let machine = Machine { nr_polled: 2, sleep_cpu_ns: 1_500, nr_slept: 16, ..RINGS };
    thread.serve_for(4 * SECOND, &machine);
    let part = thread.polled_part(4 * SECOND, &machine);
    assert!(part < 0.01, "{part}");
}

/// Polls cost a tenth of the processor time of a sleep, but the only request in flight waits for
/// the other threads.
#[test]
fn polling_on_shared_processors_ends_where_a_single_request_takes_longer() {
    let mut thread = Thread::new(PollMode::Adaptive);
    let machine = Machine { nr_polled: 1, sleep_ns: 20_000, sleep_cpu_ns: 19_000, ..RINGS };
    thread.serve_for(4 * SECOND, &machine);
    let part = thread.polled_part(4 * SECOND, &machine);
    assert!(part < 0.01, "{part}");
}

#[test]
fn polling_ends_where_yields_let_busy_threads_run() {
    for (sleep_cpu_ns, nr_polled) in [(3_000, 1), (20_000, 1), (20_000, 16)] {
        let machine = Machine { sleep_cpu_ns, nr_polled, ..BUSY };
        let [with, without] = [PollMode::Adaptive, PollMode::Off].map(|mode| {
            let mut thread = Thread::new(mode);
            thread.serve_for(10 * SECOND, &machine);
            thread.nr_requests
        });
        let ratio = with as f64 / without as f64;
        assert!(ratio > 0.97, "{sleep_cpu_ns} ns, {nr_polled} requests: {ratio}");
    }
}

#[test]
fn yields_to_other_threads_shorten_no_poll() {
    let mut polling = Polling::new(PollMode::Fixed(20_000));
    let mut now_ns = 1_000_000;
    assert!(polling.begin(now_ns, 0, || 0));
    let mut nr_yields = 0;
    loop {
        now_ns += POLL_NS;
        if !polling.goes_on(now_ns) {
            break;
        }
        now_ns += 30_000;
        assert!(polling.yielded(now_ns));
        nr_yields += 1;
    }
    // Each poll and each yield costs some time.
    assert_eq!(nr_yields, 20_000 / (POLL_NS + SWITCH_NS));
    let polled_ns = nr_yields * (POLL_NS + SWITCH_NS) + POLL_NS;
    assert_eq!(polling.sums().polled_ns, polled_ns);
}

#[test]
fn yields_without_other_threads_are_polling() {
    let mut polling = Polling::new(PollMode::Fixed(20_000));
    assert!(polling.begin(1_000_000, 0, || 0));
    assert!(polling.goes_on(1_000_400));
    assert!(!polling.yielded(1_000_400 + SHARED_NS - 1));
    assert!(polling.goes_on(1_019_999));
    assert!(!polling.goes_on(1_020_000));
    assert_eq!(polling.sums().polled_ns, 20_000);
}

#[test]
fn poll_that_finds_nothing_after_a_long_yield_ends() {
    let mut polling = Polling::new(PollMode::Adaptive);
    polling.window_ns = WINDOW_MAX_NS;
    polling.is_polled = true;
    assert!(polling.begin(1_000_000, 0, || 0));
    assert!(polling.goes_on(1_000_400));
    assert!(polling.yielded(1_000_400 + PREEMPTED_NS));
    assert!(!polling.goes_on(1_000_800 + PREEMPTED_NS));
}
