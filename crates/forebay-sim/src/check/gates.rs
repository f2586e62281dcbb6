//! Tokens and gates: one task holds the token at a time, and nothing is dispatched behind a closed
//! gate.

use super::{Verdict, broken, rules};

/// State of one hardware context.
#[derive(Clone, Debug, Default)]
struct Door {
    holder: Option<usize>,
    /// A task has closed a gate, and has seen that no task runs the context (R5).
    is_shut: bool,
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

    pub(crate) fn shut(&mut self, hctx: usize, is_shut: bool) {
        self.doors[hctx].is_shut = is_shut;
    }

    pub(crate) fn check_issue(&self, hctx: usize) -> Verdict {
        match self.doors[hctx].is_shut {
            true => broken(rules::R5, format!("context {hctx} issued a request")),
            false => Ok(()),
        }
    }
}
