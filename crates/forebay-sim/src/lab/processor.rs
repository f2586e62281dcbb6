//! The processors that complete I/O, and the queue run that each completion requests.
//!
//! It models the state before and after "blk-mq: avoid repeatedly scheduling the same work to run
//! hardware queue" (2019). While requests wait in the layer, each completion has a worker run the
//! queue. If that work is pending already, the kernel *before* the change removes it from its list
//! and inserts it again, under locks for which all completing processors contend. The kernel
//! *after* the change tests a bit. Work is pending from its queueing until it begins. Work that is
//! queued while it runs is pending until that run is over. A run takes time for each waiting
//! request. So the deeper the queue, the more completions find the work pending.

use forebay_model::{Done, Machine, Random};
use std::collections::VecDeque;

/// How a completion treats pending work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunQueue {
    /// Queues it again: the state before.
    Always,
    /// Does nothing: the state after.
    Dedupe,
}

impl RunQueue {
    /// Both values.
    pub const ALL: [RunQueue; 2] = [RunQueue::Always, RunQueue::Dedupe];

    /// Returns the setting's value.
    pub const fn name(self) -> &'static str {
        match self {
            RunQueue::Always => "always",
            RunQueue::Dedupe => "dedupe",
        }
    }
}

/// The costs of completions. `base_ns` comes from the published results that no queue run slows
/// down: 250k I/Os per second. The cost of queueing is derived from the other results, which take
/// 1.65 us more at depth 256 and 2.41 us at 1024. It is injected here, since Forebay has no such
/// work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCosts {
    /// The time of all processors for an I/O, one after another, ns.
    pub base_ns: u64,
    /// The time to queue work that is not pending, ns.
    pub queue_ns: u64,
    /// The time to queue pending work again, ns. It includes the wait for the locks, for which 8
    /// processors contend.
    pub requeue_ns: u64,
    /// The time to see that the work is pending, ns.
    pub test_ns: u64,
    /// The time from queueing to the start of the work, ns.
    pub begin_ns: u64,
    /// The time of a run for each waiting request, ns.
    pub look_ns: u64,
}

impl Default for RunCosts {
    fn default() -> RunCosts {
        RunCosts {
            base_ns: 4_000,
            queue_ns: 100,
            requeue_ns: 2_600,
            test_ns: 20,
            begin_ns: 6_000,
            look_ns: 80,
        }
    }
}

impl RunCosts {
    /// Returns the same costs without the cost of queueing.
    #[must_use]
    pub fn without_queueing(self) -> RunCosts {
        RunCosts { queue_ns: 0, requeue_ns: 0, test_ns: 0, ..self }
    }
}

/// How often completions requested a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// The work was not pending.
    pub nr_queued: u64,
    /// The work was pending.
    pub nr_redundant: u64,
}

/// State of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Idle,
    Pending { begins_at: u64 },
    Running { until: u64, is_pending: bool },
}

/// Completes one I/O at a time.
#[derive(Debug)]
pub(super) struct Processor {
    policy: RunQueue,
    costs: RunCosts,
    work: Work,
    /// Completed by the device, oldest first.
    done: VecDeque<Done>,
    /// The I/O in service, and the time when it ends.
    serving: Option<(Done, u64)>,
    free_at: u64,
    pub(super) counts: RunCounts,
}

impl Processor {
    pub(super) fn new(policy: RunQueue, costs: RunCosts) -> Processor {
        Processor {
            policy,
            costs,
            work: Work::Idle,
            done: VecDeque::new(),
            serving: None,
            free_at: 0,
            counts: RunCounts::default(),
        }
    }

    /// Returns the time of the next event, ns.
    pub(super) fn next_at_ns(&self, machine: &dyn Machine) -> Option<u64> {
        match self.serving {
            Some((_, until)) => Some(until),
            None => machine.next_at_ns(),
        }
    }

    /// Returns the next I/O that was completed by `now`. `nr_waiting` requests wait in the layer.
    pub(super) fn take_done(
        &mut self,
        machine: &mut dyn Machine,
        random: &mut Random,
        now: u64,
        nr_waiting: u64,
    ) -> Option<Done> {
        self.done.extend(std::iter::from_fn(|| machine.take_done(now, random)));
        let ended = self.serving.take_if(|(_, until)| *until <= now);
        if self.serving.is_none()
            && let Some(next) = self.done.pop_front()
        {
            let begin = next.done_at_ns.max(self.free_at);
            let asked_ns = if nr_waiting > 0 { self.ask_for_run(begin, nr_waiting) } else { 0 };
            self.free_at = begin + self.costs.base_ns + asked_ns;
            self.serving = Some((next, self.free_at));
        }
        ended.map(|(done, _)| done)
    }

    /// Requests a run for a completion. Returns the cost, ns.
    fn ask_for_run(&mut self, now: u64, nr_waiting: u64) -> u64 {
        let RunCosts { queue_ns, requeue_ns, test_ns, begin_ns, look_ns, .. } = self.costs;
        loop {
            self.work = match self.work {
                Work::Pending { begins_at } if begins_at <= now => {
                    Work::Running { until: begins_at + look_ns * nr_waiting, is_pending: false }
                }
                Work::Running { until, is_pending: true } if until <= now => {
                    Work::Running { until: until + look_ns * nr_waiting, is_pending: false }
                }
                Work::Running { until, is_pending: false } if until <= now => Work::Idle,
                _ => break,
            };
        }
        let (work, is_queued) = match self.work {
            Work::Idle => (Work::Pending { begins_at: now + begin_ns }, true),
            Work::Running { until, is_pending: false } => {
                (Work::Running { until, is_pending: true }, true)
            }
            pending => (pending, false),
        };
        self.work = work;
        let count = match is_queued {
            true => &mut self.counts.nr_queued,
            false => &mut self.counts.nr_redundant,
        };
        *count += 1;
        match (is_queued, self.policy) {
            (true, _) => queue_ns,
            (false, RunQueue::Always) => requeue_ns,
            (false, RunQueue::Dedupe) => test_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_is_pending_is_not_queued_twice_but_costs_what_the_policy_says() {
        let costs = RunCosts {
            base_ns: 0,
            queue_ns: 1,
            requeue_ns: 10,
            test_ns: 2,
            begin_ns: 100,
            look_ns: 5,
        };
        for (policy, again_ns) in [(RunQueue::Always, 10), (RunQueue::Dedupe, 2)] {
            let mut processor = Processor::new(policy, costs);
            // Queued; pending; it runs from 100 to 120, and is queued again during that.
            assert_eq!(processor.ask_for_run(0, 4), 1);
            assert_eq!(processor.ask_for_run(99, 4), again_ns);
            assert_eq!(processor.ask_for_run(100, 4), 1);
            assert_eq!(processor.ask_for_run(119, 4), again_ns);
            // That run lasts from 120 to 140, and the work is idle afterwards.
            assert_eq!(processor.ask_for_run(200, 4), 1);
            assert_eq!(processor.counts, RunCounts { nr_queued: 3, nr_redundant: 2 });
        }
    }
}
