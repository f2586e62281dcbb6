//! Runs of hardware contexts: who has published something, who has asked for a run after it, and
//! whether all of it is counted (R1 to R4, R6).

use super::{Verdict, broken, rules};
use std::collections::BTreeSet;

/// What is known of one hardware context.
#[derive(Clone, Debug, Default)]
struct Runs {
    /// Who has published since the inbox was last read, and not asked for a run after it.
    unasked: BTreeSet<usize>,
    /// A leader has said that it blocks, and nobody has asked for a run since.
    has_blocked: bool,
    /// A gate was opened, and nobody has asked for a run since.
    has_opened: bool,
    nr_turns: u64,
    nr_empty: u64,
    nr_made: u64,
    nr_skipped: u64,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct RunLog {
    hctxs: Vec<Runs>,
    /// When a run of the shared context is due, if one was delayed.
    due_ns: Option<u64>,
}

impl RunLog {
    pub(crate) fn new(nr_hctxs: usize) -> RunLog {
        RunLog { hctxs: vec![Runs::default(); nr_hctxs], due_ns: None }
    }

    /// A task has published requests.
    pub(crate) fn published(&mut self, hctx: usize, task: usize) {
        self.hctxs[hctx].unasked.insert(task);
    }

    /// A task asks for a run, and gets the token or not.
    pub(crate) fn asked(&mut self, hctx: usize, task: usize, is_skipped: bool) {
        let runs = &mut self.hctxs[hctx];
        runs.unasked.remove(&task);
        (runs.has_blocked, runs.has_opened) = (false, false);
        runs.nr_skipped += u64::from(is_skipped);
    }

    /// A task has got the token.
    pub(crate) fn made(&mut self, hctx: usize) {
        self.hctxs[hctx].nr_made += 1;
    }

    /// The inbox was read.
    pub(crate) fn read(&mut self, hctx: usize) {
        self.hctxs[hctx].unasked.clear();
    }

    /// A leader without the token has said that it blocks.
    pub(crate) fn blocked(&mut self, hctx: usize) {
        self.hctxs[hctx].has_blocked = true;
    }

    /// A run was delayed until then; the mark says how long to wait for it now (R3).
    pub(crate) fn delayed(&mut self, now: u64, at_ns: u64, left_ns: Option<u64>) -> Verdict {
        let earliest = self.due_ns.map_or(at_ns, |due| due.min(at_ns));
        self.due_ns = Some(earliest);
        match left_ns.is_some_and(|left| left <= earliest.saturating_sub(now)) {
            true => Ok(()),
            false => broken(
                rules::R3,
                format!("one at {earliest} ns is due in {left_ns:?} ns at {now} ns"),
            ),
        }
    }

    /// What was delayed is done now, or nothing is to be run any more.
    pub(crate) fn undelayed(&mut self) {
        self.due_ns = None;
    }

    /// A gate of the shared context was opened. (An owner looks by itself.)
    pub(crate) fn opened(&mut self) {
        self.hctxs[0].has_opened = true;
    }

    /// Who has opened it is done.
    pub(crate) fn check_opened(&self) -> Verdict {
        match self.hctxs[0].has_opened {
            true => broken(rules::R4, "nobody has asked since one of context 0 was".to_owned()),
            false => Ok(()),
        }
    }

    /// A turn was made.
    pub(crate) fn turned(&mut self, hctx: usize, is_empty: bool) {
        let runs = &mut self.hctxs[hctx];
        (runs.has_blocked, runs.has_opened) = (false, false);
        runs.nr_turns += 1;
        runs.nr_empty += u64::from(is_empty);
    }

    /// Something is in the inbox, nobody holds the token, and nobody is about to ask.
    pub(crate) fn lost_run(&self, hctx: usize) -> Verdict {
        match self.hctxs[hctx].unasked.first() {
            Some(task) => {
                let what = format!("context {hctx}: task {task} has not asked since it did");
                broken(rules::R2, what)
            }
            None => {
                let what = format!(
                    "context {hctx}: its inbox is not empty, nobody holds the token, and there is \
                     no mark"
                );
                broken(rules::R1, what)
            }
        }
    }

    /// Its leader goes into the driver. What it has blocked for may be left to it: so there is a
    /// turn after that, its own or another's, or a mark.
    pub(crate) fn check_blocked(&self, hctx: usize) -> Verdict {
        match self.hctxs[hctx].has_blocked {
            true => {
                broken(rules::R2, format!("context {hctx}: its leader has not since it blocks"))
            }
            false => Ok(()),
        }
    }

    /// What was counted, against what there was.
    pub(crate) fn check_counts(&self, hctx: usize, counted: [u64; 4]) -> Verdict {
        let Runs { nr_turns, nr_empty, nr_made, nr_skipped, .. } = self.hctxs[hctx];
        let there_were = [nr_turns, nr_empty, nr_made, nr_skipped];
        match counted == there_were {
            true => Ok(()),
            false => {
                let what = format!("context {hctx}: {counted:?} were counted of {there_were:?}");
                broken(rules::R6, what)
            }
        }
    }
}
