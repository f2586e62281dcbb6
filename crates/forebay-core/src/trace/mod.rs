//! Traces: the stages of each request, as records in rings that another thread empties.
//!
//! A software queue and a hardware context have one [`TraceWriter`] each while their disk is
//! traced, and none otherwise. A traced context has a fast turn of its own, and traced bios enter
//! by another function, so most points of an untraced one test nothing. The simulator and the
//! library trace the same points, because the points are here.
//!
//! Counterpart in Linux: `kernel/trace/blktrace.c`, and the points of
//! `include/trace/events/block.h`. The stages are those of blktrace, in the order in which a bio
//! passes them:
//!
//! - Q a bio is queued, then M or F: it merges with a request at its back or front;
//! - P the plug of a thread gets its first request, and U: its requests leave it;
//! - S a request waits for a tag, and G: it has got one. (In Linux a request gets its tag before
//!   it is plugged; here it is plugged without one.)
//! - X a request is split, and its front part goes on;
//! - I a request is queued in the scheduler, D: it is issued, R: the driver is busy and takes it
//!   later, C: it is complete.
//!
//! Waits for a flush and for a limit are messages about a request.

mod probe;
mod record;
mod ring;

pub use probe::{ProbeSwitch, TraceProbe};
pub use record::{TraceEvent, TraceRecord};
pub use ring::{TraceReader, TraceWriter};

use crate::merge::MergeKind;
use crate::request::{QueuedBio, Request, Splits};
use crate::status::BlockStatus;
use alloc::boxed::Box;

/// The trace of a software queue or hardware context; empty while its disk is not traced.
#[derive(Debug, Default)]
pub(crate) struct Trace(Option<Box<TraceWriter>>);

impl Trace {
    /// Writes records from now on, or none.
    pub(crate) fn set(&mut self, writer: Option<TraceWriter>) {
        self.0 = writer.map(Box::new);
    }

    /// Returns whether records are written. In a build with `--cfg forebay_no_trace` none are, so
    /// the points have no code: `cargo xtask long trace-points` counts what they cost.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        !cfg!(forebay_no_trace) && self.0.is_some()
    }

    /// Returns whether records are written, and the reader of their ring has not ended.
    pub(crate) fn is_read(&self) -> bool {
        self.0.as_ref().is_some_and(|writer| writer.is_open())
    }

    /// Records an event of a request that has not been issued.
    #[inline(always)]
    pub(crate) fn request(&mut self, event: TraceEvent, rq: &Request, now: u64) {
        if self.is_on() {
            self.write_stage(event, rq.first(), now);
        }
    }

    /// Records an event of the next command of a request.
    #[inline(always)]
    pub(crate) fn command(&mut self, event: TraceEvent, rq: &Request, splits: &Splits, now: u64) {
        if self.is_on() {
            self.write_command(event, rq.first(), splits, now);
        }
    }

    /// Records that the command of a request is complete, with its result.
    #[inline(always)]
    pub(crate) fn complete(
        &mut self,
        rq: &Request,
        splits: &Splits,
        result: Result<u64, BlockStatus>,
        now: u64,
    ) {
        if self.is_on() {
            self.write_complete(rq.first(), splits, result, now);
        }
    }

    /// Records that the first bio of a request ends without a command.
    #[cold]
    pub(crate) fn refuse_head(
        &mut self,
        rq: &Request,
        splits: &Splits,
        status: BlockStatus,
        now: u64,
    ) {
        if self.is_on() {
            let record = TraceRecord::of(TraceEvent::Complete, rq, rq.head_len(splits), now);
            self.write(record.with_status(Some(status)));
        }
    }

    /// Records that a limit has held a request back for this long.
    #[inline]
    pub(crate) fn limit_wait(&mut self, rq: &Request, waited_ns: u64, now: u64) {
        if self.is_on() {
            let record = TraceRecord::of(TraceEvent::LimitWait, rq, rq.len, now);
            self.write(record.with_number(waited_ns));
        }
    }

    /// Records how a request gets the flush that it needs.
    // Such requests have one bio (M1). It has the range of the request, of which nothing is left
    // after the data.
    #[inline]
    pub(crate) fn flush(&mut self, event: TraceEvent, rq: &Request, splits: &Splits, now: u64) {
        if self.is_on() {
            let now = now.max(rq.unplugged_ns);
            self.write(TraceRecord::of_bio(event, &rq.head(splits).bio, now).with_number(0));
        }
    }

    /// Records the end of the flush that a request waited for, with the result.
    #[inline]
    pub(crate) fn flush_done(
        &mut self,
        rq: &Request,
        splits: &Splits,
        result: Result<(), BlockStatus>,
        now: u64,
    ) {
        if self.is_on() {
            let (head, now) = (rq.head(splits), now.max(rq.unplugged_ns));
            // 0: it was queued before the trace began, by a thread without a clock.
            let age_ns = if head.queued_ns == 0 { 0 } else { now.saturating_sub(head.queued_ns) };
            let record = TraceRecord::of_bio(TraceEvent::FlushDone, &head.bio, now);
            self.write(record.with_number(age_ns).with_status(result.err()));
        }
    }

    /// Records an event that is no stage of a request, with a number.
    #[inline(always)]
    pub(crate) fn note(&mut self, event: TraceEvent, number: u64, now: u64) {
        if self.is_on() {
            self.write_note(event, number, now);
        }
    }

    /// Records that a request is issued, and that it has got its tag if that is `new`.
    #[inline(always)]
    pub(crate) fn issue(&mut self, new: bool, rq: &Request, now: u64) {
        if self.is_on() {
            self.write_issue(new, rq.first(), now);
        }
    }

    /// Records that `front` is cut off a request of which `rest_len` bytes are left.
    #[inline]
    pub(crate) fn split(&mut self, front: &Request, rest_len: u64, now: u64) {
        if self.is_on() {
            let record = TraceRecord::of(TraceEvent::Split, front, front.len + rest_len, now);
            self.write(record.with_second(front.len));
        }
    }

    /// Records that the request of `record` has merged with another.
    pub(crate) fn merge(&mut self, record: TraceRecord, kind: MergeKind) {
        let event = match kind {
            MergeKind::Front => TraceEvent::FrontMerge,
            MergeKind::Back | MergeKind::Discard => TraceEvent::BackMerge,
        };
        self.write(TraceRecord { event, ..record });
    }

    // The functions that write are calls with values in registers, so that the points cost no more
    // than their test. They take the box of a request, because the address of a `Request` would
    // force it into memory.

    #[cold]
    #[inline(never)]
    fn write_stage(&mut self, event: TraceEvent, queued: &QueuedBio, now: u64) {
        self.write(TraceRecord::of(event, &queued.rq, queued.rq.len, now));
    }

    #[cold]
    #[inline(never)]
    fn write_issue(&mut self, new: bool, queued: &QueuedBio, now: u64) {
        if new {
            self.write_stage(TraceEvent::GetTag, queued, now);
        }
        self.write_stage(TraceEvent::Issue, queued, now);
    }

    #[cold]
    #[inline(never)]
    fn write_note(&mut self, event: TraceEvent, number: u64, now: u64) {
        self.write(TraceRecord::note(event, number, now));
    }

    #[cold]
    #[inline(never)]
    fn write_command(&mut self, event: TraceEvent, queued: &QueuedBio, splits: &Splits, now: u64) {
        self.write(TraceRecord::of(event, &queued.rq, queued.window_len(splits), now));
    }

    #[cold]
    #[inline(never)]
    fn write_complete(
        &mut self,
        queued: &QueuedBio,
        splits: &Splits,
        result: Result<u64, BlockStatus>,
        now: u64,
    ) {
        let len = result.unwrap_or_else(|_| queued.window_len(splits));
        let record = TraceRecord::of(TraceEvent::Complete, &queued.rq, len, now);
        self.write(record.with_status(result.err()));
    }

    /// Writes a record.
    #[inline(always)]
    pub(crate) fn write(&mut self, record: TraceRecord) {
        let [time_ns, start, len, rest] = record.pack();
        self.write_words(time_ns, start, len, rest);
    }

    /// Writes a packed record. Ends the trace if its reader has closed the ring.
    // Four numbers in registers.
    #[cold]
    #[inline(never)]
    fn write_words(&mut self, time_ns: u64, start: u64, len: u64, rest: u64) {
        if let Some(writer) = &mut self.0
            && !writer.push([time_ns, start, len, rest])
        {
            self.0 = None;
        }
    }
}
