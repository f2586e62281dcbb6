//! The part of a turn that leads to the driver: tag, issue, commit.
//!
//! Counterpart in Linux: `blk_mq_dispatch_rq_list` (`block/blk-mq.c`). What already has a tag (it
//! was refused by a busy driver, has another step to take, or is tried again) goes before what
//! waits for one.

use crate::bio::{BioFlags, Op};
use crate::driver::{Driver, Issue, IssuedRequest};
use crate::flush::Steps;
use crate::limits::QueueLimits;
use crate::queue::{SlotState, Turn};
use crate::request::Request;
use crate::slab::BioSlab;
use crate::status::BlockStatus;
use crate::tag::Tag;

impl Turn<'_> {
    /// Issues what waits, until tags, work, or the driver's patience end.
    #[inline]
    pub(crate) fn dispatch<D: Driver + ?Sized>(&mut self, driver: &mut D) {
        while let Some(tag) = self.next_tagged() {
            let hctx = &mut *self.hctx;
            let last =
                hctx.dispatch.is_empty() && (hctx.inbox.is_empty() || hctx.tags.nr_free() == 0);
            let slot = &mut hctx.table[tag.index()];
            let rq = slot.rq.as_mut().expect("a tag on its way to the driver has a request");
            assert!(slot.state == SlotState::Waiting);
            rq.issued_ns = self.now;
            match driver.queue_rq(&issued(self.bios, self.limits, rq, tag), last) {
                Issue::Queued => {
                    slot.state = SlotState::Issued;
                    if self.iostats && !rq.was_issued {
                        let waited = self.now.saturating_sub(rq.tagged_ns);
                        self.stats.stages.queue.record(waited);
                    }
                    rq.was_issued = true;
                    let rq = *rq;
                    self.count_issue(&rq);
                }
                Issue::Busy => {
                    hctx.dispatch.push_front(tag);
                    self.stats.requeues += 1;
                    return;
                }
                Issue::Failed(status) => self.failed(tag, status),
            }
        }
    }

    /// The next request to issue: from the dispatch list, or from the inbox, with a new tag.
    #[inline]
    fn next_tagged(&mut self) -> Option<Tag> {
        if let Some(tag) = self.hctx.dispatch.pop_front() {
            return Some(tag);
        }
        loop {
            let waiting = self.hctx.inbox.front()?;
            if waiting.steps.is_empty() {
                // Nothing to do at the device: no data, and nothing that could be lost.
                let rq = self.hctx.inbox.pop_front()?;
                self.end_part(rq.head, &rq);
                continue;
            }
            let tag = self.hctx.tags.get()?;
            match self.take_front() {
                Some(rq) => {
                    self.put_in_table(tag, rq);
                    return Some(tag);
                }
                None => self.hctx.tags.put(tag),
            }
        }
    }

    /// Takes the oldest request of the inbox, or the front of it that fits one request. `None`
    /// where it could not be cut, and its bio was ended instead.
    #[inline]
    fn take_front(&mut self) -> Option<Request> {
        let waiting = self.hctx.inbox.front_mut()?;
        if !waiting.oversized {
            return self.hctx.inbox.pop_front();
        }
        let part = waiting.split_front(self.bios, self.limits);
        let rest = *waiting;
        if part.is_some() && rest.len > 0 {
            self.stats.splits += 1;
            return part;
        }
        self.hctx.inbox.pop_front();
        if part.is_none() {
            self.mark(rest.head, rest.skip, Some(BlockStatus::Invalid));
            self.end_part(rest.head, &rest);
        }
        part
    }

    #[inline]
    fn put_in_table(&mut self, tag: Tag, rq: Request) {
        let slot = &mut self.hctx.table[tag.index()];
        assert!(slot.state == SlotState::Idle, "no tag is live twice");
        slot.state = SlotState::Waiting;
        slot.rq = Some(Request { tagged_ns: self.now, ..rq });
        if self.iostats {
            self.stats.stages.tag.record(self.now.saturating_sub(rq.unplugged_ns));
        }
    }

    #[inline]
    pub(crate) fn count_issue(&mut self, rq: &Request) {
        let hctx = &mut *self.hctx;
        if hctx.nr_in_flight == 0 {
            hctx.busy_since_ns = self.now;
            hctx.bios_per_request_max = 1;
        }
        hctx.bios_per_request_max = hctx.bios_per_request_max.max(rq.nr_bios);
        hctx.nr_with_more_commands += u32::from(rq.has_more_commands());
        hctx.nr_in_flight += 1;
        hctx.uncommitted = true;
        self.stats.issued += 1;
    }
}

/// What the driver sees of a request: the command of its current step.
#[inline]
fn issued<'a>(
    bios: &'a BioSlab,
    limits: &QueueLimits,
    rq: &Request,
    tag: Tag,
) -> IssuedRequest<'a> {
    let is_data = rq.steps.current() == Some(Steps::DATA);
    // Without a volatile cache every write is durable; without native FUA there is a POST step.
    let fua = limits.volatile_cache && limits.fua && rq.flags.contains(BioFlags::FUA);
    IssuedRequest {
        tag,
        op: if is_data { rq.op } else { Op::Flush },
        fua: fua && is_data && rq.op == Op::Write,
        start: if is_data { rq.start } else { 0 },
        len: if is_data { rq.window_len(bios) } else { 0 },
        nr_bios: rq.nr_bios,
        nr_segments: rq.nr_segments,
        bios,
        head: rq.head,
        skip: rq.skip,
    }
}
