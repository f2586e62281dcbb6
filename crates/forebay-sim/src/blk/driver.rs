//! The driver of one ring of a guest: it publishes requests, and checks their answers.

use super::memory::GuestMemory;
use super::met::Met;
use super::queue::{Fault, Queue, Request, Used};
use super::requests::{self, Data, Draft, Expected, F_FLUSH, OK};
use super::rings::Rings;
use super::rules::{X1, X2};
use super::scenario::Wish;
use super::shared::Shared;
use crate::check::{Verdict, broken};
use crate::sectors::{End, Kind, Op, Stamp, Value};
use crate::server::{Context, Event, SECTOR};
use std::collections::BTreeMap;

/// A request in flight at its driver.
#[derive(Debug)]
struct Pending {
    draft: Draft,
    writable: GuestMemory,
    /// Its operations in the log.
    ops: std::ops::Range<usize>,
    /// Whether the device had no write cache when the request was published, and how often the
    /// cache had been switched.
    is_through: bool,
    nr_toggles: u32,
}

/// A driver.
#[derive(Debug)]
pub(super) struct Driver {
    id: usize,
    pending: BTreeMap<u16, Pending>,
    nr_left: u32,
    nr_written: u64,
    /// The driver polls its used ring.
    is_polling: bool,
    /// A step of this driver is scheduled.
    is_due: bool,
}

impl Driver {
    pub(super) fn new(id: usize) -> Driver {
        let (pending, is_polling, is_due) = (BTreeMap::new(), false, false);
        Driver { id, pending, nr_left: 0, nr_written: 0, is_polling, is_due }
    }

    /// Begins a phase.
    pub(super) fn begin(&mut self, nr_requests: u32, cx: &mut Context) {
        self.nr_left += nr_requests;
        self.resume(cx);
    }

    /// Goes on after all scheduled events were lost, or after a pause.
    pub(super) fn resume(&mut self, cx: &mut Context) {
        self.is_due = false;
        self.soon(1_000, cx);
    }

    fn soon(&mut self, mean_ns: u64, cx: &mut Context) {
        if !std::mem::replace(&mut self.is_due, true) {
            cx.soon(mean_ns, Event::Act(self.id));
        }
    }

    /// Returns whether all requests are made and answered.
    pub(super) fn is_over(&self) -> bool {
        self.nr_left == 0 && self.pending.is_empty()
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Makes no more requests. Those of the past are still answered.
    pub(super) fn retire(&mut self) {
        self.nr_left = 0;
    }

    /// Drops all requests in flight. The server has not taken those with the heads of `untaken`.
    pub(super) fn drop_requests(&mut self, untaken: &[u16], shared: &mut Shared) {
        for head in untaken {
            let Some(pending) = self.pending.remove(head) else { continue };
            for op in &mut shared.log.ops[pending.ops] {
                op.end = End::Refused;
            }
        }
        self.pending.clear();
        self.is_polling = false;
    }

    /// Records that a second server repeats requests.
    pub(super) fn is_repeated(&self, taken: &[Request], shared: &mut Shared) {
        for rq in taken {
            if let Some(pending) = self.pending.get(&rq.head) {
                shared.repeat(pending.ops.clone());
            }
        }
    }

    /// Takes a step.
    pub(super) fn act(
        &mut self,
        rings: &mut Rings,
        shared: &mut Shared,
        cx: &mut Context,
    ) -> Verdict {
        self.is_due = false;
        self.take_used(rings, shared, cx)?;
        if std::mem::take(&mut self.is_polling) {
            rings.queues[self.id].want_interrupts(true);
        }
        rings.queues[self.id].publish(usize::MAX, cx);
        let nr = cx.random.between(1, shared.load.burst_max);
        for _ in 0..nr {
            if self.nr_left == 0 || self.pending.len() >= shared.load.depth {
                break;
            }
            self.nr_left -= 1;
            self.request(rings, shared, cx);
        }
        let queue = &mut rings.queues[self.id];
        if cx.random.chance(1, 2) {
            queue.publish(usize::MAX, cx);
        }
        if self.is_busy() && cx.random.chance(shared.load.polls, 100) {
            cx.note(Met::DriverPolls, self.id as u64, 0);
            self.is_polling = true;
            queue.want_interrupts(false);
        }
        let may_go_on = self.nr_left > 0 && self.pending.len() < shared.load.depth;
        if may_go_on || self.is_polling || queue.has_prepared() {
            self.soon(shared.load.think_ns, cx);
        }
        Ok(())
    }

    /// Handles an interrupt.
    pub(super) fn interrupted(
        &mut self,
        rings: &mut Rings,
        shared: &mut Shared,
        cx: &mut Context,
    ) -> Verdict {
        self.take_used(rings, shared, cx)?;
        if self.nr_left > 0 {
            self.soon(shared.load.think_ns, cx);
        }
        Ok(())
    }

    /// Prepares a request, or breaks the ring.
    fn request(&mut self, rings: &mut Rings, shared: &mut Shared, cx: &mut Context) {
        let queue = &mut rings.queues[self.id];
        let id = self.id as u64;
        let draft = if cx.random.chance(shared.load.breaks, 1_000) {
            match cx.random.below(3) {
                0 => {
                    cx.note(Met::Unanswerable, id, 0);
                    requests::unanswerable()
                }
                fault => {
                    let (met, fault) = match fault {
                        1 => (Met::IndexJump, Fault::Jump),
                        _ => (Met::MemoryGone, Fault::Gone),
                    };
                    cx.note(met, id, 0);
                    queue.fault = Some(fault);
                    return queue.kick(cx);
                }
            }
        } else {
            self.draw(queue, shared, cx)
        };
        let free: Vec<u16> =
            (0..shared.queue_size).filter(|head| !self.pending.contains_key(head)).collect();
        let head = cx.random.pick(&free);
        let rq = draft.request(head);
        let began = cx.mark();
        let start = shared.log.ops.len();
        for (first, kind) in &draft.effects {
            let (first, kind) = (*first, kind.clone());
            shared.log.ops.push(Op { kind, first, began, end: End::Unknown });
        }
        let pending = Pending {
            writable: rq.writable.clone(),
            ops: start..shared.log.ops.len(),
            is_through: queue.features & F_FLUSH == 0 || !rings.write_cache,
            nr_toggles: shared.nr_toggles,
            draft,
        };
        queue.prepare(rq);
        self.pending.insert(head, pending);
    }

    fn draw(&mut self, queue: &Queue, shared: &Shared, cx: &mut Context) -> Draft {
        let wish = cx.random.pick(&shared.load.wishes);
        // A driver uses what it has negotiated. `Bad` has other requests.
        let wish = match wish {
            Wish::Discard if queue.features & requests::F_DISCARD == 0 => Wish::Read,
            Wish::Zero if queue.features & requests::F_WRITE_ZEROES == 0 => Wish::Read,
            wish => wish,
        };
        let met = match wish {
            Wish::Read => Met::Read,
            Wish::Write => Met::Write,
            Wish::Flush => Met::Flush,
            Wish::Discard => Met::Discard,
            Wish::Zero => Met::Zero,
            Wish::GetId => Met::GetId,
            Wish::Bad => Met::Bad,
        };
        cx.note(met, self.id as u64, self.pending.len() as u64);
        if wish == Wish::Bad {
            return requests::bad(queue.features, shared, cx);
        }
        let stamp = Stamp::new(self.id as u16, self.nr_written);
        self.nr_written += 1;
        requests::good(wish, stamp, shared, cx)
    }

    /// Takes all used entries.
    pub(super) fn take_used(
        &mut self,
        rings: &mut Rings,
        shared: &mut Shared,
        cx: &mut Context,
    ) -> Verdict {
        while let Some(used) = rings.queues[self.id].take_used() {
            let Some(pending) = self.pending.remove(&used.head) else {
                return broken(X1, format!("ring {}: {used:?} has no request", self.id));
            };
            shared.log.nr_answers += 1;
            pending.finish(used, shared, cx)?;
        }
        Ok(())
    }
}

impl Pending {
    /// Checks an answer, and logs it.
    fn finish(self, used: Used, shared: &mut Shared, cx: &mut Context) -> Verdict {
        let wrong = |rule, what: &str| broken(rule, format!("{what}: {used:?} of {self:?}"));
        let is_good = used.status == OK;
        match self.draft.expected {
            Expected::Good if is_good || shared.may_fail && used.status == requests::IO_ERROR => {}
            Expected::Refused(status) if used.status == status => {}
            _ => return wrong(X2, "a wrong status"),
        }
        let nr_written = if is_good { self.draft.nr_written() } else { 0 };
        if used.written != nr_written + 1 {
            return wrong(X1, "a wrong length");
        }
        let bytes = self.writable.copy();
        if is_good && self.draft.data == Data::Id {
            let nr = nr_written as usize;
            if bytes[..nr] != shared.device.serial[..nr] {
                return wrong(X2, "a wrong serial number");
            }
        }
        let met = match (is_good, self.draft.expected) {
            (true, _) => Met::Good,
            (false, Expected::Refused(_)) => Met::Refused,
            (false, _) => Met::Failed,
        };
        cx.note(met, used.head.into(), used.status.into());
        let is_through = self.is_through && self.nr_toggles == shared.nr_toggles;
        let ended = cx.mark();
        if is_good {
            shared.repeated.retain(|at| !self.ops.contains(at));
        }
        for at in self.ops {
            if !is_good {
                continue;
            }
            let first = shared.log.ops[at].first;
            if let Kind::Read(_) = shared.log.ops[at].kind {
                cx.trace.bytes(&bytes);
                let sectors = bytes.chunks(SECTOR as usize).zip(first..);
                let seen =
                    sectors.map(|(bytes, sector)| shared.seen(sector, Value::of(sector, bytes)));
                shared.log.ops[at].kind = Kind::Read(seen.collect());
            }
            let op = &mut shared.log.ops[at];
            match &mut op.kind {
                Kind::Write { fua, .. } | Kind::Zero { fua, .. } => {
                    let met = if is_through { Met::WriteThrough } else { Met::WriteBack };
                    cx.note(met, op.first, 0);
                    *fua = is_through;
                    if at < shared.nr_unpromised {
                        // It may be among the writes whose loss was acknowledged.
                        continue;
                    }
                }
                Kind::Flush if shared.nr_unpromised > 0 => cx.note(Met::FlushAfterLoss, 0, 0),
                Kind::Flush | Kind::Trim { .. } | Kind::Read(_) => {}
            }
            op.end = End::Ok(ended);
        }
        Ok(())
    }
}
