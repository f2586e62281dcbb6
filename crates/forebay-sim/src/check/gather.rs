//! Gathering of tags: the first part of a split bio is issued only when all tags that the bio
//! gathers are free (T14).
//!
//! The check counts parts by size alone, so it may expect fewer tags than the layer gathers. It
//! skips disks with tag classes, where no bio gathers. It also skips devices that fail, because
//! there a retry may hold back a part that has its tag, and disks with a scheduler, which holds
//! back parts as well. With owners no bio gathers.

use super::bios::Bios;
use super::cover::Piece;
use super::{Verdict, broken, rules};
use forebay_core::{Op, Policy, QueueLimits, SECTOR_SHIFT, TagNeed};

/// The limits of tags in use.
#[derive(Debug)]
pub(crate) struct Gathers {
    is_on: bool,
    /// The limit of each hardware context.
    nr_requests: Vec<u32>,
}

impl Gathers {
    /// Creates the checker of a disk. `may_retry`: requests may be held back by retries.
    pub(crate) fn new(policy: &Policy, limits: &QueueLimits, may_retry: bool) -> Gathers {
        let is_wanted = match policy.tag_need {
            TagNeed::Auto => limits.rotational,
            need => need == TagNeed::Parts,
        };
        let is_certain = !may_retry && policy.io_timeout_ns == 0;
        let has_classes = policy.nr_reserved > 0 || policy.async_depth < policy.queue_depth;
        let nr_requests = policy.nr_requests_of(limits);
        Gathers {
            is_on: is_wanted
                && !policy.emulation.threads_wait_for_tags()
                && is_certain
                && policy.scheduler.is_none()
                && !has_classes,
            nr_requests: vec![nr_requests; policy.nr_hw_queues as usize],
        }
    }

    /// Checks nothing from now on: a scheduler may be chosen.
    pub(crate) fn leave_out(&mut self) {
        self.is_on = false;
    }

    /// Records that the disk has owners.
    pub(crate) fn set_has_owners(&mut self) {
        self.is_on = false;
    }

    /// Records how many tags of a context may be in use.
    pub(crate) fn limited(&mut self, hctx: usize, nr_requests: u32) {
        self.nr_requests[hctx] = nr_requests;
    }

    /// Checks a command that the driver of a context receives while it has `nr_live` other
    /// commands. `pieces` are the parts of bios in the command.
    pub(crate) fn check(
        &self,
        hctx: usize,
        nr_live: impl FnOnce() -> u32,
        pieces: &[Piece],
        limits: &QueueLimits,
        bios: &mut Bios,
    ) -> Verdict {
        let &[piece] = pieces else { return Ok(()) };
        let row = bios.row_mut(piece.slot);
        let is_first = !std::mem::replace(&mut row.is_tried, true);
        let is_split = piece.nr < row.nr_units();
        let is_data = matches!(row.op, Op::Read | Op::Write);
        if !(self.is_on && is_first && is_split && is_data) {
            return Ok(());
        }
        let blocks_max = (limits.max_sectors << SECTOR_SHIFT) / limits.logical_block_size;
        let nr_parts = row.nr_units().div_ceil(blocks_max as usize) as u32;
        let nr_tags = self.nr_requests[hctx];
        let need = nr_parts.min((nr_tags / 2).max(1));
        let nr_live = nr_live();
        if nr_live + need <= nr_tags {
            return Ok(());
        }
        let what = format!(
            "{} gathers {need} of {nr_tags} tags, and was issued while {nr_live} were in use",
            row.name()
        );
        broken(rules::T14, what)
    }
}
