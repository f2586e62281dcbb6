//! Native FUA writes that sync a file (F8).
//!
//! The driver of a file makes a FUA write durable by a sync of that file (`RWF_DSYNC`). The kernel
//! reports each failed write-back once per open file, to whichever sync of that file comes first.
//! So a FUA write may fail because of an earlier write, and the next flush then succeeds although
//! data is lost. Hence, where [`fua_is_sync`](crate::QueueLimits::fua_is_sync) is set:
//!
//! - A FUA write that does not complete in full counts as a failed flush. (io_uring may report the
//!   bytes before a failure instead of the failure, so a short count counts as well.) The loss is
//!   recorded before the bio ends, and the bio fails: the bytes that were counted may be lost.
//! - A successful flush ends after the FUA writes that were at the device with it have completed:
//!   one of them may have received the error that the flush did not get. Later FUA writes do not
//!   delay it.
//! - Without [`fua_queueable`](crate::QueueLimits::fua_queueable) a successful FUA write proves
//!   nothing if another sync of the same file was at the device, because that sync may have
//!   received the write's error. So a write is issued with FUA only while no other sync of this
//!   machine is at the device or pending. Otherwise a flush follows it, which all such writes
//!   share. A flush is issued only while no FUA write is at the device.
//!
//! Each hardware context has an open file of its own, so syncs of other contexts do not matter.

use crate::hctx::Turn;
use crate::plant::plants;
use crate::request::{Request, Steps};
use crate::status::BlockStatus;

/// The native FUA writes at the device.
///
/// They are counted by period. A period ends when a flush succeeds; that flush then waits for the
/// writes of its own period only. One flush at a time waits, so two counters are enough.
#[derive(Debug, Default)]
pub(super) struct FuaWrites {
    nr: [u32; 2],
    is_odd: bool,
}

impl FuaWrites {
    pub(super) fn any(&self) -> bool {
        self.nr != [0, 0]
    }

    /// Returns the steps of a FUA write that is issued now.
    fn steps(&self) -> Steps {
        if self.is_odd { Steps::FUA_ODD } else { Steps::FUA }
    }

    pub(super) fn issued(&mut self, steps: Steps) {
        self.nr[usize::from(steps == Steps::FUA_ODD)] += 1;
    }

    pub(super) fn completed(&mut self, steps: Steps) {
        self.nr[usize::from(steps == Steps::FUA_ODD)] -= 1;
    }

    /// Begins a period. The writes of the period before the last have completed.
    pub(super) fn begin_period(&mut self) {
        self.is_odd = !self.is_odd;
        assert!(self.nr[usize::from(self.is_odd)] == 0, "one flush at a time waits for FUA writes");
    }

    /// Returns whether writes of the last period are still at the device.
    pub(super) fn is_waited_for(&self) -> bool {
        self.nr[usize::from(!self.is_odd)] > 0
    }
}

impl Turn<'_> {
    /// Decides whether a FUA write, which is about to be issued, is made durable by its own command
    /// or by a flush after it.
    #[cold]
    pub(in crate::hctx) fn choose_fua(&mut self, rq: &mut Request) {
        let flush = &self.hctx.flush;
        let is_alone = !flush.fua.any() && !flush.wants_a_look() && !flush.is_blocked();
        let is_enough = self.hctx.limits.fua_queueable || is_alone || plants!(SyncBeside);
        rq.steps = match is_enough {
            true => flush.fua.steps(),
            false => Steps::DATA.and(Steps::POST),
        };
    }

    /// Records the loss if a native FUA write has not completed in full. Returns whether it did.
    pub(in crate::hctx) fn check_fua(
        &mut self,
        rq: &mut Request,
        result: Result<u64, BlockStatus>,
    ) -> bool {
        let window = rq.window_len(&self.hctx.splits);
        if !self.hctx.limits.fua_is_sync || result == Ok(window) {
            return false;
        }
        rq.doubt(&mut self.hctx.splits);
        self.note_failure(result.err().unwrap_or(BlockStatus::Io));
        true
    }

    /// Ends the successful flush that waits for native FUA writes, once the last of them has ended.
    /// If data is lost, also fails the pending flushes that cover the loss.
    pub(in crate::hctx) fn end_flushes_after_fua(&mut self, is_lost: bool) {
        let flush = &mut self.hctx.flush;
        if flush.is_settling && !flush.fua.is_waited_for() {
            flush.is_settling = false;
            self.flush_succeeded();
        }
        if is_lost {
            self.report_pending();
        }
    }
}
