//! Waits for tags of a set that all tasks share.
//!
//! A task takes a tag for each bio before it submits the bio. The task that delivers the bio's end
//! puts the tag. The order of the steps is the core's ([`steps`]); a lock or an atomic is one step.
//! A task that waits for tags drives its hardware context meanwhile (W1). Before, it has issued and
//! committed all requests with tags (T9). It needs at most half of the depth at once (T10). The
//! number of tags in use changes under load (T6).

use crate::check::waits::TASK_BITS;
use crate::check::waits::task_of;
use crate::plant::Plant;
use crate::runtime::mailbox::Goal;
use crate::runtime::thread::Thread;
use crate::scenario::BudgetSettings;
use crate::trace::Kind;
use forebay_core::tag_steps::{self as steps, LockedWaits, TagHolder, TagSleeper, TagStep};
use forebay_core::wait::{Notice, WaitState, run_turn};
use forebay_core::{Tag, TagSet, TagWaits, UnplugCause, Wait, WaitId, WaiterCount};
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

/// A task at the budget, with the tags that it has taken.
struct User<'t, 'a> {
    thread: &'t mut Thread<'a>,
    got: Vec<Tag>,
    /// The wait that the task has begun.
    wait: Option<Wait>,
    need: u32,
}

impl<'t, 'a> User<'t, 'a> {
    fn new(thread: &'t mut Thread<'a>) -> User<'t, 'a> {
        User { thread, got: Vec::new(), wait: None, need: 0 }
    }

    fn budget(&self) -> &Budget {
        self.thread.world.budget.as_ref().expect("there is a budget")
    }
}

impl TagHolder for User<'_, '_> {
    fn tags(&self) -> &TagSet {
        &self.budget().tags
    }

    fn count(&self) -> &WaiterCount {
        &self.budget().count
    }

    fn with_waits(
        &mut self,
        change: impl FnOnce(&mut LockedWaits<'_>, &mut dyn FnMut(WaitId)) -> u32,
    ) -> u32 {
        let mut woken = std::mem::take(&mut self.thread.woken);
        let budget = self.budget();
        let mut waits = budget.waits.borrow_mut();
        let mut locked = LockedWaits::new(&mut waits, &budget.tags, &budget.count);
        let nr_freed = change(&mut locked, &mut |id| woken.push(id));
        let (policy, depth, is_empty) = (waits.policy(), waits.depth(), waits.is_empty());
        drop(waits);
        let world = &self.thread.world;
        let verdict = world.checks().waits.woke(policy, depth, nr_freed, &woken, is_empty);
        world.fail(verdict);
        self.thread.grant(&mut woken);
        self.thread.woken = woken;
        nr_freed
    }

    fn step(&mut self, made: TagStep) {
        let (world, id) = (Rc::clone(&self.thread.world), self.thread.id);
        match made {
            TagStep::FoundNoWaiter => return world.checks().waits.found_none(id),
            TagStep::GaveBack => return world.checks().waits.donated(id),
            TagStep::FoundWaiter => world.checks().waits.looked(id),
            TagStep::Joined => {
                let wait = self.wait.expect("the task has begun a wait");
                world.checks().waits.joined(wait.id, wait.need);
            }
            TagStep::ResizedSet => self.thread.check_limit(),
            TagStep::Put | TagStep::Got | TagStep::WokenInVain => {}
        }
        self.thread.step();
    }
}

impl TagSleeper for User<'_, '_> {
    fn try_take(&mut self, need: u32) -> Result<(), u32> {
        let mut got = std::mem::take(&mut self.got);
        let is_got = self.budget().try_get(need, &mut got);
        self.got = got;
        let mut checks = self.thread.world.checks();
        let verdict = checks.waits.tried(self.thread.id, need, is_got);
        checks.expect(verdict);
        // A try is one step, so no other task has missed tags that it held.
        if is_got { Ok(()) } else { Err(0) }
    }

    fn begin_wait(&mut self) -> WaitId {
        // T9.
        if !self.thread.world.plants(Plant::WaitPlugged) {
            self.thread.unplug(UnplugCause::Wait, 1);
        }
        self.thread.nr_waits_for_tags += 1;
        let id = WaitId(self.thread.nr_waits_for_tags << TASK_BITS | self.thread.id as u64);
        self.wait = Some(Wait { id, need: self.need });
        id
    }

    fn sleep(&mut self, WaitId(number): WaitId) {
        self.thread.step();
        self.thread.wait_for(Goal::TagsOfBudget(number));
        self.thread.world.mailboxes[self.thread.id].has_tags.set(0);
    }
}

impl Thread<'_> {
    /// Takes `need` tags of the budget, and waits for them if it must. Adds them to `out`, which is
    /// empty.
    pub(crate) fn charge(&mut self, mut need: u32, out: &mut Vec<Tag>) {
        let world = Rc::clone(&self.world);
        let budget = world.budget.as_ref().expect("there is a budget");
        if world.plants(Plant::NeedMore) {
            need = 2 * budget.tags.depth();
        }
        let mut user = User { need, got: std::mem::take(out), ..User::new(self) };
        let nr_sleeps = steps::take(&mut user, need);
        let User { got, wait, .. } = user;
        if wait.is_some() {
            self.settle();
            let verdict = world.checks().waits.left(self.id);
            world.fail(verdict);
            world.note(Kind::Charge, need.into(), nr_sleeps.into());
        }
        *out = got;
    }

    /// Puts tags of the budget, and wakes the tasks for which they suffice.
    pub(crate) fn refund(&mut self, tags: &[Tag]) {
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
        steps::put(&mut User::new(self), |set| {
            set.put_many(tags.iter().copied());
            world.note(Kind::Refund, nr.into(), 0);
            nr
        });
        world.checks().waits.has_put(self.id);
    }

    /// Changes how many tags may be in use.
    pub(crate) fn resize_budget(&mut self, limit: u32) {
        let world = Rc::clone(&self.world);
        let budget = world.budget.as_ref().expect("there is a budget");
        if budget.is_resizing.replace(true) {
            return;
        }
        steps::resize(&mut User::new(self), limit);
        self.check_limit();
        budget.is_resizing.set(false);
        self.settle();
    }

    /// Checks the depth that the policy assumes against the limit of tags in use.
    fn check_limit(&self) {
        let budget = self.world.budget.as_ref().expect("there is a budget");
        let (limit, depth) = (budget.tags.depth(), budget.waits.borrow().depth());
        let verdict = self.world.checks().waits.limited(limit, depth);
        self.world.fail(verdict);
    }

    /// Gives the tags to the woken waits. Their tasks are woken when no token is held.
    fn grant(&mut self, woken: &mut Vec<WaitId>) {
        let world = Rc::clone(&self.world);
        for wait in woken.drain(..) {
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
        if !self.wakes.is_empty() {
            self.wake();
        }
        if std::mem::take(&mut self.owes_run) && self.world.hctxs[0].kick_leader.get() {
            let hctx = Rc::clone(&self.world.hctxs[0]);
            run_turn(&mut self.at(&hctx));
        }
    }
}
