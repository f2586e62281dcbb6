//! I/O through a queue of completions: fio's main loop.
//!
//! Source: fio's HOWTO, the options `iodepth` to `iodepth_low`, `fsync`. The queue is filled to
//! `iodepth` in batches of `iodepth_batch`; when it is full, at least `iodepth_batch_complete_min`
//! and at most `iodepth_batch_complete_max` I/Os are reaped, until no more than `iodepth_low` are
//! left.
//!
//! Each batch is submitted under an *outer* plug, and each I/O in it under an *inner* one, as a
//! file system that plugs calls a device driver that plugs. With `plug=outermost` the inner ones
//! change nothing; with `plug=per-level` they take the batch apart, which is how that policy shows.
//!
//! The clock is read before each I/O, once after the commit of its batch (slat ends, clat begins),
//! and once after each reaping (clat ends).

use forebay::{BioQueue, Buf, Completion, Disk, Io, IoError, Refusal};
use forebay_fio::generator::{Direction, Op, Stream};
use forebay_fio::job::Job;
use forebay_fio::stats::moments::Moments;

use super::memory::buffers;
use super::tally::Tally;

/// The queue of a clone, and what is in it.
#[derive(Debug)]
pub(super) struct Queued {
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
    /// How long bios waited for a tag that had to, ns.
    tag_waits: Moments,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    op: Op,
    start_ns: u64,
    issued_ns: u64,
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

impl Queued {
    pub(super) fn new(job: &Job, disk: &Disk) -> Self {
        let depth = job.iodepth as usize;
        let idle = Slot {
            op: Op { direction: Direction::Read, offset: 0, len: 0 },
            start_ns: 0,
            issued_ns: 0,
        };
        Self {
            queue: disk.queue(),
            slots: vec![idle; depth],
            free: (0..job.iodepth).rev().collect(),
            bufs: buffers(job, disk),
            batch: Vec::with_capacity(depth),
            done: Vec::with_capacity(depth),
            next: None,
            tag_waits: Moments::new(),
        }
    }

    /// How long those of the bios waited for a tag that had to, ns.
    pub(super) fn tag_waits(&self) -> Moments {
        self.tag_waits
    }

    /// Runs I/Os until there are no more, or the time is over, and reaps all of them. Unless it is
    /// `TIMED`, no clock is read for a single I/O.
    pub(super) fn run<const TIMED: bool>(&mut self, tally: &mut Tally<'_>, ops: &mut impl Stream) {
        let job = tally.job;
        let (min, max) = (job.iodepth_batch_complete_min, job.iodepth_batch_complete_max);
        let mut more = true;
        loop {
            more = more && !tally.is_over() && self.submit_batch::<TIMED>(tally, ops);
            let in_flight = self.in_flight();
            if !more {
                match in_flight {
                    0 => break,
                    rest => self.reap::<TIMED>(tally, rest, rest),
                }
            } else if in_flight == job.iodepth {
                // All I/Os are out; `iodepth_low` says how many may be left.
                while self.in_flight() == job.iodepth || self.in_flight() > job.iodepth_low {
                    self.reap::<TIMED>(tally, min.max(1).min(self.in_flight()), max);
                }
            } else if min == 0 && in_flight > 0 {
                self.reap::<TIMED>(tally, 0, max);
            }
        }
    }

    fn in_flight(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    /// Submits and commits one batch, or what there is room for. Says whether there may be more.
    fn submit_batch<const TIMED: bool>(
        &mut self,
        tally: &mut Tally<'_>,
        ops: &mut impl Stream,
    ) -> bool {
        if tally.is_pause_due {
            // As in fio a flush goes before a further I/O: there is none behind the last.
            let drawn = self.next.map(|op| op.direction);
            let chosen = drawn.or_else(|| ops.direction().map(|mix| tally.choose(mix)));
            let Some(direction) = chosen else { return false };
            tally.pause(direction, self.in_flight(), |tally| {
                while self.in_flight() > 0 {
                    self.reap::<TIMED>(tally, self.in_flight(), self.in_flight());
                }
            });
            if tally.is_over() {
                self.next = None;
                return false;
            }
            self.next = self.next.take().or_else(|| ops.next_as(direction));
        }
        let room = tally.job.iodepth_batch.min(self.free.len() as u32) as usize;
        let mut submitted = Submitted::Yes;
        let outer = forebay::plug();
        // Whatever was due has been done, so one may go, if only in the direction that need not
        // wait.
        while self.batch.len() < room && (self.batch.is_empty() || !tally.is_pause_due) {
            submitted = match self.next.take().or_else(|| ops.next()) {
                Some(op) => {
                    let start_ns = if TIMED { tally.read_clock() } else { 0 };
                    self.submit(tally, op, start_ns)
                }
                None => Submitted::Never,
            };
            if submitted != Submitted::Yes {
                break;
            }
        }
        drop(outer);
        self.commit::<TIMED>(tally);
        if submitted == Submitted::NotNow {
            self.reap::<TIMED>(tally, 1, tally.job.iodepth);
        }
        submitted != Submitted::Never
    }

    /// Submits one I/O. One function for all loops, so that the layer's is inlined here.
    fn submit(&mut self, tally: &mut Tally<'_>, op: Op, start_ns: u64) -> Submitted {
        let slot = self.free.pop().expect("there is room for the batch");
        let io = self.io(tally, op).user_data(slot.into());
        let inner = forebay::plug();
        let submitted = self.queue.submit(io);
        drop(inner);
        if let Err(refused) = submitted {
            self.bufs.extend(refused.io.into_buf());
            self.free.push(slot);
            return self.refuse(tally, op, refused.refusal);
        }
        self.slots[slot as usize] = Slot { op, start_ns, issued_ns: 0 };
        self.batch.push(slot);
        tally.submitted(op);
        Submitted::Yes
    }

    /// With `nr_bios` below `iodepth` the layer takes no more for now: the I/O is tried again after
    /// the next reaping. Every other refusal ends the job.
    #[cold]
    fn refuse(&mut self, tally: &mut Tally<'_>, op: Op, refusal: Refusal) -> Submitted {
        if refusal == Refusal::WouldBlock && self.in_flight() > 0 {
            self.next = Some(op);
            return Submitted::NotNow;
        }
        tally.fail(op, IoError::Refused(refusal));
        Submitted::Never
    }

    fn io(&mut self, tally: &Tally<'_>, op: Op) -> Io {
        if op.direction == Direction::Trim {
            return Io::discard(op.offset, op.len.into());
        }
        let mut buf = self.bufs.pop().expect("a buffer for every slot");
        if op.direction == Direction::Read {
            return Io::read_part(buf, op.len as usize, op.offset);
        }
        if tally.fills {
            tally.fill(&mut buf[..op.len as usize], op.offset);
        }
        Io::write_part(buf, op.len as usize, op.offset)
    }

    /// The batch has been let through: its submission latencies end here.
    #[inline(always)]
    fn commit<const TIMED: bool>(&mut self, tally: &mut Tally<'_>) {
        if self.batch.is_empty() {
            return;
        }
        tally.stats.record_submit(self.batch.len() as u32, self.in_flight());
        if !TIMED {
            self.batch.clear();
            return;
        }
        let now_ns = tally.read_clock();
        if tally.job.measures.slat_percentiles {
            for slot in self.batch.iter().map(|&slot| &self.slots[slot as usize]) {
                let stats = &mut tally.stats.directions[slot.op.direction.index()];
                stats.slat_histogram.record(now_ns - slot.start_ns);
            }
        }
        for slot in self.batch.drain(..) {
            let slot = &mut self.slots[slot as usize];
            slot.issued_ns = now_ns;
            tally.stats.record_slat(slot.op.direction, now_ns - slot.start_ns);
        }
    }

    #[inline(always)]
    fn take(&mut self, min: u32, max: u32, done: &mut Vec<Completion>) -> usize {
        self.queue.reap(min as usize, max as usize, done)
    }

    fn reap<const TIMED: bool>(&mut self, tally: &mut Tally<'_>, min: u32, max: u32) {
        let mut done = std::mem::take(&mut self.done);
        let reaped = self.take(min, max, &mut done);
        let now_ns = if TIMED { tally.read_clock() } else { tally.read_clock_seldom() };
        tally.stats.record_reap(reaped as u32);
        for completion in done.drain(..) {
            self.end::<TIMED>(tally, completion, now_ns);
        }
        self.done = done;
        tally.stats.tick(now_ns);
        tally.gauge.set(&tally.stats);
        tally.make_room();
    }

    #[inline]
    fn end<const TIMED: bool>(
        &mut self,
        tally: &mut Tally<'_>,
        completion: Completion,
        now_ns: u64,
    ) {
        let Completion { user_data, result, buf, tag_wait_ns, .. } = completion;
        let Slot { op, start_ns, issued_ns } = self.slots[user_data as usize];
        self.free.push(user_data as u32);
        if let Some(ns) = tag_wait_ns {
            self.tag_waits.record(ns);
        }
        match result {
            Ok(moved) => {
                let block = buf.as_deref().unwrap_or_default();
                let (clat_ns, lat_ns) =
                    if TIMED { (now_ns - issued_ns, now_ns - start_ns) } else { (0, 0) };
                tally.end::<TIMED>(op, moved, clat_ns, lat_ns, block);
            }
            Err(status) => tally.fail(op, IoError::Ended(status)),
        }
        self.bufs.extend(buf);
    }
}
