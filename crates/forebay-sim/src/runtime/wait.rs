//! Waiting: for the ends of one's own bios, or for tags. The rules W1 to W5 are those of the
//! library's `runtime/wait.rs`, whose steps these are.

use crate::check::{broken, rules};
use crate::plant::Plant;
use crate::runtime::hctx::Hctx;
use crate::runtime::mailbox::{Doing, Goal};
use crate::runtime::thread::Thread;
use crate::runtime::turn::Own;
use crate::trace::Kind;
use forebay_core::{Commit, Turned};
use std::cell::RefCell;
use std::rc::Rc;

/// How long to leave a driver alone that is busy with nothing in flight.
pub(crate) const RESOURCE_DELAY_NS: u64 = 3_000_000;

/// With so many requests at the device, a follower leaves the commit to the leader. Fewer than in
/// the library: it is to happen.
const BUSY: u32 = 2;

/// How late a task is where a planted bug makes it so.
pub(crate) const LATE_NS: u64 = 20_000;

impl Thread<'_> {
    /// It is about to wait. Not within a submit (T11) or a turn (T12).
    pub(crate) fn check_may_wait(&self) {
        let verdict = match (self.is_in_turn, self.is_submitting) {
            (true, _) => broken(rules::T12, format!("task {} is about to", self.id)),
            (_, true) => broken(rules::T11, format!("that of task {} is about to", self.id)),
            _ => Ok(()),
        };
        self.world.fail(verdict);
    }

    pub(crate) fn is_reached(&self, goal: Goal) -> bool {
        self.world.mailboxes[self.id].is_reached(goal)
    }

    /// Waits until the goal is reached, driving the own hardware context meanwhile.
    pub(crate) fn wait_for(&mut self, goal: Goal) {
        self.check_may_wait();
        if matches!(goal, Goal::Tags(_)) {
            self.check_has_sent();
        }
        match self.hctx().is_shared {
            true => self.wait_shared(goal),
            false => self.wait_owned(goal),
        }
    }

    /// In an owned context: turns it, and waits in its driver.
    fn wait_owned(&mut self, goal: Goal) {
        loop {
            let turned = self.turn(Commit::Later, Own::Mail);
            if self.is_reached(goal) {
                return self.commit();
            }
            let Some(turned) = turned else { continue };
            if turned.nr_in_flight == 0 && !turned.work_left {
                // Only others can bring it: tags are what it waits for.
                assert!(matches!(goal, Goal::Tags(_)), "there is something to wait for");
                self.park(goal, None, |_| true);
            } else {
                self.wait_as_owner(turned, 1, goal);
            }
        }
    }

    /// Announces itself, in `followers` too, looks again (W2), and parks.
    fn park(
        &mut self,
        goal: Goal,
        followers: Option<&RefCell<Vec<usize>>>,
        may_park: impl Fn(&Thread<'_>) -> bool,
    ) -> Doing {
        let world = Rc::clone(&self.world);
        let mailbox = &world.mailboxes[self.id];
        mailbox.begin_wait(goal, Doing::Parked);
        mailbox.is_following.set(followers.is_some());
        self.step();
        if let Some(followers) = followers
            && !mailbox.is_listed.replace(true)
        {
            self.step();
            followers.borrow_mut().push(self.id);
            self.step();
        }
        if !mailbox.is_reached(goal) && may_park(self) {
            while mailbox.doing.get() == Doing::Parked {
                self.cpu.park();
            }
        }
        self.step();
        self.end_wait()
    }

    /// Waits in an owned context until `nr` more bios may have ended, or for a while.
    pub(crate) fn wait_as_owner(&mut self, turned: Turned, nr: u32, goal: Goal) {
        let world = Rc::clone(&self.world);
        let hctx = self.hctx();
        self.check_may_wait();
        if turned.nr_in_flight == 0 {
            if turned.work_left {
                self.cpu.park_for(RESOURCE_DELAY_NS);
            }
            return;
        }
        if !self.try_take(&hctx) {
            return;
        }
        let nr = hctx.with_inner(|inner| inner.core.prepare_wait(nr));
        self.step();
        if !self.release(&hctx, true) {
            self.turn_once(&hctx, Commit::Now, false, Own::Mail, None);
            return self.finish(&hctx);
        }
        // The wait commits, in the driver; nobody but the owner is ever there.
        hctx.with_port(&world, |_, port| port.begin());
        self.wait_in_driver(&hctx, nr, goal, None);
        hctx.run.unblock();
    }

    /// Sleeps until there are completions, or a kick, or the goal is reached from outside.
    fn wait_in_driver(&mut self, hctx: &Hctx, nr: u32, goal: Goal, timeout: Option<u64>) {
        let world = Rc::clone(&self.world);
        world.note(Kind::Wait, hctx.at as u64, nr.into());
        let is_over = || {
            let is_over = hctx.with_inner(|inner| inner.driver.is_wait_over(nr));
            is_over || !hctx.is_shared && self.is_reached(goal)
        };
        hctx.waiter.set(Some((self.id, nr)));
        hctx.is_wait_timed.set(timeout.is_some());
        match timeout {
            None => {
                while !is_over() {
                    self.cpu.park();
                }
            }
            Some(timeout) if !is_over() => self.cpu.park_for(timeout),
            Some(_) => {}
        }
        hctx.waiter.set(None);
        self.step();
    }

    /// Waits in a shared context.
    fn wait_shared(&mut self, goal: Goal) {
        let hctx = self.hctx();
        loop {
            self.turn(Commit::Unless(BUSY), Own::Mail);
            if self.is_reached(goal) {
                return self.commit();
            }
            self.step();
            if hctx.run.try_lead() || self.follow(&hctx, goal) {
                return self.lead(&hctx, goal);
            }
        }
    }

    /// Parks until the goal is reached, or there is nobody who leads. True: we lead.
    fn follow(&mut self, hctx: &Hctx, goal: Goal) -> bool {
        self.step();
        self.world.note(Kind::Follow, hctx.at as u64, 0);
        let is_blind = self.world.plants(Plant::ParkBlindly);
        if is_blind {
            // The harm is done to one that is late.
            self.cpu.sleep(LATE_NS);
        }
        let may_park = |_: &Thread<'_>| hctx.run.has_leader() || is_blind;
        self.park(goal, Some(&hctx.followers), may_park) == Doing::Baton
    }

    /// Waits in the driver, for all, until the goal is reached; then passes the baton (W3).
    fn lead(&mut self, hctx: &Hctx, goal: Goal) {
        let world = Rc::clone(&self.world);
        let mailbox = &world.mailboxes[self.id];
        world.note(Kind::Lead, hctx.at as u64, 0);
        let mut is_kept = false;
        while !mailbox.is_reached(goal) {
            let mut timeout = None;
            let is_held = is_kept || self.try_take(hctx);
            if is_held {
                hctx.timer.begin();
                world.checks().runs.undelayed();
                let turned = self.turn_once(hctx, Commit::Now, false, Own::Mail, None);
                timeout = (turned.nr_in_flight == 0).then_some(RESOURCE_DELAY_NS);
            } else {
                self.cpu.yield_now();
            }
            mailbox.begin_wait(goal, Doing::Leading);
            self.step();
            is_kept = match is_held {
                true => !self.release(hctx, true),
                false => self.block(hctx),
            };
            if !is_kept {
                self.step();
                // W2; a delivery that comes later kicks (W4).
                if !mailbox.is_reached(goal) {
                    let verdict = world.checks().runs.check_blocked(hctx.at);
                    world.fail(verdict);
                    let until_run = hctx.timer.left_ns(world.now());
                    self.wait_in_driver(hctx, 1, goal, until_run.or(timeout));
                }
                hctx.run.unblock();
            }
            self.end_wait();
        }
        if is_kept {
            if !world.plants(Plant::LeaveKept) {
                self.turn_once(hctx, Commit::Now, false, Own::Mail, None);
            }
            self.finish(hctx);
        }
        self.hand_off(hctx);
    }

    /// Makes a follower the leader in place of this task; without one, there is no leader then.
    fn hand_off(&mut self, hctx: &Hctx) {
        let world = Rc::clone(&self.world);
        loop {
            self.step();
            let next = hctx.followers.borrow_mut().pop();
            if let Some(follower) = next {
                let mailbox = &world.mailboxes[follower];
                mailbox.is_listed.set(false);
                self.step();
                if !world.plants(Plant::DropBaton) && mailbox.give_baton() {
                    world.note(Kind::Baton, hctx.at as u64, follower as u64);
                    world.wake(follower);
                    return;
                }
                continue;
            }
            hctx.run.resign();
            self.step();
            // Who announced itself before that did not see us gone: look once more (W2).
            if hctx.followers.borrow().is_empty() || !hctx.run.try_lead() {
                return;
            }
        }
    }
}
