//! Waits for the tags of a hardware context, if threads wait for them (`wake` other than `fair`),
//! and the limit of tags in use. The library's counterpart is `hctx/tags.rs`.

use crate::plant::Plant;
use crate::runtime::hctx::Hctx;
use crate::runtime::thread::Thread;
use crate::trace::Kind;
use forebay_core::WaitId;
use forebay_core::wait::{Notice, run_turn};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Messages about tags between tasks and the token holder.
#[derive(Debug, Default)]
pub(crate) struct TagCalls {
    /// Tasks that were woken for tags and are running. A run follows a push.
    asking: RefCell<Vec<usize>>,
    /// Tasks for which the turn in progress tries again, because they are awake.
    awake: RefCell<Vec<usize>>,
    /// The limit of tags in use from the next turn on; 0: unchanged.
    nr_requests: Cell<u32>,
    /// The owners of the disk have changed.
    has_new_owners: Cell<bool>,
}

impl TagCalls {
    /// Records that the owners of the disk have changed. The next turn passes them to the context.
    pub(super) fn note_new_owners(&self) {
        self.has_new_owners.set(true);
    }
}

impl Thread<'_> {
    /// Sets how many tags of each context may be in use.
    pub(crate) fn set_nr_requests(&mut self, nr_requests: u32) {
        let world = Rc::clone(&self.world);
        for hctx in &world.hctxs {
            hctx.tags.nr_requests.set(nr_requests);
            world.note(Kind::Resize, hctx.at as u64, nr_requests.into());
            self.step();
        }
        let shared = &world.hctxs[0];
        run_turn(&mut self.at(shared));
    }

    /// Records that the task was woken for tags and is running. A turn follows.
    pub(super) fn ask_for_tags(&self) {
        self.hctx().tags.asking.borrow_mut().push(self.id);
    }

    /// Reads, before a turn, which tasks ask for tags again, and the new limit of tags in use.
    pub(super) fn read_tag_calls(&self, hctx: &Hctx) {
        let nr_requests = hctx.tags.nr_requests.take();
        if nr_requests != 0 {
            hctx.with_inner(|inner| {
                inner.core.set_nr_requests(nr_requests);
                inner.nr_requests = nr_requests;
            });
            self.world.checks().gathers.limited(hctx.at, nr_requests);
        }
        if hctx.tags.has_new_owners.take()
            && let Some(owners) = &self.world.owners
        {
            let mut checks = self.world.checks();
            hctx.with_inner(|inner| owners.pass_to(&mut inner.core, hctx.at, &mut checks));
        }
        if hctx.with_inner(|inner| inner.core.has_lines()) {
            self.step();
            hctx.tags.asking.borrow_mut().drain(..).for_each(|task| self.try_for(hctx, task));
        }
    }

    /// Makes the next turn try to get tags for a task.
    fn try_for(&self, hctx: &Hctx, task: usize) {
        self.world.note(Kind::Ask, hctx.at as u64, task as u64);
        self.world.checks().lines.tries(hctx.at, task);
        hctx.with_inner(|inner| inner.core.awake(WaitId(task as u64)));
    }

    /// Wakes the tasks for which tags may be free, and lists those that are awake already. Returns
    /// whether the leader must be kicked.
    pub(super) fn wake_for_tags(&mut self, hctx: &Hctx) -> bool {
        if !hctx.with_inner(|inner| inner.core.has_tag_calls()) {
            return false;
        }
        let world = Rc::clone(&self.world);
        let mut to_leader = false;
        // The lists keep their memory.
        let mut changes = std::mem::take(&mut self.tag_changes);
        let mut woken = std::mem::take(&mut self.tag_wakes);
        hctx.with_inner(|inner| {
            inner.core.take_changes(&mut |WaitId(task), lacks| changes.push((task, lacks)));
            inner.core.take_woken(&mut |WaitId(task)| woken.push(task));
        });
        for (task, lacks) in changes.drain(..) {
            world.note(Kind::Lack, task, lacks.into());
            self.step();
            let notice = world.mailboxes[task as usize].cell.set_lacks_tags(lacks);
            to_leader |= self.pass_on(notice, task as usize);
        }
        for &task in &woken {
            world.checks().lines.given(hctx.at, task as usize);
        }
        for task in woken.drain(..) {
            self.step();
            let notice = world.mailboxes[task as usize].cell.wake_for_tags();
            world.note(Kind::TagWake, task, (notice != Notice::Nothing).into());
            match notice {
                Notice::Nothing if world.plants(Plant::LoseWake) => {}
                Notice::Nothing => hctx.tags.awake.borrow_mut().push(task as usize),
                notice => {
                    world.checks().lines.notified(hctx.at, task as usize);
                    to_leader |= self.pass_on(notice, task as usize);
                }
            }
        }
        (self.tag_changes, self.tag_wakes) = (changes, woken);
        to_leader
    }

    /// Retries the bios of the tasks that [`Thread::wake_for_tags`] has listed.
    pub(super) fn retry_for_awake(&self, hctx: &Hctx) -> bool {
        let mut awake = hctx.tags.awake.borrow_mut();
        let is_any = !awake.is_empty();
        awake.drain(..).for_each(|task| self.try_for(hctx, task));
        is_any
    }

    /// Notes the wake-up that a change of a cell requires. Returns whether it is a kick.
    fn pass_on(&mut self, notice: Notice, task: usize) -> bool {
        if notice == Notice::Wake {
            self.wakes.push(task);
        }
        notice == Notice::Kick
    }
}
