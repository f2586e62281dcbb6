//! Delayed runs of a hardware context: one word with the earliest due time.
//!
//! Counterpart in Linux: the timer of `blk_mq_hw_ctx.run_work`, which `blk_mq_delay_run_hw_queue`
//! sets if a driver is busy with nothing in flight. No completion will run such a context again, so
//! a thread has to. The mark belongs to the context, not to the thread that met the busy driver.
//! The current or next leader finds it.
//!
//! The mark is a time and not a flag, so that a delayed run and an immediate one stay distinct.
//! With one bit for both, the third of run(0), run(delay), run(0) finds the bit set, is dropped,
//! and waits as long as the second. (Found in the review of "blk-mq: avoid repeatedly scheduling
//! the same work to run hardware queue", linux-block, 2019.) The earliest time wins: contexts that
//! extend each other's delays would never run (fixed in Linux 5.18).
//!
//! Rules, in addition to those of [`RunState`](crate::RunState):
//!
//! - R1 a run clears the mark before it looks for work, so later delays set a new mark;
//! - R3 a delayed run never extends an earlier one. An immediate run overrides a delayed one: it
//!   either makes that run ([`begin`](RunTimer::begin)) or sets a mark of time 0;
//! - R4 stopping or quiescing the context cancels the mark. Starting it runs it at once, so no mark
//!   has to be remembered.
//!
//! **Every change is a read-modify-write of one word that acquires and releases**, even if the
//! value stays the same. So a run that clears the mark has acquired what each thread published
//! before its `delay`, whether or not that thread's time was the earliest.

use crate::plant::plants;
use crate::primitive::{AtomicU64, Ordering};

/// The value that means: no run is due.
const NONE: u64 = u64::MAX;

/// The time of the next delayed run of a hardware context, if one is due. Any thread may call any
/// method. Times are nanoseconds of a clock that all callers share.
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
    /// Creates a timer without a due run.
    pub fn new() -> RunTimer {
        RunTimer { at_ns: AtomicU64::new(NONE) }
    }

    /// Requests a run at `at_ns` or earlier; 0 means at once. The caller has published its work
    /// before. Returns whether this is now the earliest time. If so, a thread that sleeps until the
    /// old mark has to be woken.
    ///
    /// R3: the smaller time stays, in any order of calls. AcqRel even if the value stays the same:
    /// the run at the earlier time acquires this thread's work too.
    pub fn delay(&self, at_ns: u64) -> bool {
        // The last instant, 584 years away, is the value of "no mark".
        let at_ns = at_ns.min(NONE - 1);
        if plants!(ExtendDelay) {
            self.cancel();
        }
        self.at_ns.fetch_min(at_ns, Ordering::AcqRel) > at_ns
    }

    /// Requests a run at `at_ns` or earlier, for a deadline of the context: the caller holds the
    /// token, and has published nothing. Returns whether this is now the earliest time. If so, a
    /// thread that sleeps until the old mark has to be woken.
    ///
    /// If there is an earlier mark, this is one load. Relaxed suffices: a mark is removed by a run,
    /// which a turn follows, and that turn requests its own deadline.
    #[inline]
    pub fn limit(&self, at_ns: u64) -> bool {
        self.at_ns.load(Ordering::Relaxed) > at_ns && self.delay(at_ns)
    }

    /// Begins a run, for any reason, and takes the mark. Called before the run looks for work (R1).
    /// Returns whether there was a mark.
    ///
    /// A later delay sets a new mark. An earlier one has published its work, and this call acquires
    /// it.
    ///
    /// Without a mark this is one load. Relaxed suffices: if the load is older than a mark, the
    /// mark stays and is served later.
    #[inline]
    pub fn begin(&self) -> bool {
        self.at_ns.load(Ordering::Relaxed) != NONE
            && self.at_ns.swap(NONE, Ordering::AcqRel) != NONE
    }

    /// Begins a run if one is due, as [`begin`](RunTimer::begin) does. Returns false if none is due
    /// by `now_ns`.
    pub fn begin_if_due(&self, now_ns: u64) -> bool {
        // Relaxed: a guess, confirmed only by the exchange. If a time is read too late, the thread
        // that set it wakes this thread or another that runs.
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

    /// Removes the mark because the context was stopped or quiesced (R4). Called when the gate is
    /// closed. A turn in progress may still set a mark afterwards; it costs a turn that finds the
    /// gate closed. The thread that opens the gate requests a turn, mark or not.
    pub fn cancel(&self) {
        self.at_ns.swap(NONE, Ordering::AcqRel);
    }

    /// Returns whether there is a mark. The answer may be outdated.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.at_ns.load(Ordering::Relaxed) != NONE
    }

    /// Returns the nanoseconds until the mark is due, 0 if it is due now, or `None` without a mark.
    ///
    /// Acquire: the caller sees what led to the mark. It does not see a mark that is set after this
    /// load. A thread that is about to sleep must therefore be woken for an earlier one: see
    /// [`delay`](RunTimer::delay).
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
        // The worker takes the first run before the second is requested, or it does not.
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
    fn deadline_replaces_later_marks_only() {
        let timer = RunTimer::new();
        assert!(timer.limit(70) && !timer.limit(70) && !timer.limit(90));
        assert_eq!(timer.left_ns(0), Some(70));
        assert!(timer.limit(30));
        assert_eq!(timer.left_ns(0), Some(30));
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
