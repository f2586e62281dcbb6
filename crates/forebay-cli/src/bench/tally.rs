//! What a clone has done so far, however it does its I/O: figures, checks, flushes, and why it
//! ends.

use std::time::Instant;

use forebay::{Disk, IoError};
use forebay_fio::generator::{Direction, Op};
use forebay_fio::job::Job;
use forebay_fio::report::JobError;
use forebay_fio::stats::JobStats;
use forebay_fio::verify::{self, Stamp};
use rustix::io::Errno;

use super::gauge::Gauge;
use super::stop::Stop;
use super::written::Written;

/// The account of a clone.
#[derive(Debug)]
pub(super) struct Tally<'a> {
    pub(super) job: &'a Job,
    pub(super) disk: &'a Disk,
    pub(super) gauge: &'a Gauge,
    pub(super) stop: &'a Stop,
    /// Writes submitted since the last flush.
    pub(super) writes_since_flush: u32,
    pub(super) stamp: Stamp,
    /// What reads must find.
    pub(super) check: Check,
    /// The blocks that are to be read back.
    pub(super) written: Option<Written>,
    pub(super) start: Instant,
    /// The last time that was read, ns since `start`.
    pub(super) now_ns: u64,
    pub(super) stats: JobStats,
    pub(super) error: Option<JobError>,
}

/// What a read must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    Nothing,
    /// Any block that is whole and in its place.
    Whole,
    /// A block of this run.
    Ours,
}

impl Tally<'_> {
    pub(super) fn read_clock(&mut self) -> u64 {
        self.now_ns = self.start.elapsed().as_nanos() as u64;
        self.now_ns
    }

    pub(super) fn is_over(&self, end_ns: u64) -> bool {
        self.error.is_some() || self.now_ns >= end_ns || self.stop.is_set()
    }

    /// An I/O has ended well: it took `clat_ns` from its commit, `lat_ns` from its start. `block`
    /// is its memory.
    #[inline]
    pub(super) fn end(&mut self, op: Op, moved: u64, clat_ns: u64, lat_ns: u64, block: &[u8]) {
        if moved == 0 && op.direction != Direction::Trim {
            return self.fail_empty(op);
        }
        self.stats.record_complete(op.direction, moved, clat_ns, lat_ns);
        if moved < op.len.into() {
            self.stats.directions[op.direction.index()].short_ios += 1;
        }
        if op.direction == Direction::Write
            && let Some(written) = &mut self.written
        {
            written.insert(op.offset);
        }
        if self.check != Check::Nothing {
            self.check_block(op, block, moved);
        }
    }

    fn check_block(&mut self, op: Op, block: &[u8], moved: u64) {
        let expected = (self.check == Check::Ours).then_some(self.stamp);
        let message = if moved < verify::HEADER_LEN as u64 {
            format!("verify: only {moved} bytes at offset {}", op.offset)
        } else {
            match verify::check(&block[..moved as usize], op.offset, expected) {
                Ok(()) => return,
                Err(mismatch) => mismatch.to_string(),
            }
        };
        // The number that fio gives for it.
        self.error.get_or_insert(JobError { errno: Errno::ILSEQ.raw_os_error(), message });
    }

    pub(super) fn is_flush_due(&self) -> bool {
        self.job.fsync > 0 && self.writes_since_flush >= self.job.fsync
    }

    /// A flush that `fsync` asks for, and that is counted, with `in_flight` I/Os beside it.
    pub(super) fn periodic_flush(&mut self, in_flight: u32) {
        self.writes_since_flush = 0;
        let start_ns = self.read_clock();
        self.flush();
        if self.error.is_none() {
            let ns = self.read_clock() - start_ns;
            self.stats.record_sync(in_flight + 1, ns);
        }
    }

    pub(super) fn flush(&mut self) {
        if let Err(error) = self.disk.flush() {
            let message = format!("flush: {error}");
            self.error.get_or_insert(JobError { errno: error.errno(), message });
        }
    }

    /// Notes an error; the first one ends the job.
    #[cold]
    pub(super) fn fail(&mut self, op: Op, error: IoError) {
        let message =
            format!("{} of {} bytes at offset {}: {error}", op.direction.word(), op.len, op.offset);
        self.error.get_or_insert(JobError { errno: error.errno(), message });
    }

    /// Nothing was moved, so the end of the file is inside of the region. As in fio's engines that
    /// read one by one this is an I/O error: to go on would be to measure nothing.
    #[cold]
    fn fail_empty(&mut self, op: Op) {
        let message = format!(
            "{} of {} bytes at offset {}: nothing was moved; the file has become shorter, or the \
             device smaller, than it was at the start",
            op.direction.word(),
            op.len,
            op.offset
        );
        self.error.get_or_insert(JobError { errno: Errno::IO.raw_os_error(), message });
    }
}
