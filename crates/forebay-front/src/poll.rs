//! Adaptive polling: how long a thread polls for work before it sleeps.
//!
//! A sleep and its wake-up cost two context switches, and an idle processor resumes late. If the
//! next work arrives within microseconds, a thread that polls finds it earlier. If it does not, or
//! if other threads need the processor, polling wastes time. This policy decides whether to poll.
//! It has no clock: the caller passes times, and makes each wait in this order.
//!
//! 1. [`Polling::begin`] returns whether to poll.
//! 2. The caller polls: it checks for work repeatedly. After a poll that finds some, it calls
//!    [`Polling::found`], and the wait is over. After any other poll, it calls
//!    [`Polling::goes_on`], and sleeps if that returns false. It may yield the processor between
//!    two polls; then it calls [`Polling::yielded`].
//! 3. After a sleep, it calls [`Polling::woke`].
//!
//! Six rules bound the adaptive mode.
//!
//! - **Window**, as QEMU's `poll-max-ns`. A wait polls for at most a window. The window doubles
//!   after a short wait that was longer, up to 32 us. After a long wait it is zero, so an idle
//!   thread does not poll. The time of other threads during yields does not count.
//! - **Budget.** Polling that finds nothing costs credit, and credit grows by a fifth of the time
//!   that passes. So polling wastes at most 20 % of a processor over any period, plus two windows.
//! - **Trial.** Blocks of waits with polls alternate with blocks without. Polling continues only
//!   while it pays off. Otherwise it is held off, each time for longer. So it ends if a sleep costs
//!   little, or if a client needs the processor on which this thread polls. With idle processors,
//!   polls pay off if requests take less time. With processors that polling threads share, they
//!   pay off if many requests take less processor time (module `sample`).
//! - **Few requests**, if the caller sets a limit ([`Polling::after_few`]). A wait after more
//!   requests never polls.
//! - **Preemption.** If other threads run in the middle of polls for more than 1 or 2 % of the
//!   time, the processors are busy, and polling is held off for longer. A thread that polls uses up
//!   its share of the processor. When work arrives, it must then wait for the processor. A trial is
//!   too short to show that. A yield is not a preemption, unless it is long and finds no work.
//! - **Pauses.** On busy processors, a thread that has polled in vain and sleeps may wake up late.
//!   The thread cannot distinguish that from a pause of its client. So if long waits take more than
//!   half of the time while it polls, polling is held off as after preemptions. A client that
//!   pauses so much gains little from polls.

mod sample;

use self::sample::Sample;
use std::mem;

/// Longest window, ns.
const WINDOW_MAX_NS: u64 = 32_000;
/// Shortest window, ns.
const WINDOW_MIN_NS: u64 = 4_000;
/// Longest short wait, ns: a window, and the wake-up, for which the other side is not responsible.
/// In a virtual machine with idle processors, wake-ups of 20 us were measured.
const SHORT_WAIT_NS: u64 = WINDOW_MAX_NS + 32_000;
/// Part of a processor that polling may waste: one divided by this.
const SHARE: u64 = 5;
/// Most credit, ns.
const CREDIT_MAX_NS: i64 = 2 * WINDOW_MAX_NS as i64;
/// Waits in a block.
const BLOCK: u64 = 32;
/// Longest series: blocks with polls that follow a block without. After a series that paid off, the
/// next one is twice as long, so one lucky block does not start a long series. A wait without polls
/// may take ten times as long as one with polls, so these blocks are rare: 1 % of the time.
const NR_BLOCKS: u32 = 1024;
/// Most time of a block with polls, ns. A block that takes longer ends early: each yield to a busy
/// thread takes milliseconds.
const BLOCK_MAX_NS: u64 = 8_000_000;
/// Shortest and longest time without polls after polls that were not worth it, ns. A block that
/// fails wastes at most one ms: 32 windows.
const HOLD_NS: (u64, u64) = (1_000_000, 1_024_000_000);
/// Time between two polls that shows a preemption, ns. A poll takes less than a microsecond; an
/// interrupt takes a few; a slice of another thread takes milliseconds.
const PREEMPTED_NS: u64 = 200_000;
/// Time of a yield that shows that another thread ran, ns. Otherwise a yield takes less than half a
/// microsecond, or a few with an interrupt.
const SHARED_NS: u64 = 4_000;
/// Cost of a yield to another thread, which the time of polling includes, ns.
const SWITCH_NS: u64 = 1_000;
/// Part of the time that preemptions may take: one divided by this. On idle processors, threads of
/// the kernel take less than a percent.
const PREEMPTED_SHARE: u64 = 64;
/// Most credit for preemptions, ns. A preemption by a busy thread takes some 3 ms.
const PREEMPTED_CREDIT_MAX_NS: i64 = 4_000_000;
/// Part of the time that long waits may take while the thread polls: one divided by this. On busy
/// processors, they took nine tenths.
const PAUSED_SHARE: u64 = 2;
/// Most credit for long waits, ns: the thread waits for some slices of other threads before polling
/// is held off. A wait takes no more than this, so no single pause holds polling off: a client that
/// pauses for long is idle.
const PAUSED_CREDIT_MAX_NS: i64 = 8_000_000;
/// Shortest and longest time without polls after preemptions or pauses that exceeded the credit,
/// ns.
const BUSY_HOLD_NS: (u64, u64) = (128_000_000, 4_096_000_000);

/// Mode of polling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PollMode {
    /// Never polls.
    Off,
    /// Polls while it pays off: at most 32 us in a wait, and 20 % of a processor without success.
    #[default]
    Adaptive,
    /// Polls up to this long in each wait, ns, whatever that costs.
    Fixed(u64),
}

/// Sums over all waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollSums {
    /// Time spent polling, ns.
    pub polled_ns: u64,
    /// Waits that polling ended.
    pub nr_found: u64,
    /// Waits that polled and slept.
    pub nr_missed: u64,
}

/// Time without polls after a failure. It doubles with each failure.
#[derive(Clone, Copy, Debug)]
struct HoldOff {
    next_ns: u64,
    range_ns: (u64, u64),
}

impl HoldOff {
    fn new(range_ns: (u64, u64)) -> HoldOff {
        HoldOff { next_ns: range_ns.0, range_ns }
    }

    fn take_ns(&mut self) -> u64 {
        let next_ns = (2 * self.next_ns).min(self.range_ns.1);
        mem::replace(&mut self.next_ns, next_ns)
    }
}

/// Polling policy of one thread.
#[derive(Debug)]
pub struct Polling {
    mode: PollMode,
    /// A wait polls only if at most this many requests began since the last wait.
    nr_few: u64,
    /// Time that a wait may poll, ns.
    window_ns: u64,
    /// Time that polling may still waste, ns. Negative after a poll that took too long.
    credit_ns: i64,
    /// Begin of the wait, end of its polling, and last poll, ns.
    began_ns: u64,
    until_ns: u64,
    last_poll_ns: u64,
    /// Time of other threads in the yields of this wait, ns, and whether there was some.
    yielded_ns: u64,
    is_shared: bool,
    /// Whether the thread has yielded for a long time since the last poll.
    is_long_yield: bool,
    /// Whether the last wait was short.
    was_short: bool,
    /// Requests before the last wait.
    nr_requests: u64,
    /// Whether the current block has polls, and its sample so far.
    is_polled: bool,
    sample: Sample,
    /// Processor time of the thread when the block began, ns.
    cpu_began_ns: Option<u64>,
    /// The last block without polls, the average of those since, and their number.
    slept: Sample,
    polled: Sample,
    nr_blocks: u32,
    /// Blocks of this series.
    nr_due: u32,
    /// Time of the next block with polls, ns.
    held_until_ns: u64,
    hold_off: HoldOff,
    /// The same on busy processors, after preemptions or pauses.
    busy: HoldOff,
    /// Time that preemptions may still take, ns.
    preempted_credit_ns: i64,
    /// Time that long waits may still take, ns.
    paused_credit_ns: i64,
    sums: PollSums,
}

impl Polling {
    /// Creates the policy of a thread.
    pub fn new(mode: PollMode) -> Polling {
        Polling {
            mode,
            nr_few: u64::MAX,
            window_ns: 0,
            credit_ns: CREDIT_MAX_NS,
            began_ns: 0,
            until_ns: 0,
            last_poll_ns: 0,
            yielded_ns: 0,
            is_shared: false,
            is_long_yield: false,
            was_short: false,
            nr_requests: 0,
            is_polled: false,
            sample: Sample::default(),
            cpu_began_ns: None,
            slept: Sample::default(),
            polled: Sample::default(),
            nr_blocks: 0,
            nr_due: 1,
            held_until_ns: 0,
            hold_off: HoldOff::new(HOLD_NS),
            busy: HoldOff::new(BUSY_HOLD_NS),
            preempted_credit_ns: PREEMPTED_CREDIT_MAX_NS,
            paused_credit_ns: PAUSED_CREDIT_MAX_NS,
            sums: PollSums::default(),
        }
    }

    /// Sets the most requests between two waits after which the adaptive mode polls. Socket clients
    /// with more in flight gain little: while the thread sleeps, their requests gather, and cost
    /// less together.
    pub fn after_few(self, nr_few: u64) -> Polling {
        Polling { nr_few, ..self }
    }

    /// Returns whether the thread never polls. Then it need not call the other functions.
    #[inline]
    pub fn is_off(&self) -> bool {
        self.mode == PollMode::Off
    }

    /// Begins a wait. `nr_requests`: number of requests that the thread has begun so far. `cpu_ns`
    /// returns the processor time of the thread; it is called once per block. Returns whether the
    /// caller should poll.
    #[inline]
    pub fn begin(&mut self, now_ns: u64, nr_requests: u64, cpu_ns: impl Fn() -> u64) -> bool {
        let window_ns = match self.mode {
            PollMode::Off => 0,
            PollMode::Adaptive => self.adapt(now_ns, nr_requests, cpu_ns),
            PollMode::Fixed(window_ns) => window_ns,
        };
        (self.began_ns, self.last_poll_ns) = (now_ns, now_ns);
        (self.yielded_ns, self.is_shared, self.is_long_yield) = (0, false, false);
        self.until_ns = now_ns + window_ns;
        window_ns > 0
    }

    /// Adds the time since the last wait began to the credit and to the sample. Returns how long
    /// this wait may poll, ns.
    #[inline]
    fn adapt(&mut self, now_ns: u64, nr_requests: u64, cpu_ns: impl Fn() -> u64) -> u64 {
        let ns = now_ns.saturating_sub(self.began_ns);
        self.credit_ns = self.credit_ns.saturating_add_unsigned(ns / SHARE).min(CREDIT_MAX_NS);
        let credit_ns = self.preempted_credit_ns.saturating_add_unsigned(ns / PREEMPTED_SHARE);
        self.preempted_credit_ns = credit_ns.min(PREEMPTED_CREDIT_MAX_NS);
        let credit_ns = self.paused_credit_ns.saturating_add_unsigned(ns / PAUSED_SHARE);
        self.paused_credit_ns = credit_ns.min(PAUSED_CREDIT_MAX_NS);
        let nr = nr_requests - mem::replace(&mut self.nr_requests, nr_requests);
        match self.cpu_began_ns {
            Some(_) => self.sample.nr_served += nr,
            None => self.cpu_began_ns = Some(cpu_ns()),
        }
        if self.was_short {
            self.sample.nr_waits += 1;
            self.sample.nr_shared += u64::from(self.is_shared);
            self.sample.nr_long += u64::from(self.is_long_yield);
            self.sample.nr_requests += nr;
            self.sample.ns += ns;
        }
        let is_late = self.is_polled && self.sample.ns >= BLOCK_MAX_NS;
        if self.sample.nr_waits >= BLOCK || is_late {
            self.end_block(now_ns, cpu_ns());
        }
        let window_ns = self.window_ns.min(self.credit_ns.max(0) as u64);
        let polls = self.is_polled && nr <= self.nr_few && window_ns >= WINDOW_MIN_NS;
        if polls { window_ns } else { 0 }
    }

    /// Ends a block, and decides whether the next one has polls.
    #[cold]
    fn end_block(&mut self, now_ns: u64, cpu_ns: u64) {
        let mut sample = mem::take(&mut self.sample);
        let began_ns = self.cpu_began_ns.replace(cpu_ns).unwrap_or(cpu_ns);
        sample.cpu_ns = cpu_ns.saturating_sub(began_ns);
        if !self.is_polled {
            (self.slept, self.polled) = (sample, Sample::default());
            self.nr_blocks = 0;
            self.is_polled = now_ns >= self.held_until_ns;
            return;
        }
        self.polled.average(&sample);
        if self.polled.beats(&self.slept) {
            self.nr_blocks += 1;
            if self.nr_blocks == self.nr_due {
                self.is_polled = false;
                if self.nr_due == NR_BLOCKS {
                    // A shorter series may fit into a slice of the processor.
                    self.hold_off = HoldOff::new(HOLD_NS);
                }
                self.nr_due = (2 * self.nr_due).min(NR_BLOCKS);
            }
        } else {
            let hold_ns = self.hold_off.take_ns();
            self.hold(now_ns + hold_ns);
        }
    }

    fn hold(&mut self, until_ns: u64) {
        self.held_until_ns = until_ns;
        self.is_polled = false;
        self.nr_due = 1;
        (self.sample, self.cpu_began_ns) = (Sample::default(), None);
    }

    /// Handles a poll that found nothing. Returns whether to poll again.
    #[inline]
    pub fn goes_on(&mut self, now_ns: u64) -> bool {
        let last_ns = mem::replace(&mut self.last_poll_ns, now_ns);
        let is_preempted = self.is_preempted(last_ns, now_ns);
        if now_ns < self.until_ns && !is_preempted {
            return true;
        }
        // The time of a preemption is the other thread's.
        let polled_ns = self.count_time(if is_preempted { last_ns } else { now_ns });
        self.sums.nr_missed += 1;
        self.credit_ns -= polled_ns as i64;
        if is_preempted {
            self.hold_after_preemption(last_ns, now_ns);
        }
        false
    }

    /// Handles a yield of the processor, which began after the last poll and has ended. Returns
    /// whether other threads ran meanwhile.
    ///
    /// The time of the others is not polling, so the wait may poll longer by that time. If the next
    /// poll after a long yield finds nothing, polling ends as after a preemption. If it finds work,
    /// the trial decides whether such yields pay off.
    #[inline]
    pub fn yielded(&mut self, now_ns: u64) -> bool {
        let ns = now_ns.saturating_sub(self.last_poll_ns);
        if ns < SHARED_NS {
            return false;
        }
        self.is_long_yield = ns >= PREEMPTED_NS;
        if !self.is_long_yield {
            self.is_shared = true;
            self.last_poll_ns = now_ns;
            self.yielded_ns += ns - SWITCH_NS;
            self.until_ns += ns - SWITCH_NS;
        }
        true
    }

    /// Handles a poll that found work: the wait is over.
    #[inline]
    pub fn found(&mut self, now_ns: u64) {
        let is_preempted = !self.is_long_yield && self.is_preempted(self.last_poll_ns, now_ns);
        let is_long = is_preempted || self.is_long_yield;
        self.count_time(if is_long { self.last_poll_ns } else { now_ns });
        self.sums.nr_found += 1;
        self.was_short = !is_preempted;
        if is_preempted {
            self.hold_after_preemption(self.last_poll_ns, now_ns);
        }
    }

    /// Returns whether another thread ran between two polls.
    #[inline]
    fn is_preempted(&self, last_poll_ns: u64, now_ns: u64) -> bool {
        self.mode == PollMode::Adaptive && now_ns.saturating_sub(last_poll_ns) >= PREEMPTED_NS
    }

    /// Takes the time of a preemption from the credit, and holds polling off if that is used up.
    #[cold]
    fn hold_after_preemption(&mut self, last_poll_ns: u64, now_ns: u64) {
        self.preempted_credit_ns -= (now_ns - last_poll_ns) as i64;
        if self.preempted_credit_ns >= 0 {
            return;
        }
        self.preempted_credit_ns = 0;
        self.hold_on_busy_processors(now_ns);
    }

    /// Takes a long wait from the credit, and holds polling off if that is used up.
    #[cold]
    fn hold_after_pause(&mut self, now_ns: u64, waited_ns: u64) {
        self.paused_credit_ns -= waited_ns.min(PAUSED_CREDIT_MAX_NS as u64) as i64;
        if self.paused_credit_ns < 0 {
            self.paused_credit_ns = 0;
            self.hold_on_busy_processors(now_ns);
        }
    }

    /// Holds polling off, each time for longer.
    fn hold_on_busy_processors(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.held_until_ns) > BUSY_HOLD_NS.1 {
            self.busy = HoldOff::new(BUSY_HOLD_NS);
        }
        let hold_ns = self.busy.take_ns();
        self.hold(now_ns + hold_ns);
    }

    /// Handles the end of a sleep: the wait is over.
    #[inline]
    pub fn woke(&mut self, now_ns: u64) {
        let waited_ns = now_ns.saturating_sub(self.began_ns);
        self.was_short = waited_ns <= SHORT_WAIT_NS;
        if !self.was_short {
            self.window_ns = 0;
            if self.is_polled {
                self.hold_after_pause(now_ns, waited_ns);
            }
        } else if waited_ns > self.window_ns {
            self.window_ns = (2 * self.window_ns).clamp(WINDOW_MIN_NS, WINDOW_MAX_NS);
        }
    }

    /// Returns the sums over all waits so far.
    #[inline]
    pub fn sums(&self) -> PollSums {
        self.sums
    }

    /// Adds the time of the polling that ends now. Returns it.
    #[inline]
    fn count_time(&mut self, end_ns: u64) -> u64 {
        let polled_ns = end_ns.saturating_sub(self.began_ns + self.yielded_ns);
        self.sums.polled_ns += polled_ns;
        polled_ns
    }
}

#[cfg(test)]
mod tests;
