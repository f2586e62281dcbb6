//! Slots of the I/Os in flight, and their buffers.
//!
//! A clone has a slot for each I/O that may be in flight. The number of the slot is the `user_data`
//! of its I/O. A job with reads or writes also has a buffer for each slot, and no buffer is lost,
//! shared, or released while an I/O uses it:
//!
//! - A buffer has one owner at a time: a free slot, the I/O of a slot, or the stock.
//! - A read or write takes the buffer of its slot. Its completion, or its refusal, returns it. Only
//!   the completion of an I/O that has exceeded its time limit returns none, because the device may
//!   still use the memory. The slot gets a new buffer for its next read or write.
//! - A trim has no memory: the buffer of its slot goes to the stock, and the slot becomes free
//!   without one. A read or write in such a slot takes a buffer from the stock.
//!
//! So the stock has one buffer for each slot that has none because of trims. Jobs without trims do
//! not use it.

use std::mem::ManuallyDrop;

use forebay::{Buf, Disk};
use forebay_fio::generator::{Direction, Op};
use forebay_fio::job::Job;

use super::file_buffers::FileBuffers;
use super::memory::{buffers, replacement};

/// The slots of a clone.
#[derive(Debug)]
pub(super) struct Slots {
    /// I/Os in flight, by their numbers.
    ios: Vec<InFlight>,
    free: Vec<Free>,
    /// Slots above the present depth, if a latency target changes it.
    spare: Vec<Free>,
    /// The buffers of slots that have none, because they trim or have trimmed.
    stock: Vec<Buf>,
    /// The registered buffers of further files, if the job wants registered buffers.
    file_buffers: Option<Box<FileBuffers>>,
}

/// The number of a free slot, with its buffer.
#[derive(Debug)]
struct Free {
    slot: u32,
    buf: Option<Buf>,
}

/// The I/O of a slot.
// The parts of the I/O, because a copy of an `Op` would include its padding.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlight {
    offset: u64,
    start_ns: u64,
    issued_ns: u64,
    len: u32,
    file: u16,
    direction: Direction,
}

impl InFlight {
    const IDLE: Self =
        Self { offset: 0, start_ns: 0, issued_ns: 0, len: 0, file: 0, direction: Direction::Read };

    #[inline(always)]
    pub(super) fn new(op: Op, start_ns: u64, issued_ns: u64) -> Self {
        let Op { direction, file, offset, len } = op;
        Self { offset, start_ns, issued_ns, len, file, direction }
    }

    #[inline(always)]
    pub(super) fn op(&self) -> Op {
        let Self { direction, file, offset, len, .. } = *self;
        Op { direction, file, offset, len }
    }

    /// Sets the time of its commit. Returns its direction and its start.
    #[inline(always)]
    pub(super) fn issue(&mut self, now_ns: u64) -> (Direction, u64) {
        self.issued_ns = now_ns;
        (self.direction, self.start_ns)
    }

    /// Returns clat and lat of an I/O that was reaped at `now_ns`: from its commit, and from its
    /// start. slat is the difference of the two.
    #[inline(always)]
    pub(super) fn latencies(&self, now_ns: u64) -> [u64; 2] {
        [now_ns - self.issued_ns, now_ns - self.start_ns]
    }
}

impl Slots {
    /// Allocates the slots of a job, with buffers for the I/O on these disks.
    pub(super) fn new<'a>(job: &Job, first: &Disk, more: impl Iterator<Item = &'a Disk>) -> Self {
        let bufs = buffers(job, first);
        let has_trims = job.rw.has(Direction::Trim);
        let stock = Vec::with_capacity(if has_trims { bufs.len() } else { 0 });
        let bufs = bufs.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        let mut free: Vec<_> =
            (0..job.iodepth).zip(bufs).map(|(slot, buf)| Free { slot, buf }).collect();
        // The first is taken from the end.
        free.reverse();
        Self {
            ios: vec![InFlight::IDLE; job.iodepth as usize],
            free,
            spare: Vec::new(),
            stock,
            file_buffers: FileBuffers::new(job, more),
        }
    }

    /// Limits the I/Os in flight to `depth`, while there are none. It is at most `iodepth`. Returns
    /// whether the depth changed.
    pub(super) fn set_depth(&mut self, depth: u32) -> bool {
        assert!(self.nr_in_flight() == 0, "no I/O uses a slot that is taken away");
        self.free.append(&mut self.spare);
        self.free.sort_by_key(|free| std::cmp::Reverse(free.slot));
        let nr_spare = self.free.len() - depth as usize;
        self.spare.extend(self.free.drain(..nr_spare));
        let is_other = self.ios.len() != depth as usize;
        self.ios.resize(depth as usize, InFlight::IDLE);
        is_other
    }

    /// Returns the number of I/Os in flight.
    #[inline(always)]
    pub(super) fn nr_in_flight(&self) -> u32 {
        (self.ios.len() - self.free.len()) as u32
    }

    /// Returns the number of free slots.
    #[inline(always)]
    pub(super) fn nr_free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free slot, of which there must be one, for a read or write of this file by the job.
    /// Returns its number, and a buffer. [`Slots::give_back`] frees the slot.
    #[inline(always)]
    pub(super) fn take(&mut self, file: u16, job: &Job) -> (u32, Buf) {
        if file > 0 || self.free.last().is_some_and(|free| free.buf.is_none()) {
            self.change_buffer(file, job);
        }
        let Free { slot, buf } = self.free.pop().expect("there is room for the I/O");
        (slot, buf.expect("there is a buffer for each slot"))
    }

    /// Takes a free slot for a trim, and moves its buffer, if any, to the stock. Returns the number
    /// of the slot.
    #[inline(always)]
    pub(super) fn take_for_trim(&mut self) -> u32 {
        let Free { slot, buf } = self.free.pop().expect("there is room for the I/O");
        if let Some(buf) = buf {
            self.put_in_stock(buf);
        }
        slot
    }

    /// Gives the next free slot a buffer for an I/O on this file, if it is not the first, or if the
    /// slot has none.
    // In place, so that the usual path has its buffer in registers.
    #[cold]
    #[inline(never)]
    fn change_buffer(&mut self, file: u16, job: &Job) {
        let Some(free) = self.free.last_mut() else { return };
        let own = free.buf.take();
        let buf = match &mut self.file_buffers {
            Some(buffers) if file > 0 => buffers.borrow(free.slot, file, own),
            _ => own.or_else(|| self.stock.pop()),
        };
        free.buf = buf.or_else(|| Some(replacement(job)));
    }

    #[cold]
    #[inline(never)]
    fn put_in_stock(&mut self, buf: Buf) {
        self.stock.push(buf);
    }

    /// Frees a slot whose I/O on this file has ended, or was refused, with the buffer of the I/O.
    pub(super) fn give_back(&mut self, slot: u32, file: u16, used: Option<Buf>) {
        let buf = match &mut self.file_buffers {
            Some(buffers) if file > 0 => buffers.give_back(slot, file, used),
            _ => used,
        };
        self.free.push(Free { slot, buf });
    }

    /// Does the same for a job with one file.
    #[inline(always)]
    pub(super) fn give_back_of_one_file(&mut self, slot: u32, buf: Option<Buf>) {
        // No code that may panic owns the buffer, so the compiler can keep it in registers.
        let buf = ManuallyDrop::new(buf);
        assert!(self.free.len() < self.free.capacity(), "there is room for each slot");
        self.free.push(Free { slot, buf: ManuallyDrop::into_inner(buf) });
    }

    /// Returns the memory of the I/O whose slot has become free last.
    #[inline(always)]
    pub(super) fn last_block(&self) -> &[u8] {
        self.free.last().and_then(|free| free.buf.as_deref()).unwrap_or_default()
    }

    /// Returns the I/O of a slot.
    #[inline(always)]
    pub(super) fn io(&self, slot: u32) -> &InFlight {
        &self.ios[slot as usize]
    }

    /// Returns the I/O of a slot, to be set.
    #[inline(always)]
    pub(super) fn io_mut(&mut self, slot: u32) -> &mut InFlight {
        &mut self.ios[slot as usize]
    }

    /// Returns whether an I/O in flight overlaps this one.
    pub(super) fn overlaps(&self, next: Op) -> bool {
        let end = |op: Op| op.offset + u64::from(op.len);
        let mut is_free = vec![false; self.ios.len()];
        self.free.iter().for_each(|free| is_free[free.slot as usize] = true);
        let mut in_flight = self.ios.iter().zip(is_free).filter(|(_, is_free)| !is_free);
        in_flight.any(|(io, _)| {
            let op = io.op();
            op.offset < end(next) && next.offset < end(op)
        })
    }
}

#[cfg(test)]
mod tests;
