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

use forebay::cold_path;
use forebay::{BioQueue, Buf, Completion, Disk, Io, IoError, Owner, SubmitError, SubmitErrorKind};
use forebay_fio::generator::{Direction, Op, Stream};
use forebay_fio::job::Job;
use forebay_fio::stats::moments::Moments;
use std::marker::PhantomData;

use super::priority::Prioritiser;
use super::queues::Queues;
use super::slots::{InFlight, Slots};
use super::tally::Tally;
use super::tally::pauses::Reap;

/// The queue of a clone, and its I/Os.
#[derive(Debug)]
pub(super) struct Queued {
    /// The queue of the first file.
    queue: BioQueue,
    /// The owner of the I/Os, if it has limits or a weight.
    owner: Option<Owner>,
    /// The queues of further files.
    more: Option<Box<Queues>>,
    /// The I/Os in flight, and their buffers.
    slots: Slots,
    /// The most I/Os in flight at the present depth.
    peak: u32,
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
    /// Sets the priorities of I/Os, if not all have the usual one.
    priorities: Option<Box<Prioritiser>>,
}

/// Records the submission latency of an I/O that was committed at `now_ns`.
#[inline(always)]
fn commit(tally: &mut Tally<'_>, direction: Direction, start_ns: u64, now_ns: u64) {
    let slat_ns = now_ns - start_ns;
    tally.stats.record_slat(direction, slat_ns);
    if tally.job.measures.slat_percentiles {
        tally.stats.directions[direction.index()].slat_histogram.record(slat_ns);
    }
}

impl Queued {
    pub(super) fn new(
        job: &Job,
        disks: &[(&Disk, Option<&Owner>)],
        priorities: Option<Prioritiser>,
    ) -> Self {
        let (disk, owner) = disks[0];
        Self {
            queue: disk.queue(),
            owner: owner.cloned(),
            more: Queues::new(&disks[1..]),
            slots: Slots::new(job, disk, disks[1..].iter().map(|(disk, _)| *disk)),
            peak: 0,
            batch: Vec::with_capacity(job.iodepth as usize),
            next: None,
            tag_waits: Moments::new(),
            is_fresh: false,
            iostats: disk.info().policy.iostats,
            priorities: priorities.map(Box::new),
        }
    }

    /// Returns the waits of bios for a tag, ns.
    pub(super) fn tag_waits(&self) -> Moments {
        self.tag_waits
    }

    /// Limits the I/Os in flight to `depth`, while there are none. It is at most `iodepth`.
    pub(super) fn set_depth(&mut self, depth: u32) {
        if self.slots.set_depth(depth) {
            self.peak = 0;
        }
    }

    /// Forgets the next I/O, if it is known. It belongs to a phase that has ended.
    pub(super) fn forget_next(&mut self) {
        self.next = None;
    }

    /// Returns the most I/Os that were in flight since the last change of the depth.
    pub(super) fn peak(&self) -> u32 {
        self.peak
    }

    /// Runs I/Os until there are no more or the time is over, and reaps all of them. Without
    /// `TIMED` the clock is not read for each I/O.
    // Not inlined: the loop needs all registers.
    #[inline(never)]
    pub(super) fn run<const TIMED: bool, S: Stream>(&mut self, tally: &mut Tally<'_>, ops: &mut S) {
        let job = tally.job;
        let (min, max) = (job.iodepth_batch_complete_min, job.iodepth_batch_complete_max);
        let mut more = true;
        loop {
            more = more && !tally.is_over() && self.submit_batch::<TIMED>(tally, ops);
            let in_flight = self.in_flight();
            if !more {
                match in_flight {
                    0 => break,
                    rest => self.reap_now::<TIMED>(tally, rest, rest),
                }
            } else if self.slots.nr_free() == 0 {
                // All I/Os are in flight; `iodepth_low` limits how many may be left.
                let mut left = in_flight;
                while self.slots.nr_free() == 0 || left > job.iodepth_low {
                    self.reap::<TIMED, S>(tally, min.max(1).min(left), max, PhantomData);
                    left = self.in_flight();
                }
            } else if min == 0 && in_flight > 0 {
                self.reap_now::<TIMED>(tally, 0, max);
            }
        }
    }

    /// Counts a batch of `len` I/Os that have just been submitted.
    #[inline(always)]
    fn record_submit(&mut self, tally: &mut Tally<'_>, len: u32) {
        let in_flight = self.in_flight();
        self.peak = self.peak.max(in_flight);
        tally.stats.record_submit(len, in_flight);
    }

    fn in_flight(&self) -> u32 {
        self.slots.nr_in_flight()
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
            let chosen = drawn.or_else(|| {
                let mix = ops.direction()?;
                Some(ops.possible_direction(tally.choose(mix)))
            });
            let Some(direction) = chosen else { return false };
            tally.pause(direction, self.in_flight(), |tally, reap| {
                match (reap, self.in_flight()) {
                    (_, 0) => {}
                    (Reap::Ended, rest) => self.reap_now::<TIMED>(tally, 0, rest),
                    (Reap::All, _) => {
                        while self.in_flight() > 0 {
                            self.reap_now::<TIMED>(tally, self.in_flight(), self.in_flight());
                        }
                    }
                }
            });
            // The next I/O stays, if it is known: the next window of a search for a depth submits
            // it, and another phase forgets it.
            if tally.is_over() {
                return false;
            }
            self.next = self.next.take().or_else(|| ops.next_as(direction));
            if tally.job.serialize_overlap {
                self.reap_overlapping::<TIMED>(tally);
                if tally.is_over() {
                    return false;
                }
            }
        }
        // There is room for one.
        let room = match tally.job.iodepth_batch {
            1 => 1,
            batch => self.slots.nr_free().min(batch as usize),
        };
        if room == 1 {
            return self.submit_one::<TIMED>(tally, ops);
        }
        let mut more = true;
        let mut is_full = false;
        let outer = forebay::plug();
        // All pauses that were due are over, so at least one I/O may be submitted.
        while self.batch.len() < room && (self.batch.is_empty() || !tally.is_pause_due) {
            let Some((op, times)) = self.next_op::<TIMED>(tally, ops) else {
                more = false;
                break;
            };
            match self.submit_plugged(tally, &op, times[1]) {
                Ok(slot) => {
                    *self.slots.io_mut(slot) = InFlight::new(op, times[0], 0);
                    self.batch.push(slot);
                    tally.submitted(op);
                }
                Err(refusal) => {
                    is_full = self.refuse(tally, op, refusal);
                    more = is_full;
                    break;
                }
            }
        }
        drop(outer);
        self.commit::<TIMED>(tally);
        if is_full {
            self.reap_now::<TIMED>(tally, 1, tally.job.iodepth);
        }
        more
    }

    /// Reaps until no I/O in flight overlaps the next one.
    #[cold]
    fn reap_overlapping<const TIMED: bool>(&mut self, tally: &mut Tally<'_>) {
        let Some(next) = self.next else { return };
        while self.slots.overlaps(next) {
            self.reap_now::<TIMED>(tally, 1, tally.job.iodepth);
        }
    }

    /// Submits and commits one I/O, if there is room for it. Returns whether there may be more. It
    /// needs no plug: a single I/O has no adjacent I/O to merge with.
    #[inline(always)]
    fn submit_one<const TIMED: bool>(
        &mut self,
        tally: &mut Tally<'_>,
        ops: &mut impl Stream,
    ) -> bool {
        let Some((op, times)) = self.next_op::<TIMED>(tally, ops) else { return false };
        match self.submit(tally, &op, times[1]) {
            Ok(slot) => {
                tally.submitted(op);
                self.record_submit(tally, 1);
                let now_ns = if TIMED { tally.read_clock() } else { 0 };
                *self.slots.io_mut(slot) = InFlight::new(op, times[0], now_ns);
                if TIMED {
                    commit(tally, op.direction, times[0], now_ns);
                }
                true
            }
            Err(refusal) => {
                cold_path();
                let is_full = self.refuse(tally, op, refusal);
                if is_full {
                    self.reap_now::<TIMED>(tally, 1, tally.job.iodepth);
                }
                is_full
            }
        }
    }

    /// Returns the next I/O, if there is one, with its start: ns since the start of the clone, and
    /// by the layer's clock.
    #[inline(always)]
    fn next_op<const TIMED: bool>(
        &mut self,
        tally: &mut Tally<'_>,
        ops: &mut impl Stream,
    ) -> Option<(Op, [u64; 2])> {
        let op = match self.next.is_some() {
            true => self.next.take()?,
            false => ops.next()?,
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
        Some((op, [start_ns, now_ns]))
    }

    /// Submits one I/O of a batch, under a plug of its own. All loops share this function, so that
    /// the layer's submit is inlined only once for them.
    #[inline(never)]
    fn submit_plugged(
        &mut self,
        tally: &Tally<'_>,
        op: &Op,
        now_ns: u64,
    ) -> Result<u32, SubmitErrorKind> {
        let inner = forebay::plug();
        let submitted = self.submit(tally, op, now_ns);
        drop(inner);
        submitted
    }

    /// Submits one I/O, which has started at this time of the layer's clock. Returns its slot,
    /// which the caller fills.
    #[inline(always)]
    fn submit(&mut self, tally: &Tally<'_>, op: &Op, now_ns: u64) -> Result<u32, SubmitErrorKind> {
        let (slot, io) = if op.direction == Direction::Trim {
            (self.slots.take_for_trim(), Io::discard(op.offset, op.len.into()))
        } else {
            let (slot, buf) = self.slots.take(op.file, tally.job);
            (slot, transfer(tally, op, buf))
        };
        let mut io = io.user_data(slot.into());
        if let Some(priorities) = &mut self.priorities {
            io = priorities.apply(io, op, slot);
        }
        let submitted = match &self.owner {
            _ if op.file > 0 => self.submit_to_more(op.file, io, now_ns),
            None => self.queue.submit_at(io, now_ns),
            Some(owner) => self.queue.submit_for_at(owner, io, now_ns),
        };
        if let Err(refused) = submitted {
            cold_path();
            self.slots.give_back(slot, op.file, refused.io.into_buf());
            return Err(refused.kind);
        }
        Ok(slot)
    }

    /// Submits to the queue of a file after the first.
    #[cold]
    #[inline(never)]
    fn submit_to_more(&mut self, file: u16, io: Io, now_ns: u64) -> Result<(), SubmitError> {
        self.more.as_mut().expect("several files").submit(file, io, now_ns)
    }

    /// Handles a refusal. With `nr_bios` below `iodepth` the layer has no room: the I/O is
    /// submitted again after the next reaping, and the result is true. Any other refusal ends the
    /// job.
    #[cold]
    fn refuse(&mut self, tally: &mut Tally<'_>, op: Op, refusal: SubmitErrorKind) -> bool {
        if refusal == SubmitErrorKind::WouldBlock && self.in_flight() > 0 {
            self.next = Some(op);
            if let Some(priorities) = &mut self.priorities {
                priorities.repeat();
            }
            return true;
        }
        tally.fail(op, IoError::Refused(refusal));
        false
    }

    /// Ends the submission latencies of the batch, which has been committed.
    #[inline(always)]
    fn commit<const TIMED: bool>(&mut self, tally: &mut Tally<'_>) {
        if self.batch.is_empty() {
            return;
        }
        self.record_submit(tally, self.batch.len() as u32);
        if !TIMED {
            self.batch.clear();
            return;
        }
        let now_ns = tally.read_clock();
        for slot in self.batch.drain(..) {
            let (direction, start_ns) = self.slots.io_mut(slot).issue(now_ns);
            commit(tally, direction, start_ns, now_ns);
        }
    }

    /// Reaps outside of the loop of [`Queued::run`], into which [`Queued::reap`] is inlined.
    #[inline(never)]
    fn reap_now<const TIMED: bool>(&mut self, tally: &mut Tally<'_>, min: u32, max: u32) {
        self.reap::<TIMED, ()>(tally, min, max, PhantomData);
    }

    /// Reaps between `min` and `max` I/Os. Each stream `S` has a copy of its own, so the closure
    /// has one caller, and the compiler inlines it.
    #[inline(always)]
    fn reap<const TIMED: bool, S>(
        &mut self,
        tally: &mut Tally<'_>,
        min: u32,
        max: u32,
        _: PhantomData<S>,
    ) {
        if self.more.is_some() {
            return self.reap_files::<TIMED>(tally, min, max);
        }
        let Self { queue, slots, tag_waits, priorities, .. } = self;
        // One time stamp for all, read after the reaping.
        let mut stamp = None;
        let reaped = queue.reap_with(min as usize, max as usize, |completion| {
            let Completion { user_data, result, buf, tag_wait_ns, .. } = completion;
            let now_ns = *stamp.get_or_insert_with(|| tally.read_clock_for::<TIMED>());
            slots.give_back_of_one_file(user_data as u32, buf);
            let io = slots.io(user_data as u32);
            let op = io.op();
            if let Some(ns) = tag_wait_ns {
                tag_waits.record(ns);
            }
            match result {
                Ok(moved) => {
                    let latencies = if TIMED { io.latencies(now_ns) } else { [0; 2] };
                    let block = || slots.last_block();
                    let ioprio = || ioprio(priorities, user_data);
                    tally.end::<TIMED>(op, moved, latencies, ioprio, block);
                }
                Err(status) => tally.fail(op, IoError::Ended(status)),
            }
        });
        if stamp.is_none() {
            tally.read_clock_for::<TIMED>();
        }
        tally.stats.record_reap(reaped as u32);
        tally.tick();
        self.is_fresh = reaped <= 1;
    }

    /// Reaps from the queues of several files.
    #[cold]
    #[inline(never)]
    fn reap_files<const TIMED: bool>(&mut self, tally: &mut Tally<'_>, min: u32, max: u32) {
        let Self { queue, more, slots, tag_waits, priorities, .. } = self;
        let more = more.as_mut().expect("several files");
        let mut stamp = None;
        let reaped = more.reap(queue, min as usize, max as usize, &mut |completion| {
            let Completion { user_data, result, buf, tag_wait_ns, .. } = completion;
            let now_ns = *stamp.get_or_insert_with(|| tally.read_clock_for::<TIMED>());
            let io = *slots.io(user_data as u32);
            if let Some(ns) = tag_wait_ns {
                tag_waits.record(ns);
            }
            match result {
                Ok(moved) => {
                    let latencies = if TIMED { io.latencies(now_ns) } else { [0; 2] };
                    let block = || buf.as_deref().unwrap_or_default();
                    let ioprio = || ioprio(priorities, user_data);
                    tally.end::<TIMED>(io.op(), moved, latencies, ioprio, block);
                }
                Err(status) => tally.fail(io.op(), IoError::Ended(status)),
            }
            slots.give_back(user_data as u32, io.op().file, buf);
        });
        if stamp.is_none() {
            tally.read_clock_for::<TIMED>();
        }
        tally.stats.record_reap(reaped as u32);
        tally.tick();
        self.is_fresh = reaped <= 1;
    }
}

/// Returns the priority of the I/O in a slot; 0 if it has none.
fn ioprio(priorities: &Option<Box<Prioritiser>>, slot: u64) -> u16 {
    priorities.as_ref().map_or(0, |priorities| priorities.of_slot(slot as u32))
}

/// Returns a read or write with its buffer.
#[inline(always)]
pub(super) fn transfer(tally: &Tally<'_>, op: &Op, mut buf: Buf) -> Io {
    if op.direction == Direction::Read {
        return Io::read_part(buf, op.len as usize, op.offset);
    }
    if tally.fills {
        tally.fill(&mut buf[..op.len as usize], op);
    }
    Io::write_part(buf, op.len as usize, op.offset)
}
