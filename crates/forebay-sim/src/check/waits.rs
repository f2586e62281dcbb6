//! Waits for the tags of a set. Every step is checked: an attempt, joining the line, freeing tags,
//! checking for waiters, waking, and returning a wake (T1 to T7, T10).
//!
//! Most checks run as the event happens. For tasks that sleep in vain, [`Waits::why_asleep`]
//! returns which step went wrong.

use super::{Verdict, broken, rules};
use forebay_core::{WaitId, WakePolicy};

/// The counters begin just below their overflow.
const FIRST_COUNT: u32 = u32::MAX - 50;

/// Bits of a wait's number that hold the number of its task; the wait's own count is above them.
pub(crate) const TASK_BITS: u32 = 16;

/// Returns the task that owns a wait.
pub(crate) fn task_of(WaitId(wait): WaitId) -> usize {
    (wait & ((1 << TASK_BITS) - 1)) as usize
}

/// State of a wait's wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wake {
    /// No wake.
    #[default]
    None,
    /// The policy gave the wake.
    Given,
    /// The task was notified.
    Notified,
    /// The task has tried to get tags after the notification.
    Used,
}

/// State of one task.
#[derive(Clone, Copy, Debug, Default)]
struct Waiter {
    wait: u64,
    need: u32,
    is_waiting: bool,
    /// The task has tried after it joined the line.
    has_tried: bool,
    wake: Wake,
    /// Another task has freed tags since, and not checked for waiters.
    was_missed: bool,
    /// The task has freed tags, and not checked for waiters yet.
    is_to_look: bool,
}

/// All waits for the tags of one set.
#[derive(Debug)]
pub(crate) struct Waits {
    waiters: Vec<Waiter>,
    /// Tags in use.
    nr_owned: u32,
    /// The number of tags that may be in use.
    limit: u32,
    /// Two counters: tags freed and wakes returned while a task waited, and the tags that wakes
    /// were given for.
    freed: u32,
    woken: u32,
}

impl Waits {
    pub(crate) fn new(nr_tasks: usize, limit: u32) -> Waits {
        let waiters = vec![Waiter::default(); nr_tasks];
        Waits { waiters, nr_owned: 0, limit, freed: FIRST_COUNT, woken: FIRST_COUNT }
    }

    /// Records and checks an attempt to get tags.
    pub(crate) fn tried(&mut self, task: usize, need: u32, is_got: bool) -> Verdict {
        if need > (self.limit / 2).max(1) {
            let what = format!("task {task} needs {need} of {} tags", self.limit);
            return broken(rules::T10, what);
        }
        let waiter = &mut self.waiters[task];
        waiter.has_tried = true;
        if waiter.wake == Wake::Notified {
            waiter.wake = Wake::Used;
        }
        if is_got {
            self.nr_owned += need;
        } else if self.nr_owned + need <= self.limit {
            let what = format!(
                "task {task} found no {need}, and {} of {} tags are somebody's",
                self.nr_owned, self.limit
            );
            return broken(rules::T7, what);
        }
        Ok(())
    }

    /// Records that a task has joined the line.
    pub(crate) fn joined(&mut self, WaitId(wait): WaitId, need: u32) {
        let waiter = &mut self.waiters[task_of(WaitId(wait))];
        let is_to_look = waiter.is_to_look;
        *waiter = Waiter { wait, need, is_waiting: true, is_to_look, ..Waiter::default() };
    }

    /// Records that a task has got its tags and left the line.
    pub(crate) fn left(&mut self, task: usize) -> Verdict {
        let waiter = &mut self.waiters[task];
        waiter.is_waiting = false;
        match std::mem::take(&mut waiter.wake) {
            Wake::None | Wake::Used => Ok(()),
            wake => {
                let what = format!("task {task} got tags without its wake, which was {wake:?}");
                broken(rules::T5, what)
            }
        }
    }

    /// Records that a task has returned its wake.
    pub(crate) fn donated(&mut self, task: usize) {
        self.waiters[task].wake = Wake::None;
    }

    /// Records that a task has freed tags.
    pub(crate) fn put(&mut self, task: usize, nr: u32) {
        self.nr_owned -= nr;
        self.waiters[task].is_to_look = true;
    }

    /// Records that a task has checked for waiters and found none.
    pub(crate) fn found_none(&mut self, task: usize) {
        let sleeps = |waiter: &Waiter| waiter.is_waiting && waiter.wake == Wake::None;
        self.waiters[task].is_to_look = self.waiters.iter().any(sleeps);
    }

    /// Records that a task has checked for waiters.
    pub(crate) fn looked(&mut self, task: usize) {
        self.waiters[task].is_to_look = false;
    }

    /// Records that a task has finished its work after freeing tags.
    pub(crate) fn has_put(&mut self, task: usize) {
        if std::mem::take(&mut self.waiters[task].is_to_look) {
            self.waiters.iter_mut().for_each(|waiter| waiter.was_missed |= waiter.is_waiting);
        }
    }

    /// Records and checks that a policy that assumes `depth` tags got `nr_freed` tags, and woke
    /// these waits.
    pub(crate) fn woke(
        &mut self,
        policy: WakePolicy,
        depth: u32,
        nr_freed: u32,
        woken: &[WaitId],
        is_line_empty: bool,
    ) -> Verdict {
        self.freed = self.freed.wrapping_add(nr_freed);
        for &id in woken {
            let waiter = &mut self.waiters[task_of(id)];
            let price = if policy == WakePolicy::Fair { waiter.need } else { 1 };
            waiter.wake = Wake::Given;
            self.woken = self.woken.wrapping_add(price);
        }
        let left = self.freed.wrapping_sub(self.woken);
        if left > u32::MAX / 2 {
            let what = format!("{} more than were freed", left.wrapping_neg());
            return broken(rules::T3, what);
        }
        if is_line_empty {
            // The next waiter tries to get tags before it sleeps, so no wake is kept for it.
            self.woken = self.freed;
        }
        self.check_depth(depth)
    }

    /// Records a new limit of tags in use, and checks the depth that the policy assumes.
    pub(crate) fn limited(&mut self, limit: u32, policy_depth: u32) -> Verdict {
        self.limit = limit;
        self.check_depth(policy_depth)
    }

    fn check_depth(&self, depth: u32) -> Verdict {
        match depth > self.limit {
            true => {
                let what = format!("the policy assumes {depth} tags, and {} exist", self.limit);
                broken(rules::T6, what)
            }
            false => Ok(()),
        }
    }

    /// Records that a task was notified of free tags.
    pub(crate) fn notified(&mut self, WaitId(wait): WaitId) {
        let waiter = &mut self.waiters[task_of(WaitId(wait))];
        if waiter.wait == wait && waiter.wake == Wake::Given {
            waiter.wake = Wake::Notified;
        }
    }

    /// Returns which rule is broken if tasks sleep although there are tags for them. Called when
    /// nothing happens any more.
    pub(crate) fn why_asleep(&self) -> Verdict {
        let nr_free = self.limit.saturating_sub(self.nr_owned);
        let sleeps = |(_, waiter): &(usize, &Waiter)| waiter.is_waiting && waiter.need <= nr_free;
        let sleepers: Vec<_> = self.waiters.iter().enumerate().filter(sleeps).collect();
        let Some(&(task, first)) = sleepers.first() else { return Ok(()) };
        let find = |is: &dyn Fn(&Waiter) -> bool| sleepers.iter().find(|(_, waiter)| is(waiter));
        if let Some((task, _)) = find(&|waiter| waiter.wake == Wake::Given) {
            return broken(rules::T4, format!("task {task} was to be woken and was not"));
        }
        if let Some((task, _)) = find(&|waiter| waiter.wake == Wake::Notified) {
            return broken(rules::T5, format!("task {task} was woken for tags and has not tried"));
        }
        if let Some((task, _)) = find(&|waiter| !waiter.has_tried) {
            return broken(rules::T2, format!("task {task} joined the line, and has not tried"));
        }
        if let Some((task, _)) = find(&|waiter| waiter.was_missed) {
            let what = format!("tags were freed while task {task} waited, and no task checked");
            return broken(rules::T2, what);
        }
        if self.nr_owned > 0 {
            // These tags will be freed and wake a task; or else the policy is not the cause.
            return Ok(());
        }
        let what = format!(
            "{nr_free} of {} tags are free, and task {task} sleeps for {}; {} sleep in all",
            self.limit,
            first.need,
            sleepers.len()
        );
        broken(rules::T1, what)
    }
}
