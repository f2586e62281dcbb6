//! The part of a turn that comes back from the driver: complete, and end.
//!
//! Merging does not change a result, with one exception (E3). A request that joins several bios
//! and comes back short or failed is taken apart:
//!
//! - E1 a count of n proves the first n bytes: the bios that they cover end, the rest goes on under
//!   the same tag; only a count of 0 is the end of a file;
//! - E2 a read whose failure may be that of one bio ([`BlockStatus::may_be_of_one_bio`]) is tried
//!   again bio by bio, one after another under the same tag, so that each gets its own result;
//! - E3 any other failure ends all bios that are not covered yet with that status. A write is not
//!   tried again: an overlapping write may have been issued since, and would be undone;
//! - E4 a bio that was cut into parts ends with the last of them, and with the result of the
//!   lowest byte that was not moved, whatever the order in which its parts came back.

use crate::bio::Op;
use crate::driver::{Completed, Completions, Driver, Look};
use crate::flush::Steps;
use crate::queue::{Ended, SlotState, Turn};
use crate::request::Request;
use crate::slab::BioId;
use crate::status::BlockStatus;
use crate::tag::Tag;

/// What is to be done with a request after a completion.
enum After {
    /// It has more to do: another step, the rest of a short count, or a retry.
    Again(Request),
    /// All is done: only its last bio has to end.
    Done(Request),
}

impl Turn<'_> {
    /// Takes the driver's completions.
    #[inline]
    pub(crate) fn reap<D: Driver + ?Sized>(&mut self, driver: &mut D) {
        if self.hctx.nr_in_flight == 0 {
            return;
        }
        let mut completions = core::mem::replace(&mut self.hctx.completions, Completions::none());
        // What waits in the inbox, with a tag to be had, is issued in this turn. (A busy driver's
        // requests are on the dispatch list: it may be the completions that it waits for.)
        let hctx = &self.hctx;
        let commit_follows =
            hctx.dispatch.is_empty() && !hctx.inbox.is_empty() && hctx.tags.nr_free() > 0;
        driver.reap(&mut completions, if commit_follows { Look::Glance } else { Look::Hard });
        for Completed { tag, result } in completions.drain() {
            self.complete(tag, result);
        }
        self.hctx.completions = completions;
    }

    #[inline]
    fn complete(&mut self, tag: Tag, result: Result<u64, BlockStatus>) {
        let rq = self.take_issued(tag);
        if self.iostats {
            self.stats.stages.driver.record(self.now.saturating_sub(rq.issued_ns));
        }
        let after = match (result, rq.steps.current()) {
            (Ok(n), Some(Steps::DATA)) => self.progress(rq, n),
            (Ok(_), Some(step)) => self.step_done(rq, step),
            (Err(status), _) => self.fail(rq, status),
            (Ok(_), None) => unreachable!("a request at the driver has a step to take"),
        };
        self.settle(tag, after);
    }

    /// A request that the driver refused for good when it was to be issued.
    #[cold]
    pub(crate) fn failed(&mut self, tag: Tag, status: BlockStatus) {
        let slot = &mut self.hctx.table[tag.index()];
        let rq = slot.rq.take().expect("a tag on its way to the driver has a request");
        let after = self.fail(rq, status);
        self.settle(tag, after);
    }

    #[inline]
    fn take_issued(&mut self, tag: Tag) -> Request {
        let hctx = &mut *self.hctx;
        let slot = &mut hctx.table[tag.index()];
        assert!(slot.state == SlotState::Issued, "a tag completes once, and only if it is issued");
        slot.state = SlotState::Waiting;
        let rq = slot.rq.take().expect("an issued tag has a request");
        hctx.nr_with_more_commands -= u32::from(rq.has_more_commands());
        hctx.nr_in_flight -= 1;
        if hctx.nr_in_flight == 0 {
            self.stats.busy_ns += self.now.saturating_sub(hctx.busy_since_ns);
        }
        rq
    }

    #[inline]
    fn settle(&mut self, tag: Tag, after: After) {
        let slot = &mut self.hctx.table[tag.index()];
        match after {
            After::Again(rq) => {
                slot.rq = Some(rq);
                self.hctx.dispatch.push_back(tag);
            }
            After::Done(rq) => {
                slot.state = SlotState::Idle;
                self.hctx.tags.put(tag);
                let op = self.stats.op_mut(rq.op);
                op.requests += 1;
                op.ticks_ns += self.now.saturating_sub(rq.tagged_ns);
                self.end_part(rq.tail, &rq);
            }
        }
    }

    /// E1: the first `n` bytes at the driver were moved.
    #[inline]
    fn progress(&mut self, mut rq: Request, n: u64) -> After {
        let window = rq.window_len(self.bios);
        assert!(n <= window, "a completion of more bytes than were asked for");
        if n < window && (n == 0 || !rq.op.moves_data()) {
            return self.stuck(rq);
        }
        self.stats.op_mut(rq.op).bytes += n;
        let mut left = n;
        while left > 0 {
            let head_len = rq.head_len(self.bios);
            let covered = left.min(head_len);
            left -= covered;
            rq.len -= covered;
            rq.start += covered;
            rq.skip += covered;
            if covered == head_len && rq.len > 0 {
                self.end_head(&mut rq);
            }
        }
        if rq.len > 0 { After::Again(rq) } else { self.step_done(rq, Steps::DATA) }
    }

    /// A count of 0: the end of the file for a read, a failure for everything else.
    #[cold]
    fn stuck(&mut self, rq: Request) -> After {
        match rq.op {
            Op::Read => self.end_all_but_last(rq, None),
            _ => self.end_all_but_last(rq, Some(BlockStatus::Io)),
        }
    }

    #[inline]
    fn step_done(&mut self, mut rq: Request, step: Steps) -> After {
        rq.steps = rq.steps.after(step);
        if rq.steps.is_empty() { After::Done(rq) } else { After::Again(rq) }
    }

    /// E2 and E3.
    #[cold]
    fn fail(&mut self, mut rq: Request, status: BlockStatus) -> After {
        if rq.nr_bios == 1 || rq.op != Op::Read || !status.may_be_of_one_bio() {
            return self.end_all_but_last(rq, Some(status));
        }
        if rq.bio_by_bio {
            self.mark(rq.head, rq.skip, Some(status));
            let head_len = rq.head_len(self.bios);
            rq.len -= head_len;
            rq.start += head_len;
            self.end_head(&mut rq);
        } else {
            rq.bio_by_bio = true;
            self.stats.retries += 1;
        }
        After::Again(rq)
    }

    /// Ends all bios of a request but its last, which ends with the request.
    fn end_all_but_last(&mut self, mut rq: Request, status: Option<BlockStatus>) -> After {
        // A flush before or after the data failed: nothing is known of the bio, from its start.
        let is_data = rq.steps.current() == Some(Steps::DATA);
        let from = if is_data { rq.skip } else { 0 };
        self.mark(rq.head, from, status);
        while rq.nr_bios > 1 {
            self.end_head(&mut rq);
            self.mark(rq.head, 0, status);
        }
        After::Done(rq)
    }

    /// Ends the first bio of a request and goes on with the next.
    #[inline]
    fn end_head(&mut self, rq: &mut Request) {
        assert!(rq.nr_bios > 1);
        let head = rq.head;
        rq.head = self.bios.next(head).expect("a request of several bios is a chain");
        rq.nr_bios -= 1;
        rq.skip = 0;
        self.end_part(head, rq);
    }

    /// Notes that a bio is good up to `offset` only (E4: the lowest offset decides).
    pub(crate) fn mark(&mut self, id: BioId, offset: u64, status: Option<BlockStatus>) {
        let slot = self.bios.get_mut(id);
        if offset < slot.good_len || slot.bio.len == 0 {
            slot.good_len = offset;
            slot.status = status;
        }
    }

    /// One of the requests that cover parts of a bio is done with it. The last one ends it.
    #[inline]
    pub(crate) fn end_part(&mut self, id: BioId, rq: &Request) {
        let slot = self.bios.get_mut(id);
        slot.parts -= 1;
        if slot.parts > 0 {
            return;
        }
        let op = slot.bio.op;
        let result = match slot.status {
            Some(status) => Err(status),
            None => Ok(slot.good_len),
        };
        let ended = Ended { id, owner: slot.owner, user_data: slot.bio.user_data, result };
        if self.iostats {
            let in_plug = rq.unplugged_ns.saturating_sub(slot.queued_ns);
            self.stats.stages.plug.record(in_plug);
        }
        self.stats.op_mut(op).bios += 1;
        self.bios.remove(id);
        self.ended.push(ended);
    }
}
