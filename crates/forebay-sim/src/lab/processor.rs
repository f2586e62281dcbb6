//! The processors that complete I/O, and the work of running a queue that each completion asks for.
//!
//! Model of the state before and after "blk-mq: avoid repeatedly scheduling the same work to run
//! hardware queue" (2019). While requests wait in the layer, each completion has the queue run by a
//! worker. If that work is pending already, the *before* takes it out of its list and puts it back,
//! under locks that all completing processors want; the *after* looks at a bit. A work is pending
//! from when it is queued to when it begins; what is queued while it runs is pending until that run
//! is over; and a run takes time for each request that waits. So the deeper the queue, the more of
//! the completions find the work pending.

use forebay_model::{Done, Machine, Random};
use std::collections::VecDeque;

/// What a completion does about work that is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunQueue {
    /// Queues it again: the state before.
    Always,
    /// Nothing: the state after.
    Dedupe,
}

impl RunQueue {
    /// Both.
    pub const ALL: [RunQueue; 2] = [RunQueue::Always, RunQueue::Dedupe];

    /// The setting's value.
    pub const fn name(self) -> &'static str {
        match self {
            RunQueue::Always => "always",
            RunQueue::Dedupe => "dedupe",
        }
    }
}

/// What completions cost. `base_ns` comes from the published rows that no work slows down: 250k
/// I/Os per second. What queueing costs is derived from the others, which take 1.65 us more at
/// depth 256 and 2.41 us at 1024; it is injected here, since Forebay has no such work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCosts {
    /// All that the processors do for an I/O, one after another, ns.
    pub base_ns: u64,
    /// To queue work that is not pending, ns.
    pub queue_ns: u64,
    /// To queue work again that is pending, ns: with the wait for the locks, which 8 processors
    /// want.
    pub requeue_ns: u64,
    /// To see that it is pending, ns.
    pub test_ns: u64,
    /// From queueing to the begin of the work, ns.
    pub begin_ns: u64,
    /// What a run takes for each request that waits, ns.
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
    /// The same, but what queueing costs.
    #[must_use]
    pub fn without_queueing(self) -> RunCosts {
        RunCosts { queue_ns: 0, requeue_ns: 0, test_ns: 0, ..self }
    }
}

/// How often completions asked for a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// The work was not pending.
    pub nr_queued: u64,
    /// It was.
    pub nr_redundant: u64,
}

/// Where the work is.
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
    /// Done by the device, oldest first.
    done: VecDeque<Done>,
    /// What it is at, until when.
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

    /// When something happens next, ns.
    pub(super) fn next_at_ns(&self, machine: &dyn Machine) -> Option<u64> {
        match self.serving {
            Some((_, until)) => Some(until),
            None => machine.next_at_ns(),
        }
    }

    /// The next I/O that it has completed by `now`; `nr_waiting` requests wait in the layer.
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

    /// A completion asks for a run. Says what that costs, ns.
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
            // Queued; pending; it runs from 100 to 120, and is queued while it does.
            assert_eq!(processor.ask_for_run(0, 4), 1);
            assert_eq!(processor.ask_for_run(99, 4), again_ns);
            assert_eq!(processor.ask_for_run(100, 4), 1);
            assert_eq!(processor.ask_for_run(119, 4), again_ns);
            // That runs from 120 to 140, and is idle after.
            assert_eq!(processor.ask_for_run(200, 4), 1);
            assert_eq!(processor.counts, RunCounts { nr_queued: 3, nr_redundant: 2 });
        }
    }
}
