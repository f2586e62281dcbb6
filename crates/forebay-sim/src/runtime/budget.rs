//! Waits for tags of a set that all tasks share, by the core's own wait values.
//!
//! A task takes a tag for each bio before it submits the bio. The task that delivers the bio's end
//! puts the tag. The steps are those of the table in core's `tag/wait.rs` (T2); a lock or an atomic
//! is one step. A task that waits for tags drives its hardware context meanwhile (W1). Before, it
//! has issued and committed all requests with tags (T9). It needs at most half of the depth at once
//! (T10). The number of tags in use changes under load (T6).

use crate::check::waits::TASK_BITS;
use crate::check::waits::task_of;
use crate::plant::Plant;
use crate::runtime::mailbox::Goal;
use crate::runtime::thread::Thread;
use crate::scenario::BudgetSettings;
use crate::trace::Kind;
use forebay_core::wait::{Notice, WaitState, run_turn};
use forebay_core::{Tag, TagSet, TagWaits, UnplugCause, Wait, WaitId, WaiterCount, WakePolicy};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The set, and the waiting tasks.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) tags: TagSet,
    pub(crate) waits: RefCell<TagWaits>,
    count: WaiterCount,
    /// The smallest limit of tags in use.
    limit_min: u32,
    /// A task changes the limit: a lock.
    is_resizing: Cell<bool>,
}

impl Budget {
    pub(crate) fn new(settings: &BudgetSettings) -> Budget {
        let &BudgetSettings { depth, limit_min, wake, is_stash_v1 } = settings;
        let waits = match is_stash_v1 {
            true => TagWaits::stash_v1(depth),
            false => TagWaits::new(wake, depth),
        };
        Budget {
            tags: TagSet::new(depth),
            waits: RefCell::new(waits),
            count: WaiterCount::new(),
            limit_min,
            is_resizing: Cell::new(false),
        }
    }

    /// Returns the largest number of tags that may be needed at once (T10).
    pub(crate) fn need_max(&self) -> u32 {
        (self.limit_min / 2).max(1)
    }

    /// Returns the smallest and the largest limit of tags in use.
    pub(crate) fn limits(&self) -> (u32, u32) {
        (self.limit_min, self.tags.depth_max())
    }

    fn try_get(&self, need: u32, out: &mut Vec<Tag>) -> bool {
        let is_got = self.tags.try_get_exact(need, &mut 0, &mut |tag| out.push(tag)).is_ok();
        let mut waits = self.waits.borrow_mut();
        if is_got && waits.is_stash_v1() {
            waits.took(need);
        }
        is_got
    }
}

impl Thread<'_> {
    fn try_budget(&self, budget: &Budget, need: u32, out: &mut Vec<Tag>) -> bool {
        let is_got = budget.try_get(need, out);
        let mut checks = self.world.checks();
        let verdict = checks.waits.tried(self.id, need, is_got);
        checks.expect(verdict);
        is_got
    }

    /// Takes `need` tags of the budget, and waits for them if it must.
    pub(crate) fn charge(&mut self, mut need: u32) -> Vec<Tag> {
        let world = Rc::clone(&self.world);
        let budget = world.budget.as_ref().expect("there is a budget");
        if world.plants(Plant::NeedMore) {
            need = 2 * budget.tags.depth();
        }
        let mut got = Vec::new();
        if self.try_budget(budget, need, &mut got) {
            return got;
        }
        // T9.
        if !world.plants(Plant::WaitPlugged) {
            self.unplug(UnplugCause::Wait, 1);
        }
        self.nr_waits_for_tags += 1;
        let wait_number = self.nr_waits_for_tags << TASK_BITS | self.id as u64;
        let wait = Wait { id: WaitId(wait_number), need };
        budget.waits.borrow_mut().push(wait);
        budget.count.announce();
        world.checks().waits.joined(wait.id, need);
        let mut nr_sleeps = 0;
        loop {
            self.step();
            if !world.plants(Plant::SkipRetry) && self.try_budget(budget, need, &mut got) {
                self.step();
                self.leave_line(wait);
                break;
            }
            self.step();
            nr_sleeps += 1;
            self.wait_for(Goal::TagsOfBudget(wait_number));
            world.mailboxes[self.id].has_tags.set(0);
            if self.try_budget(budget, need, &mut got) {
                break;
            }
            self.step();
            budget.waits.borrow_mut().requeue(wait);
            budget.count.announce();
            world.checks().waits.joined(wait.id, need);
        }
        let verdict = world.checks().waits.left(self.id);
        world.fail(verdict);
        world.note(Kind::Charge, need.into(), nr_sleeps);
        got
    }

    /// Changes the wait queue, after `nr_freed` tags were freed. Returns the waits to be woken.
    fn with_waits(
        &self,
        budget: &Budget,
        nr_freed: u32,
        act: impl FnOnce(&mut TagWaits, &mut dyn FnMut(WaitId)),
    ) -> Vec<WaitId> {
        let mut woken = Vec::new();
        let mut waits = budget.waits.borrow_mut();
        act(&mut waits, &mut |id| woken.push(id));
        woken.iter().for_each(|_| budget.count.leave());
        let (policy, depth, is_empty) = (waits.policy(), waits.depth(), waits.is_empty());
        let verdict = self.world.checks().waits.woke(policy, depth, nr_freed, &woken, is_empty);
        self.world.fail(verdict);
        woken
    }

    /// Leaves the wait queue, because the task has got its tags by itself. If it was woken
    /// meanwhile, another task gets the wake-up (T5).
    fn leave_line(&mut self, wait: Wait) {
        let world = Rc::clone(&self.world);
        let budget = world.budget.as_ref().expect("there is a budget");
        let mut is_there = false;
        let mut woken = self.with_waits(budget, 0, |waits, out| {
            is_there = waits.remove(wait.id, &mut |id| out(id));
        });
        if is_there {
            budget.count.leave();
        } else if !world.plants(Plant::KeepWake) {
            let is_fair = budget.waits.borrow().policy() == WakePolicy::Fair;
            let nr_freed = if is_fair { wait.need } else { 1 };
            world.checks().waits.donated(self.id);
            let nr_busy = budget.tags.nr_busy();
            woken.extend(self.with_waits(budget, nr_freed, |waits, out| {
                waits.donate(wait.need, nr_busy, &mut |id| out(id));
            }));
        }
        self.grant(woken);
        self.settle();
    }

    /// Puts tags of the budget, and wakes the tasks for which they suffice.
    pub(crate) fn refund(&mut self, tags: Vec<Tag>) {
        let world = Rc::clone(&self.world);
        let budget = world.budget.as_ref().expect("there is a budget");
        let nr = tags.len() as u32;
        if world.plants(Plant::PutTwice) {
            budget.tags.put(tags[0]);
        }
        world.checks().waits.put(self.id, nr);
        if world.plants(Plant::HideTag) {
            self.step();
        }
        budget.tags.put_many(tags.into_iter());
        world.note(Kind::Refund, nr.into(), 0);
        self.step();
        self.wake_waiters(budget, nr);
        world.checks().waits.has_put(self.id);
    }

    fn wake_waiters(&mut self, budget: &Budget, nr: u32) {
        let world = Rc::clone(&self.world);
        if world.plants(Plant::SkipTagWake) {
            return;
        }
        if !budget.count.any_thread_waits() {
            world.checks().waits.found_none(self.id);
            return;
        }
        world.checks().waits.looked(self.id);
        self.step();
        let nr_busy = budget.tags.nr_busy();
        let woken = self.with_waits(budget, nr, |waits, out| {
            waits.wake(nr, nr_busy, &mut |id| out(id));
        });
        self.grant(woken);
    }

    /// Changes how many tags may be in use. The policy gets a smaller limit before it is in force,
    /// and a larger one afterwards (T6).
    pub(crate) fn resize_budget(&mut self, limit: u32) {
        let world = Rc::clone(&self.world);
        let budget = world.budget.as_ref().expect("there is a budget");
        if budget.is_resizing.replace(true) {
            return;
        }
        let nr_more = limit.saturating_sub(budget.tags.depth());
        if nr_more > 0 || world.plants(Plant::ShrinkFirst) {
            self.set_limit(budget, limit);
            self.step();
        }
        let woken = self.with_waits(budget, nr_more, |waits, out| {
            waits.resize(limit, &mut |id| out(id));
        });
        self.grant(woken);
        self.set_limit(budget, limit);
        budget.is_resizing.set(false);
        self.settle();
    }

    fn set_limit(&self, budget: &Budget, limit: u32) {
        budget.tags.resize(limit);
        let depth = budget.waits.borrow().depth();
        let verdict = self.world.checks().waits.limited(limit, depth);
        self.world.fail(verdict);
    }

    /// Gives the tags to the woken waits. Their tasks are woken when no token is held.
    fn grant(&mut self, woken: Vec<WaitId>) {
        let world = Rc::clone(&self.world);
        for wait in woken {
            self.step();
            let task = task_of(wait);
            let mailbox = &world.mailboxes[task];
            if mailbox.cell.state() == WaitState::Awake && world.plants(Plant::LoseWake) {
                continue;
            }
            world.checks().waits.notified(wait);
            match mailbox.give_tags(wait.0) {
                Notice::Kick => {
                    // It is published, and a run follows, as with the inbox.
                    world.hctxs[0].kick_leader.set(true);
                    self.owes_run = true;
                }
                // An owner in its driver is woken as by a signal.
                Notice::Wake | Notice::Nothing | Notice::Free => self.wakes.push(task),
            }
        }
    }

    /// Wakes the tasks to be woken, now that no token is held, and runs the shared context if its
    /// leader must be kicked.
    pub(crate) fn settle(&mut self) {
        self.wake();
        let hctx = Rc::clone(&self.world.hctxs[0]);
        if std::mem::take(&mut self.owes_run) && hctx.kick_leader.get() {
            run_turn(&mut self.at(&hctx));
        }
    }
}
