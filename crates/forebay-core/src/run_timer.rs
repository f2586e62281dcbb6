//! A run of a hardware context that is due later: one mark, the earliest time.
//!
//! Counterpart in Linux: the timer of `blk_mq_hw_ctx.run_work`, which `blk_mq_delay_run_hw_queue`
//! sets where a driver is busy with nothing in flight. No completion will move such a context on,
//! so somebody has to look again. The mark belongs to the context and not to the thread that met
//! the busy driver: whoever leads, now or next, finds it.
//!
//! It is a time and no flag, so that a delayed run and an immediate one cannot be taken for each
//! other: with one bit for both, of run(0), run(delay), run(0) the third finds the bit set, is
//! dropped, and waits as long as the second. (Found in the review of "blk-mq: avoid repeatedly
//! scheduling the same work to run hardware queue", linux-block, 2019.) And the earliest time wins:
//! contexts that extend each other's delays would never run (mended in Linux 5.18).
//!
//! Rules, beside those of [`RunState`](crate::RunState):
//!
//! - R1 a run clears the mark before it looks at what there is to do: what is delayed after that is
//!   marked anew;
//! - R3 a delayed run never extends an earlier one, and an immediate run overrides a delayed one:
//!   either by making it ([`begin`](RunTimer::begin)), or by a mark of time 0;
//! - R4 who stops or quiesces the context cancels the mark; who starts it runs it at once, so
//!   nothing has to remember it.
//!
//! **Every change is a read-modify-write of one word that acquires and releases**, also one that
//! leaves the value as it was. So a run that clears the mark has acquired what each thread
//! published before its `delay`, whether or not that thread's time was the earliest.

use crate::primitive::{AtomicU64, Ordering};

/// No run is due.
const NONE: u64 = u64::MAX;

/// When the next delayed run of a hardware context is due, if one is. Any thread may call any of
/// its functions. Times are in ns, of whatever clock the caller has; all callers the same.
#[derive(Debug)]
pub struct RunTimer {
    at_ns: AtomicU64,
}

impl Default for RunTimer {
    fn default() -> RunTimer {
        RunTimer::new()
    }
}

impl RunTimer {
    /// No run is due.
    pub fn new() -> RunTimer {
        RunTimer { at_ns: AtomicU64::new(NONE) }
    }

    /// Asks for a run at a time, or earlier; at 0, at once. The work is published before. True: it
    /// is now the earliest, so who sleeps until the mark sleeps too long, and has to be told.
    ///
    /// R3: the smaller time stays, whoever comes first. AcqRel, though the value may stay as it is:
    /// who takes the earlier time acquires this thread's work with it.
    pub fn delay(&self, at_ns: u64) -> bool {
        // The last instant is 584 years away; it is the mark of none.
        let at_ns = at_ns.min(NONE - 1);
        self.at_ns.fetch_min(at_ns, Ordering::AcqRel) > at_ns
    }

    /// A run begins, for whatever reason: it does what the mark asks for. Called before it looks at
    /// what there is to do (R1). True: there was a mark.
    ///
    /// A delay that comes after this sets the mark anew; one that came before has published its
    /// work, and this acquires it.
    ///
    /// Where there is no mark, this is a load. Relaxed: if it is older than a mark, the mark stays,
    /// and with it what it asks for.
    #[inline]
    pub fn begin(&self) -> bool {
        self.at_ns.load(Ordering::Relaxed) != NONE
            && self.at_ns.swap(NONE, Ordering::AcqRel) != NONE
    }

    /// As [`begin`](RunTimer::begin), if the time has come. False: nothing is due by `now_ns`.
    pub fn begin_if_due(&self, now_ns: u64) -> bool {
        // Relaxed: a guess, from which only the exchange concludes. A time that is read too late
        // was set by somebody who then tells this thread, or another that runs.
        let mut at_ns = self.at_ns.load(Ordering::Relaxed);
        while at_ns <= now_ns && at_ns != NONE {
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            match self.at_ns.compare_exchange_weak(at_ns, NONE, order.0, order.1) {
                Ok(_) => return true,
                Err(now) => at_ns = now,
            }
        }
        false
    }

    /// The context was stopped or quiesced: the mark goes (R4). Called when the gate is closed. It
    /// is no promise that none is set afterwards, by a turn that was under way: such a one costs a
    /// turn that finds the gate closed. Who opens the gate asks for a turn, mark or not.
    pub fn cancel(&self) {
        self.at_ns.swap(NONE, Ordering::AcqRel);
    }

    /// Whether there is a mark; a guess.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.at_ns.load(Ordering::Relaxed) != NONE
    }

    /// How long to sleep until the mark is due, ns: 0 if it is. None: there is no mark.
    ///
    /// Acquire: what led to the mark is seen. A mark that is set after this look is not, so who is
    /// about to sleep must be told of one that comes earlier: see [`delay`](RunTimer::delay).
    pub fn left_ns(&self, now_ns: u64) -> Option<u64> {
        match self.at_ns.load(Ordering::Acquire) {
            NONE => None,
            at_ns => Some(at_ns.saturating_sub(now_ns)),
        }
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests {
    use super::RunTimer;

    #[test]
    fn the_earliest_of_several_delays_counts() {
        let timer = RunTimer::new();
        assert_eq!(timer.left_ns(0), None);
        assert!(timer.delay(70));
        assert!(!timer.delay(90), "a later one extends nothing");
        assert!(!timer.delay(70), "the same is not earlier");
        assert_eq!(timer.left_ns(20), Some(50));
        assert!(timer.delay(30));
        assert_eq!((timer.left_ns(20), timer.left_ns(40)), (Some(10), Some(0)));
    }

    #[test]
    fn of_an_immediate_a_delayed_and_an_immediate_run_the_third_is_not_lost() {
        let timer = RunTimer::new();
        // The worker takes the first before the second comes, or it does not.
        for is_taken_between in [false, true] {
            timer.delay(0);
            assert!(!is_taken_between || timer.begin_if_due(1));
            timer.delay(1_000);
            timer.delay(0);
            assert!(timer.begin_if_due(1), "the third waits for the second's time");
            assert_eq!(timer.left_ns(1), None);
        }
    }

    #[test]
    fn a_run_takes_the_mark_when_its_time_has_come_or_for_another_reason() {
        let timer = RunTimer::new();
        assert!(!timer.begin() && !timer.begin_if_due(u64::MAX));
        timer.delay(50);
        assert!(!timer.begin_if_due(49));
        assert!(timer.begin_if_due(50));
        timer.delay(50);
        assert!(timer.begin());
        timer.delay(50);
        timer.cancel();
        assert!(!timer.begin_if_due(u64::MAX));
    }

    #[test]
    fn the_end_of_time_is_a_time() {
        let timer = RunTimer::new();
        assert!(timer.delay(u64::MAX));
        assert_eq!(timer.left_ns(u64::MAX), Some(0));
        assert!(timer.begin_if_due(u64::MAX));
    }
}
