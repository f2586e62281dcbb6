//! Wakes for the tags of hardware contexts, if threads wait for these tags (T1, T4, T5). The core
//! keeps the queues of waiters; this checker records the wakes that it reports and what the tasks
//! do with them.

use super::{Verdict, broken, rules};
use std::collections::BTreeMap;

/// State of the last wake of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// The policy gave it.
    Given,
    /// The task was notified.
    Notified,
    /// A turn was to try for the task after that.
    Used,
}

/// By context and task.
#[derive(Debug, Default)]
pub(crate) struct LineWakes {
    wakes: BTreeMap<(usize, usize), Wake>,
}

impl LineWakes {
    /// Records that the policy has woken a task.
    pub(crate) fn given(&mut self, hctx: usize, task: usize) {
        self.wakes.insert((hctx, task), Wake::Given);
    }

    /// Records that a task was notified.
    pub(crate) fn notified(&mut self, hctx: usize, task: usize) {
        self.wakes.insert((hctx, task), Wake::Notified);
    }

    /// Records that a turn is to try for a task.
    pub(crate) fn tries(&mut self, hctx: usize, task: usize) {
        self.wakes.insert((hctx, task), Wake::Used);
    }

    /// Returns which rule is broken if these tasks lack tags although the context has `nr_free`.
    /// Called when nothing happens any more.
    pub(crate) fn why_asleep(&self, hctx: usize, nr_free: u32, sleepers: &[usize]) -> Verdict {
        let Some(first) = sleepers.first() else { return Ok(()) };
        let find =
            |wake| sleepers.iter().find(|&&task| self.wakes.get(&(hctx, task)) == Some(&wake));
        if let Some(task) = find(Wake::Given) {
            let what =
                format!("context {hctx}: task {task} did not sleep, and no turn tries for it");
            return broken(rules::T4, what);
        }
        if let Some(task) = find(Wake::Notified) {
            let what = format!("context {hctx}: task {task} was woken and has not tried again");
            return broken(rules::T5, what);
        }
        let what = format!(
            "context {hctx}: {nr_free} tags are free, and task {first} sleeps for one; {} sleep in \
             all",
            sleepers.len()
        );
        broken(rules::T1, what)
    }
}
