//! Tasks as hosts of the core's wait protocol ([`forebay_core::wait`]).
//!
//! The library's `runtime/wait.rs` supplies the same steps with threads. Here each step is recorded
//! for the checkers, and after it another task may run.

#[cfg(forebay_plant)]
use crate::plant::Plant;
use crate::runtime::hctx::Hctx;
use crate::runtime::mailbox::{Goal, Mailbox};
use crate::runtime::thread::Thread;
#[cfg(forebay_plant)]
use crate::runtime::turn::LATE_NS;
use crate::runtime::turn::Own;
use crate::trace::Kind;
#[cfg(forebay_plant)]
use forebay_core::plant::CorePlant;
use forebay_core::wait::{
    self, Context, Host, Leader, Owner, RESOURCE_DELAY, Sleeper, Step, Timers, WaitCell, WaitState,
};
use forebay_core::{Commit, Driver, RunState, Turned};
use std::rc::Rc;

/// With this many requests at the device, a follower leaves the commit to the leader. Fewer than in
/// the library, so that it happens often.
const NR_BUSY: u32 = 2;

/// A task at a hardware context.
pub(crate) struct At<'t, 'a> {
    pub(crate) thread: &'t mut Thread<'a>,
    hctx: Rc<Hctx>,
}

/// The right to turn a context.
pub(crate) struct Token(());

impl Token {
    /// Returns the token of a task that has taken it. (A checker asserts that it has.)
    pub(crate) fn of_holder() -> Token {
        Token(())
    }
}

impl<'a> Thread<'a> {
    /// Returns the task at a context.
    pub(crate) fn at<'t>(&'t mut self, hctx: &Rc<Hctx>) -> At<'t, 'a> {
        At { thread: self, hctx: Rc::clone(hctx) }
    }

    /// Waits until the goal is reached. Drives the task's hardware context meanwhile.
    pub(crate) fn wait_for(&mut self, goal: Goal) {
        self.mailbox().goal.set(goal);
        self.check_may_wait();
        let hctx = self.hctx();
        let waits_for_bios = matches!(goal, Goal::Delivered(_));
        let may_offer = self.world.makes_own_calls && waits_for_bios && hctx.is_shared;
        // One for data and one for a flush.
        self.nr_offers_left = if may_offer { 2 } else { 0 };
        self.makes_calls = may_offer;
        match hctx.is_shared {
            true => wait::wait_shared(&mut self.at(&hctx), goal.number(), NR_BUSY),
            false => wait::wait_owned(&mut self.at(&hctx), goal.number()),
        }
        self.mailbox().goal.set(Goal::None);
    }

    fn mailbox(&self) -> &Mailbox {
        &self.world.mailboxes[self.id]
    }

    /// Returns how long this wait may still take, ns; `None` if it has no time limit.
    fn left_ns(&self) -> Option<u64> {
        // Only a wait for bios has a limit.
        let is_limited = self.wait_until_ns < u64::MAX && !self.waits_for_tags();
        is_limited.then(|| self.wait_until_ns.saturating_sub(self.world.now()))
    }

    /// Returns whether this wait is for tags.
    fn waits_for_tags(&self) -> bool {
        matches!(self.mailbox().goal.get(), Goal::TagsOfContext | Goal::TagsOfBudget(_))
    }

    /// Sleeps until woken, or until the time limit of this wait is over.
    fn park(&self) {
        match self.left_ns() {
            None => self.cpu.park(),
            Some(left_ns) => self.cpu.park_for(left_ns),
        }
    }
}

impl At<'_, '_> {
    /// Puts the task's outgoing requests where the token holder finds them.
    pub(super) fn push_outgoing(&mut self) {
        self.thread.push_outgoing(&self.hctx);
    }
}

impl Context for At<'_, '_> {
    type Token = Token;
    type Follower = usize;

    fn run_state(&self) -> &RunState {
        &self.hctx.run
    }

    fn step(&mut self, made: Step) {
        let at = self.hctx.at as u64;
        match made {
            Step::AnnouncedPark => {
                self.thread.world.note(Kind::Follow, at, 0);
                // A follower that parks blindly does harm if it is late.
                #[cfg(forebay_plant)]
                if self.thread.world.plants(Plant::Core(CorePlant::ParkBlindly)) {
                    self.thread.cpu.sleep(LATE_NS);
                }
            }
            Step::BecameLeader => self.thread.world.note(Kind::Lead, at, 0),
            Step::TookTimer => self.thread.world.checks().runs.undelayed(),
            _ => {}
        }
        self.thread.step();
    }

    fn try_take(&mut self) -> Option<Token> {
        self.thread.try_take(&self.hctx).then_some(Token(()))
    }

    fn request_run(&mut self) -> Option<Token> {
        self.thread.run(&self.hctx).then_some(Token(()))
    }

    fn block(&mut self) -> Option<Token> {
        self.thread.block(&self.hctx).then_some(Token(()))
    }

    fn turn(&mut self, _token: &mut Token, commit: Commit) -> Turned {
        self.thread.turn_once(&self.hctx, commit, false, Own::Mail)
    }

    fn commit_requests(&mut self, _token: &mut Token) -> bool {
        self.hctx.with_port(&self.thread.world, |core, port| core.commit(port));
        false
    }

    fn runs_wakers(&self, _token: &Token) -> bool {
        if !self.thread.world.makes_own_calls {
            return false;
        }
        let inner = self.hctx.inner.borrow();
        inner.as_ref().is_some_and(|inner| inner.driver.own.is_withdrawn(self.thread.id))
    }

    fn withdraw_own_call(&mut self, _token: &mut Token) -> bool {
        let (id, hctx) = (self.thread.id, Rc::clone(&self.hctx));
        if let Some(tag) = hctx.with_inner(|inner| inner.driver.own.take_left(id)) {
            self.thread.world.note(Kind::Withdraw, hctx.at as u64, tag as u64);
            hctx.with_port(&self.thread.world, |_, port| port.withdraw_own(tag));
        }
        false
    }

    fn released(&mut self, _token: Token) {
        let Thread { world, id, .. } = &self.thread;
        let mut checks = world.checks();
        let given = checks.gates.give(self.hctx.at, *id);
        checks.expect(given);
        checks.note(Kind::Release, self.hctx.at as u64, 0);
        drop(checks);
        self.thread.check_inbox(&self.hctx);
        self.thread.settle();
    }

    fn pop_follower(&mut self) -> Option<usize> {
        self.hctx.followers.borrow_mut().pop()
    }

    fn has_followers(&self) -> bool {
        !self.hctx.followers.borrow().is_empty()
    }

    fn cell_of<'b>(&'b self, follower: &'b usize) -> &'b WaitCell {
        &self.thread.world.mailboxes[*follower].cell
    }

    fn wake_follower(&mut self, follower: usize) {
        self.thread.world.note(Kind::Baton, self.hctx.at as u64, follower as u64);
        self.thread.world.wake(follower);
    }
}

impl Sleeper for At<'_, '_> {
    fn cell(&self) -> &WaitCell {
        &self.thread.mailbox().cell
    }

    fn is_over(&self, goal: u64) -> bool {
        let mailbox = self.thread.mailbox();
        // The mailbox has the goal too, because a number cannot express tags of the budget.
        assert_eq!(goal, mailbox.goal.get().number());
        mailbox.is_reached(mailbox.goal.get()) || self.thread.left_ns() == Some(0)
    }

    fn park(&mut self) {
        let mailbox = self.thread.mailbox();
        mailbox.is_following.set(true);
        while mailbox.cell.state().is_parked() && self.thread.left_ns() != Some(0) {
            self.thread.park();
        }
        mailbox.is_following.set(false);
    }

    fn parks_for_flush(&self) -> bool {
        self.thread.makes_calls
    }

    fn was_woken_for_flush(&mut self) {
        self.thread.nr_offers_left = 1;
    }

    fn push_follower(&mut self) {
        self.hctx.followers.borrow_mut().push(self.thread.id);
    }

    fn ask_for_tags(&mut self) {
        self.thread.ask_for_tags();
    }
}

impl Leader for At<'_, '_> {
    fn timers(&self) -> &Timers {
        &self.hctx.timers
    }

    fn now_ns(&self) -> u64 {
        self.thread.world.now()
    }

    fn leave_to_wait(&mut self, _token: &mut Token) -> bool {
        self.hctx.with_port(&self.thread.world, |core, port| core.leave_to_wait(port));
        false
    }

    fn take_back(&mut self) -> bool {
        self.hctx.with_inner(|inner| inner.driver.take_back())
    }

    fn yield_now(&mut self) {
        self.thread.cpu.yield_now();
    }

    fn wait_in_driver(&mut self, timeout_ns: Option<u64>) {
        let verdict = self.thread.world.checks().runs.check_blocked(self.hctx.at);
        self.thread.world.fail(verdict);
        self.hctx.with_port(&self.thread.world, |_, port| port.begin_left());
        self.thread.wait_in_driver(&self.hctx, 1, timeout_ns);
    }
}

impl Host for At<'_, '_> {
    fn turn_with_own(&mut self, commit: Commit) -> Option<(Token, Turned)> {
        let turned = self.thread.turn_and_hold(&self.hctx, commit, Own::Mail)?;
        Some((Token(()), turned))
    }

    fn begins(&self) -> bool {
        self.thread.world.begins_in_wait
    }

    fn offer(&mut self) -> bool {
        let Thread { nr_offers_left, offers, .. } = &mut *self.thread;
        *offers = *nr_offers_left > 0;
        *nr_offers_left = nr_offers_left.saturating_sub(1);
        *offers
    }

    fn make_own_call(&mut self) -> bool {
        let (id, hctx) = (self.thread.id, Rc::clone(&self.hctx));
        self.thread.offers = false;
        let Some(tag) = hctx.with_inner(|inner| inner.driver.own.take_left(id)) else {
            self.thread.nr_offers_left = 0;
            return false;
        };
        if hctx.with_inner(|inner| inner.driver.is_flush(tag)) {
            // The next one is left to a task that waits for it.
            self.thread.nr_offers_left = 0;
        }
        self.thread.check_may_wait();
        hctx.with_port(&self.thread.world, |_, port| port.begin_own(tag));
        while !hctx.with_inner(|inner| inner.driver.own.add_result(id)) {
            self.thread.cpu.park();
        }
        self.thread.step();
        true
    }
}

impl Owner for At<'_, '_> {
    fn prepare_wait(&mut self, _token: &mut Token, nr_bios: u32) -> u32 {
        self.hctx.with_inner(|inner| inner.core.prepare_wait(nr_bios))
    }

    fn wait_in_owned_driver(&mut self, nr: u32, deadline_ns: Option<u64>) {
        self.thread.check_may_wait();
        // The driver's wait commits. Only the owner is ever there.
        self.hctx.with_port(&self.thread.world, |_, port| port.commit_rqs());
        let now = self.thread.world.now();
        let timeout_ns = deadline_ns.map(|at_ns| at_ns.saturating_sub(now));
        self.thread.wait_in_driver(&self.hctx, nr, timeout_ns);
    }

    fn sleep(&mut self, deadline_ns: Option<u64>) {
        self.thread.check_may_wait();
        let now = self.thread.world.now();
        let until_deadline = deadline_ns.map(|at_ns| at_ns.saturating_sub(now));
        let limits = until_deadline.into_iter().chain(self.thread.left_ns());
        let limits = limits.chain([RESOURCE_DELAY.as_nanos() as u64]);
        self.thread.cpu.park_for(limits.min().unwrap_or(0));
    }

    fn wait_outside(&mut self, goal: u64) {
        // Only other tasks can bring it: tags of the budget.
        let mailbox = self.thread.mailbox();
        assert!(
            matches!(mailbox.goal.get(), Goal::TagsOfBudget(_)),
            "there is something to wait for"
        );
        mailbox.cell.begin_wait(goal, WaitState::Parked);
        self.thread.step();
        while !self.is_over(goal) && self.cell().state() == WaitState::Parked {
            self.thread.cpu.park();
        }
        self.thread.step();
        self.cell().end_wait();
    }
}

impl Thread<'_> {
    /// Sleeps until there are completions, or a kick, or, in an owned context, the goal is reached
    /// from outside.
    fn wait_in_driver(&mut self, hctx: &Hctx, nr: u32, timeout_ns: Option<u64>) {
        let world = Rc::clone(&self.world);
        let timeout_ns = timeout_ns.into_iter().chain(self.left_ns()).min();
        world.note(Kind::Wait, hctx.at as u64, nr.into());
        let mailbox = &world.mailboxes[self.id];
        let is_over = || {
            let is_over = hctx.with_inner(|inner| inner.driver.is_wait_over(nr));
            is_over || !hctx.is_shared && mailbox.is_reached(mailbox.goal.get())
        };
        hctx.waiter.set(Some((self.id, nr)));
        let until_ns = timeout_ns.map(|timeout_ns| world.now() + timeout_ns);
        hctx.waits_until_ns.set(until_ns);
        let verdict = world.checks().runs.check_deadline(hctx.at, until_ns, world.now());
        world.fail(verdict);
        match timeout_ns {
            None => {
                while !is_over() {
                    self.cpu.park();
                }
            }
            Some(timeout_ns) if !is_over() => self.cpu.park_for(timeout_ns),
            Some(_) => {}
        }
        hctx.waiter.set(None);
        // Other tasks have run before this one was picked. Where steps take no time, an event that
        // is due happens first.
        if !world.scheduler.steps_take_time() {
            self.step();
        }
    }
}
