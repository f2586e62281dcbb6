//! Turns of the flush machine: which requests wait, when a flush is issued, and the effects of its
//! end.

use super::{FlushMachine, NR_IN_A_ROW, Waiting};
use crate::bio::{BioFlags, Op};
use crate::driver::{Driver, Issue, IssuedRequest};
use crate::durability::Wanted;
use crate::hctx::turned::NO_DEADLINE;
use crate::hctx::{HardwareContext, Slot, SlotState, Turn};
use crate::plant::plants;
use crate::request::{QueuedBio, Request, Splits, Steps};
use crate::status::BlockStatus;
use crate::trace::{TraceEvent, TraceRecord};

impl Turn<'_> {
    /// Handles the oldest request of the backlog, which has no data to issue now: it is done, or
    /// waits for a flush. It has no tag.
    #[cold]
    pub(in crate::hctx) fn take_flush(&mut self) {
        if let Some(rq) = self.hctx.pop_backlog() {
            match rq.steps.is_empty() {
                true => self.end_empty(rq),
                false => self.park(rq),
            }
        }
    }

    /// Ends a request for which the device has nothing to do: there are no data, and nothing that
    /// could be lost.
    pub(in crate::hctx) fn end_empty(&mut self, rq: Request) {
        if rq.op == Op::Flush {
            let HardwareContext { trace, splits, .. } = &mut *self.hctx;
            trace.flush(TraceEvent::FlushElided, &rq, splits, self.now);
            trace.flush_done(&rq, splits, Ok(()), self.now);
        }
        self.end_all(rq);
    }

    /// Moves new flushes from the backlog to the machine, so that they do not wait behind other
    /// requests. They need no tag, and order nothing that came before them. The next flush may
    /// follow the running one while the others are held.
    ///
    /// New NOWAIT flushes as well, unless a gate is closed: the flush that this turn issues is for
    /// them, too (F6).
    #[inline]
    pub(in crate::hctx) fn take_new_flushes(&mut self) {
        let is_flush = |rq: &Request| rq.steps.current() == Some(Steps::PRE);
        let mut at = self.hctx.nr_waited;
        while let Some(rq) = self.hctx.backlog.get(at) {
            if !is_flush(rq) {
                at += 1;
            } else if let Some(rq) = self.hctx.backlog.remove(at) {
                let nr_left = self.hctx.backlog.len();
                self.park(rq);
                // If it needs no flush after all, its data are at the front.
                at += self.hctx.backlog.len() - nr_left;
            }
        }
        if !self.hctx.nowait.is_empty() && self.gates.enter && self.gates.dispatch {
            let mut at = 0;
            while let Some(rq) = self.hctx.nowait.get(at) {
                if !is_flush(rq) {
                    at += 1;
                } else if let Some(rq) = self.hctx.nowait.remove(at) {
                    // If it needs no flush after all, its data come behind the others.
                    self.park(rq);
                }
            }
        }
    }

    /// Makes a request without a tag wait for a flush, or ends that step at once if no flush is
    /// needed.
    #[cold]
    pub(in crate::hctx) fn park(&mut self, rq: Request) {
        let wanted = self.wanted(&rq);
        let HardwareContext { flush, device, counters, policy, splits, trace, .. } =
            &mut *self.hctx;
        let durability = &*device.durability;
        counters.flushes_asked.add(1);
        // In this order: a loss is recorded before a later flush can move the durable point past
        // it.
        let durable = durability.durable();
        let Some(nr_losses) = durability.check(wanted) else {
            // Another flush would prove nothing about lost writes.
            counters.flushes_refused.add(1);
            let is_gone = device.is_failed();
            let status = if is_gone { BlockStatus::Offline } else { BlockStatus::Io };
            return self.flush_ended(rq, Err(status));
        };
        // Writes that bypass the disk, such as those of another process, have no durable point.
        let is_by_point = matches!(wanted, Wanted::Point(_)) || is_up_to(&rq);
        let is_counted = (is_by_point || policy.elide) && !rq.flags.contains(BioFlags::FSYNC);
        let durable = durable.saturating_add(plants!(ElideTooMany).into());
        if is_counted && durable >= wanted.up_to() {
            counters.flushes_elided.add(1);
            trace.flush(TraceEvent::FlushElided, &rq, splits, self.now);
            return self.flush_ended(rq, Ok(()));
        }
        let waiting = Waiting { rq, wanted, nr_losses };
        let is_covered = flush.in_hand >= wanted.up_to() || plants!(JoinLate);
        if is_counted && flush.is_running && is_covered {
            // The running flush was issued after all the writes that this request covers had ended.
            counters.flushes_joined.add(1);
            trace.flush(TraceEvent::FlushJoin, &waiting.rq, splits, self.now);
            return flush.running.push(waiting);
        }
        if flush.pending.is_empty() {
            flush.pending_since_ns = self.now;
        }
        trace.flush(TraceEvent::FlushWait, &waiting.rq, splits, self.now);
        flush.pending.push(waiting);
    }

    fn wanted(&mut self, rq: &Request) -> Wanted {
        if rq.steps.current() == Some(Steps::POST) {
            let is_in_doubt = rq.head(&self.hctx.splits).is_in_doubt;
            return Wanted::Point(self.hctx.ended_point(is_in_doubt));
        }
        let newest = self.hctx.device.durability.point();
        match is_up_to(rq) {
            true => Wanted::All(rq.start.min(newest)),
            false => Wanted::All(newest),
        }
    }

    /// Issues a flush before other requests, if one is due. Returns whether the other requests have
    /// to wait, because the device executes a flush or is too busy to take one.
    #[cold]
    pub(in crate::hctx) fn look_at_flush<D: Driver + ?Sized>(&mut self, driver: &mut D) -> bool {
        let is_gone = self.hctx.device.is_failed();
        if is_gone || self.hctx.flush.is_blocked() {
            // A command of a device that is gone may never end, so nothing waits for it (H3).
            if self.hctx.flush.is_pending() {
                let status = if is_gone { BlockStatus::Offline } else { BlockStatus::Timeout };
                self.note_failure(status);
                self.fail_pending(status);
            }
            return false;
        }
        let HardwareContext { flush, policy, dispatch, limits, admission, .. } = &mut *self.hctx;
        flush.due_ns = NO_DEADLINE;
        if flush.is_running {
            // A request with a tag was there before the flush, and may go.
            return flush.holds && dispatch.is_empty();
        }
        if plants!(KeepHold) && flush.holds && flush.nr_in_a_row != 0 && admission.is_none() {
            return true;
        }
        let is_behind = flush.is_tail && !dispatch.is_empty();
        if !flush.is_pending() || is_behind || flush.lets_through {
            return false;
        }
        if !limits.fua_queueable && flush.fua.any() {
            // F8: the next turn after its completion issues the flush.
            return false;
        }
        let due_ns = flush.pending_since_ns.saturating_add(policy.flush_pending_ns);
        if flush.nr_before_flush > 0 && self.now < due_ns {
            flush.due_ns = due_ns;
            return false;
        }
        if self.is_time_for_others() {
            self.hctx.flush.lets_through = true;
            return false;
        }
        if self.is_passed_by_class() {
            return false;
        }
        if self.hctx.flush.leave() {
            return false;
        }
        self.issue_flush(driver) || self.look_at_flush(driver)
    }

    /// Returns whether other requests wait and may go first, after a number of flushes in a row.
    fn is_time_for_others(&mut self) -> bool {
        let HardwareContext { flush, counters, limits, .. } = &mut *self.hctx;
        if counters.issued.get() != flush.nr_issued {
            flush.nr_in_a_row = 0;
        }
        let are_many = !limits.flush_queueable && flush.nr_in_a_row >= NR_IN_A_ROW;
        let has_tagged = !self.hctx.dispatch.is_empty() || self.hctx.nr_scheduled() > 0;
        are_many && (has_tagged || self.stock_backlog())
    }

    /// Returns whether queued requests go before the pending flush, because only lower classes
    /// wait for it (F9).
    fn is_passed_by_class(&mut self) -> bool {
        let HardwareContext { flush, limits, elevator, .. } = &*self.hctx;
        if limits.flush_queueable || elevator.is_none() {
            return false;
        }
        let classes = flush.pending.iter().map(|waiting| waiting.rq.origin.priority().class());
        let (Some(class), since_ns) = (classes.min(), flush.pending_since_ns) else { return false };
        self.passes_flush(class, since_ns)
    }

    /// Issues the flush after the other requests had their turn. Returns whether requests after it
    /// have to wait, as `look_at_flush` does.
    pub(in crate::hctx) fn others_are_through<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
    ) -> bool {
        self.hctx.flush.nr_in_a_row = 0;
        core::mem::take(&mut self.hctx.flush.lets_through) && self.look_at_flush(driver)
    }

    /// Issues the flush for all pending requests. Returns whether the driver is busy.
    fn issue_flush<D: Driver + ?Sized>(&mut self, driver: &mut D) -> bool {
        let HardwareContext { flush, device, splits, trace, .. } = &mut *self.hctx;
        if device.is_failed() {
            self.note_failure(BlockStatus::Offline);
            self.fail_pending(BlockStatus::Offline);
            return false;
        }
        (flush.is_left, flush.is_newly_left) = (false, false);
        let mut rq = flush.command.take().expect("one flush at a time");
        let wants_all = |waiting: &Waiting| waiting.rq.flags.contains(BioFlags::FSYNC);
        let is_fsync = flush.pending.iter().any(wants_all);
        rq.flags = if is_fsync { BioFlags::FSYNC } else { BioFlags::NONE };
        rq.was_issued = false;
        (rq.tagged_ns, rq.issued_ns) = (self.now, self.now);
        // Read before the issue: writes that end in other contexts meanwhile may be too late for
        // it.
        let in_hand = device.durability.point();
        trace.command(TraceEvent::Issue, &rq, splits, self.now);
        let answer =
            driver.queue_rq(&IssuedRequest::of_step::<false>(&rq, splits, flush.tag), true);
        match answer {
            Issue::Queued | Issue::Begun => {
                flush.in_hand = in_hand;
                flush.is_running = true;
                flush.nr_in_a_row += 1;
                core::mem::swap(&mut flush.pending, &mut flush.running);
                if plants!(FlushSingly) {
                    flush.pending.extend(flush.running.drain(1..));
                }
                let nr_joined = flush.running.len() as u64 - 1;
                let tag = flush.tag;
                let state = SlotState::of_accepted(answer).expect("the driver has accepted it");
                self.note_issue(&mut rq, state);
                let hctx = &mut *self.hctx;
                hctx.counters.flushes_issued.add(1);
                hctx.counters.flushes_joined.add(nr_joined);
                hctx.flush.nr_issued = hctx.counters.issued.get();
                hctx.table[tag.index()] = Slot { state, rq: Some(rq) };
            }
            Issue::Busy => {
                trace.command(TraceEvent::Requeue, &rq, splits, self.now);
                flush.command = Some(rq);
                self.hctx.counters.requeues.add(1);
                return true;
            }
            Issue::Failed(status) => {
                trace.complete(&rq, splits, Err(status), self.now);
                flush.command = Some(rq);
                self.note_failure(status);
                self.fail_pending(status);
            }
        }
        false
    }

    /// Handles the completion of the machine's command.
    #[cold]
    pub(in crate::hctx) fn flush_done(&mut self, rq: Request, result: Result<u64, BlockStatus>) {
        let HardwareContext { flush, counters, limits, .. } = &mut *self.hctx;
        let of_flush = counters.of(Op::Flush);
        of_flush.requests.add(1);
        of_flush.ticks_ns.add(self.now.saturating_sub(rq.tagged_ns));
        flush.command = Some(rq);
        match result {
            Ok(_) if limits.fua_is_sync && flush.fua.any() => {
                flush.is_settling = true;
                flush.fua.begin_period();
            }
            Ok(_) => self.flush_succeeded(),
            Err(status) => {
                self.note_failure(status);
                self.end_running(result);
                self.report_pending();
            }
        }
    }

    /// Ends the requests that wait for the machine's command, which stays at the device (H5).
    pub(in crate::hctx) fn give_up_flush(&mut self) {
        let HardwareContext { flush, counters, trace, .. } = &mut *self.hctx;
        counters.of(Op::Flush).requests.add(1);
        counters.early_ends.add(flush.running.len() as u64);
        if trace.is_on() {
            let record = TraceRecord::note(TraceEvent::Complete, 0, self.now);
            trace.write(record.with_status(Some(BlockStatus::Timeout)));
        }
        self.note_failure(BlockStatus::Timeout);
        // The same turn fails the pending requests (`look_at_flush`).
        self.end_running(Err(BlockStatus::Timeout));
    }

    /// Records that all writes up to the point in hand at the issue are durable, unless they are
    /// lost.
    pub(super) fn flush_succeeded(&mut self) {
        let HardwareContext { flush, device, .. } = &mut *self.hctx;
        if plants!(CoverTooMany) {
            flush.in_hand = device.durability.point();
        }
        device.durability.flushed(flush.in_hand);
        self.end_running(Ok(0));
    }

    /// Ends the flush for the requests that waited for it.
    fn end_running(&mut self, result: Result<u64, BlockStatus>) {
        let flush = &mut self.hctx.flush;
        flush.is_running = false;
        let mut running = core::mem::take(&mut flush.running);
        for Waiting { rq, wanted, nr_losses } in running.drain(..) {
            let is_safe = || self.hctx.device.durability.check_since(nr_losses, wanted).is_some();
            let result = match result {
                Ok(_) if plants!(FailFlush) => Err(BlockStatus::Io),
                Ok(_) if is_safe() => Ok(()),
                Ok(_) => Err(BlockStatus::Io),
                Err(status) => Err(status),
            };
            self.flush_ended(rq, result);
        }
        self.hctx.flush.running = running;
    }

    /// Records what a failed flush, or a failed sync that counts as one, may have lost. This
    /// happens before any bio ends because of it.
    pub(in crate::hctx) fn note_failure(&mut self, status: BlockStatus) {
        let device = &self.hctx.device;
        if !plants!(ForgetLoss) {
            device.flush_failed(status);
        }
        if status == BlockStatus::Offline {
            device.fail();
        }
        self.hctx.look_for_failures();
    }

    /// Fails the requests that wait for the next flush and cover lost writes. That flush would
    /// prove nothing for them.
    pub(in crate::hctx) fn report_pending(&mut self) {
        let mut pending = core::mem::take(&mut self.hctx.flush.pending);
        let durability = &self.hctx.device.durability;
        let is_lost = |waiting: &mut Waiting| {
            durability.check_since(waiting.nr_losses, waiting.wanted).is_none()
        };
        let lost: alloc::vec::Vec<Waiting> = pending.extract_if(.., is_lost).collect();
        self.hctx.flush.pending = pending;
        self.hctx.counters.flushes_refused.add(lost.len() as u64);
        for waiting in lost {
            self.flush_ended(waiting.rq, Err(BlockStatus::Io));
        }
    }

    fn fail_pending(&mut self, status: BlockStatus) {
        let mut pending = core::mem::take(&mut self.hctx.flush.pending);
        self.hctx.counters.flushes_refused.add(pending.len() as u64);
        for waiting in pending.drain(..) {
            self.flush_ended(waiting.rq, Err(status));
        }
        self.hctx.flush.pending = pending;
    }

    /// Ends the current step of a request, successful or not. The request has no tag.
    fn flush_ended(&mut self, mut rq: Request, result: Result<(), BlockStatus>) {
        let step = rq.steps.current().expect("it waits for a step");
        assert!(step != Steps::DATA, "a flush is no data");
        rq.steps = rq.steps.after(step);
        let HardwareContext { trace, splits, .. } = &mut *self.hctx;
        trace.flush_done(&rq, splits, result, self.now);
        if let Err(status) = result {
            // Nothing is known about the bio, from its first byte on.
            rq.head_mut(&mut self.hctx.splits).mark(0, Some(status));
        } else if !rq.steps.is_empty() {
            return self.hctx.take_back(rq);
        }
        if step == Steps::POST {
            let counters = self.hctx.counters.of(rq.op);
            counters.requests.add(1);
            counters.ticks_ns.add(self.now.saturating_sub(rq.tagged_ns));
        }
        self.end_all(rq);
    }
}

impl Request {
    /// Marks the bios of a request that may be lost, although they have not ended.
    pub(in crate::hctx) fn doubt(&mut self, splits: &mut Splits) {
        let mut bio = Some(self.head_mut(splits));
        while let Some(queued) = bio {
            queued.is_in_doubt = true;
            bio = queued.next.as_deref_mut();
        }
    }
}

impl FlushMachine {
    /// Leaves the next flush to a thread, if this turn may. Only once: the next turn issues it.
    fn leave(&mut self) -> bool {
        let leaves = self.may_leave && !self.is_left;
        if leaves {
            (self.is_left, self.is_newly_left) = (true, true);
        }
        leaves
    }
}

impl HardwareContext {
    /// Returns the durable point of writes that end now.
    ///
    /// All completions of one reap share a number: they had all completed at the device before the
    /// turn drew it.
    pub(in crate::hctx) fn ended_point(&mut self, is_in_doubt: bool) -> u64 {
        let HardwareContext { flush, device, .. } = self;
        if is_in_doubt {
            return device.doubtful_writes_end();
        }
        if flush.batch_point == 0 || !flush.is_reaping {
            flush.batch_point = device.durability.writes_end();
            if device.durability.nr_failures() != flush.nr_failures {
                // A flush has failed in another context since this turn began, and may not cover
                // these.
                flush.batch_point = device.doubtful_writes_end();
            }
        }
        flush.batch_point
    }

    /// Checks whether a flush has failed, here or in another context. If so, the writes of this
    /// context at the device may be lost like those that had ended. Their data may be in the cache,
    /// with the completion on its way, or be the part of a bio that was done first.
    #[inline]
    pub(in crate::hctx) fn look_for_failures(&mut self) {
        let HardwareContext { flush, device, .. } = &*self;
        if flush.is_needed && device.durability.nr_failures() != flush.nr_failures {
            self.doubt_writes();
        }
    }

    #[cold]
    fn doubt_writes(&mut self) {
        let HardwareContext { flush, device, table, splits, .. } = self;
        flush.nr_failures = device.durability.nr_failures();
        splits.bios_mut().for_each(|bio| bio.is_in_doubt = true);
        let requests = table.iter_mut().filter_map(|slot| slot.rq.as_mut());
        requests.filter(|rq| rq.was_issued).for_each(|rq| rq.doubt(splits));
    }

    /// Sets whether the next turn may leave a flush to a thread that waits for it. Such a turn
    /// prepares all but the issue. [`take_left_flush`](Self::take_left_flush) follows it.
    #[inline]
    pub fn leave_flush(&mut self, may_leave: bool) {
        // A device that executes a flush alone holds the other requests meanwhile.
        self.flush.may_leave = may_leave && self.limits.flush_queueable;
    }

    /// Returns whether the last turn has left a flush. If so, the caller wakes one of the threads
    /// that wait for it ([`waiters_of_flush`](Self::waiters_of_flush)), or turns again. The next
    /// turn issues the flush.
    #[inline]
    pub fn take_left_flush(&mut self) -> bool {
        core::mem::take(&mut self.flush.is_newly_left)
    }

    /// Returns the owners of the bios that wait for the next flush.
    pub fn waiters_of_flush(&self) -> impl Iterator<Item = u64> {
        self.flush.pending.iter().map(|waiting| waiting.rq.head(&self.splits).owner())
    }

    /// Lets a request wait for its tag after its flush. It goes before requests that came later.
    fn take_back(&mut self, rq: Request) {
        if rq.is_nowait() {
            return self.nowait.push_back(rq);
        }
        self.nr_waited += usize::from(self.nr_waited > 0);
        self.backlog.push_front(rq);
    }
}

/// Returns whether the start of a request is a durable point. (For requests with data it is a
/// byte.)
fn is_up_to(rq: &Request) -> bool {
    rq.op == Op::Flush && rq.flags.contains(BioFlags::UP_TO)
}

/// Returns whether a bio that ends has a durable point. It has none if it is durable when it ends,
/// or if it changed nothing.
pub(in crate::hctx) fn needs_point(bio: &QueuedBio) -> bool {
    let is_durable = bio.bio().flags.contains(BioFlags::FUA) && bio.result().is_ok();
    bio.bio().op.is_write() && !is_durable
}
