//! Change of the scheduler of an open disk (Q8).
//!
//! The core argues why no request is lost (`core/hctx/scheduler_change.rs`). This file supplies the
//! steps: the caller has frozen the disk, and its only context is drained. The order of two
//! changes is that of their tokens, also for the record that [`Shared::scheduling`] returns.

use super::Shared;
use crate::runtime::hctx::{At, SHARED};
use crate::runtime::timed::Timed;
use crate::sys::clock;
use crate::sys::primitive::Ordering;
use crate::sys::primitive::thread;
use forebay_core::{Policy, SchedulerChange, SchedulerPolicy, Scheduling, wait};

impl Shared {
    /// Sets whether turns receive the time: they do if this scheduler needs it, the disk has had an
    /// owner, or it is traced.
    pub(super) fn update_timed(&self, scheduler: SchedulerPolicy) {
        // The first owner sets the flag under this lock.
        let _owners = self.owners.lock();
        let is_used = self.owners.is_used() || self.trace.is_on();
        self.timed.set(self.info.is_timed(scheduler) || is_used);
    }

    /// Returns whether turns receive the time.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.timed.get()
    }

    /// Returns a handle of that flag, for a thread of the disk.
    pub(crate) fn timed(&self) -> Timed {
        self.timed.clone()
    }

    /// Returns the present scheduler, with its settings.
    pub(crate) fn scheduling(&self) -> Scheduling {
        self.meters.scheduling()
    }

    /// Returns the policy of the disk with another scheduler. If the user has set no `nr_requests`,
    /// it has none.
    pub(crate) fn policy_with(&self, scheduling: Scheduling) -> Policy {
        let nr_requests = match self.nr_requests.load(Ordering::Relaxed) {
            0 => self.info.opened_with.nr_requests,
            nr_requests => Some(nr_requests),
        };
        self.info.policy.with_scheduling(scheduling).nr_requests(nr_requests)
    }

    /// Creates the scheduler of a policy, for [`Shared::change_scheduler`].
    pub(crate) fn new_scheduler(&self, policy: &Policy) -> SchedulerChange {
        SchedulerChange::new(policy, &self.info.limits, self.info.policy.queue_depth)
    }

    /// Puts a scheduler in place. The disk is frozen and drained, and has one context.
    pub(crate) fn change_scheduler(&self, change: SchedulerChange, scheduling: Scheduling) {
        // Before any request enters the scheduler.
        self.update_timed(scheduling.scheduler);
        let mut before = None;
        let mut change = Some(change);
        wait::change(
            &mut At::new(&self.hctxs[SHARED]),
            |_| thread::yield_now(),
            |_, token| {
                before =
                    change.take().map(|change| token.core.set_scheduler(change, clock::now_ns()));
                self.meters.set_scheduling(scheduling);
            },
        );
        // A number that was set since the change was created holds.
        match self.nr_requests.load(Ordering::Relaxed) {
            0 => {}
            nr_requests => self.hctxs[SHARED].set_nr_requests(nr_requests),
        }
        // Freed without the token.
        drop(before);
    }
}
