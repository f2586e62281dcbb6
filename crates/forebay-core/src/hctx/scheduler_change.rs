//! Change of the scheduler of a context that is in use (Q8).
//!
//! The caller freezes the disk and waits until the context is drained. So no request is in the old
//! scheduler, and none enters before the new one is in place. The new scheduler exists before the
//! freeze begins: nothing can fail once requests wait for it.
//!
//! # Why no request is lost
//! The holder of the token makes the change. Each turn is made under the token as well, and reads
//! the gate of frozen contexts after it has taken the token. Once the gate is closed and the token
//! was seen free (R5), every turn leaves new requests outside of the context. So a context that was
//! drained then is drained whenever the token is taken, until the gate opens. All changes of the
//! run word acquire and release (`run_state.rs`). So the next holder of the token sees the new
//! scheduler, and the gate opens later. No other atomic word takes part.
//!
//! Counterpart in Linux: `elevator_switch` (`block/elevator.c`). It creates the new scheduler while
//! the queue is frozen, and falls back to none if that fails.

use crate::hctx::{FastTurn, HardwareContext};
use crate::limits::QueueLimits;
use crate::plant::plants;
use crate::policy::Policy;
use crate::sched::Elevator;
use crate::scheduling::Scheduling;
use alloc::boxed::Box;

/// A scheduler that [`HardwareContext::set_scheduler`] puts in place. The call returns the former
/// scheduler in the same type; drop it after releasing the token.
#[derive(Debug)]
pub struct SchedulerChange {
    scheduling: Scheduling,
    nr_requests: u32,
    elevator: Option<Box<Elevator>>,
}

impl SchedulerChange {
    /// Creates the scheduler of `policy` for a context with these limits and with `depth` tags. If
    /// the policy has no `nr_requests`, the number of tags in use becomes its default with this
    /// scheduler.
    pub fn new(policy: &Policy, limits: &QueueLimits, depth: u32) -> SchedulerChange {
        let nr_requests = policy.nr_requests_of(limits).clamp(1, depth);
        let elevator = Elevator::new(policy, limits, depth, nr_requests);
        SchedulerChange { scheduling: policy.scheduling(), nr_requests, elevator }
    }

    /// Returns how many tags may be in use.
    pub fn nr_requests(&self) -> u32 {
        self.nr_requests
    }
}

impl HardwareContext {
    /// Replaces the scheduler, and sets how many tags may be in use. Returns the former scheduler.
    /// `now` is the present time, even if turns did not need it before. The caller runs a turn
    /// afterwards.
    ///
    /// # Panics
    /// Panics if an admitted request is left that was not given up (H5).
    pub fn set_scheduler(&mut self, change: SchedulerChange, now: u64) -> SchedulerChange {
        let SchedulerChange { scheduling, nr_requests, mut elevator } = change;
        let is_drained = self.is_drained();
        assert!(is_drained || plants!(ChangeBusy), "the scheduler changes in a drained context");
        if let Some(elevator) = &mut elevator {
            elevator.begin_turn(now);
            if let Some(owners) = self.owners() {
                elevator.set_owners(owners);
            }
            let given_up = self.given_up_data().filter(|_| !plants!(ForgetGivenUp));
            given_up.for_each(|(tag, op, flags)| elevator.adopt(tag, op, flags));
        }
        let before = SchedulerChange {
            scheduling: self.policy.scheduling(),
            nr_requests: self.tags.nr_requests(),
            elevator: core::mem::replace(&mut self.elevator, elevator),
        };
        self.policy = self.policy.with_scheduling(scheduling);
        self.counts_puts = self.has_puts_to_count();
        self.fast_turn = FastTurn::None;
        self.set_nr_requests(nr_requests);
        before
    }

    /// Returns whether no admitted request is left, except those that were given up (H5).
    pub fn is_drained(&self) -> bool {
        self.nr_awaited() == 0 && !self.has_waiting()
    }

    /// Returns the scheduler and its settings.
    pub fn scheduling(&self) -> Scheduling {
        self.policy.scheduling()
    }
}
