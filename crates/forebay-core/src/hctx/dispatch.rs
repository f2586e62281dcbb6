//! Dispatch half of a turn: tag, issue, commit.
//!
//! Counterpart in Linux: `blk_mq_dispatch_rq_list` (`block/blk-mq.c`). Requests that already have a
//! tag go first: a busy driver refused them, they have another step to take, or they are retried.

use crate::driver::{Driver, Issue, IssuedRequest};
use crate::hctx::admission::Admitted;
use crate::hctx::admission::gather::Gathered;
use crate::hctx::turn::Incoming;
use crate::hctx::{HardwareContext, Slot, SlotState, Turn};
use crate::plant::plants;
use crate::policy::KickPolicy;
use crate::request::{Request, Splits, Steps, nr_parts_left};
use crate::status::BlockStatus;
use crate::tag::Tag;
use crate::trace::TraceEvent;

/// The next action of dispatch.
pub(super) enum Next {
    /// Issue the data of this request.
    Data(Tag, Request),
    /// The oldest request of the backlog has no data to issue now: it needs a flush, or is done.
    NoData,
    /// The backlog may have another oldest request.
    Again,
    /// There is no request, or no tag for the oldest one.
    None,
}

impl Turn<'_> {
    /// Lets requests in that wait outside, if their gate is open, and makes requests ready that a
    /// retry held back.
    #[inline]
    pub(super) fn begin_dispatch(&mut self) {
        let hctx = &mut *self.hctx;
        if !hctx.outside.is_empty() && self.gates.enter {
            let mut outside = core::mem::take(&mut hctx.outside);
            outside.drain(..).for_each(|rq| hctx.let_in(rq));
            hctx.keep_incoming();
            hctx.outside = outside;
            if hctx.flush.is_needed() {
                // F6: before these requests count as waiting.
                self.take_new_flushes();
            }
            self.hctx.nr_waited = self.hctx.backlog.len();
        }
        let hctx = &mut *self.hctx;
        while let Some(tag) = hctx.held.pop() {
            hctx.dispatch.push_front(tag);
        }
    }

    /// Issues the requests that the fast path ([`Turn::issue_incoming`]) has left with the result
    /// `incoming`, as far as tags and the driver allow. Returns whether no admitted request is left
    /// for certain.
    #[inline]
    pub(super) fn dispatch<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        incoming: Incoming,
    ) -> bool {
        let is_busy = match incoming {
            Incoming::Issued if self.hctx.nowait.is_empty() => return true,
            Incoming::Issued => {
                self.has_issued = true;
                // All NOWAIT flushes at once (F6).
                self.hctx.flush.is_needed() && self.dispatch_waiting(driver)
            }
            Incoming::Busy => true,
            Incoming::Waiting if self.gates.dispatch => self.dispatch_waiting(driver),
            Incoming::Waiting => {
                if self.hctx.flush.is_needed() {
                    // Otherwise they would wait behind other requests once the gate is open.
                    self.take_new_flushes();
                }
                false
            }
        };
        if self.hctx.admission.is_some() {
            self.settle_threads(is_busy);
        }
        if !self.hctx.nowait.is_empty() {
            self.dispatch_nowait(driver, is_busy);
        }
        self.hctx.end_dispatch(self.now);
        false
    }

    /// Issues requests that may wait for tags. Returns whether the driver is busy.
    #[inline(never)]
    fn dispatch_waiting<D: Driver + ?Sized>(&mut self, driver: &mut D) -> bool {
        if self.hctx.flush.is_needed() {
            self.take_new_flushes();
        }
        loop {
            if self.hctx.flush.wants_a_look() && self.look_at_flush(driver) {
                return true;
            }
            if self.hctx.dispatch.is_empty()
                && !self.stock_backlog()
                && self.hctx.nr_scheduled() == 0
            {
                break;
            }
            match self.next() {
                Next::Data(tag, rq) => {
                    if self.issue(driver, tag, rq) {
                        // A busy device must not let other requests pass forever.
                        self.hctx.flush.end_others_turn();
                        return true;
                    }
                }
                Next::NoData => self.take_flush(),
                Next::Again => {}
                Next::None => break,
            }
        }
        self.hctx.flush.is_others_turn() && self.others_are_through(driver)
    }

    /// Returns the next request to issue: from the dispatch list; or from the scheduler; or without
    /// one, from the backlog, with a tag.
    fn next(&mut self) -> Next {
        if let Some(tag) = self.hctx.dispatch.pop_front() {
            let slot = &mut self.hctx.table[tag.index()];
            assert!(slot.state == SlotState::Waiting);
            return Next::Data(tag, slot.rq.take().expect("a tag that waits has a request"));
        }
        match self.hctx.elevator.is_some() {
            true => self.next_scheduled(),
            false => self.next_tagged(),
        }
    }

    /// Returns the oldest request of the backlog, with a tag.
    #[inline]
    pub(super) fn next_tagged(&mut self) -> Next {
        loop {
            let hctx = &mut *self.hctx;
            let Some(waiting) = hctx.backlog.front() else { return Next::None };
            let (flags, oversized) = (waiting.flags, waiting.oversized);
            // In the common case this is one comparison.
            if waiting.steps != Steps::DATA && waiting.steps.current() != Some(Steps::DATA) {
                return Next::NoData;
            }
            if oversized {
                match self.gather() {
                    Gathered::Enough => {}
                    Gathered::Short => return Next::None,
                }
            }
            let hctx = &mut *self.hctx;
            let Some(waiting) = hctx.backlog.front() else { return Next::None };
            // A new NOWAIT request is in front of requests that have waited.
            let is_new = || waiting.is_nowait() && waiting.part_of.is_none();
            let mut has_waited = hctx.nr_waited > 0 && !is_new();
            let tag = if hctx.admission.is_none() {
                match hctx.tags.get(0) {
                    Some(tag) => tag,
                    None if self.end_without_tag() => continue,
                    None => return Next::None,
                }
            } else {
                match self.get_tag(flags) {
                    Admitted::Tag(tag, is_old) => {
                        has_waited |= is_old;
                        tag
                    }
                    Admitted::NoTag if self.end_without_tag() => continue,
                    Admitted::NoTag => return Next::None,
                    Admitted::WaitsElsewhere => return Next::Again,
                }
            };
            let hctx = &mut *self.hctx;
            let rq = if oversized { self.cut_front() } else { hctx.pop_backlog() };
            match rq {
                Some(mut rq) => {
                    self.note_tag(tag, &mut rq, has_waited);
                    return Next::Data(tag, rq);
                }
                None => {
                    self.hctx.put_tag(tag, flags);
                    return Next::Again;
                }
            }
        }
    }

    /// Issues a request, whose step is its data, under its tag. Returns whether the driver is busy.
    fn issue<D: Driver + ?Sized>(&mut self, driver: &mut D, tag: Tag, mut rq: Request) -> bool {
        if rq.steps.is_native_fua() {
            self.choose_fua(&mut rq);
        }
        let hctx = &mut *self.hctx;
        if hctx.device.is_failed() {
            self.failed(tag, rq, BlockStatus::Offline);
            return false;
        }
        let last = hctx.dispatch.is_empty() && hctx.backlog.is_empty() && hctx.is_last_queued();
        let retries = &hctx.retries;
        let is_write = rq.op.is_write();
        if is_write {
            retries.writes().count_write(hctx.count_at);
        }
        // H6 and A1. A retry does not hold back its own request.
        let has_ranges = retries.any();
        let is_refused = has_ranges
            && retries.is_quarantined(rq.window_ranges(&hctx.splits))
            && !plants!(ForgetRange);
        if is_refused || has_ranges && retries.hold_back(rq.retry, rq.ranges(&hctx.splits)) {
            if is_write {
                retries.writes().write_is_out(hctx.count_at);
            }
            if is_refused {
                self.refuse(tag, rq);
                return false;
            }
            hctx.held.push(tag);
            hctx.table[tag.index()] = Slot { state: SlotState::Waiting, rq: Some(rq) };
            return false;
        }
        // This happens before the issue, because a write issued from here on may overtake the
        // request. Only two kinds of request may be issued again. One joins several bios, and its
        // failure cannot be assigned to one of them. The other is a write that the device may have
        // cut short after writing more.
        let is_noted = is_write
            && match rq.nr_bios {
                1 => !hctx.limits.exact_counts && rq.retry.is_none(),
                _ => !rq.was_issued,
            };
        if is_noted {
            rq.issued_after = retries.moment(hctx.count_at, &hctx.writes);
        }
        rq.issued_ns = self.now;
        hctx.trace.command(TraceEvent::Issue, &rq, &hctx.splits, self.now);
        let answer = driver.queue_rq(&IssuedRequest::of_step::<true>(&rq, &hctx.splits, tag), last);
        if is_write {
            retries.writes().write_is_out(hctx.count_at);
        }
        let Some(state) = SlotState::of_accepted(answer) else {
            return self.not_queued(tag, rq, answer);
        };
        if is_write {
            let ranges = rq.ranges(&hctx.splits);
            ranges.for_each(|(start, len)| hctx.writes.push(start, len, tag));
        }
        self.note_issue(&mut rq, state);
        let hctx = &mut *self.hctx;
        hctx.table[tag.index()] = Slot { state, rq: Some(rq) };
        if hctx.policy.kick == KickPolicy::PerRequest {
            hctx.commit(driver);
        }
        false
    }

    /// Handles a request that the driver has not accepted. Returns whether the driver is busy.
    #[cold]
    pub(super) fn not_queued(&mut self, tag: Tag, rq: Request, answer: Issue) -> bool {
        let hctx = &mut *self.hctx;
        match answer {
            Issue::Queued | Issue::Begun => unreachable!("the request was accepted"),
            Issue::Busy => {
                hctx.trace.command(TraceEvent::Requeue, &rq, &hctx.splits, self.now);
                hctx.dispatch.push_front(tag);
                hctx.table[tag.index()] = Slot { state: SlotState::Waiting, rq: Some(rq) };
                hctx.counters.requeues.add(1);
                true
            }
            Issue::Failed(status) => {
                self.failed(tag, rq, status);
                false
            }
        }
    }

    /// Counts a request that the driver has accepted. `state` is the state of its tag now.
    pub(super) fn note_issue(&mut self, rq: &mut Request, state: SlotState) {
        let hctx = &mut *self.hctx;
        if hctx.policy.iostats && !rq.was_issued {
            hctx.counters.queue.record_span(rq.tagged_ns, self.now);
        }
        rq.was_issued = true;
        self.has_issued = true;
        if hctx.nr_in_flight == 0 {
            hctx.busy_since_ns = self.now;
            hctx.bios_per_request_max = 1;
        }
        hctx.bios_per_request_max = hctx.bios_per_request_max.max(rq.nr_bios);
        if !rq.is_plain() {
            hctx.nr_with_more_commands += u32::from(rq.has_more_commands());
            hctx.flush.count_issued(rq.steps);
        }
        hctx.timeouts.issued(self.now);
        hctx.nr_in_flight += 1;
        match state {
            SlotState::Begun => hctx.nr_begun += 1,
            _ => hctx.nr_uncommitted += 1,
        }
        hctx.counters.issued.add(1);
    }

    /// Cuts the front that fits one request off the oldest request of the backlog. Returns `None`
    /// if it could not be cut; its bio has then ended.
    #[cold]
    fn cut_front(&mut self) -> Option<Request> {
        let hctx = &mut *self.hctx;
        let waiting = hctx.backlog.front_mut()?;
        let part = waiting.split_front(&mut hctx.splits, &hctx.limits);
        hctx.gather.note_cut(waiting.part_of);
        if let Some(front) = &part
            && waiting.len > 0
        {
            hctx.counters.splits.add(1);
            hctx.trace.split(front, waiting.len, self.now);
            return part;
        }
        let mut rest = hctx.pop_backlog()?;
        if part.is_none() {
            self.trace_refusal(&rest, BlockStatus::Invalid);
            let skip = rest.skip;
            rest.head_mut(&mut self.hctx.splits).mark(skip, Some(BlockStatus::Invalid));
            self.end_all(rest);
        }
        part
    }

    fn note_tag(&mut self, tag: Tag, rq: &mut Request, has_waited: bool) {
        let hctx = &mut *self.hctx;
        assert!(hctx.table[tag.index()].state == SlotState::Idle, "no tag is live twice");
        rq.tagged_ns = self.now;
        hctx.trace.request(TraceEvent::GetTag, rq, self.now);
        if hctx.policy.iostats {
            hctx.counters.tag.record_span(rq.unplugged_ns, self.now);
        }
        if has_waited {
            let waited_ns = rq.waited_ns(self.now);
            hctx.count_owners_wait(rq, waited_ns);
            note_wait(rq, &mut hctx.splits, waited_ns);
        }
    }

    /// Issues NOWAIT requests if no request waits and tags are free for all of their parts. Ends
    /// them with `Again` or `NotSupported` otherwise.
    #[cold]
    fn dispatch_nowait<D: Driver + ?Sized>(&mut self, driver: &mut D, mut is_busy: bool) {
        let mut nowait = core::mem::take(&mut self.hctx.nowait);
        while let Some(mut rq) = nowait.pop_front().or_else(|| self.hctx.nowait.pop_front()) {
            let hctx = &mut *self.hctx;
            let depth = hctx.tags.depth();
            let parts = match rq.oversized {
                true => nr_parts_left(&rq, &hctx.splits, &hctx.limits, depth + 1),
                false => 1,
            };
            let is_closed = !self.gates.enter || !self.gates.dispatch || is_busy;
            let must_wait = is_closed
                || hctx.has_elder(&rq)
                || !hctx.dispatch.is_empty()
                || hctx.nr_free_tags_of(&rq) < parts;
            if rq.steps.is_empty() {
                // No gate stops the request, and it opens no gate for others.
                self.end_empty(rq);
            } else if rq.steps.current() != Some(Steps::DATA) {
                // Its flush takes no tag, and is for all who wait. Its data returns here later.
                match self.gates.enter && self.gates.dispatch {
                    true => self.park(rq),
                    false => self.answer(rq, BlockStatus::Again),
                }
                is_busy = is_busy || self.gates.dispatch && self.dispatch_waiting(driver);
            } else if parts > depth {
                self.answer(rq, BlockStatus::NotSupported);
            } else if must_wait {
                self.answer(rq, BlockStatus::Again);
            } else if let Some(charge) = hctx.charge_nowait(&mut rq, self.now) {
                let (owner, flags) = (rq.origin.owner(), rq.flags);
                let (nr_ios, bytes) = (rq.nr_bios, rq.len);
                // A request that may use a reserved tag goes before those that may not.
                hctx.nr_waited += usize::from(hctx.nr_waited > 0);
                hctx.backlog.push_front(rq);
                is_busy = self.dispatch_waiting(driver);
                let is_undone = self.answer_if_not_issued() || plants!(RefundIssued);
                if !is_undone {
                    self.hctx.count_nowait(owner, flags, nr_ios, bytes);
                } else if !charge.is_none() {
                    self.hctx.refund_nowait(owner, charge);
                }
            } else {
                self.answer(rq, BlockStatus::Again);
            }
        }
        self.hctx.nowait = nowait;
    }

    /// Ends a NOWAIT request that was about to be issued and was not: the driver was busy, or a
    /// retry holds it back (A1). A split bio is ended only if the busy driver refused its first
    /// part. Then nothing of it was issued, and the rest is in the backlog. A request that is
    /// retried after a failure has already been at the driver, and continues.
    ///
    /// A request that is in the scheduler has its tag, and waits for the device, as in Linux.
    ///
    /// Returns whether it was ended.
    fn answer_if_not_issued(&mut self) -> bool {
        let hctx = &mut *self.hctx;
        if hctx.elevator.is_some() {
            return self.answer_if_without_tag();
        }
        let table = &hctx.table;
        let refused = |tag: Tag, is_busy: bool| {
            let rq = table[tag.index()].rq.as_ref().expect("a tag that waits has a request");
            let is_undone = rq.part_of.is_none() || is_busy && rq.skip == 0;
            rq.is_nowait() && !rq.was_issued && !rq.bio_by_bio && is_undone
        };
        let tag = if let Some(&tag) = hctx.dispatch.front().filter(|tag| refused(**tag, true)) {
            hctx.dispatch.pop_front();
            tag
        } else if let Some(&tag) = hctx.held.last().filter(|tag| refused(**tag, false)) {
            hctx.held.pop();
            tag
        } else {
            return self.answer_if_without_tag();
        };
        let slot = &mut hctx.table[tag.index()];
        slot.state = SlotState::Idle;
        let rq = slot.rq.take().expect("a tag that waits has a request");
        let rest = if rq.part_of.is_some() { hctx.pop_backlog() } else { None };
        hctx.put_tag(tag, rq.flags);
        self.answer(rq, BlockStatus::Again);
        if let Some(rest) = rest {
            self.trace_refusal(&rest, BlockStatus::Again);
            self.end_all(rest);
        }
        true
    }

    /// Ends a NOWAIT request that was about to be issued and found no tag, because another user of
    /// the shared set took it meanwhile. The rest of a split bio waits like any other request.
    /// Returns whether it was ended.
    fn answer_if_without_tag(&mut self) -> bool {
        // At most one request of each class is in front of it.
        let mut front = self.hctx.backlog.iter().take(3);
        let place = front.position(|rq| rq.is_nowait() && rq.part_of.is_none());
        let Some(rq) = place.and_then(|place| self.hctx.backlog.remove(place)) else {
            return false;
        };
        self.hctx.nr_waited = self.hctx.nr_waited.saturating_sub(1);
        self.answer(rq, BlockStatus::Again);
        true
    }

    /// Ends the oldest request of the backlog if the device is gone, because its tags may never
    /// come back (H3). Returns whether it did.
    #[cold]
    fn end_without_tag(&mut self) -> bool {
        if !self.hctx.device.is_failed() {
            return false;
        }
        let Some(mut rq) = self.hctx.pop_backlog() else { return false };
        if rq.part_of.is_some() {
            self.trace_refusal(&rq, BlockStatus::Offline);
            let skip = rq.skip;
            rq.head_mut(&mut self.hctx.splits).mark(skip, Some(BlockStatus::Offline));
            self.end_all(rq);
        } else {
            self.answer(rq, BlockStatus::Offline);
        }
        self.stock_backlog();
        true
    }

    /// Ends all bios of a request that was not issued.
    pub(super) fn answer(&mut self, mut rq: Request, status: BlockStatus) {
        let hctx = &mut *self.hctx;
        hctx.trace.complete(&rq, &hctx.splits, Err(status), self.now);
        loop {
            rq.head_mut(&mut self.hctx.splits).mark(0, Some(status));
            if rq.nr_bios == 1 {
                return self.end_all(rq);
            }
            self.end_head(&mut rq);
        }
    }
}

impl HardwareContext {
    /// Moves the incoming requests to the backlog, or to the queues of their owners.
    pub(super) fn keep_incoming(&mut self) {
        if self.admission.is_none() || !self.keep_incoming_of_owners() {
            self.backlog.extend(self.incoming.drain(..));
        }
        self.has_special = false;
    }

    /// Removes the oldest request from the backlog.
    #[inline]
    pub(super) fn pop_backlog(&mut self) -> Option<Request> {
        self.nr_waited = self.nr_waited.saturating_sub(1);
        self.backlog.pop_front()
    }
}

/// Records on its bios that a request has waited for its tag.
#[cold]
pub(super) fn note_wait(rq: &mut Request, splits: &mut Splits, waited_ns: u64) {
    let mut bio = Some(rq.head_mut(splits));
    while let Some(queued) = bio {
        // A bio that is split waits for several tags.
        queued.note_tag_wait(waited_ns);
        bio = queued.next.as_deref_mut();
    }
}
