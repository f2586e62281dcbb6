//! Fast path of a turn for a context with a scheduler or with owners, in which no request waits.
//!
//! New requests pass the same queues as under the full rules ([`crate::hctx::dispatch`]): that of
//! their owner (OW1, OW2), and with a tag that of the scheduler (Q4 to Q6, Q9). A single
//! request only changes their state, as if it had been queued and had left again. Several requests
//! of a context with a scheduler are queued first. The first request that is not issued at once
//! ends this path, and the full rules continue. They alone apply while an owner has a latency goal.

use crate::bio::Op;
use crate::driver::Driver;
use crate::hctx::turn::{Incoming, note_tag};
use crate::hctx::{Gates, HardwareContext, Slot, SlotState};
use crate::request::{QueuedBio, Request};
use crate::tag::Tag;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The requests that were issued.
#[derive(Default)]
struct Issued {
    nr: u32,
    /// How many of them are I/O that threads make themselves.
    nr_begun: u32,
}

impl HardwareContext {
    /// Issues incoming requests, of which there is at least one. Each is one command for all of its
    /// data. Also returns how many were issued.
    pub(super) fn issue_in_order<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> (Incoming, u32) {
        self.begin_issue(now);
        let (outcome, issued) = match self.incoming.len() {
            1 => self.issue_single(driver, now, ended),
            _ if self.elevator.is_some() => self.issue_sorted(driver, now, ended),
            _ => self.issue_each(driver, now, ended),
        };
        self.note_incoming(now, issued.nr, issued.nr_begun);
        (outcome, issued.nr)
    }

    /// Issues a single request.
    #[inline(always)]
    fn issue_single<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> (Incoming, Issued) {
        let mut issued = Issued::default();
        let Some(mut rq) = self.incoming.pop() else { return (Incoming::Issued, issued) };
        if self.elevator.as_ref().is_some_and(|elevator| elevator.is_full_for(&rq)) {
            return (self.keep_rest(rq), issued);
        }
        let Some(tag) = self.tags.get(0) else { return (self.keep_rest(rq), issued) };
        if !self.passes_owners(&mut rq, now) {
            self.tags.put(tag);
            return (self.keep_rest(rq), issued);
        }
        self.note_plain_tag(&mut rq, now);
        if self.elevator.is_some() && !self.passes_scheduler(tag, &rq) {
            self.queue_single(tag, rq, now);
            return (Incoming::Waiting, issued);
        }
        match self.issue_next(driver, (tag, rq), true, now, ended, &mut issued) {
            Ok(()) => (Incoming::Issued, issued),
            Err(outcome) => (outcome, issued),
        }
    }

    /// Leaves a request that has its tag to the scheduler and the full rules.
    #[cold]
    #[inline(never)]
    fn queue_single(&mut self, tag: Tag, rq: Request, now: u64) {
        self.queue(tag, rq, now);
    }

    /// Issues requests one after another: those of owners without a scheduler.
    // A loop of its own needs fewer registers.
    #[inline(never)]
    fn issue_each<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> (Incoming, Issued) {
        let mut issued = Issued::default();
        // With too few tags, the owners divide them (OW2).
        if (self.tags.nr_free(0) as usize) < self.incoming.len() {
            self.keep_incoming();
            return (Incoming::Waiting, issued);
        }
        // The oldest is taken from the end.
        self.incoming.reverse();
        while let Some(mut rq) = self.incoming.pop() {
            let Some(tag) = self.tags.get(0) else { return (self.keep_rest(rq), issued) };
            if !self.passes_owners(&mut rq, now) {
                self.tags.put(tag);
                return (self.keep_rest(rq), issued);
            }
            self.note_plain_tag(&mut rq, now);
            let last = self.incoming.is_empty();
            if let Err(outcome) = self.issue_next(driver, (tag, rq), last, now, ended, &mut issued)
            {
                self.incoming.reverse();
                self.keep_incoming();
                return (outcome, issued);
            }
            if last {
                break;
            }
        }
        (Incoming::Issued, issued)
    }

    /// Leaves a request, and the incoming ones behind it, to the full rules.
    #[cold]
    fn keep_rest(&mut self, rq: Request) -> Incoming {
        self.incoming.push(rq);
        self.incoming.reverse();
        self.keep_incoming();
        Incoming::Waiting
    }

    /// Queues several requests in the scheduler, then issues those that it hands out.
    #[inline(never)]
    fn issue_sorted<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> (Incoming, Issued) {
        let mut issued = Issued::default();
        self.keep_incoming();
        if self.admission.is_some() {
            return (Incoming::Waiting, issued);
        }
        self.queue_plain(now);
        while let Some((tag, rq)) = self.next_queued(false) {
            let last = self.is_last_queued() && self.backlog.is_empty();
            if let Err(outcome) = self.issue_next(driver, (tag, rq), last, now, ended, &mut issued)
            {
                return (outcome, issued);
            }
        }
        match self.backlog.is_empty() && self.nr_scheduled() == 0 {
            true => (Incoming::Issued, issued),
            false => (Incoming::Waiting, issued),
        }
    }

    /// Queues the requests of the backlog in the scheduler, or merges them with those in it. Each
    /// is one command for all of its data. Ends at the first that gets no tag.
    #[inline(never)]
    fn queue_plain(&mut self, now: u64) {
        while !self.backlog.is_empty() {
            if self.nr_scheduled() > 0 && self.merge_oldest(now) {
                continue;
            }
            let oldest = self.backlog.front();
            let is_full =
                |rq| self.elevator.as_ref().is_some_and(|elevator| elevator.is_full_for(rq));
            if oldest.is_some_and(is_full) {
                break;
            }
            let Some(tag) = self.tags.get(0) else { break };
            let Some(mut rq) = self.backlog.pop_front() else { break };
            self.note_plain_tag(&mut rq, now);
            self.queue(tag, rq, now);
        }
    }

    #[inline(always)]
    fn note_plain_tag(&self, rq: &mut Request, now: u64) {
        note_tag(rq, self.policy.iostats.then_some(&*self.counters), now);
    }

    /// Issues a request under its tag. Returns why it was not issued; then it has ended, or is on
    /// the dispatch list.
    #[inline(always)]
    fn issue_next<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        (tag, rq): (Tag, Request),
        last: bool,
        now: u64,
        ended: &mut Vec<Box<QueuedBio>>,
        issued: &mut Issued,
    ) -> Result<(), Incoming> {
        let is_write = rq.op != Op::Read;
        if is_write {
            self.retries.writes().count_write(self.count_at);
        }
        if self.retries.any() {
            // A1: the full rules decide whether a retry holds the request back.
            if is_write {
                self.retries.writes().write_is_out(self.count_at);
            }
            self.table[tag.index()] = Slot { state: SlotState::Waiting, rq: Some(rq) };
            self.dispatch.push_back(tag);
            return Err(Incoming::Waiting);
        }
        let rq = (tag, rq);
        let state =
            self.issue_tagged::<false, false, D>(driver, rq, |_| last, now, Gates::OPEN, ended)?;
        issued.nr += 1;
        issued.nr_begun += u32::from(state == SlotState::Begun);
        Ok(())
    }
}
