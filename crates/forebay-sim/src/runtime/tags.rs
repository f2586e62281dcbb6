//! Waiting for the tags of a hardware context, where threads do so (`wake` other than `fair`), and
//! how many there are: the library's `hctx/tags.rs` and `mailbox/tags.rs`.

use crate::plant::Plant;
use crate::runtime::hctx::Hctx;
use crate::runtime::mailbox::{Doing, Tell};
use crate::runtime::thread::Thread;
use crate::trace::Kind;
use forebay_core::{Commit, Gates, QueuedBio, Turned, WaitId};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What tasks and the holder of the token say to each other of tags.
#[derive(Debug, Default)]
pub(crate) struct TagCalls {
    /// Tasks that were told that there may be tags, and have come. A run is due after this.
    asking: RefCell<Vec<usize>>,
    /// How many tags may be in use from the next turn on; 0: as it is.
    nr_requests: Cell<u32>,
}

impl Thread<'_> {
    /// Says how many tags of each context may be in use.
    pub(crate) fn set_nr_requests(&mut self, nr_requests: u32) {
        let world = Rc::clone(&self.world);
        for hctx in &world.hctxs {
            hctx.tags.nr_requests.set(nr_requests);
            world.note(Kind::Resize, hctx.at as u64, nr_requests.into());
            self.step();
        }
        let shared = &world.hctxs[0];
        if self.run(shared) {
            self.turn_and_finish(shared);
        }
    }

    /// Awake again. Who was told, and lacks tags, was told of tags: a turn is due that tries.
    pub(crate) fn end_wait(&self) -> Doing {
        let mailbox = &self.world.mailboxes[self.id];
        let doing = mailbox.end_wait();
        if doing == Doing::Told && mailbox.lacks_tags.get() && !self.world.plants(Plant::AskNoMore)
        {
            self.step();
            self.hctx().tags.asking.borrow_mut().push(self.id);
        }
        doing
    }

    /// Before a turn: who has come to ask again, and how many tags there are.
    pub(super) fn hear_of_tags(&self, hctx: &Hctx) {
        let nr_requests = hctx.tags.nr_requests.take();
        if nr_requests != 0 {
            hctx.with_inner(|inner| {
                inner.core.set_nr_requests(nr_requests);
                inner.nr_requests = nr_requests;
            });
        }
        if hctx.with_inner(|inner| inner.core.has_lines()) {
            self.step();
            for task in hctx.tags.asking.take() {
                self.try_for(hctx, task);
            }
        }
    }

    /// The next turn tries for the line of a task.
    fn try_for(&self, hctx: &Hctx, task: usize) {
        self.world.note(Kind::Ask, hctx.at as u64, task as u64);
        self.world.checks().lines.tries(hctx.at, task);
        hctx.with_inner(|inner| inner.core.awake(WaitId(task as u64)));
    }

    /// Called after a turn, before its ended bios are delivered. Wakes the tasks for which tags may
    /// be free, and turns again for those that are already awake. Returns whether a leader must be
    /// signalled.
    pub(super) fn tell_of_tags(
        &mut self,
        hctx: &Hctx,
        gates: Gates,
        commit: Commit,
        ended: &mut Vec<Box<QueuedBio>>,
        turned: &mut Turned,
    ) -> bool {
        let world = Rc::clone(&self.world);
        let mut to_leader = false;
        loop {
            let mut changes = Vec::new();
            let mut woken = Vec::new();
            hctx.with_inner(|inner| {
                inner.core.take_changes(&mut |WaitId(task), lacks| changes.push((task, lacks)));
                inner.core.take_woken(&mut |WaitId(task)| woken.push(task));
            });
            for (task, lacks) in changes {
                world.note(Kind::Lack, task, lacks.into());
                let mailbox = &world.mailboxes[task as usize];
                mailbox.lacks_tags.set(lacks);
                self.step();
                if !lacks {
                    to_leader |= self.pass_on(mailbox.no_tags_lacked(), task as usize);
                }
            }
            let mut awake = Vec::new();
            for &task in &woken {
                world.checks().lines.given(hctx.at, task as usize);
            }
            for task in woken {
                self.step();
                let tell = world.mailboxes[task as usize].tell_of_tags();
                world.note(Kind::TagWake, task, (tell != Tell::Nobody).into());
                match tell {
                    Tell::Nobody if world.plants(Plant::LoseWake) => {}
                    Tell::Nobody => awake.push(task as usize),
                    tell => {
                        world.checks().lines.told(hctx.at, task as usize);
                        to_leader |= self.pass_on(tell, task as usize);
                    }
                }
            }
            if awake.is_empty() {
                return to_leader;
            }
            awake.into_iter().for_each(|task| self.try_for(hctx, task));
            *turned = self.turn_core(hctx, gates, commit, ended);
        }
    }

    /// Says whether a leader is to be told.
    fn pass_on(&mut self, tell: Tell, task: usize) -> bool {
        if tell == Tell::Wake {
            self.wakes.push(task);
        }
        tell == Tell::Kick
    }
}
