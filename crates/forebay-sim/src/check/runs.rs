//! Runs of hardware contexts: after a task publishes work it requests a run, and all runs are
//! counted (R1 to R4, R6).

use super::{Verdict, broken, rules};
use forebay_core::RunCounters;

/// State of one hardware context.
#[derive(Clone, Debug, Default)]
struct Runs {
    /// Tasks that have published since the inbox was last read, and have not requested a run after
    /// it. In no particular order, like the other list: they are short.
    unasked: Vec<usize>,
    /// A leader has announced that it blocks, and no task has requested a run since.
    has_blocked: bool,
    /// Tasks that have opened a gate, if no task has requested a run since.
    opened: Vec<usize>,
    /// The deadline that the last turn has left.
    deadline_ns: Option<u64>,
    /// Requests that were over their time limit.
    nr_overdue: u64,
    nr_turns: u64,
    nr_empty: u64,
    nr_made: u64,
    nr_skipped: u64,
}

/// The state of all hardware contexts.
#[derive(Debug)]
pub(crate) struct RunLog {
    hctxs: Vec<Runs>,
    /// When a delayed run of the shared context is due, if there is one.
    due_ns: Option<u64>,
}

impl RunLog {
    pub(crate) fn new(nr_hctxs: usize) -> RunLog {
        RunLog { hctxs: vec![Runs::default(); nr_hctxs], due_ns: None }
    }

    /// Records that a task has published requests.
    pub(crate) fn published(&mut self, hctx: usize, task: usize) {
        add(&mut self.hctxs[hctx].unasked, task);
    }

    /// Records that a task requests a run; `is_skipped` if it does not get the token.
    pub(crate) fn asked(&mut self, hctx: usize, task: usize, is_skipped: bool) {
        let runs = &mut self.hctxs[hctx];
        runs.unasked.retain(|&other| other != task);
        runs.has_blocked = false;
        runs.opened.clear();
        runs.nr_skipped += u64::from(is_skipped);
    }

    /// Records that a task got the token.
    pub(crate) fn made(&mut self, hctx: usize) {
        self.hctxs[hctx].nr_made += 1;
    }

    /// Records that the inbox was read.
    pub(crate) fn read(&mut self, hctx: usize) {
        self.hctxs[hctx].unasked.clear();
    }

    /// Records that a leader without the token has announced that it blocks.
    pub(crate) fn blocked(&mut self, hctx: usize) {
        self.hctxs[hctx].has_blocked = true;
    }

    /// Records a run delayed until `at_ns`. The timer must have at most the time that is left until
    /// the earliest such run (R3).
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

    /// Records that the delayed run begins, or is cancelled because a gate is closed.
    pub(crate) fn undelayed(&mut self) {
        self.due_ns = None;
    }

    /// Records that a task has opened a gate of the shared context. (The owner of a context checks
    /// its own.)
    pub(crate) fn opened(&mut self, task: usize) {
        add(&mut self.hctxs[0].opened, task);
    }

    /// Checks that a run was requested since this task has opened a gate (R4).
    pub(crate) fn check_opened(&self, task: usize) -> Verdict {
        match self.hctxs[0].opened.contains(&task) {
            true => broken(rules::R4, format!("task {task} opened one of context 0")),
            false => Ok(()),
        }
    }

    /// Records a turn.
    pub(crate) fn turned(&mut self, hctx: usize, is_empty: bool) {
        let runs = &mut self.hctxs[hctx];
        runs.has_blocked = false;
        runs.opened.clear();
        runs.nr_turns += 1;
        runs.nr_empty += u64::from(is_empty);
    }

    /// Records the deadline that a turn has left.
    pub(crate) fn left(&mut self, hctx: usize, deadline_ns: Option<u64>) {
        self.hctxs[hctx].deadline_ns = deadline_ns;
    }

    /// Checks that a task that waits in the driver until `until_ns` comes back in time for the
    /// deadline (W7).
    pub(crate) fn check_deadline(&self, hctx: usize, until_ns: Option<u64>, now: u64) -> Verdict {
        match self.hctxs[hctx].deadline_ns {
            Some(at_ns) if until_ns.is_none_or(|until_ns| until_ns > at_ns.max(now)) => {
                let what = format!("context {hctx}: a task waits until {until_ns:?}, not {at_ns}");
                broken(rules::W7, what)
            }
            _ => Ok(()),
        }
    }

    /// Records that a turn has found so many more requests over their time limit. The layer must
    /// have counted the same (H1).
    pub(crate) fn overdue(&mut self, hctx: usize, nr: u64, counters: &RunCounters) -> Verdict {
        let runs = &mut self.hctxs[hctx];
        runs.nr_overdue += nr;
        let (nr_counted, nr_overdue) = (counters.nr_timeouts(), runs.nr_overdue);
        match nr_counted == nr_overdue {
            true => Ok(()),
            false => broken(rules::H1, format!("context {hctx}: {nr_counted} of {nr_overdue}")),
        }
    }

    /// Returns the broken rule of a lost run: the inbox is not empty, no task holds the token, and
    /// no task is about to request a run.
    pub(crate) fn lost_run(&self, hctx: usize) -> Verdict {
        match self.hctxs[hctx].unasked.iter().min() {
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

    /// Checks a leader that enters the driver. Another task may have left work to it since it
    /// announced that it blocks, so after that there must be a turn, by any task, or a mark.
    pub(crate) fn check_blocked(&self, hctx: usize) -> Verdict {
        match self.hctxs[hctx].has_blocked {
            true => {
                broken(rules::R2, format!("context {hctx}: its leader has not since it blocks"))
            }
            false => Ok(()),
        }
    }

    /// Compares the layer's counters with the events that were recorded.
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

/// Adds a task to a list, once.
fn add(tasks: &mut Vec<usize>, task: usize) {
    if !tasks.contains(&task) {
        tasks.push(task);
    }
}
