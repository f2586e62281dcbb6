//! Clock of the layer: nanoseconds since its first use.
//!
//! Each I/O is stamped several times, so reading the clock must be cheap. If the kernel itself
//! keeps time by the processor's time stamp counter, this clock reads the counter directly, without
//! the kernel's vDSO data. The rate is measured once, against `CLOCK_MONOTONIC`, for a millisecond.
//! It is then accurate to some 20 parts in a million, and is not adjusted afterwards. That is
//! enough for latencies and short waits, the only uses of this clock.
//!
//! A suspend to RAM may reset the counter, or let it run while the kernel's clock stands still; the
//! kernel continues to keep time by it. So the counter is compared with the kernel's clock when
//! [`STEP`] ticks have passed, and whenever it has gone back. After a jump this clock reads the
//! kernel's clock, for the rest of the process's life.
// It reads the processor's counter.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock};
use std::time::{Duration, Instant};

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::start);
/// The scale of this process's clock, outside of it, so that a reading does not check first whether
/// the clock has been made.
static SCALE: Scale = Scale::new();

/// Returns the time of the clock that the layer's own timestamps use: nanoseconds since its first
/// use in this process.
///
/// It never goes backwards on a thread, runs at the rate of `CLOCK_MONOTONIC` to some 20 parts in a
/// million, and costs a few nanoseconds. Any thread may call it.
#[inline]
pub fn now_ns() -> u64 {
    #[cfg(any(blk_loom, blk_shuttle))]
    if let Some(now_ns) = model_time::next_ns() {
        return now_ns;
    }
    SCALE.now_ns().unwrap_or_else(slow_ns)
}

/// Reads the clock when the counter alone does not suffice.
#[cold]
fn slow_ns() -> u64 {
    CLOCK.now_ns()
}

#[derive(Debug)]
enum Clock {
    Counter(Counter),
    Kernel(Kernel),
}

impl Clock {
    fn start() -> Clock {
        if is_trusted() {
            let (begin, end) = (Pair::read(), Pair::read_after_a_while());
            let (ticks, ns) = (end.ticks.wrapping_sub(begin.ticks), end.ns_since(&begin));
            if let Some(rate) = Rate::of(ticks, ns) {
                return Clock::Counter(Counter::new(&SCALE, begin, rate));
            }
        }
        Clock::Kernel(Kernel { base_ns: 0, base: Instant::now() })
    }

    fn now_ns(&self) -> u64 {
        match self {
            Clock::Counter(clock) => clock.ns_at(counter(), &Hardware),
            Clock::Kernel(clock) => clock.ns_at(Instant::now()),
        }
    }
}

/// The kernel's clock, starting from `base_ns`.
#[derive(Debug)]
struct Kernel {
    base_ns: u64,
    base: Instant,
}

impl Kernel {
    fn ns_at(&self, at: Instant) -> u64 {
        // 2^64 ns are 584 years.
        self.base_ns + at.saturating_duration_since(self.base).as_nanos() as u64
    }
}

/// Number of ticks after which the counter is compared with the kernel's clock: a third of a second
/// at 3 GHz.
const STEP: u64 = 1 << 30;

/// The counters of the processors differ by less than this many ticks.
const SKEW: u64 = 1 << 16;

/// A value that no counter comes within [`STEP`] of: reaching it takes a century.
const JUMPED: u64 = 1 << 63;

/// How to convert the counter to a time.
#[derive(Debug)]
struct Scale {
    /// Ticks of the last comparison minus [`SKEW`], or [`JUMPED`]. A counter value up to [`STEP`]
    /// above this is used without a comparison, so no returned time is later than that.
    checked: AtomicU64,
    /// The ticks at time 0: not above any value of `checked`. Set once, as `rate`.
    start: AtomicU64,
    /// A [`Rate`]; 0 while the counter is not used.
    rate: AtomicU64,
}

impl Scale {
    /// Creates a scale that is not used.
    const fn new() -> Scale {
        Scale { checked: AtomicU64::new(JUMPED), start: AtomicU64::new(0), rate: AtomicU64::new(0) }
    }

    /// Returns the time by the processor's counter, if it needs no comparison. Does not read the
    /// counter before [`Clock::start`] has found it trustworthy.
    #[inline]
    fn now_ns(&self) -> Option<u64> {
        // Relaxed: a rate that was seen too early comes with the mark in `checked`.
        match self.rate.load(Ordering::Relaxed) {
            0 => None,
            rate => self.ns_at(counter(), Rate(rate)),
        }
    }

    /// Returns the time at which the counter shows `ticks`, if it needs no comparison.
    #[inline]
    fn ns_at(&self, ticks: u64, rate: Rate) -> Option<u64> {
        // Acquire: the start and the rate were set before. An older value leads to a comparison.
        // Below the value the difference wraps around.
        let checked = self.checked.load(Ordering::Acquire);
        (ticks.wrapping_sub(checked) < STEP)
            .then(|| rate.ns(ticks.wrapping_sub(self.start.load(Ordering::Relaxed))))
    }
}

/// The processor's counter as a clock.
#[derive(Debug)]
struct Counter {
    scale: &'static Scale,
    start: u64,
    rate: Rate,
    last: Mutex<Pair>,
    /// The clock used after a jump.
    kernel: OnceLock<Kernel>,
}

impl Counter {
    /// Creates the clock, and begins to use its scale.
    fn new(scale: &'static Scale, start: Pair, rate: Rate) -> Counter {
        let ticks = start.ticks.saturating_sub(SKEW);
        scale.start.store(ticks, Ordering::Relaxed);
        scale.rate.store(rate.0, Ordering::Relaxed);
        // Release, with the acquire of a reading.
        scale.checked.store(ticks, Ordering::Release);
        Counter { scale, start: ticks, rate, last: Mutex::new(start), kernel: OnceLock::new() }
    }

    /// Returns the time at which the counter shows `ticks`.
    fn ns_at(&self, ticks: u64, clocks: &impl Clocks) -> u64 {
        let ns = self.scale.ns_at(ticks, self.rate);
        ns.unwrap_or_else(|| self.compare(ticks, clocks))
    }

    fn ns_of(&self, ticks: u64) -> u64 {
        self.rate.ns(ticks.saturating_sub(self.start))
    }

    /// Compares the counter with the kernel's clock, and returns the time.
    #[cold]
    fn compare(&self, ticks: u64, clocks: &impl Clocks) -> u64 {
        let checked = self.scale.checked.load(Ordering::Acquire);
        let locked = (0..NR_TRIES).find_map(|_| {
            std::hint::spin_loop();
            self.last.try_lock().ok()
        });
        // After a jump only the kernel's clock is used.
        if let Some(kernel) = self.kernel.get() {
            return kernel.ns_at(clocks.kernel());
        }
        let Some(mut last) = locked else {
            // Another thread is comparing and was preempted; or, in a child of a fork, the lock was
            // held by a thread of the parent.
            return if ticks < checked { self.latest_ns(checked) } else { self.ns_of(ticks) };
        };
        let now = clocks.both();
        if now.agrees_with(&last, self.rate) {
            self.scale.checked.store(now.ticks.saturating_sub(SKEW), Ordering::Release);
            let ns = self.ns_of(now.ticks);
            *last = now;
            return ns;
        }
        let latest_ns = self.latest_ns(self.scale.checked.load(Ordering::Relaxed));
        let base_ns = latest_ns.max(self.ns_of(last.ticks) + now.ns_since(&last));
        let kernel = self.kernel.get_or_init(|| Kernel { base_ns, base: now.at });
        // Release, with the acquire above: a thread that sees the mark sees that clock.
        self.scale.checked.store(JUMPED, Ordering::Release);
        kernel.ns_at(now.at)
    }

    /// Returns a time that is not before any time returned since a comparison.
    fn latest_ns(&self, checked: u64) -> u64 {
        self.ns_of(checked + STEP)
    }
}

/// Number of attempts to take the lock of a comparison that another thread is making.
const NR_TRIES: u32 = 100;

/// The source of the time, replaced in tests.
trait Clocks {
    fn kernel(&self) -> Instant;
    fn both(&self) -> Pair;
}

/// The processor's counter and the kernel's clock.
struct Hardware;

impl Clocks for Hardware {
    fn kernel(&self) -> Instant {
        Instant::now()
    }

    fn both(&self) -> Pair {
        Pair::read()
    }
}

/// Nanoseconds per tick, in units of 2^-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate(u64);

impl Rate {
    /// Returns `None` if that is not a plausible rate of a processor's counter: below 100 MHz, or
    /// above 100 GHz.
    fn of(ticks: u64, ns: u64) -> Option<Rate> {
        let is_sane = ns > 0 && ticks >= ns / 10 && ticks / 100 <= ns;
        is_sane.then(|| Rate(((u128::from(ns) << 32) / u128::from(ticks)) as u64))
    }

    #[inline]
    fn ns(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.0)) >> 32) as u64
    }
}

/// Readings of both clocks at the same time.
#[derive(Debug)]
struct Pair {
    ticks: u64,
    at: Instant,
}

impl Pair {
    /// Reads both clocks several times and returns the quickest reading, which was not interrupted.
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

    /// Returns whether both clocks have advanced by the same time. Tolerates the error of the rate,
    /// the adjustment of the kernel's clock, and a delay of the reading.
    fn agrees_with(&self, earlier: &Pair, rate: Rate) -> bool {
        let Some(ticks) = self.ticks.checked_sub(earlier.ticks) else { return false };
        let kernel_ns = self.ns_since(earlier);
        let tolerance_ns = kernel_ns / 256 + Duration::from_millis(10).as_nanos() as u64;
        rate.ns(ticks).abs_diff(kernel_ns) <= tolerance_ns
    }
}

/// Returns whether the kernel keeps its own time by the counter. Then the counter runs at one rate,
/// even while the processor sleeps, and agrees between processors; the kernel checks this.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_trusted() -> bool {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(source).is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn is_trusted() -> bool {
    false
}

/// Returns the processor's counter in ticks. The read is not ordered against the surrounding
/// instructions: a timestamp may be off by that little.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it accesses no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn counter() -> u64 {
    unreachable!("it is not trusted here")
}

#[cfg(test)]
mod jumps;
#[cfg(any(blk_loom, blk_shuttle))]
pub(crate) mod model_time;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_equals_the_measured_rate() {
        let rate = Rate::of(3_000_000, 1_000_000).expect("3 GHz");
        for ns in [0, 1, 1_000, 1_000_000_000, 365 * 86_400 * 1_000_000_000] {
            let found = rate.ns(ns * 3);
            assert!(found <= ns && ns - found <= 1 + ns / 1_000_000, "{ns}: {found}");
        }
    }

    #[test]
    fn invalid_rate_is_refused() {
        for (ticks, ns) in [(1000, 0), (0, 1_000_000), (1_000_000_000, 1_000_000)] {
            assert_eq!(Rate::of(ticks, ns), None, "{ticks} {ns}");
        }
    }

    #[test]
    fn clock_agrees_with_the_kernels() {
        let (begin, kernel) = (now_ns(), Instant::now());
        let mut last = begin;
        while kernel.elapsed().as_millis() < 20 {
            let now = now_ns();
            assert!(now >= last, "it went backwards");
            last = now;
        }
        // The thread may be preempted between the two readings, so only a large error is found.
        let (ours, theirs) = (now_ns() - begin, kernel.elapsed().as_nanos() as u64);
        assert!(ours >= 20_000_000 * 99 / 100, "{ours} ns of {theirs}");
        assert!(ours <= theirs * 101 / 100, "{ours} ns of {theirs}");
    }
}
