//! I/O through a queue of completions: fio's main loop.
//!
//! Source: fio's HOWTO, the options `iodepth` to `iodepth_low`, `fsync`. The queue is filled to
//! `iodepth` in batches of `iodepth_batch`; when it is full, at least `iodepth_batch_complete_min`
//! and at most `iodepth_batch_complete_max` I/Os are reaped, until no more than `iodepth_low` are
//! left.
//!
//! Each batch of several I/Os is submitted under an *outer* plug, and each I/O in it under an
//! *inner* plug, like a file system that plugs above a device driver that plugs. With
//! `plug=outermost` the inner plugs have no effect. With `plug=per-level` they flush the batch
//! piece by piece, which makes the policy visible.
//!
//! The clock is read before each I/O, once after the commit of its batch (slat ends, clat begins),
//! and once after each reap (clat ends). If one I/O was reaped and one follows, the end of the
//! first is the start of the second, whose slat then includes the accounting of the first.

use forebay::{BioQueue, Buf, Completion, Disk, Io, IoError, SubmitErrorKind};
use forebay_fio::generator::{Direction, Op, Stream};
use forebay_fio::job::Job;
use forebay_fio::stats::moments::Moments;
use std::mem::ManuallyDrop;

use super::memory::buffers;
use super::tally::Tally;

/// The queue of a clone, and its I/Os.
#[derive(Debug)]
pub(super) struct Queued {
    queue: BioQueue,
    /// I/Os in flight, by their numbers.
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The buffers of the slots that are free.
    bufs: Vec<Option<Buf>>,
    /// Slots of the batch that is not yet committed.
    batch: Vec<u32>,
    /// The next I/O, if it is known: it was drawn before a pause, or the layer had no room for it.
    next: Option<Op>,
    /// Waits of bios for a tag, ns.
    tag_waits: Moments,
    /// Whether at most one completion has been processed since the clock was read.
    is_fresh: bool,
    /// Whether the layer records latencies.
    iostats: bool,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    op: Op,
    start_ns: u64,
    issued_ns: u64,
}

impl Slot {
    /// Returns clat and lat of an I/O that was reaped at `now_ns`: from its commit, and from its
    /// start. slat is the difference of the two.
    #[inline(always)]
    fn latencies(&self, now_ns: u64) -> [u64; 2] {
        [now_ns - self.issued_ns, now_ns - self.start_ns]
    }
}

impl Slot {
    /// Ends the submission latency of an I/O that was committed at `now_ns`.
    #[inline(always)]
    fn commit(&mut self, tally: &mut Tally<'_>, now_ns: u64) {
        self.issued_ns = now_ns;
        let slat_ns = now_ns - self.start_ns;
        tally.stats.record_slat(self.op.direction, slat_ns);
        if tally.job.measures.slat_percentiles {
            let stats = &mut tally.stats.directions[self.op.direction.index()];
            stats.slat_histogram.record(slat_ns);
        }
    }
}

/// The outcome of an attempt to submit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Submitted {
    /// In this slot.
    Yes(u32),
    /// There is no room until I/Os are reaped.
    NotNow,
    /// There are no more I/Os, or this one was refused for good.
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
            bufs: buffers(job, disk).into_iter().map(Some).collect(),
            batch: Vec::with_capacity(depth),
            next: None,
            tag_waits: Moments::new(),
            is_fresh: false,
            iostats: disk.info().policy.iostats,
        }
    }

    /// Returns the waits of bios for a tag, ns.
    pub(super) fn tag_waits(&self) -> Moments {
        self.tag_waits
    }

    /// Runs I/Os until there are no more or the time is over, and reaps all of them. Without
    /// `TIMED` the clock is not read for each I/O.
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
                // All I/Os are in flight; `iodepth_low` limits how many may be left.
                let mut left = in_flight;
                while left == job.iodepth || left > job.iodepth_low {
                    self.reap::<TIMED>(tally, min.max(1).min(left), max);
                    left = self.in_flight();
                }
            } else if min == 0 && in_flight > 0 {
                self.reap::<TIMED>(tally, 0, max);
            }
        }
    }

    fn in_flight(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    /// Submits and commits one batch, or as much as there is room for. Returns whether there may be
    /// more.
    fn submit_batch<const TIMED: bool>(
        &mut self,
        tally: &mut Tally<'_>,
        ops: &mut impl Stream,
    ) -> bool {
        if tally.is_pause_due {
            self.is_fresh = false;
            // As in fio, a flush precedes another I/O: there is none after the last one.
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
        if room == 1 {
            return self.submit_one::<TIMED>(tally, ops);
        }
        let mut more = true;
        let mut is_full = false;
        let outer = forebay::plug();
        // All pauses that were due are over, so at least one I/O may be submitted.
        while self.batch.len() < room && (self.batch.is_empty() || !tally.is_pause_due) {
            match self.submit_next::<TIMED>(tally, ops, true) {
                Submitted::Yes(slot) => self.batch.push(slot),
                Submitted::NotNow => {
                    is_full = true;
                    break;
                }
                Submitted::Never => {
                    more = false;
                    break;
                }
            }
        }
        drop(outer);
        self.commit::<TIMED>(tally);
        if is_full {
            self.reap::<TIMED>(tally, 1, tally.job.iodepth);
        }
        more
    }

    /// Submits and commits one I/O, if there is room for it. Returns whether there may be more. It
    /// needs no plug: a single I/O has no adjacent I/O to merge with.
    #[inline(always)]
    fn submit_one<const TIMED: bool>(
        &mut self,
        tally: &mut Tally<'_>,
        ops: &mut impl Stream,
    ) -> bool {
        match self.submit_next::<TIMED>(tally, ops, false) {
            Submitted::Yes(slot) => {
                tally.stats.record_submit(1, self.in_flight());
                if TIMED {
                    let now_ns = tally.read_clock();
                    self.slots[slot as usize].commit(tally, now_ns);
                }
                true
            }
            Submitted::NotNow => {
                self.reap::<TIMED>(tally, 1, tally.job.iodepth);
                true
            }
            Submitted::Never => false,
        }
    }

    /// Submits the next I/O, if there is one. If `plugs`, it has a plug of its own.
    #[inline(always)]
    fn submit_next<const TIMED: bool>(
        &mut self,
        tally: &mut Tally<'_>,
        ops: &mut impl Stream,
        plugs: bool,
    ) -> Submitted {
        let op = match self.next.take() {
            Some(op) => op,
            None => match ops.next() {
                Some(op) => op,
                None => return Submitted::Never,
            },
        };
        let start_ns = match TIMED {
            true if self.is_fresh => tally.now_ns,
            true => tally.read_clock(),
            false => 0,
        };
        self.is_fresh = false;
        let now_ns = match TIMED {
            true => tally.layer_ns(start_ns),
            // For the layer's own latencies.
            false if self.iostats => forebay::now_ns(),
            false => 0,
        };
        self.submit(tally, op, [start_ns, now_ns], plugs)
    }

    /// Submits one I/O. All loops share this function, so that the layer's submit is inlined only
    /// once.
    fn submit(
        &mut self,
        tally: &mut Tally<'_>,
        op: Op,
        [start_ns, now_ns]: [u64; 2],
        plugs: bool,
    ) -> Submitted {
        let slot = self.free.pop().expect("there is room for the batch");
        let io = self.io(tally, op, slot).user_data(slot.into());
        let inner = plugs.then(forebay::plug);
        let submitted = self.queue.submit_at(io, now_ns);
        drop(inner);
        if let Err(refused) = submitted {
            if let Some(buf) = refused.io.into_buf() {
                self.bufs[slot as usize] = Some(buf);
            }
            self.free.push(slot);
            return self.refuse(tally, op, refused.kind);
        }
        self.slots[slot as usize] = Slot { op, start_ns, issued_ns: 0 };
        tally.submitted(op);
        Submitted::Yes(slot)
    }

    /// Handles a refusal. With `nr_bios` below `iodepth` the layer has no room: the I/O is
    /// submitted again after the next reaping. Any other refusal ends the job.
    #[cold]
    fn refuse(&mut self, tally: &mut Tally<'_>, op: Op, refusal: SubmitErrorKind) -> Submitted {
        if refusal == SubmitErrorKind::WouldBlock && self.in_flight() > 0 {
            self.next = Some(op);
            return Submitted::NotNow;
        }
        tally.fail(op, IoError::Refused(refusal));
        Submitted::Never
    }

    #[inline(always)]
    fn io(&mut self, tally: &Tally<'_>, op: Op, slot: u32) -> Io {
        if op.direction == Direction::Trim {
            return Io::discard(op.offset, op.len.into());
        }
        let mut buf = self.bufs[slot as usize].take().expect("a buffer for every slot");
        if op.direction == Direction::Read {
            return Io::read_part(buf, op.len as usize, op.offset);
        }
        if tally.fills {
            tally.fill(&mut buf[..op.len as usize], op.offset);
        }
        Io::write_part(buf, op.len as usize, op.offset)
    }

    /// Ends the submission latencies of the batch, which has been committed.
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
        for slot in self.batch.drain(..) {
            self.slots[slot as usize].commit(tally, now_ns);
        }
    }

    fn reap<const TIMED: bool>(&mut self, tally: &mut Tally<'_>, min: u32, max: u32) {
        let Self { queue, slots, free, bufs, tag_waits, .. } = self;
        // One time stamp for all, read after the reaping.
        let mut stamp = None;
        let reaped = queue.reap_with(min as usize, max as usize, |completion| {
            let Completion { user_data, result, buf, tag_wait_ns, .. } = completion;
            let at = user_data as usize;
            // A destructor of `buf` would need its address, and so a copy in memory.
            let buf = ManuallyDrop::new(buf);
            let now_ns = *stamp.get_or_insert_with(|| tally.read_clock_for::<TIMED>());
            let slot = &slots[at];
            let op = slot.op;
            free.push(user_data as u32);
            if let Some(ns) = tag_wait_ns {
                tag_waits.record(ns);
            }
            match result {
                Ok(moved) => {
                    let latencies = if TIMED { slot.latencies(now_ns) } else { [0; 2] };
                    let block = || buf.as_deref().unwrap_or_default();
                    tally.end::<TIMED>(op, moved, latencies, block);
                }
                Err(status) => tally.fail(op, IoError::Ended(status)),
            }
            if buf.is_some() {
                bufs[at] = ManuallyDrop::into_inner(buf);
            }
        });
        if stamp.is_none() {
            tally.read_clock_for::<TIMED>();
        }
        tally.stats.record_reap(reaped as u32);
        tally.stats.tick(tally.now_ns);
        tally.show();
        tally.make_room();
        self.is_fresh = reaped <= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_a_fixed_trace_are_exact() {
        let op = Op { direction: Direction::Read, offset: 0, len: 4096 };
        // Start, commit and reap time of each I/O, followed by clat and lat.
        for (start_ns, issued_ns, now_ns, expected) in [
            (1_000, 1_250, 9_000, [7_750, 8_000]),
            (5_000, 5_000, 5_001, [1, 1]),
            (0, 300, 300, [0, 300]),
            (0, 0, 0, [0, 0]),
        ] {
            let latencies = Slot { op, start_ns, issued_ns }.latencies(now_ns);
            assert_eq!(latencies, expected);
            let slat_ns = issued_ns - start_ns;
            assert_eq!(latencies[0] + slat_ns, latencies[1]);
        }
    }
}
