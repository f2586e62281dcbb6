//! The turn of a hardware context: its one order, and a fast path.
//!
//! A context is *plain* if nothing waits in it, and its turns need only issue requests and end
//! their bios. Each full turn records in one flag whether it has left the context plain.
//! Code that changes this between turns clears the flag. So a turn checks the flag once, where the
//! full rules check ten lists and policies. If something uncommon happens in the turn, the full
//! rules continue it. A context with a trace has a path of its own, so tracing costs a plain one
//! nothing.
//!
//! New requests have a fast path of their own, in a plain context and under the full rules. Before
//! each request, the full rules ([`crate::hctx::dispatch`]) check whether a flush, a retry, a
//! policy or an older request goes first. The fast path makes nearly all of these checks once for
//! all new requests. The first request that is not simply issued ends it, and the full rules
//! continue.

use crate::bio::Op;
use crate::driver::{Driver, Issue, IssuedRequest, Reap};
use crate::hctx::{Commit, FastTurn, Gates, HardwareContext, SlotState, Turn, Turned};
use crate::hint::cold_path;
use crate::policy::KickPolicy;
use crate::request::{QueuedBio, Request};
use crate::stats::RunCounters;
use crate::tag::Tag;
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
        if self.fast_turn == FastTurn::Plain
            && gates == Gates::OPEN
            && now < self.timeouts.next_ns()
        {
            return self.turn_plainly::<false, false, D>(driver, now, commit, ended);
        }
        cold_path();
        if self.fast_turn != FastTurn::None && gates == Gates::OPEN && now < self.timeouts.next_ns()
        {
            return match self.fast_turn {
                FastTurn::Traced => self.turn_traced(driver, now, commit, ended),
                _ => self.turn_in_order(driver, now, commit, ended),
            };
        }
        self.turn_fully(driver, now, gates, commit, ended)
    }

    /// Runs a turn of an ordered context.
    // A call, so that turns of plain contexts keep their registers.
    #[inline(never)]
    fn turn_in_order<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        commit: Commit,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> Turned {
        self.turn_plainly::<true, false, D>(driver, now, commit, ended)
    }

    /// Runs a turn of a context that is plain, and has a trace.
    #[cold]
    #[inline(never)]
    fn turn_traced<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        commit: Commit,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> Turned {
        let turned = self.turn_plainly::<false, true, D>(driver, now, commit, ended);
        if !self.trace.is_on() {
            // Its reader has ended it.
            self.fast_turn = FastTurn::None;
        }
        turned
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
        if let Some(elevator) = &mut self.elevator {
            elevator.begin_turn(now);
        }
        if self.is_kicked && gates.reap {
            (self.is_kicked, self.reap_kick) = (false, true);
        }
        let mut turn = self.turn_at(now, gates, ended);
        turn.reap(driver);
        if gates.reap {
            turn.check_timeouts(driver, nr_ended_before);
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

    /// Runs a turn of a plain or ordered context (`ORDERED`) with all gates open, before the next
    /// time limit. `TRACED`: it may have a trace.
    #[inline(always)]
    pub(super) fn turn_plainly<const ORDERED: bool, const TRACED: bool, D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        commit: Commit,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> Turned {
        debug_assert!(self.find_fast_turn() == self.fast_turn);
        let nr_ended_before = ended.len();
        if ORDERED && let Some(elevator) = &mut self.elevator {
            elevator.begin_turn(now);
        }
        self.look_for_failures();
        let has_incoming = !self.incoming.is_empty();
        if self.nr_in_flight > 0 || self.reap_kick {
            // As in a full turn: a commit that follows brings completions as well. A scheduler or a
            // limit may hold all requests back.
            let commit_follows = has_incoming && self.nr_in_flight < self.tags.nr_requests();
            let how = match commit_follows && !ORDERED {
                true => Reap::NoSyscall,
                false => Reap::Full,
            };
            self.reap_now::<TRACED, D>(driver, how, now, Gates::OPEN, ended);
        }
        let is_still_fast = self.fast_turn != FastTurn::None;
        if !is_still_fast || has_incoming && self.device.is_failed() {
            cold_path();
            let turn = self.turn_at(now, Gates::OPEN, ended);
            return turn.go_on(driver, commit, nr_ended_before);
        }
        if has_incoming {
            let (incoming, nr_issued) = match ORDERED {
                true => self.issue_in_order(driver, now, ended),
                false => self.issue_plain::<TRACED, D>(driver, now, Gates::OPEN, ended),
            };
            if !matches!(incoming, Incoming::Issued) {
                cold_path();
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

    /// Returns the fast path that the context may take, apart from incoming requests.
    pub(super) fn find_fast_turn(&self) -> FastTurn {
        let nothing_waits = self.backlog.is_empty()
            && self.dispatch.is_empty()
            && self.held.is_empty()
            && self.nowait.is_empty()
            && self.outside.is_empty()
            && !self.has_special
            && !self.flush.wants_a_look()
            && self.policy.kick != KickPolicy::PerRequest
            && !self.timeouts.has_overdue()
            && self.timeouts.nr_given_up() == 0
            && !self.is_kicked
            && self.admission.as_ref().is_none_or(|admission| admission.is_idle())
            && self.nr_scheduled() == 0;
        match nothing_waits {
            false => FastTurn::None,
            true => match (self.admission.is_none() && self.elevator.is_none(), self.trace.is_on())
            {
                (true, false) => FastTurn::Plain,
                (true, true) => FastTurn::Traced,
                (false, false) => FastTurn::Ordered,
                (false, true) => FastTurn::None,
            },
        }
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
        let Turn { hctx, gates, ended, has_issued, now } = self;
        hctx.watch_waiting(now, has_issued, gates);
        if hctx.is_commit_due(commit) {
            hctx.commit(driver);
        }
        hctx.counters.turns.add(1);
        if !is_all_issued && !has_issued && ended.len() == nr_ended_before {
            hctx.counters.empty_turns.add(1);
        }
        hctx.fast_turn = hctx.find_fast_turn();
        let has_waiting = !is_all_issued && hctx.has_waiting();
        // The thread that a flush is left to moves it on.
        let work_left = has_waiting && !hctx.flush.is_newly_left();
        let nr_awaited = hctx.nr_awaited();
        let work_left = work_left || !hctx.outside.is_empty() || hctx.has_owned();
        let is_drained = nr_awaited == 0 && !has_waiting;
        let next_at_ns = hctx.next_at_ns(now, gates);
        let is_timed = gates.dispatch && hctx.waits_for_scheduler();
        Turned::new(nr_awaited, work_left, is_drained, next_at_ns).timed(is_timed)
    }
}

/// The outcome of the fast path.
pub(super) enum Incoming {
    /// All requests were issued.
    Issued,
    /// Requests may wait that the full rules can issue.
    Waiting,
    /// The driver is busy.
    Busy,
}

impl Turn<'_> {
    /// Issues the incoming requests if nothing goes before them and each is one command for all of
    /// its data. Those that find no tag, or that come after a request that was not issued, join the
    /// backlog in their order.
    pub(super) fn issue_incoming<D: Driver + ?Sized>(&mut self, driver: &mut D) -> Incoming {
        let hctx = &mut *self.hctx;
        if hctx.incoming.is_empty() {
            return Incoming::Waiting;
        }
        if !hctx.are_incoming_first() || hctx.has_special || !self.gates.dispatch {
            hctx.keep_incoming();
            return Incoming::Waiting;
        }
        let (now, gates) = (self.now, self.gates);
        let (outcome, nr_issued) = hctx.issue_plain::<true, D>(driver, now, gates, self.ended);
        if !matches!(outcome, Incoming::Issued) {
            self.has_issued = nr_issued > 0;
        }
        outcome
    }

    /// Handles a request that the driver has not accepted.
    #[cold]
    fn refused(&mut self, tag: Tag, rq: Request, answer: Issue) -> Incoming {
        match self.not_queued(tag, rq, answer) {
            true => Incoming::Busy,
            false => Incoming::Waiting,
        }
    }
}

impl HardwareContext {
    /// Issues incoming requests that no other request precedes. Each is one command for all of its
    /// data, and there is at least one. Also returns how many were issued. `TRACED`: the context
    /// may have a trace.
    #[inline(always)]
    pub(super) fn issue_plain<const TRACED: bool, D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        gates: Gates,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> (Incoming, u32) {
        self.begin_issue(now);
        if self.incoming.len() != 1 {
            return self.issue_several::<TRACED, D>(driver, now, gates, ended);
        }
        let Some(rq) = self.incoming.pop() else { return (Incoming::Issued, 0) };
        match self.issue_one::<TRACED, D>(driver, rq, now, gates, ended) {
            Ok(state) => {
                self.note_incoming(now, 1, (state == SlotState::Begun).into());
                (Incoming::Issued, 1)
            }
            Err(outcome) => {
                cold_path();
                self.keep_incoming();
                (outcome, 0)
            }
        }
    }

    // A loop of its own needs fewer registers.
    #[inline(never)]
    fn issue_several<const TRACED: bool, D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        gates: Gates,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> (Incoming, u32) {
        // The oldest is taken from the end.
        self.incoming.reverse();
        let (mut outcome, mut nr_issued, mut nr_begun) = (Incoming::Issued, 0_u32, 0_u32);
        while let Some(rq) = self.incoming.pop() {
            match self.issue_one::<TRACED, D>(driver, rq, now, gates, ended) {
                Ok(state) => nr_begun += u32::from(state == SlotState::Begun),
                Err(refused) => {
                    outcome = refused;
                    break;
                }
            }
            nr_issued += 1;
        }
        self.note_incoming(now, nr_issued, nr_begun);
        if !matches!(outcome, Incoming::Issued) {
            self.incoming.reverse();
            self.keep_incoming();
        }
        (outcome, nr_issued)
    }

    /// Issues a request. Returns the state of its tag, or why it was not issued. A request that was
    /// not issued has ended, waits for the driver, or is incoming again.
    #[inline(always)]
    fn issue_one<const TRACED: bool, D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        rq: Request,
        now: u64,
        gates: Gates,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> Result<SlotState, Incoming> {
        // A flush has no data.
        let is_write = rq.op != Op::Read;
        if is_write {
            self.retries.writes().count_write(self.count_at);
        }
        // A1: the full rules decide whether a retry holds the request back.
        let tag = if self.retries.any() { None } else { self.tags.get(0) };
        let Some(tag) = tag else {
            self.put_back(rq, is_write);
            return Err(Incoming::Waiting);
        };
        let is_last = <[Request]>::is_empty;
        self.issue_tagged::<true, TRACED, D>(driver, (tag, rq), is_last, now, gates, ended)
    }

    /// Issues a request that is one command for all of its data, under its tag, which is idle. A
    /// write was counted, and no retry holds anything back. `NEW`: it is not recorded yet that the
    /// request has got its tag. `TRACED`: the context may have a trace. `is_last` returns whether
    /// no other request follows soon, from the incoming ones. Returns the state of the tag, or why
    /// the request was not issued; then it has ended, or waits for the driver.
    #[inline(always)]
    pub(super) fn issue_tagged<const NEW: bool, const TRACED: bool, D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        (tag, mut rq): (Tag, Request),
        is_last: impl Fn(&[Request]) -> bool,
        now: u64,
        gates: Gates,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> Result<SlotState, Incoming> {
        let is_write = rq.op != Op::Read;
        let slot = &mut self.table[tag.index()];
        assert!(slot.state == SlotState::Idle, "no tag is live twice");
        rq.issued_ns = now;
        if NEW {
            note_tag(&mut rq, self.policy.iostats.then_some(&*self.counters), now);
        }
        // For `may_retry`: see `Turn::issue`.
        if is_write && (rq.nr_bios > 1 || !self.limits.exact_counts) {
            rq.issued_after = self.retries.moment(self.count_at, &self.writes);
        }
        if TRACED {
            self.trace.issue(NEW, &rq, now);
        }
        let answer = driver.queue_rq(&IssuedRequest::of_plain(&rq, tag), is_last(&self.incoming));
        if is_write {
            self.retries.writes().write_is_out(self.count_at);
            if answer.is_accepted() {
                let ranges = rq.ranges(&self.splits);
                ranges.for_each(|(start, len)| self.writes.push(start, len, tag));
            }
        }
        let Some(state) = SlotState::of_accepted(answer) else {
            return Err(self.turn_at(now, gates, ended).refused(tag, rq, answer));
        };
        rq.was_issued = true;
        if rq.nr_bios > self.bios_per_request_max {
            self.bios_per_request_max = rq.nr_bios;
        }
        slot.state = state;
        let before = slot.rq.replace(rq);
        // Also spares the common case a call that drops it.
        assert!(before.is_none(), "an idle tag has no request");
        Ok(state)
    }

    /// Returns whether nothing goes before the incoming requests.
    #[inline(always)]
    fn are_incoming_first(&self) -> bool {
        self.backlog.is_empty()
            && self.dispatch.is_empty()
            && !self.flush.wants_a_look()
            && self.admission.is_none()
            && self.elevator.is_none()
            && self.policy.kick != KickPolicy::PerRequest
            && !self.device.is_failed()
    }

    /// Begins to issue requests: those that are at the driver later count from here on.
    #[inline(always)]
    pub(super) fn begin_issue(&mut self, now: u64) {
        if self.nr_in_flight == 0 {
            (self.busy_since_ns, self.bios_per_request_max) = (now, 1);
        }
    }

    /// Counts incoming requests that were issued. The I/O of `nr_begun` of them is made by threads.
    #[inline(always)]
    pub(super) fn note_incoming(&mut self, now: u64, nr_issued: u32, nr_begun: u32) {
        self.timeouts.issued(now);
        self.nr_in_flight += nr_issued;
        self.nr_begun += nr_begun;
        self.nr_uncommitted += nr_issued - nr_begun;
        let counters = &*self.counters;
        counters.issued.add(nr_issued.into());
        if self.policy.iostats {
            // No time passes between the tag and the issue.
            counters.queue.record_zeros(nr_issued.into());
        }
    }

    /// Takes a request back that is not issued now.
    #[cold]
    fn put_back(&mut self, rq: Request, is_write: bool) {
        if is_write {
            self.retries.writes().write_is_out(self.count_at);
        }
        self.incoming.push(rq);
    }
}

/// Records that a request has got its tag. `stats`: where latencies are recorded.
#[inline(always)]
pub(super) fn note_tag(rq: &mut Request, stats: Option<&RunCounters>, now: u64) {
    rq.tagged_ns = now;
    if let Some(counters) = stats {
        counters.tag.record_span(rq.unplugged_ns, now);
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests {
    use super::*;
    use crate::SoftwareQueue;
    use crate::bio::{Bio, Segment};
    use crate::driver::Completions;
    use crate::hctx::DeviceState;
    use crate::limits::QueueLimits;
    use crate::policy::Policy;
    use crate::tag::TagSet;
    use alloc::sync::Arc;
    use core::time::Duration;

    /// A driver that completes each request when it is reaped.
    #[derive(Default)]
    struct Quick(Vec<(Tag, u64)>);

    impl Driver for Quick {
        fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
            self.0.push((rq.tag, rq.len));
            Issue::Queued
        }

        fn commit_rqs(&mut self) {}

        fn reap(&mut self, done: &mut Completions, _how: Reap) {
            self.0.drain(..).for_each(|(tag, len)| done.push(tag, Ok(len)));
        }

        fn wait(&mut self, _nr_completions: u32, _timeout: Option<Duration>) {}
    }

    #[test]
    fn full_turn_that_leaves_nothing_lets_the_next_one_take_the_fast_path() {
        let limits = QueueLimits::default().capacity_bytes(Some(1 << 20)).max_sectors(8);
        let policy = Policy::default().queue_depth(1);
        let (device, tags) = (Arc::new(DeviceState::new(1)), Arc::new(TagSet::new(1)));
        let mut hctx = HardwareContext::new(limits, policy, 0, device, tags, Arc::default());
        let mut ctx = SoftwareQueue::new(limits, policy, Arc::default());
        let (mut driver, mut ended) = (Quick::default(), Vec::new());
        let mut turn = |hctx: &mut HardwareContext| {
            hctx.turn(&mut driver, 0, Gates::OPEN, Commit::Now, &mut ended);
            hctx.fast_turn == FastTurn::Plain
        };
        assert!(hctx.fast_turn == FastTurn::None && turn(&mut hctx), "nothing is there");
        let queue = |ctx: &mut SoftwareQueue, len| {
            let mut queued = QueuedBio::new(0, 0);
            queued.fill(Bio::data(Op::Read, 0, Segment { addr: 4096, len }));
            ctx.queue_bio(queued, 0, 0).expect("a good bio");
        };
        queue(&mut ctx, 4096);
        hctx.accept_from(&mut ctx, true);
        assert!(hctx.fast_turn == FastTurn::Plain);
        assert!(turn(&mut hctx) && turn(&mut hctx), "a plain read");
        // Two parts, and one tag.
        queue(&mut ctx, 8192);
        hctx.accept_from(&mut ctx, true);
        assert!(hctx.fast_turn == FastTurn::None && !turn(&mut hctx), "the second part waits");
        assert!(turn(&mut hctx) && turn(&mut hctx));
        assert!(ended.len() == 2 && ended.iter().all(|queued| queued.result().is_ok()));
    }
}
