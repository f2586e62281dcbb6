//! Waiting for tags of a set that all tasks share: admission, by the core's own wait values.
//!
//! A task takes a tag for each bio before it submits it; whoever delivers the bio's end puts it.
//! The steps are those of the table in core's `tag/wait.rs` (T2), a lock or an atomic being one
//! step. A task that waits for tags drives its hardware context meanwhile (W1), and has issued and
//! committed what has tags (T9); it needs at most half of the depth at once (T10).

use crate::plant::Plant;
use crate::runtime::mailbox::{Goal, Tell};
use crate::runtime::thread::Thread;
use crate::trace::Kind;
use forebay_core::{Tag, TagSet, TagWaits, UnplugCause, Wait, WaitId, WaiterCount, WakePolicy};
use std::cell::RefCell;
use std::rc::Rc;

/// How far a wait's number is above the number of its task.
const TASK_BITS: u32 = 16;

/// The set, and those who wait.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) tags: TagSet,
    pub(crate) waits: RefCell<TagWaits>,
    count: WaiterCount,
}

impl Budget {
    pub(crate) fn new(depth: u32, nr_tasks: usize) -> Budget {
        let waits = RefCell::new(TagWaits::new(WakePolicy::Fair, depth, nr_tasks));
        Budget { tags: TagSet::new(depth), waits, count: WaiterCount::new() }
    }

    /// The most that may be needed at once (T10).
    pub(crate) fn need_max(&self) -> u32 {
        (self.tags.depth() / 2).max(1)
    }

    fn nr_busy(&self) -> u32 {
        self.tags.depth() - self.tags.nr_free()
    }

    fn try_get(&self, need: u32, out: &mut Vec<Tag>) -> bool {
        self.tags.try_get_all(need, &mut 0, &mut |tag| out.push(tag))
    }
}

impl Thread {
    /// Takes `need` tags of the budget, and waits for them if it must.
    pub(crate) async fn charge(&mut self, need: u32) -> Vec<Tag> {
        let world = Rc::clone(&self.world);
        let budget = world.budget.as_ref().expect("there is a budget");
        let mut got = Vec::new();
        if budget.try_get(need, &mut got) {
            return got;
        }
        // T9.
        self.unplug(UnplugCause::Wait, 1).await;
        self.nr_waits_for_tags += 1;
        let wait_number = self.nr_waits_for_tags << TASK_BITS | self.id as u64;
        let wait = Wait { id: WaitId(wait_number), need };
        budget.waits.borrow_mut().push(wait);
        budget.count.announce();
        let mut nr_sleeps = 0;
        loop {
            self.step().await;
            if !world.plants(Plant::SkipRetry) && budget.try_get(need, &mut got) {
                self.step().await;
                self.leave_line(wait).await;
                break;
            }
            self.step().await;
            nr_sleeps += 1;
            self.wait_for(Goal::Tags(wait_number)).await;
            world.mailboxes[self.id].has_tags.set(0);
            if budget.try_get(need, &mut got) {
                break;
            }
            self.step().await;
            budget.waits.borrow_mut().requeue(wait);
            budget.count.announce();
        }
        world.note(Kind::Charge, need.into(), nr_sleeps);
        got
    }

    /// It has got its tags by itself: out of the line, or, where it was woken meanwhile, the
    /// wake-up goes to another (T5).
    async fn leave_line(&mut self, wait: Wait) {
        let world = Rc::clone(&self.world);
        let budget = world.budget.as_ref().expect("there is a budget");
        let mut woken = Vec::new();
        {
            let mut waits = budget.waits.borrow_mut();
            if waits.remove(wait.id, &mut |id| woken.push(id)) {
                budget.count.leave();
            } else {
                waits.donate(wait.need, budget.nr_busy(), &mut |id| woken.push(id));
            }
            woken.iter().for_each(|_| budget.count.leave());
        }
        self.tell(woken).await;
        self.settle().await;
    }

    /// Puts tags of the budget, and wakes whom they suffice for.
    pub(crate) async fn refund(&mut self, tags: Vec<Tag>) {
        let world = Rc::clone(&self.world);
        let budget = world.budget.as_ref().expect("there is a budget");
        let nr = tags.len() as u32;
        if world.plants(Plant::PutTwice) {
            budget.tags.put(tags[0]);
        }
        budget.tags.put_many(tags.into_iter());
        world.note(Kind::Refund, nr.into(), 0);
        self.step().await;
        if world.plants(Plant::SkipTagWake) || !budget.count.anybody_waits() {
            return;
        }
        self.step().await;
        let mut woken = Vec::new();
        let nr_busy = budget.nr_busy();
        budget.waits.borrow_mut().wake(nr, nr_busy, &mut |id| woken.push(id));
        woken.iter().for_each(|_| budget.count.leave());
        self.tell(woken).await;
    }

    /// Tells those who were woken; they are woken when no token is held.
    async fn tell(&mut self, woken: Vec<WaitId>) {
        let world = Rc::clone(&self.world);
        for WaitId(wait) in woken {
            self.step().await;
            let task = (wait & ((1 << TASK_BITS) - 1)) as usize;
            match world.mailboxes[task].give_tags(wait) {
                Tell::Kick => {
                    // As in the inbox: it is published, and then a run is due.
                    world.hctxs[0].tell_leader.set(true);
                    self.owes_run = true;
                }
                // An owner in its driver is woken as by a signal.
                Tell::Wake | Tell::Nobody => self.wakes.push(task),
            }
        }
    }

    /// Now that no token is held: wakes who is to be woken, and runs the shared context if its
    /// leader is to be told.
    pub(crate) async fn settle(&mut self) {
        self.wake().await;
        let hctx = Rc::clone(&self.world.hctxs[0]);
        if std::mem::take(&mut self.owes_run) && hctx.tell_leader.get() && self.run(&hctx) {
            Box::pin(self.turn_and_finish(&hctx)).await;
        }
    }
}
