//! I/Os and flushes that fail: whether the job ends, and what is counted and printed.
//!
//! Source: fio 3.33, the options `continue_on_error`, `ignore_error`, `error_dump`, `fill_device`.
//! Each error is counted. An I/O that was refused before it reached the disk ends the job in any
//! case, because the next one would be refused too.

use std::time::Duration;

use forebay::IoError;
use forebay_fio::generator::{Direction, Op};
use forebay_fio::report::{ErrorCount, JobError};
use rustix::io::Errno;

use super::Tally;
use crate::bench::plan::disk_name;
use crate::output;

/// The errors of a clone.
#[derive(Debug, Default)]
pub(in crate::bench) struct Failures {
    count: ErrorCount,
}

impl Failures {
    /// Returns the count of the errors so far.
    pub(super) fn count(&self) -> &ErrorCount {
        &self.count
    }

    /// Returns the count of the errors.
    pub(in crate::bench) fn into_count(self) -> ErrorCount {
        self.count
    }
}

impl Tally<'_> {
    /// Records an I/O that has failed.
    #[cold]
    pub(in crate::bench) fn fail(&mut self, op: Op, error: IoError) {
        let errno = error.errno();
        self.stats.directions[op.direction.index()].failed_ios += 1;
        if op.direction == Direction::Write
            && let Some(written) = &mut self.written
        {
            // Any part of the data may have reached the disk.
            written.forget(op);
        }
        let is_refused = matches!(error, IoError::Refused(_));
        if !is_refused && self.job.control.on_error.is_full(op.direction, errno) {
            return self.finish();
        }
        let continues =
            !is_refused && self.job.control.on_error.continues_after(op.direction, errno);
        self.record_error(continues, errno, |tally| {
            let (word, Op { len, offset, file, .. }) = (op.direction.word(), op);
            let (place, why) = (tally.place(file), tally.why(file));
            format!("{word} of {len} bytes at offset {offset}{place}: {error}{why}")
        });
    }

    /// Records a flush that has failed.
    #[cold]
    pub(super) fn fail_sync(&mut self, name: &str, file: u16, error: IoError) {
        let errno = error.errno();
        let continues = self.job.control.on_error.continues_after(Direction::Write, errno);
        self.record_error(continues, errno, |tally| {
            let (place, why) = (tally.place(file), tally.why(file));
            format!("{name}{place}: {error}{why}")
        });
    }

    /// Records a transfer of no bytes: the end of the file is inside the region. As in fio's
    /// engines with one I/O at a time, this is an I/O error, because a run that continued would
    /// measure nothing.
    #[cold]
    pub(super) fn fail_empty(&mut self, op: Op) {
        let errno = Errno::IO.raw_os_error();
        self.stats.directions[op.direction.index()].failed_ios += 1;
        let continues = self.job.control.on_error.continues_after(op.direction, errno);
        self.record_error(continues, errno, |tally| {
            format!(
                "{} of {} bytes at offset {}{}: no bytes were transferred; the file or device has \
                 become smaller since the start",
                op.direction.word(),
                op.len,
                op.offset,
                tally.place(op.file)
            )
        });
    }

    /// Ends the job because of an I/O that took longer than `max_latency`.
    #[cold]
    pub(super) fn fail_slow(&mut self, op: Op, lat_ns: u64, max_ns: u64) {
        self.record_error(false, Errno::TIMEDOUT.raw_os_error(), |tally| {
            let (word, Op { len, offset, .. }) = (op.direction.word(), op);
            let (took, max, place) = (lat_ns / 1000, max_ns / 1000, tally.place(op.file));
            format!(
                "{word} of {len} bytes at offset {offset}{place} took {took} us, and --max_latency \
                 is {max} us"
            )
        });
    }

    /// Ends the job, because even single I/Os took longer than the target.
    pub(in crate::bench) fn fail_target(&mut self, target: Duration) {
        self.record_error(false, Errno::TIMEDOUT.raw_os_error(), |_| {
            let us = target.as_micros();
            format!(
                "I/Os took longer than --latency_target={us}us even at a depth of 1; raise it, or \
                 let some I/Os exceed it with --latency_percentile"
            )
        });
    }

    /// Records a bad block after which the job continues. Returns whether it does.
    pub(in crate::bench) fn continue_after_mismatch(&mut self, message: &str) -> bool {
        /// Bad blocks that are printed; the rest are only counted.
        const SHOWN_MAX: u64 = 10;
        let errno = Errno::ILSEQ.raw_os_error();
        let rules = &self.job.control.on_error;
        let continues = !self.job.checks.fatal && rules.continues_after(Direction::Read, errno);
        let error = JobError { errno, message: message.to_owned() };
        self.failures.count.add(Some(&error));
        if continues && (rules.dump || self.failures.count.total() <= SHOWN_MAX) {
            self.print(message);
        }
        continues
    }

    /// Counts an error. Unless the job continues, the first one ends it.
    fn record_error(&mut self, continues: bool, errno: i32, describe: impl Fn(&Self) -> String) {
        let is_first = self.failures.count.total() == 0;
        let dumps = continues && self.job.control.on_error.dump;
        let ends = !continues && self.error.is_none();
        let error =
            (is_first || dumps || ends).then(|| JobError { errno, message: describe(self) });
        if dumps && let Some(error) = &error {
            self.print(&error.message);
        }
        self.failures.count.add(error.as_ref());
        if ends {
            self.error = error;
        }
    }

    fn print(&self, message: &str) {
        output::stderr(&format!("forebay: {}: {message}\n", self.job.name));
    }

    /// Returns the name of a file for an error message, if the job has several.
    pub(in crate::bench) fn place(&self, file: u16) -> String {
        match self.disks.len() {
            1 => String::new(),
            _ => format!(" of {}", disk_name(&self.disks[usize::from(file)].info().spec)),
        }
    }

    /// Returns why the device has failed, if it has and reports a reason.
    fn why(&self, file: u16) -> String {
        let failure = self.disks[usize::from(file)].failure();
        failure.map_or_else(String::new, |why| format!(" ({why})"))
    }
}
