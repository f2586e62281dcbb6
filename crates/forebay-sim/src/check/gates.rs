//! Tokens and gates: one task holds the token at a time, and nothing is dispatched behind a closed
//! gate.

use super::{Verdict, broken, rules};

/// State of one hardware context.
#[derive(Clone, Debug, Default)]
struct Door {
    holder: Option<usize>,
    /// Tasks that have closed a gate and then observed that no task runs the context (R5).
    nr_shut: u32,
}

/// The state of all hardware contexts.
#[derive(Debug)]
pub(crate) struct Gatekeeper {
    doors: Vec<Door>,
}

impl Gatekeeper {
    pub(crate) fn new(nr_hctxs: usize) -> Gatekeeper {
        Gatekeeper { doors: vec![Door::default(); nr_hctxs] }
    }

    pub(crate) fn take(&mut self, hctx: usize, task: usize) -> Verdict {
        match self.doors[hctx].holder.replace(task) {
            None => Ok(()),
            Some(other) => {
                let what = format!("context {hctx}: task {task} took it from task {other}");
                broken(rules::ONE_HOLDER, what)
            }
        }
    }

    pub(crate) fn check_holder(&self, hctx: usize, task: usize) -> Verdict {
        let holder = self.doors[hctx].holder;
        match holder == Some(task) {
            true => Ok(()),
            false => {
                let what = format!("context {hctx}: task {task} turns it, held by {holder:?}");
                broken(rules::ONE_HOLDER, what)
            }
        }
    }

    pub(crate) fn give(&mut self, hctx: usize, task: usize) -> Verdict {
        let held = self.check_holder(hctx, task);
        self.doors[hctx].holder = None;
        held
    }

    /// Records that a task has observed that its gate is in force.
    pub(crate) fn shut(&mut self, hctx: usize) {
        self.doors[hctx].nr_shut += 1;
    }

    /// Records that the task will end its hold on the gate.
    pub(crate) fn unshut(&mut self, hctx: usize) {
        self.doors[hctx].nr_shut -= 1;
    }

    pub(crate) fn check_issue(&self, hctx: usize) -> Verdict {
        match self.doors[hctx].nr_shut > 0 {
            true => broken(rules::R5, format!("context {hctx} issued a request")),
            false => Ok(()),
        }
    }
}
