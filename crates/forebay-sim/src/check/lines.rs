//! Waits for the tags of hardware contexts, where threads wait for them: what became of each wake
//! (T1, T4, T5). The core keeps the lines; what it says of them, and what is done about it, is seen
//! here.

use super::{Verdict, broken, rules};
use std::collections::BTreeMap;

/// What became of the last wake of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// The policy gave it.
    Given,
    /// The task was told.
    Told,
    /// A turn was to try for it after that.
    Used,
}

/// By context and task.
#[derive(Debug, Default)]
pub(crate) struct LineWakes {
    wakes: BTreeMap<(usize, usize), Wake>,
}

impl LineWakes {
    /// The policy has woken a task.
    pub(crate) fn given(&mut self, hctx: usize, task: usize) {
        self.wakes.insert((hctx, task), Wake::Given);
    }

    /// A task was told.
    pub(crate) fn told(&mut self, hctx: usize, task: usize) {
        self.wakes.insert((hctx, task), Wake::Told);
    }

    /// A turn is to try for a task.
    pub(crate) fn tries(&mut self, hctx: usize, task: usize) {
        self.wakes.insert((hctx, task), Wake::Used);
    }

    /// A context has `nr_free` tags, nothing happens any more, and these tasks lack tags. Why?
    pub(crate) fn why_asleep(&self, hctx: usize, nr_free: u32, sleepers: &[usize]) -> Verdict {
        let Some(first) = sleepers.first() else { return Ok(()) };
        let find =
            |wake| sleepers.iter().find(|&&task| self.wakes.get(&(hctx, task)) == Some(&wake));
        if let Some(task) = find(Wake::Given) {
            let what =
                format!("context {hctx}: task {task} did not sleep, and nobody tries for it");
            return broken(rules::T4, what);
        }
        if let Some(task) = find(Wake::Told) {
            let what = format!("context {hctx}: task {task} was told, and has not asked again");
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
