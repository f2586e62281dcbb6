//! The turn of a hardware context: its one order, and a fast path.
//!
//! A context is *plain* if nothing waits in it, and its turns need only issue requests and end
//! their bios. Each full turn records in one flag whether it has left the context plain.
//! Code that changes this between turns clears the flag. So a turn checks the flag once, where the
//! full rules check ten lists and policies. If something uncommon happens in the turn, the full
//! rules continue it.

use crate::driver::{Driver, Reap};
use crate::hctx::incoming::Incoming;
use crate::hctx::{Commit, Gates, HardwareContext, Turn, Turned};
use crate::policy::KickPolicy;
use crate::request::QueuedBio;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl HardwareContext {
    /// Does everything that can be done now, in one fixed order: reaps the driver's completions and
    /// ends their bios, issues waiting requests, oldest first, while tags last, and commits the
    /// batch. Bios that ended are appended to `ended` in the order of their ends.
    ///
    /// This function is the only driving order. Every user of a context calls it, with any clock.
    #[inline(always)]
    pub fn turn<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        gates: Gates,
        commit: Commit,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> Turned {
        match self.is_plain && gates == Gates::OPEN && now < self.timeouts.next_ns() {
            true => self.turn_plainly(driver, now, commit, ended),
            false => self.turn_fully(driver, now, gates, commit, ended),
        }
    }

    /// Runs a turn by the full rules.
    #[inline(never)]
    fn turn_fully<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        gates: Gates,
        commit: Commit,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> Turned {
        let nr_ended_before = ended.len();
        if self.is_kicked && gates.reap {
            (self.is_kicked, self.reap_kick) = (false, true);
        }
        let mut turn = self.turn_at(now, gates, ended);
        turn.reap(driver);
        if gates.reap {
            turn.check_timeouts(driver);
        }
        turn.go_on(driver, commit, nr_ended_before)
    }

    /// Returns whether a turn commits the requests that it has issued.
    #[inline(always)]
    fn is_commit_due(&self, commit: Commit) -> bool {
        match commit {
            Commit::Now => true,
            Commit::Later => false,
            // A wait in the driver does not end with a request that a thread makes itself, and
            // may not end with one that was given up.
            Commit::Unless(nr) => {
                let nr_others = self.nr_begun + self.timeouts.nr_given_up();
                self.nr_in_flight.saturating_sub(nr_others + self.nr_uncommitted) < nr
            }
        }
    }

    /// Runs a turn of a plain context with all gates open, before the next time limit.
    #[inline(always)]
    pub(super) fn turn_plainly<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        commit: Commit,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> Turned {
        debug_assert!(self.check_plain());
        let nr_ended_before = ended.len();
        self.look_for_failures();
        let has_incoming = !self.incoming.is_empty();
        if self.nr_in_flight > 0 || self.reap_kick {
            // As in a full turn: a commit that follows brings completions as well.
            let how = match has_incoming && self.nr_in_flight < self.tags.nr_requests() {
                true => Reap::NoSyscall,
                false => Reap::Full,
            };
            self.reap_now(driver, how, now, Gates::OPEN, ended);
        }
        if !self.is_plain || has_incoming && self.device.is_failed() {
            let turn = self.turn_at(now, Gates::OPEN, ended);
            return turn.go_on(driver, commit, nr_ended_before);
        }
        if has_incoming {
            let (incoming, nr_issued) = self.issue_plain(driver, now, Gates::OPEN, ended);
            if !matches!(incoming, Incoming::Issued) {
                let mut turn = self.turn_at(now, Gates::OPEN, ended);
                turn.has_issued = nr_issued > 0;
                return turn.finish(driver, commit, nr_ended_before, incoming);
            }
        }
        if self.is_commit_due(commit) {
            self.commit(driver);
        }
        self.counters.turns.add(1);
        if !has_incoming && ended.len() == nr_ended_before {
            self.counters.empty_turns.add(1);
        }
        let nr_in_flight = self.nr_in_flight;
        Turned::new(nr_in_flight, false, nr_in_flight == 0, self.timeouts.next_ns())
    }

    /// Returns whether the context is plain, apart from incoming requests.
    pub(super) fn check_plain(&self) -> bool {
        self.backlog.is_empty()
            && self.dispatch.is_empty()
            && self.held.is_empty()
            && self.nowait.is_empty()
            && self.outside.is_empty()
            && !self.has_special
            && !self.flush.wants_a_look()
            && self.admission.is_none()
            && self.policy.kick != KickPolicy::PerRequest
            && !self.timeouts.has_overdue()
            && self.timeouts.nr_given_up() == 0
            && !self.is_kicked
    }

    /// Returns a turn in progress, for the uncommon cases.
    #[inline(always)]
    pub(super) fn turn_at<'a>(
        &'a mut self,
        now: u64,
        gates: Gates,
        ended: &'a mut Vec<Box<QueuedBio>>,
    ) -> Turn<'a> {
        Turn { hctx: self, now, gates, ended, has_issued: false }
    }
}

impl Turn<'_> {
    /// Continues a turn after its completions were reaped.
    #[inline(never)]
    fn go_on<D: Driver + ?Sized>(
        mut self,
        driver: &mut D,
        commit: Commit,
        nr_ended_before: usize,
    ) -> Turned {
        self.wake();
        self.begin_dispatch();
        let incoming = self.issue_incoming(driver);
        self.finish(driver, commit, nr_ended_before, incoming)
    }

    /// Continues a turn after incoming requests were issued with the result `incoming`.
    #[inline(never)]
    fn finish<D: Driver + ?Sized>(
        mut self,
        driver: &mut D,
        commit: Commit,
        nr_ended_before: usize,
        incoming: Incoming,
    ) -> Turned {
        let is_all_issued = self.dispatch(driver, incoming);
        let Turn { hctx, gates, ended, has_issued, .. } = self;
        if hctx.is_commit_due(commit) {
            hctx.commit(driver);
        }
        hctx.counters.turns.add(1);
        if !is_all_issued && !has_issued && ended.len() == nr_ended_before {
            hctx.counters.empty_turns.add(1);
        }
        hctx.is_plain = hctx.check_plain();
        let has_waiting = !is_all_issued && hctx.has_waiting();
        // The thread that a flush is left to moves it on.
        let work_left = has_waiting && !hctx.flush.is_newly_left();
        let nr_awaited = hctx.nr_awaited();
        let work_left = work_left || !hctx.outside.is_empty();
        let is_drained = nr_awaited == 0 && !has_waiting;
        Turned::new(nr_awaited, work_left, is_drained, hctx.next_at_ns(gates))
    }
}
