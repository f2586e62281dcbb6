//! Completion half of a turn: reap, complete, end.
//!
//! Merging does not change a result. If a request that joins several bios completes short or fails,
//! it is taken apart:
//!
//! - E1 a count of n proves the first n bytes: the bios that they cover end, and the rest continues
//!   under the same tag. Only a count of 0 is the end of a file. Where counts are not exact, the
//!   rest of a write is a retry as well: it continues only where E2 would allow it, and otherwise
//!   fails with [`BlockStatus::Io`];
//! - E2 a failure that one bio may have caused ([`BlockStatus::may_be_of_one_bio`]) is tried again
//!   bio by bio, one after another under the same tag, so that each bio gets its own result. A
//!   request that changes the device is tried again only if no overlapping write was issued since
//!   ([`crate::retry`]);
//! - E3 any other failure ends, with that status, all bios that are not covered yet;
//! - E4 a split bio ends with the last of its parts. Its result is that of the lowest byte that was
//!   not moved, whatever the order in which the parts completed.

use crate::bio::{Bio, Op};
use crate::driver::{Completed, Driver, Reap};
use crate::hctx::flush::needs_point;
use crate::hctx::{FastTurn, Gates, HardwareContext, Slot, SlotState, Turn};
use crate::hint::cold_path;
use crate::list::push;
use crate::plant::plants;
use crate::request::{QueuedBio, Request, Steps};
use crate::status::BlockStatus;
use crate::tag::Tag;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The next action for a request after a completion.
enum After {
    /// It has more to do: another step, the rest of a short count, or a retry.
    Again(Request),
    /// The request is done: only its bios have to end.
    Done(Request),
}

impl Turn<'_> {
    /// Reaps the driver's completions.
    #[inline]
    pub(super) fn reap<D: Driver + ?Sized>(&mut self, driver: &mut D) {
        self.hctx.look_for_failures();
        let is_due = self.hctx.nr_in_flight > 0 || self.hctx.reap_kick;
        if !is_due || !self.gates.reap {
            return;
        }
        let how = self.reap_mode();
        self.hctx.reap_now::<true, D>(driver, how, self.now, self.gates, self.ended);
    }

    /// Returns how thoroughly the driver looks for completions. A glance is enough if requests of
    /// the backlog can get tags: they are issued in this turn, and their commit brings completions
    /// as well. (Requests that a busy driver refused are on the dispatch list: the driver may be
    /// waiting for just these completions. Requests that a flush holds back wait for its end.)
    fn reap_mode(&self) -> Reap {
        let hctx = &*self.hctx;
        let commit_follows = !(hctx.incoming.is_empty() && hctx.backlog.is_empty())
            && self.gates.dispatch
            && hctx.dispatch.is_empty()
            && !hctx.flush.wants_a_look()
            && hctx.nr_in_flight < hctx.tags.nr_requests()
            // A scheduler may hold all of them back.
            && hctx.elevator.is_none()
            // Before a request counts as overdue, its completion is looked for.
            && self.now < hctx.timeouts.next_ns();
        if commit_follows { Reap::NoSyscall } else { Reap::Full }
    }

    /// Handles the uncommon cases: one of several steps, a short count, a failure.
    #[inline(never)]
    fn complete_step(&mut self, tag: Tag, mut rq: Request, result: Result<u64, BlockStatus>) {
        let hctx = &mut *self.hctx;
        if tag == hctx.flush.tag() {
            hctx.table[tag.index()].state = SlotState::Idle;
            return self.flush_done(rq, result);
        }
        hctx.nr_with_more_commands -= u32::from(rq.has_more_commands());
        hctx.flush.count_completed(rq.steps);
        let is_fua = rq.steps.is_native_fua();
        let is_lost = is_fua && self.check_fua(&mut rq, result);
        let after = match result {
            // The bytes that were counted may be lost, so the bio cannot succeed any more.
            Ok(_) if is_lost => self.fail(tag, rq, BlockStatus::Io),
            Ok(n) => self.progress(tag, rq, n),
            Err(status) => self.fail(tag, rq, status),
        };
        self.settle(tag, after);
        if is_fua {
            self.end_flushes_after_fua(is_lost);
        }
    }

    /// Handles a request that failed for good when it was issued.
    #[cold]
    pub(super) fn failed(&mut self, tag: Tag, rq: Request, status: BlockStatus) {
        let hctx = &mut *self.hctx;
        hctx.trace.complete(&rq, &hctx.splits, Err(status), self.now);
        let after = self.fail(tag, rq, status);
        self.settle(tag, after);
    }

    /// Handles a request that is not issued because it overlaps one that was given up and may
    /// still change the device (H6).
    #[cold]
    pub(super) fn refuse(&mut self, tag: Tag, mut rq: Request) {
        if rq.part_of.is_some() {
            return self.refuse_split(tag, rq);
        }
        // A repeat has a range of its own (A1), and continues under it.
        rq.bio_by_bio |= rq.retry.is_some() && rq.nr_bios > 1;
        while self.hctx.is_head_quarantined(&rq) {
            if rq.nr_bios == 1 || plants!(RefuseNeighbours) {
                self.trace_refusal(&rq, BlockStatus::Offline);
                let after = self.end_all_but_last(rq, Some(BlockStatus::Offline));
                return self.settle(tag, after);
            }
            self.refuse_head(&mut rq);
        }
        if !rq.bio_by_bio {
            let retries = &self.hctx.retries;
            let range = |bio: &Bio| core::iter::once((bio.start, bio.len));
            let rest = rq.split_off(|bio| retries.is_quarantined(range(bio)));
            if let Some(rest) = rest {
                self.refuse_rest(rest);
            }
        }
        self.settle(tag, After::Again(rq));
    }

    /// Ends the bios at the beginning of the rest of a refused request that overlap too, and puts
    /// the others in front of the backlog. They need a tag of their own, and were charged to their
    /// owner. A NOWAIT request could have to wait for the tag, so it ends.
    fn refuse_rest(&mut self, mut rest: Request) {
        while self.hctx.is_head_quarantined(&rest) {
            if rest.nr_bios == 1 {
                return self.answer(rest, BlockStatus::Offline);
            }
            self.refuse_head(&mut rest);
        }
        if rest.is_nowait() {
            return self.answer(rest, BlockStatus::Again);
        }
        let hctx = &mut *self.hctx;
        hctx.nr_waited += usize::from(hctx.nr_waited > 0);
        hctx.backlog.push_front(rest);
    }

    /// Handles a part of a split bio that is not issued (H6).
    fn refuse_split(&mut self, tag: Tag, rq: Request) {
        let part_of = rq.part_of;
        self.trace_refusal(&rq, BlockStatus::Offline);
        let after = self.end_all_but_last(rq, Some(BlockStatus::Offline));
        self.settle(tag, after);
        // The rest of the bio is not issued either.
        let is_rest = |rest: &Request| rest.part_of == part_of;
        if self.hctx.backlog.front().is_some_and(is_rest)
            && let Some(mut rest) = self.hctx.pop_backlog()
        {
            self.trace_refusal(&rest, BlockStatus::Offline);
            let skip = rest.skip;
            rest.head_mut(&mut self.hctx.splits).mark(skip, Some(BlockStatus::Offline));
            self.end_all(rest);
        }
    }

    /// Ends the first of several bios of a request that is not issued (H6).
    fn refuse_head(&mut self, rq: &mut Request) {
        let hctx = &mut *self.hctx;
        hctx.trace.refuse_head(rq, &hctx.splits, BlockStatus::Offline, self.now);
        self.fail_head(rq, BlockStatus::Offline);
    }

    /// Records that the rest of a request ends without a command, so that each bio has an end in
    /// the trace.
    pub(super) fn trace_refusal(&mut self, rq: &Request, status: BlockStatus) {
        let hctx = &mut *self.hctx;
        hctx.trace.complete(rq, &hctx.splits, Err(status), self.now);
    }

    /// Ends the bios of a request that stays at the driver (H5), as after a failure. The request
    /// keeps its tag.
    pub(super) fn end_given_up(&mut self, mut rq: Request) {
        let hctx = &mut *self.hctx;
        hctx.trace.complete(&rq, &hctx.splits, Err(BlockStatus::Timeout), self.now);
        hctx.nr_with_more_commands -= u32::from(rq.has_more_commands());
        hctx.flush.count_completed(rq.steps);
        let is_fua = rq.steps.is_native_fua();
        let is_lost = is_fua && self.check_fua(&mut rq, Err(BlockStatus::Timeout));
        // The results of the other parts of a split bio do not matter.
        rq.head_mut(&mut self.hctx.splits).mark_first(BlockStatus::Timeout);
        let After::Done(mut rq) = self.end_all_but_last(rq, Some(BlockStatus::Timeout)) else {
            unreachable!("nothing is left to do")
        };
        self.leave_retries(&mut rq);
        let counters = self.hctx.counters.of(rq.op);
        counters.requests.add(1);
        counters.ticks_ns.add(self.now.saturating_sub(rq.tagged_ns));
        self.end_all(rq);
        if is_fua {
            self.end_flushes_after_fua(is_lost);
        }
    }

    fn settle(&mut self, tag: Tag, after: After) {
        let hctx = &mut *self.hctx;
        match after {
            After::Again(rq) if rq.steps.current() != Some(Steps::DATA) => {
                hctx.table[tag.index()].state = SlotState::Idle;
                hctx.put_tag(tag, rq.flags);
                self.park(rq);
            }
            After::Again(rq) => {
                hctx.table[tag.index()] = Slot { state: SlotState::Waiting, rq: Some(rq) };
                hctx.dispatch.push_back(tag);
            }
            After::Done(mut rq) => {
                hctx.table[tag.index()].state = SlotState::Idle;
                self.leave_retries(&mut rq);
                let counters = self.hctx.counters.of(rq.op);
                counters.requests.add(1);
                counters.ticks_ns.add(self.now.saturating_sub(rq.tagged_ns));
                self.hctx.put_tag(tag, rq.flags);
                self.end_all(rq);
            }
        }
    }

    /// Handles a completion of which the first `n` bytes at the driver were moved (E1).
    fn progress(&mut self, tag: Tag, mut rq: Request, n: u64) -> After {
        let window = rq.window_len(&self.hctx.splits);
        assert!(n <= window, "a completion of more bytes than were asked for");
        if n < window && (n == 0 || !rq.op.moves_data()) {
            return self.stuck(rq);
        }
        self.hctx.counters.of(rq.op).bytes.add(n);
        if n == rq.len {
            rq.len = 0;
            self.leave_retries(&mut rq);
            rq.steps = rq.steps.after(Steps::DATA);
            return if rq.steps.is_empty() { After::Done(rq) } else { After::Again(rq) };
        }
        let is_doubtful = n < window && rq.op == Op::Write && !self.hctx.limits.exact_counts;
        let mut left = n;
        while left > 0 {
            let head_len = rq.head_len(&self.hctx.splits);
            let covered = left.min(head_len);
            left -= covered;
            rq.len -= covered;
            rq.start += covered;
            rq.skip += covered;
            // Not all of the request is covered, so it has another bio.
            if covered == head_len {
                self.end_head(&mut rq);
                // Discards merge without being neighbours.
                rq.start = rq.first().bio.start;
            }
        }
        if is_doubtful && !self.may_retry(tag, &mut rq) {
            self.hctx.counters.overtaken.add(1);
            self.trace_refusal(&rq, BlockStatus::Io);
            return self.end_all_but_last(rq, Some(BlockStatus::Io));
        }
        After::Again(rq)
    }

    /// Handles a count of 0: the end of the file for a read, a failure for any other operation.
    #[cold]
    fn stuck(&mut self, rq: Request) -> After {
        match rq.op {
            Op::Read => self.end_all_but_last(rq, None),
            _ => {
                self.trace_refusal(&rq, BlockStatus::Io);
                self.end_all_but_last(rq, Some(BlockStatus::Io))
            }
        }
    }

    /// Handles a failure (E2, E3).
    #[cold]
    fn fail(&mut self, tag: Tag, mut rq: Request, status: BlockStatus) -> After {
        if status == BlockStatus::Offline {
            self.hctx.device.fail();
        }
        if rq.nr_bios == 1 || !status.may_be_of_one_bio() {
            return self.end_all_but_last(rq, Some(status));
        }
        if rq.bio_by_bio {
            self.fail_head(&mut rq, status);
            return After::Again(rq);
        }
        match self.may_retry(tag, &mut rq) {
            true => {
                rq.bio_by_bio = true;
                self.hctx.counters.retries.add(1);
                After::Again(rq)
            }
            false => {
                self.hctx.counters.overtaken.add(1);
                self.end_all_but_last(rq, Some(status))
            }
        }
    }

    /// Ends the first of several bios with a failure, and continues with the next.
    fn fail_head(&mut self, rq: &mut Request, status: BlockStatus) {
        let hctx = &mut *self.hctx;
        let (skip, head_len) = (rq.skip, rq.head_len(&hctx.splits));
        rq.head_mut(&mut hctx.splits).mark(skip, Some(status));
        rq.len -= head_len;
        self.end_head(rq);
        // Discards merge without being neighbours.
        rq.start = rq.first().bio.start;
    }

    /// Enters the request's range among the retries (A1), unless an overlapping write may have been
    /// issued since (A2). Once the range is entered, no overlapping write is issued. Returns
    /// whether the request may be tried again.
    #[cold]
    fn may_retry(&mut self, tag: Tag, rq: &mut Request) -> bool {
        if rq.retry.is_some() {
            return true;
        }
        let hctx = &*self.hctx;
        let retries = &hctx.retries;
        let ranges = || rq.ranges(&hctx.splits);
        let start = ranges().map(|(start, _)| start).min().unwrap_or(0);
        let end = ranges().map(|(start, len)| start + len).max().unwrap_or(0);
        let slot = retries.enter(start, end);
        // Two overlapping ranges would hold each other back forever, so the second request gets
        // none. A read changes nothing: it may be tried again without a range, whatever was issued
        // since.
        let is_read = rq.op == Op::Read;
        let is_first = slot.is_some() && !retries.hold_back(slot, ranges());
        let since = rq.issued_after;
        let has_place = is_first
            && (is_read
                || !retries.was_overtaken(hctx.count_at, &hctx.writes, since, tag, ranges()));
        if has_place {
            rq.retry = slot;
        } else if let Some(slot) = slot {
            retries.leave(slot);
        }
        has_place || is_read
    }

    /// Removes the range of a request whose data step is done, or given up: overlapping requests
    /// may be issued again. (A flush of the request may follow.)
    fn leave_retries(&mut self, rq: &mut Request) {
        if let Some(slot) = rq.retry.take() {
            self.hctx.retries.leave(slot);
        }
    }

    /// Ends all bios of a request but its last, which ends with the request.
    fn end_all_but_last(&mut self, mut rq: Request, status: Option<BlockStatus>) -> After {
        let from = rq.skip;
        rq.head_mut(&mut self.hctx.splits).mark(from, status);
        while rq.nr_bios > 1 {
            self.end_head(&mut rq);
            rq.head_mut(&mut self.hctx.splits).mark(0, status);
        }
        After::Done(rq)
    }

    /// Ends the first of several bios, and continues with the next.
    #[inline]
    pub(super) fn end_head(&mut self, rq: &mut Request) {
        assert!(rq.nr_bios > 1);
        let head = rq.pop_front();
        self.end(head, rq.unplugged_ns);
    }

    /// Ends all bios of a request that is done. A split bio ends only with its last part.
    pub(super) fn end_all(&mut self, rq: Request) {
        let (part_of, unplugged_ns) = (rq.part_of, rq.unplugged_ns);
        let mut bio = rq.into_box();
        if let Some(at) = part_of {
            if let Some(whole) = self.hctx.splits.end_part(at, bio) {
                self.end(whole, unplugged_ns);
            }
            return;
        }
        while let Some(next) = bio.next.take() {
            self.end(bio, unplugged_ns);
            bio = next;
        }
        self.end(bio, unplugged_ns);
    }

    fn end(&mut self, bio: Box<QueuedBio>, unplugged_ns: u64) {
        self.hctx.counters.of(bio.bio.op).bios.add(1);
        self.hctx.end_counted(bio, unplugged_ns, self.now, self.ended);
    }
}

/// The common case. These functions take the parts of a [`Turn`], which therefore stay in
/// registers; a `Turn` that other functions share is in memory.
impl HardwareContext {
    /// Returns whether what is left of the first bio of a request overlaps one that was given up.
    fn is_head_quarantined(&self, rq: &Request) -> bool {
        self.retries.is_quarantined(rq.head_ranges(&self.splits))
    }

    /// Reaps the driver's completions and ends their bios, which are appended to `ended`. `TRACED`:
    /// the context may have a trace.
    #[inline(always)]
    pub(super) fn reap_now<const TRACED: bool, D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        how: Reap,
        now: u64,
        gates: Gates,
        ended: &mut Vec<Box<QueuedBio>>,
    ) {
        self.reap_kick = false;
        driver.reap(&mut self.completions, how);
        self.flush.begin_reaping();
        match self.completions.len() {
            1 => self.complete::<TRACED>(0, now, gates, ended),
            nr => self.complete_several::<TRACED>(nr, now, gates, ended),
        }
        self.completions.clear();
        self.flush.end_reaping();
    }

    // A loop of its own needs fewer registers.
    #[inline(never)]
    fn complete_several<const TRACED: bool>(
        &mut self,
        nr: usize,
        now: u64,
        gates: Gates,
        ended: &mut Vec<Box<QueuedBio>>,
    ) {
        (0..nr).for_each(|nth| self.complete::<TRACED>(nth, now, gates, ended));
    }

    #[inline(always)]
    fn complete<const TRACED: bool>(
        &mut self,
        nth: usize,
        now: u64,
        gates: Gates,
        ended: &mut Vec<Box<QueuedBio>>,
    ) {
        let &Completed { tag, ref result } = self.completions.get(nth);
        let slot = &mut self.table[tag.index()];
        if slot.state != SlotState::Issued {
            if slot.state != SlotState::Begun {
                cold_path();
                self.fast_turn = FastTurn::None;
                return self.turn_at(now, gates, ended).complete_given_up(nth);
            }
            self.nr_begun -= 1;
        }
        let rq = slot.rq.take().expect("an issued tag has a request");
        if TRACED {
            self.trace.complete(&rq, &self.splits, *result, now);
        }
        self.nr_in_flight -= 1;
        let counters = &*self.counters;
        if self.nr_in_flight == 0 && now > self.busy_since_ns {
            counters.busy_ns.add(now - self.busy_since_ns);
        }
        if self.policy.iostats {
            counters.driver.record_span(rq.issued_ns, now);
        }
        let is_whole = matches!(result, Ok(len) if *len == rq.len);
        if !is_whole || !rq.is_plain() || self.timeouts.has_overdue() {
            cold_path();
            slot.state = SlotState::Waiting;
            let result = self.timeouts.completed(tag, *result);
            self.fast_turn = FastTurn::None;
            return self.turn_at(now, gates, ended).complete_step(tag, rq, result);
        }
        // One command, which has moved all bytes.
        slot.state = SlotState::Idle;
        let counters = counters.of(rq.op);
        counters.bytes.add(rq.len);
        counters.requests.add(1);
        counters.ticks_ns.add(now.saturating_sub(rq.tagged_ns));
        if !rq.is_one_bio() {
            self.put_tag(tag, rq.flags);
            return self.turn_at(now, gates, ended).end_all(rq);
        }
        counters.bios.add(1);
        self.put_tag(tag, rq.flags);
        let unplugged_ns = rq.unplugged_ns;
        self.end_counted(rq.into_box(), unplugged_ns, now, ended);
    }

    /// Ends a bio that was counted.
    // Inlined where a request of one bio completes, which is the common case.
    #[inline(always)]
    fn end_counted(
        &mut self,
        mut bio: Box<QueuedBio>,
        unplugged_ns: u64,
        now: u64,
        ended: &mut Vec<Box<QueuedBio>>,
    ) {
        if self.flush.is_needed() && needs_point(&bio) {
            bio.durable_point = self.ended_point(bio.is_in_doubt);
        }
        let mut plugged_ns = unplugged_ns;
        if bio.has_marks() {
            plugged_ns = self.count_waits(&bio, unplugged_ns, now);
        }
        if self.policy.iostats {
            self.counters.plug.record_span(bio.queued_ns, plugged_ns);
        }
        push(ended, bio);
    }

    /// Counts a bio that has waited, or counts among the outstanding I/O of its owner. Returns the
    /// time at which it left the plug: after a limit has held its request back, `unplugged_ns` is
    /// the end of that wait.
    #[cold]
    fn count_waits(&mut self, bio: &QueuedBio, unplugged_ns: u64, now: u64) -> u64 {
        self.end_outstanding(bio, unplugged_ns, now);
        if let Some(waited_ns) = bio.tag_wait() {
            self.counters.tag_waits.add(1);
            self.counters.tag_wait_ns.add(waited_ns);
        }
        unplugged_ns - bio.limit_wait().unwrap_or(0).min(unplugged_ns)
    }
}
