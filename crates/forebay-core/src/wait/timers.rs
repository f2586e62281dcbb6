//! The two times at which a context has to run without an event.

use crate::run_timer::RunTimer;

/// The delayed run of a context, and its next deadline. Any thread may call any method.
///
/// They are two marks because a gate removes one of them: a delayed run finds nothing to do while
/// the context is stopped or quiesced (R4), but a request at the driver may become overdue.
#[derive(Debug, Default)]
pub struct Timers {
    delayed: RunTimer,
    deadline: RunTimer,
}

impl Timers {
    /// Creates the timers without marks.
    pub fn new() -> Timers {
        Timers::default()
    }

    /// Requests a delayed run ([`RunTimer::delay`]).
    pub fn arm_delayed_run(&self, at_ns: u64) -> bool {
        self.delayed.delay(at_ns)
    }

    /// Requests a run for a deadline ([`RunTimer::limit`]).
    #[inline]
    pub fn arm_deadline(&self, at_ns: u64) -> bool {
        self.deadline.limit(at_ns)
    }

    /// Begins a run, for any reason, and takes the marks ([`RunTimer::begin`]). A turn follows,
    /// which requests its next deadline.
    #[inline]
    pub fn take(&self) {
        self.delayed.begin();
        self.deadline.begin();
    }

    /// Removes the delayed run, because the context was stopped or quiesced ([`RunTimer::cancel`]).
    pub fn cancel_delayed_run(&self) {
        self.delayed.cancel();
    }

    /// Returns whether there is a mark. The answer may be outdated.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.delayed.is_set() || self.deadline.is_set()
    }

    /// Returns how long a leader may wait at most, in nanoseconds; `None` without a mark. `now_ns`
    /// is called only if there is one.
    ///
    /// A mark that is set after this call is not missed: the thread that sets it kicks the leader.
    #[inline]
    pub fn wait_ns(&self, now_ns: impl FnOnce() -> u64) -> Option<u64> {
        if self.is_set() { self.left_ns(now_ns()) } else { None }
    }

    /// Returns the nanoseconds until the earlier mark is due; `None` without a mark
    /// ([`RunTimer::left_ns`]).
    pub fn left_ns(&self, now_ns: u64) -> Option<u64> {
        let left = [self.delayed.left_ns(now_ns), self.deadline.left_ns(now_ns)];
        left.into_iter().flatten().min()
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests {
    use super::Timers;

    #[test]
    fn gate_removes_the_delayed_run_and_not_the_deadline() {
        let timers = Timers::new();
        assert_eq!((timers.is_set(), timers.left_ns(0)), (false, None));
        timers.arm_deadline(70);
        timers.arm_delayed_run(30);
        assert_eq!(timers.left_ns(10), Some(20));
        timers.cancel_delayed_run();
        assert_eq!((timers.is_set(), timers.left_ns(10)), (true, Some(60)));
        timers.take();
        assert!(!timers.is_set());
    }

    #[test]
    fn leader_waits_until_the_earlier_mark() {
        let timers = Timers::new();
        assert_eq!(timers.wait_ns(|| panic!("the clock is not read without a mark")), None);
        timers.arm_delayed_run(90);
        assert_eq!((timers.is_set(), timers.wait_ns(|| 10)), (true, Some(80)));
        assert!(timers.arm_deadline(50) && !timers.arm_deadline(60));
        assert_eq!(timers.wait_ns(|| 10), Some(40));
        assert!(timers.arm_delayed_run(30) && !timers.arm_delayed_run(40));
        assert_eq!(timers.wait_ns(|| 40), Some(0));
    }
}
