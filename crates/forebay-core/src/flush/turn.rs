//! The flush machine in a turn: who waits, when a flush is issued, and what its end does.

use super::{NR_IN_A_ROW, Steps, Waiting};
use crate::bio::{BioFlags, Op};
use crate::dispatch::issued;
use crate::driver::{Driver, Issue};
use crate::durability::Wanted;
use crate::hctx::{HardwareContext, Slot, SlotState, Turn};
use crate::queued::QueuedBio;
use crate::request::Request;
use crate::splits::Splits;
use crate::status::BlockStatus;

impl Turn<'_> {
    /// The oldest of the backlog has no data to be issued now: it is done, or waits for a flush.
    /// It has no tag.
    #[cold]
    pub(crate) fn take_flush(&mut self) {
        self.hctx.flush.is_next = false;
        if let Some(rq) = self.hctx.pop_backlog() {
            match rq.steps.is_empty() {
                // Nothing to do at the device: no data, and nothing that could be lost.
                true => self.end_all(rq),
                false => self.park(rq),
            }
        }
    }

    /// Flushes that are new in the backlog wait in the machine, and not behind others there: they
    /// need no tag, order nothing that came before them, and the next may follow the one that runs
    /// while the others are held.
    #[inline]
    pub(crate) fn take_new_flushes(&mut self) {
        let is_flush = |rq: &Request| rq.steps.current() == Some(Steps::PRE);
        let mut at = self.hctx.nr_waited;
        while let Some(rq) = self.hctx.backlog.get(at) {
            if !is_flush(rq) {
                at += 1;
            } else if let Some(rq) = self.hctx.backlog.remove(at) {
                let nr_left = self.hctx.backlog.len();
                self.park(rq);
                // If it needs none after all, its data is at the front.
                at += self.hctx.backlog.len() - nr_left;
            }
        }
    }

    /// A request that has no tag waits for a flush; or does not have to.
    #[cold]
    pub(crate) fn park(&mut self, rq: Request) {
        let wanted = self.wanted(&rq);
        let HardwareContext { flush, device, counters, policy, .. } = &mut *self.hctx;
        let durability = &*device.durability;
        counters.flushes_asked.add(1);
        // In this order: a loss is noted before a later flush can move the durable point over it.
        let durable = durability.durable();
        let Some(nr_losses) = durability.check(wanted) else {
            // Another flush would prove nothing of what is lost.
            counters.flushes_refused.add(1);
            let is_gone = device.is_failed();
            let status = if is_gone { BlockStatus::Offline } else { BlockStatus::Io };
            return self.flush_ended(rq, Err(status));
        };
        // What somebody else has written, by other means, has no point.
        let is_by_point = matches!(wanted, Wanted::Point(_)) || is_up_to(&rq);
        let is_counted = (is_by_point || policy.elide) && !rq.flags.contains(BioFlags::FSYNC);
        if is_counted && durable >= wanted.up_to() {
            counters.flushes_elided.add(1);
            return self.flush_ended(rq, Ok(()));
        }
        let waiting = Waiting { rq, wanted, nr_losses };
        if is_counted && flush.is_running && flush.in_hand >= wanted.up_to() {
            // It was issued when all that this one wants had ended.
            counters.flushes_joined.add(1);
            return flush.running.push(waiting);
        }
        if flush.pending.is_empty() {
            flush.pending_since_ns = self.now;
        }
        flush.pending.push(waiting);
    }

    fn wanted(&mut self, rq: &Request) -> Wanted {
        if rq.steps.current() == Some(Steps::POST) {
            let is_in_doubt = rq.head(&self.hctx.splits).is_in_doubt;
            return Wanted::Point(self.ended_point(is_in_doubt));
        }
        let newest = self.hctx.device.durability.point();
        match is_up_to(rq) {
            true => Wanted::All(rq.start.min(newest)),
            false => Wanted::All(newest),
        }
    }

    /// The durable point of writes that end now.
    ///
    /// One number does for all that one look at the driver has brought: all of them had completed
    /// at the device before it was drawn.
    pub(crate) fn ended_point(&mut self, is_in_doubt: bool) -> u64 {
        let HardwareContext { flush, device, .. } = &mut *self.hctx;
        if is_in_doubt {
            return device.durability.doubtful_writes_end();
        }
        if flush.batch_point == 0 || !flush.is_reaping {
            flush.batch_point = device.durability.writes_end();
            if device.durability.nr_failures() != flush.nr_failures {
                // One has failed since this turn began, elsewhere, and may not know of these.
                flush.batch_point = device.durability.doubtful_writes_end();
            }
        }
        flush.batch_point
    }

    /// Before other requests: issues a flush, if one is due. Says whether the others have to wait,
    /// for the device is busy with a flush, or too busy for one.
    #[cold]
    pub(crate) fn look_at_flush<D: Driver + ?Sized>(&mut self, driver: &mut D) -> bool {
        let HardwareContext { flush, policy, dispatch, limits, .. } = &mut *self.hctx;
        if flush.is_running {
            // What has a tag was there before the flush, and may go.
            return flush.holds && dispatch.is_empty();
        }
        let is_behind = flush.is_tail && !dispatch.is_empty();
        if !flush.is_pending() || is_behind || flush.lets_through {
            return false;
        }
        if !limits.fua_queueable && flush.fua.any() {
            // F8: the next turn after its completion issues the flush.
            return false;
        }
        let is_young = self.now < flush.pending_since_ns.saturating_add(policy.flush_pending_ns);
        if flush.nr_before_flush > 0 && is_young {
            return false;
        }
        if self.is_others_turn() {
            self.hctx.flush.lets_through = true;
            return false;
        }
        self.issue_flush(driver) || self.look_at_flush(driver)
    }

    /// Whether so many flushes have gone in a row that others go first, if there are any.
    fn is_others_turn(&mut self) -> bool {
        let HardwareContext { flush, counters, limits, .. } = &mut *self.hctx;
        if counters.issued.get() != flush.nr_issued {
            flush.nr_in_a_row = 0;
        }
        let are_many = !limits.flush_queueable && flush.nr_in_a_row >= NR_IN_A_ROW;
        are_many && (!self.hctx.dispatch.is_empty() || self.stock_backlog())
    }

    /// The others have gone before a flush. Says whether the device is too busy for it now.
    pub(crate) fn others_are_through<D: Driver + ?Sized>(&mut self, driver: &mut D) -> bool {
        self.hctx.flush.nr_in_a_row = 0;
        core::mem::take(&mut self.hctx.flush.lets_through) && self.look_at_flush(driver)
    }

    /// Hands the flush to the driver, for all that is pending. Says whether the driver is busy.
    fn issue_flush<D: Driver + ?Sized>(&mut self, driver: &mut D) -> bool {
        let HardwareContext { flush, device, splits, .. } = &mut *self.hctx;
        if device.is_failed() {
            self.note_failure(BlockStatus::Offline);
            self.fail_pending(BlockStatus::Offline);
            return false;
        }
        let mut rq = flush.command.take().expect("one flush at a time");
        let wants_all = |waiting: &Waiting| waiting.rq.flags.contains(BioFlags::FSYNC);
        let is_fsync = flush.pending.iter().any(wants_all);
        rq.flags = if is_fsync { BioFlags::FSYNC } else { BioFlags::NONE };
        rq.was_issued = false;
        (rq.tagged_ns, rq.issued_ns) = (self.now, self.now);
        // Before it is issued: what ends meanwhile, elsewhere, may come too late for it.
        let in_hand = device.durability.point();
        let answer = driver.queue_rq(&issued(splits, &rq, flush.tag, false), true);
        match answer {
            Issue::Queued => {
                flush.in_hand = in_hand;
                flush.is_running = true;
                flush.nr_in_a_row += 1;
                core::mem::swap(&mut flush.pending, &mut flush.running);
                let nr_joined = flush.running.len() as u64 - 1;
                let tag = flush.tag;
                self.note_issue(&mut rq);
                let hctx = &mut *self.hctx;
                hctx.counters.flushes_issued.add(1);
                hctx.counters.flushes_joined.add(nr_joined);
                hctx.flush.nr_issued = hctx.counters.issued.get();
                hctx.table[tag.index()] = Slot { state: SlotState::Issued, rq: Some(rq) };
            }
            Issue::Busy => {
                flush.command = Some(rq);
                self.hctx.counters.requeues.add(1);
                return true;
            }
            Issue::Failed(status) => {
                flush.command = Some(rq);
                self.note_failure(status);
                self.fail_pending(status);
            }
        }
        false
    }

    /// The command of the machine has completed.
    #[cold]
    pub(crate) fn flush_done(&mut self, rq: Request, result: Result<u64, BlockStatus>) {
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
                self.tell_pending();
            }
        }
    }

    /// What was in hand when the flush was issued is durable, unless it is lost.
    pub(super) fn flush_succeeded(&mut self) {
        let HardwareContext { flush, device, .. } = &mut *self.hctx;
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
                Ok(_) if is_safe() => Ok(()),
                Ok(_) => Err(BlockStatus::Io),
                Err(status) => Err(status),
            };
            self.flush_ended(rq, result);
        }
        self.hctx.flush.running = running;
    }

    /// A flush, or a sync that counts as one, has failed: records what may be lost, before any bio
    /// ends for it.
    pub(super) fn note_failure(&mut self, status: BlockStatus) {
        let device = &self.hctx.device;
        device.durability.flush_failed();
        if status == BlockStatus::Offline {
            device.fail();
        }
        self.look_for_failures();
    }

    /// Has a flush failed, here or in another context, then what this has at the device may be
    /// lost with what had ended: it may be in the cache, with its completion on the way, or be the
    /// part of a bio that was done first.
    #[inline]
    pub(crate) fn look_for_failures(&mut self) {
        let HardwareContext { flush, device, .. } = &*self.hctx;
        if flush.is_needed && device.durability.nr_failures() != flush.nr_failures {
            self.doubt_writes();
        }
    }

    #[cold]
    fn doubt_writes(&mut self) {
        let HardwareContext { flush, device, table, splits, .. } = &mut *self.hctx;
        flush.nr_failures = device.durability.nr_failures();
        splits.bios_mut().for_each(|bio| bio.is_in_doubt = true);
        let requests = table.iter_mut().filter_map(|slot| slot.rq.as_mut());
        requests.filter(|rq| rq.was_issued).for_each(|rq| rq.doubt(splits));
    }

    /// Fails the requests that wait for the next flush and want what was lost: that flush would
    /// prove nothing for them.
    pub(super) fn tell_pending(&mut self) {
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

    /// A request has taken its step, or failed to. It has no tag.
    fn flush_ended(&mut self, mut rq: Request, result: Result<(), BlockStatus>) {
        let step = rq.steps.current().expect("it waits for a step");
        assert!(step != Steps::DATA, "a flush is no data");
        rq.steps = rq.steps.after(step);
        if let Err(status) = result {
            // Nothing is known of the bio, from its start.
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
    /// Notes on its bios that they may be lost, though they have not ended.
    pub(super) fn doubt(&mut self, splits: &mut Splits) {
        let mut bio = Some(self.head_mut(splits));
        while let Some(queued) = bio {
            queued.is_in_doubt = true;
            bio = queued.next.as_deref_mut();
        }
    }
}

impl HardwareContext {
    /// A request may have its tag, after its flush: it goes before what came after it.
    fn take_back(&mut self, rq: Request) {
        if rq.is_nowait() {
            return self.nowait.push_back(rq);
        }
        self.nr_waited += usize::from(self.nr_waited > 0);
        self.backlog.push_front(rq);
    }
}

/// Whether its start is a durable point. (What has data begins at a byte.)
fn is_up_to(rq: &Request) -> bool {
    rq.op == Op::Flush && rq.flags.contains(BioFlags::UP_TO)
}

/// Whether a bio that ends has a durable point: not if it is durable as it ends, or changed
/// nothing.
pub(crate) fn needs_point(bio: &QueuedBio) -> bool {
    let is_durable = bio.bio().flags.contains(BioFlags::FUA) && bio.result().is_ok();
    bio.bio().op.is_write() && !is_durable
}
