//! Requests that wait behind one that was given up (H7).
//!
//! After a revive, the device may still have a request that was given up. That request holds a tag,
//! and may keep the driver busy. A request that waits for either is not at the driver, so it has no
//! time limit of its own.

use crate::hctx::turned::NO_DEADLINE;
use crate::hctx::{Gates, HardwareContext, Turn};

impl HardwareContext {
    /// Begins the time after which the device is marked as gone again, or ends it. Called at the
    /// end of each full turn.
    #[inline]
    pub(in crate::hctx) fn watch_waiting(&mut self, now: u64, has_issued: bool, gates: Gates) {
        if self.timeouts.has_stuck() {
            self.watch_behind_stuck(now, has_issued, gates);
        } else {
            self.timeouts.stalled_ns = NO_DEADLINE;
        }
    }

    #[cold]
    fn watch_behind_stuck(&mut self, now: u64, has_issued: bool, gates: Gates) {
        // A held request waits for another one, which has a time limit. A flush that waits for
        // writes has a deadline of its own (F6).
        let is_waiting = !self.backlog.is_empty()
            || !self.dispatch.is_empty()
            || self.nr_scheduled() > 0
            || self.flush.is_pending() && self.flush.due_ns() == NO_DEADLINE
            || self.admission.as_ref().is_some_and(|admission| !admission.is_empty());
        let timeouts = &mut self.timeouts;
        if !is_waiting || !gates.dispatch {
            timeouts.stalled_ns = NO_DEADLINE;
        } else if has_issued || timeouts.stalled_ns == NO_DEADLINE {
            let both_ns = timeouts.limit_ns.saturating_add(timeouts.grace_ns);
            timeouts.stalled_ns = now.saturating_add(both_ns);
            timeouts.next_ns = timeouts.next_ns.min(timeouts.stalled_ns);
        }
    }
}

impl Turn<'_> {
    /// Marks the device as gone if requests have waited for too long behind one that was given up.
    /// This turn then ends them. `nr_ended_before` is the length of the list of ended bios when the
    /// turn began.
    pub(super) fn end_stalled(&mut self, nr_ended_before: usize) {
        let hctx = &mut *self.hctx;
        let timeouts = &mut hctx.timeouts;
        if self.now < timeouts.stalled_ns {
            return;
        }
        // It begins again if this turn issues nothing although bios have just ended, or if a gate
        // was closed meanwhile.
        timeouts.stalled_ns = NO_DEADLINE;
        let has_ended = self.ended.len() > nr_ended_before;
        if timeouts.has_stuck() && !has_ended && self.gates.dispatch {
            hctx.device.give_up();
            hctx.awake_all();
        }
    }
}
