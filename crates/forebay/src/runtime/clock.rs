//! The real clock: nanoseconds since the first look at it.
//!
//! Each I/O is stamped several times, so looking must cost little: where the kernel itself keeps
//! time by the processor's time stamp counter, this reads the counter, and not the kernel's page
//! beside it. The rate is measured once, against `CLOCK_MONOTONIC`, for a millisecond. It is known
//! to some 20 parts in a million then, and is not steered afterwards: good for latencies and short
//! waits, which is all that this clock is for.
// It reads the processor's counter.
#![allow(unsafe_code)]

use std::sync::LazyLock;
use std::time::Instant;

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::start);

/// The time by the clock of the layer's own stamps: ns since the first look at it in this process.
///
/// It never goes backwards on a thread, runs at the rate of `CLOCK_MONOTONIC` to some 20 parts in a
/// million, and costs a few nanoseconds. Any thread may call it.
#[inline]
pub fn now_ns() -> u64 {
    CLOCK.now_ns()
}

#[derive(Debug)]
enum Clock {
    Counter { start: u64, rate: Rate },
    // 2^64 ns are 584 years.
    Kernel { start: Instant },
}

impl Clock {
    fn start() -> Clock {
        if is_trusted() {
            let (begin, end) = (Pair::read(), Pair::read_after_a_while());
            let (ticks, ns) = (end.ticks.wrapping_sub(begin.ticks), end.ns_since(&begin));
            if let Some(rate) = Rate::of(ticks, ns) {
                return Clock::Counter { start: begin.ticks, rate };
            }
        }
        Clock::Kernel { start: Instant::now() }
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        match self {
            // Between processors the counters agree, but for a few ticks perhaps.
            Clock::Counter { start, rate } => rate.ns(counter().saturating_sub(*start)),
            Clock::Kernel { start } => start.elapsed().as_nanos() as u64,
        }
    }
}

/// Nanoseconds for each tick, as a fraction of 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate(u64);

impl Rate {
    /// None where that is no rate of a processor's counter: below 100 MHz, or above 100 GHz.
    fn of(ticks: u64, ns: u64) -> Option<Rate> {
        let is_sane = ns > 0 && ticks >= ns / 10 && ticks / 100 <= ns;
        is_sane.then(|| Rate(((u128::from(ns) << 32) / u128::from(ticks)) as u64))
    }

    #[inline]
    fn ns(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.0)) >> 32) as u64
    }
}

/// Both clocks at one moment.
#[derive(Debug)]
struct Pair {
    ticks: u64,
    at: Instant,
}

impl Pair {
    /// Of several tries the one that took the shortest: nothing came in between.
    fn read() -> Pair {
        let tries = (0..16).map(|_| {
            let before = counter();
            let at = Instant::now();
            let took = counter().wrapping_sub(before);
            (took, Pair { ticks: before.wrapping_add(took / 2), at })
        });
        tries.min_by_key(|(took, _)| *took).expect("there are some").1
    }

    fn read_after_a_while() -> Pair {
        let begin = Instant::now();
        while begin.elapsed().as_micros() < 1000 {
            std::hint::spin_loop();
        }
        Pair::read()
    }

    fn ns_since(&self, earlier: &Pair) -> u64 {
        self.at.duration_since(earlier.at).as_nanos() as u64
    }
}

/// Whether the kernel keeps its own time by the counter: then it runs at one rate, also while the
/// processor sleeps, and agrees between processors; the kernel watches over that.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_trusted() -> bool {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(source).is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn is_trusted() -> bool {
    false
}

/// The processor's counter, ticks. It is not ordered against what comes before and after: by so
/// little a stamp may be wrong.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 has the instruction, and it touches no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn counter() -> u64 {
    unreachable!("it is not trusted here")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_what_was_measured() {
        let rate = Rate::of(3_000_000, 1_000_000).expect("3 GHz");
        for ns in [0, 1, 1_000, 1_000_000_000, 365 * 86_400 * 1_000_000_000] {
            let found = rate.ns(ns * 3);
            assert!(found <= ns && ns - found <= 1 + ns / 1_000_000, "{ns}: {found}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for (ticks, ns) in [(1000, 0), (0, 1_000_000), (1_000_000_000, 1_000_000)] {
            assert_eq!(Rate::of(ticks, ns), None, "{ticks} {ns}");
        }
    }

    #[test]
    fn it_goes_as_the_kernels_clock_goes() {
        let (begin, kernel) = (now_ns(), Instant::now());
        let mut last = begin;
        while kernel.elapsed().as_millis() < 20 {
            let now = now_ns();
            assert!(now >= last, "it went backwards");
            last = now;
        }
        // The thread may be held up between the two looks, so only what is far off is found.
        let (ours, theirs) = (now_ns() - begin, kernel.elapsed().as_nanos() as u64);
        assert!(ours >= 20_000_000 * 99 / 100, "{ours} ns of {theirs}");
        assert!(ours <= theirs * 101 / 100, "{ours} ns of {theirs}");
    }
}
