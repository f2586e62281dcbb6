//! Calls that simulated tasks make themselves, as threads of the library do
//! ([`forebay_core::wait::Host::make_own_call`]).
//!
//! A task that is about to wait offers to make one of its commands. In the task's next turn the
//! driver leaves the first suitable command to it. The command begins at the device after the task
//! has released the token, and its completion wakes only that task.

use forebay_core::{BlockStatus, IssuedRequest, Op, Tag};
use forebay_model::Random;
use std::collections::VecDeque;

/// A command that was left to a task and has not begun.
#[derive(Clone, Copy, Debug)]
struct Left {
    task: usize,
    tag: usize,
    /// The task is assumed to run foreign code before it begins the command, so it withdraws the
    /// command.
    is_withdrawn: bool,
}

/// The own calls of one hardware context.
#[derive(Debug, Default)]
pub(crate) struct OwnCalls {
    /// The task that turns the context and has offered to make a command.
    offered_by: Option<usize>,
    left: Vec<Left>,
    /// Calls that are done at the device and from which the task has not returned.
    done: Vec<(usize, Tag, Result<u64, BlockStatus>)>,
    /// Results that tasks have added and that no turn has reaped.
    results: Vec<(Tag, Result<u64, BlockStatus>)>,
    /// Tasks whose calls have ended and that are to be woken.
    woken: Vec<usize>,
}

impl OwnCalls {
    /// Sets the task whose turn it is, if it has offered to make a command.
    pub(crate) fn set_offer(&mut self, task: Option<usize>) {
        self.offered_by = task;
    }

    /// Leaves a request to the task that has offered to make it. Returns that task.
    pub(crate) fn leave(&mut self, rq: &IssuedRequest<'_>, random: &mut Random) -> Option<usize> {
        let task = self.offered_by?;
        let is_own = rq.op.moves_data() && rq.owner() == task as u64;
        let suits = rq.op == Op::Flush || is_own && rq.nr_bios == 1 && rq.nr_segments == 1;
        // An earlier turn of the same run may have left one to the task, which makes it first.
        let has_one = self.left.iter().any(|left| left.task == task);
        if !suits || has_one {
            return None;
        }
        self.offered_by = None;
        let is_withdrawn = random.chance(1, 6);
        self.left.push(Left { task, tag: rq.tag.index(), is_withdrawn });
        Some(task)
    }

    /// Returns whether a task has to withdraw the command that was left to it.
    pub(crate) fn is_withdrawn(&self, task: usize) -> bool {
        self.left.iter().any(|left| left.task == task && left.is_withdrawn)
    }

    /// Removes the command that was left to a task, and returns its tag.
    pub(crate) fn take_left(&mut self, task: usize) -> Option<usize> {
        let at = self.left.iter().position(|left| left.task == task)?;
        Some(self.left.remove(at).tag)
    }

    /// Ends the call of a task at the device.
    pub(crate) fn done(&mut self, task: usize, tag: usize, result: Result<u64, BlockStatus>) {
        self.done.push((task, Tag::from_index(tag), result));
        self.woken.push(task);
    }

    /// Returns a task whose call has ended, to be woken.
    pub(crate) fn pop_woken(&mut self) -> Option<usize> {
        self.woken.pop()
    }

    /// Adds the result of a task's call to those to be reaped. Returns false if the call has not
    /// ended.
    pub(crate) fn add_result(&mut self, task: usize) -> bool {
        match self.done.iter().position(|(of, ..)| *of == task) {
            None => false,
            Some(at) => {
                let (_, tag, result) = self.done.remove(at);
                self.results.push((tag, result));
                true
            }
        }
    }

    /// Moves all results to the end of a list.
    pub(crate) fn take_results(&mut self, ready: &mut VecDeque<(Tag, Result<u64, BlockStatus>)>) {
        ready.extend(self.results.drain(..));
    }

    /// Returns whether no call is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.left.is_empty() && self.done.is_empty() && self.results.is_empty()
    }
}
