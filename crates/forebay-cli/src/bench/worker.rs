//! One clone at work: fio's main loop.
//!
//! Source: fio's HOWTO, the options `iodepth` to `iodepth_low`, `fsync`, `verify`. The queue is
//! filled to `iodepth` in batches of `iodepth_batch`; when it is full, at least
//! `iodepth_batch_complete_min` and at most `iodepth_batch_complete_max` I/Os are reaped, until no
//! more than `iodepth_low` are left.
//!
//! Each batch is submitted under an *outer* plug, and each I/O in it under an *inner* one, as a
//! file system that plugs calls a device driver that plugs. With `plug=outermost` the inner ones
//! change nothing; with `plug=per-level` they take the batch apart, which is how that policy shows.
//!
//! The clock is read before each I/O, once after the commit of its batch (slat ends, clat begins),
//! and once after each reaping (clat ends).

use std::time::{Duration, Instant};

use forebay::{BioQueue, Buf, Completion, Disk, Io, IoError, Refusal};
use forebay_fio::generator::{Direction, Op, Region};
use forebay_fio::job::Job;
use forebay_fio::random::Xoshiro256;
use forebay_fio::report::JobError;
use forebay_fio::stats::{JobStats, Usage};
use forebay_fio::verify::{self, Stamp};

use rustix::io::Errno;

use super::gauge::{Gauge, Phase};
use super::stop::Stop;
use super::usage;
use super::written::Written;

/// A clone of a job on its thread.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    job: &'a Job,
    disk: &'a Disk,
    stop: &'a Stop,
    gauge: &'a Gauge,
    queue: BioQueue,
    /// I/Os in flight, by the number that they carry.
    slots: Vec<Slot>,
    free: Vec<u32>,
    bufs: Vec<Buf>,
    /// Slots of the batch that is not committed yet.
    batch: Vec<u32>,
    done: Vec<Completion>,
    /// The I/O that is next, if it is known: one that a flush goes before, or that the layer had no
    /// room for.
    next: Option<Op>,
    /// Writes submitted since the last flush.
    writes_since_flush: u32,
    stamp: Stamp,
    /// What reads must find.
    check: Check,
    /// The blocks that are to be read back.
    written: Option<Written>,
    start: Instant,
    /// The last time that was read, ns since `start`.
    now_ns: u64,
    usage: Usage,
    stats: JobStats,
    error: Option<JobError>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    op: Op,
    start_ns: u64,
    issued_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    Nothing,
    /// Any block that is whole and in its place.
    Whole,
    /// A block of this run.
    Ours,
}

/// What became of an attempt to submit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Submitted {
    Yes,
    /// There is no room before something has been reaped.
    NotNow,
    /// There is nothing more, or it was refused for good.
    Never,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        job: &'a Job,
        disk: &'a Disk,
        region: Region,
        stamp: Stamp,
        stop: &'a Stop,
        gauge: &'a Gauge,
    ) -> Self {
        let depth = job.iodepth as usize;
        let idle = Slot {
            op: Op { direction: Direction::Read, offset: 0, len: 0 },
            start_ns: 0,
            issued_ns: 0,
        };
        let writes = job.rw.has(Direction::Write);
        let reads = job.rw.has(Direction::Read);
        Self {
            job,
            disk,
            stop,
            gauge,
            queue: disk.queue(),
            slots: vec![idle; depth],
            free: (0..job.iodepth).rev().collect(),
            bufs: buffers(job, writes && !job.verify),
            batch: Vec::with_capacity(depth),
            done: Vec::with_capacity(depth),
            next: None,
            writes_since_flush: 0,
            stamp,
            check: if job.verify && reads && !writes { Check::Whole } else { Check::Nothing },
            written: (job.verify && job.do_verify && writes).then(|| Written::none(region, job.bs)),
            start: Instant::now(),
            now_ns: 0,
            usage: usage::of_this_thread(),
            stats: JobStats::new(0),
            error: None,
        }
    }

    /// Does the whole job: its workload, a last flush, and reading back.
    pub(super) fn run(&mut self, mut ops: impl Iterator<Item = Op>) {
        let end_ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let flush = self.job.end_fsync && self.job.rw.has(Direction::Write);
        self.phase(&mut ops, self.job.runtime.map_or(u64::MAX, end_ns), flush);
        let Some(written) = self.written.take() else { return };
        if written.is_empty() || self.is_over(u64::MAX) {
            return;
        }
        self.gauge.enter(Phase::Verify);
        self.check = Check::Ours;
        self.phase(&mut written.reads(), u64::MAX, false);
    }

    /// The figures, the first error, and how long it took, ns.
    pub(super) fn finish(mut self) -> (JobStats, Option<JobError>, u64) {
        let elapsed_ns = self.read_clock();
        self.gauge.enter(Phase::Done);
        self.stats.usage = usage::between(&self.usage, &usage::of_this_thread());
        self.stats.job_runtime_ms = (elapsed_ns / 1_000_000).max(1);
        (self.stats, self.error, elapsed_ns)
    }

    /// Runs I/Os until there are no more, or until `end_ns` after the start; then flushes, if that
    /// is wanted. The runtime is that of both, as in fio.
    fn phase(&mut self, ops: &mut impl Iterator<Item = Op>, end_ns: u64, flush: bool) {
        let begin_ns = self.read_clock();
        let before: [u64; 3] = std::array::from_fn(|at| self.stats.directions[at].total_ios);
        let (min, max) = (self.job.iodepth_batch_complete_min, self.job.iodepth_batch_complete_max);
        let mut more = true;
        loop {
            more = more && !self.is_over(end_ns) && self.submit_batch(ops);
            let in_flight = self.in_flight();
            if !more {
                match in_flight {
                    0 => break,
                    rest => self.reap(rest, rest),
                }
            } else if in_flight == self.job.iodepth {
                // All I/Os are out; `iodepth_low` says how many may be left.
                while self.in_flight() == self.job.iodepth
                    || self.in_flight() > self.job.iodepth_low
                {
                    self.reap(min.max(1).min(self.in_flight()), max);
                }
            } else if min == 0 && in_flight > 0 {
                self.reap(0, max);
            }
        }
        if flush && self.error.is_none() {
            // fio does not count this one.
            self.flush();
        }
        let runtime_ms = (self.read_clock() - begin_ns).div_ceil(1_000_000).max(1);
        for (direction, before) in self.stats.directions.iter_mut().zip(before) {
            if direction.total_ios > before {
                direction.runtime_ms += runtime_ms;
            }
        }
    }

    fn is_over(&self, end_ns: u64) -> bool {
        self.error.is_some() || self.now_ns >= end_ns || self.stop.is_set()
    }

    fn in_flight(&self) -> u32 {
        self.job.iodepth - self.free.len() as u32
    }

    /// Submits and commits one batch, or what there is room for. Says whether there may be more.
    fn submit_batch(&mut self, ops: &mut impl Iterator<Item = Op>) -> bool {
        if self.is_flush_due() {
            // As in fio a flush goes before a further I/O: there is none behind the last.
            self.next = self.next.take().or_else(|| ops.next());
            if self.next.is_none() {
                return false;
            }
            self.periodic_flush();
        }
        let room = self.job.iodepth_batch.min(self.free.len() as u32) as usize;
        let mut submitted = Submitted::Yes;
        let outer = forebay::plug();
        while self.batch.len() < room && !self.is_flush_due() {
            submitted = match self.next.take().or_else(|| ops.next()) {
                Some(op) => self.submit(op),
                None => Submitted::Never,
            };
            if submitted != Submitted::Yes {
                break;
            }
        }
        drop(outer);
        self.commit();
        if submitted == Submitted::NotNow {
            self.reap(1, self.job.iodepth);
        }
        submitted != Submitted::Never
    }

    /// Submits one I/O.
    #[inline]
    fn submit(&mut self, op: Op) -> Submitted {
        let start_ns = self.read_clock();
        let slot = self.free.pop().expect("there is room for the batch");
        let io = self.io(op).user_data(slot.into());
        let inner = forebay::plug();
        let submitted = self.queue.submit(io);
        drop(inner);
        if let Err(refused) = submitted {
            self.bufs.extend(refused.io.into_buf());
            self.free.push(slot);
            return self.refuse(op, refused.refusal);
        }
        self.slots[slot as usize] = Slot { op, start_ns, issued_ns: 0 };
        self.batch.push(slot);
        if op.direction == Direction::Write {
            self.writes_since_flush += 1;
        }
        Submitted::Yes
    }

    /// With `nr_bios` below `iodepth` the layer takes no more for now: the I/O is tried again after
    /// the next reaping. Every other refusal ends the job.
    #[cold]
    fn refuse(&mut self, op: Op, refusal: Refusal) -> Submitted {
        if refusal == Refusal::WouldBlock && self.in_flight() > 0 {
            self.next = Some(op);
            return Submitted::NotNow;
        }
        self.fail(op, IoError::Refused(refusal));
        Submitted::Never
    }

    fn io(&mut self, op: Op) -> Io {
        if op.direction == Direction::Trim {
            return Io::discard(op.offset, op.len.into());
        }
        let mut buf = self.bufs.pop().expect("a buffer for every slot");
        if op.direction == Direction::Read {
            return Io::read(buf, op.offset);
        }
        if self.job.verify {
            verify::fill(&mut buf, op.offset, self.stamp);
        }
        Io::write(buf, op.offset)
    }

    /// The batch has been let through: its submission latencies end here.
    fn commit(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let now_ns = self.read_clock();
        self.stats.record_submit(self.batch.len() as u32, self.in_flight());
        for slot in self.batch.drain(..) {
            let slot = &mut self.slots[slot as usize];
            slot.issued_ns = now_ns;
            self.stats.record_slat(slot.op.direction, now_ns - slot.start_ns);
        }
    }

    fn reap(&mut self, min: u32, max: u32) {
        let mut done = std::mem::take(&mut self.done);
        let reaped = self.queue.reap(min as usize, max as usize, &mut done);
        let now_ns = self.read_clock();
        self.stats.record_reap(reaped as u32);
        for completion in done.drain(..) {
            self.end(completion, now_ns);
        }
        self.done = done;
        self.stats.tick(now_ns);
        self.gauge.set(&self.stats);
    }

    #[inline]
    fn end(&mut self, completion: Completion, now_ns: u64) {
        let Completion { user_data, result, buf, .. } = completion;
        let Slot { op, start_ns, issued_ns } = self.slots[user_data as usize];
        self.free.push(user_data as u32);
        match result {
            Ok(0) if op.direction != Direction::Trim => self.fail_empty(op),
            Ok(moved) => {
                let (clat_ns, lat_ns) = (now_ns - issued_ns, now_ns - start_ns);
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
                    self.check_block(op, buf.as_deref().unwrap_or_default(), moved);
                }
            }
            Err(status) => self.fail(op, IoError::Ended(status)),
        }
        self.bufs.extend(buf);
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

    fn is_flush_due(&self) -> bool {
        self.job.fsync > 0 && self.writes_since_flush >= self.job.fsync
    }

    /// A flush that `fsync` asks for, and that is counted.
    fn periodic_flush(&mut self) {
        self.writes_since_flush = 0;
        let start_ns = self.read_clock();
        self.flush();
        if self.error.is_none() {
            let ns = self.read_clock() - start_ns;
            self.stats.record_sync(self.in_flight() + 1, ns);
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.disk.flush() {
            let message = format!("flush: {error}");
            self.error.get_or_insert(JobError { errno: error.errno(), message });
        }
    }

    /// Notes an error; the first one ends the job.
    #[cold]
    fn fail(&mut self, op: Op, error: IoError) {
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

    fn read_clock(&mut self) -> u64 {
        self.now_ns = self.start.elapsed().as_nanos() as u64;
        self.now_ns
    }
}

/// A buffer per I/O, with data in it if it is to be written as it is.
fn buffers(job: &Job, with_data: bool) -> Vec<Buf> {
    if job.rw.has(Direction::Trim) {
        return Vec::new();
    }
    let mut draws = Xoshiro256::new(job.randseed, u64::MAX);
    let buffer = |_| {
        let mut buf = Buf::new(job.bs as usize);
        if with_data {
            for chunk in buf.chunks_mut(8) {
                chunk.copy_from_slice(&draws.draw().to_le_bytes()[..chunk.len()]);
            }
        }
        buf
    };
    (0..job.iodepth).map(buffer).collect()
}
