//! Queue of the disk for one ring: requests whose data are in the memory of the guest.
//!
//! The guest, and rings on other threads, may change that memory while the disk reads or writes it.
//! [`submit_raw`](forebay::BioQueue::submit_raw) requires that no code does. Here such a change is
//! harmless, because:
//!
//! - No reference to the memory exists. The library passes addresses (`Segment`) to its drivers.
//! - Most drivers pass them to the kernel (`file`, `aio`, `psync`, `nbd` without TLS). The kernel
//!   copies, or a device does, and both expect changes.
//! - `ram`, `model` and `fault` copy through raw pointers (memcpy). They read each byte once and do
//!   not inspect it. So a change only mixes old and new data, which the guest has caused. `null`
//!   does not touch the memory.
//! - `nbd` with TLS encrypts data after it has copied them.
//!
//! The memory stays mapped: each request in flight holds its [`GuestData`], which holds the table.
// This module passes addresses of guest memory to the disk.
#![allow(unsafe_code)]

use super::bounce::{BOUNCE_MAX, Bounce};
use super::registered::Registered;
use crate::export::Export;
use crate::host::{HostBase, WatchedQueue};
use crate::metrics::RingCounters;
use forebay::{
    Bio, BioFlags, BlockStatus, Buf, Completion, Op, Origin, Priority, Segments, SubmitErrorKind,
};
use forebay_front::blk::GuestBytes;
use forebay_front::{Io, Parts};
use forebay_vhost_user::{GuestData, GuestMemory};
use std::rc::Rc;
use std::sync::Arc;

/// A request at the disk.
#[derive(Debug)]
struct InFlight {
    user_data: u64,
    op: Op,
    /// Keeps the memory mapped.
    data: Option<GuestData>,
    /// Length of the copy if the disk has one of the request's memory; otherwise 0.
    bounced: u64,
}

/// A request with a copy that is too long for one buffer. Its parts follow each other, in one
/// buffer.
#[derive(Debug)]
struct LongCopy {
    /// Index of its part in flight.
    index: u64,
    flags: BioFlags,
    /// First byte on the disk of the part in flight.
    offset: u64,
    /// Bytes behind that part.
    left: u64,
    /// Bytes of the parts before it.
    done: u64,
}

/// A request, or a part of one, that was copied and has ended.
struct EndedCopy {
    request: InFlight,
    long: Option<LongCopy>,
    result: Result<u64, BlockStatus>,
    /// `None` if the disk may still use the buffer.
    buf: Option<Buf>,
}

/// The queue.
#[derive(Debug)]
pub(super) struct GuestQueue {
    // Dropped first: that waits until the disk does not use the memory any more.
    queue: WatchedQueue,
    /// Requests at the disk. Their bios have the index as their number.
    in_flight: Vec<Option<InFlight>>,
    free: Vec<u32>,
    bounce: Bounce,
    long_copies: Vec<LongCopy>,
    nr_bios: usize,
    /// Priority of all requests.
    priority: Priority,
    /// The registered memory of the guest, with `--register-memory`.
    registered: Option<Registered>,
    counters: Arc<RingCounters>,
}

impl GuestQueue {
    /// Creates the queue. `registers`: the memory of the guest is registered with the disk.
    pub(super) fn new(export: &Export, registers: bool, counters: Arc<RingCounters>) -> GuestQueue {
        let disk = &export.disk;
        GuestQueue {
            queue: WatchedQueue::new(disk.queue()),
            in_flight: Vec::new(),
            free: Vec::new(),
            bounce: Bounce::new(disk.limits()),
            long_copies: Vec::new(),
            nr_bios: disk.info().policy.nr_bios as usize,
            priority: export.priority,
            registered: registers.then(Registered::default),
            counters,
        }
    }

    /// Registers the memory of the guest, with `--register-memory`. Returns why the kernel refuses
    /// a part of it, if it does.
    pub(super) fn register(&mut self, memory: &Rc<GuestMemory>) -> Option<String> {
        let queue = self.queue.queue();
        // SAFETY: `Registered` keeps the table, which maps the region, beside the registration. It
        // drops the registration first, once no request has the table. If the front end replaces
        // pages, no code has a reference to either: see the head of this module.
        let register = |addr, len| unsafe { queue.register_memory(addr, len) };
        self.registered.as_mut()?.add(memory, register)
    }

    /// Ends the registration of memory that is not used any more, and records how many requests
    /// have used registered memory.
    #[inline]
    pub(super) fn release_unused(&mut self) {
        if let Some(registered) = &mut self.registered {
            if let Some(nr) = registered.nr_requests() {
                self.counters.set_registered(nr);
            }
            registered.release_unused();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.queue().is_empty()
    }

    /// Forgets requests that the disk does not have: their submission has panicked. They would keep
    /// the memory of the guest mapped. Does nothing while I/O is in flight.
    pub(super) fn forget_lost(&mut self) {
        if self.is_empty() && self.free.len() < self.in_flight.len() {
            self.in_flight.clear();
            self.free.clear();
            self.long_copies.clear();
            self.bounce.forget_lost();
        }
    }

    /// Returns whether a reap is due before a wait.
    pub(super) fn wants_reap(&self) -> bool {
        self.queue.queue().wants_reap()
    }

    /// Returns whether the disk accepts `nr` more requests.
    pub(super) fn has_room(&self, nr: usize) -> bool {
        self.queue.queue().len() + nr <= self.nr_bios
    }

    /// Registers the descriptor at epoll: see [`WatchedQueue::watch`].
    pub(super) fn watch(&mut self, host: &HostBase, data: u64) -> bool {
        self.queue.watch(host, data)
    }

    /// Records that the descriptor was reported.
    pub(super) fn note_readable(&mut self) {
        self.queue.note_readable();
    }

    /// Submits a request.
    ///
    /// # Errors
    /// Returns the reason of a refusal, and the memory.
    // Always inlined: otherwise the request is passed through memory.
    #[inline(always)]
    pub(super) fn submit(
        &mut self,
        io: Io<GuestData>,
        now_ns: u64,
    ) -> Result<(), (SubmitErrorKind, Option<GuestData>)> {
        let Io { op, offset, len, flags, user_data, memory } = io;
        if !self.has_room(1) {
            return Err((SubmitErrorKind::WouldBlock, memory));
        }
        let origin = Origin::NONE.with_priority(self.priority);
        let bio = Bio { flags, origin, ..Bio::range(op, offset, len) };
        let Some(mut data) = memory else {
            let in_flight = InFlight { user_data, op, data: None, bounced: 0 };
            return self.submit_bio(in_flight, bio, now_ns);
        };
        if self.bounce.is_needed(data.segments()) {
            return self.submit_bounced((op, user_data), data, bio, now_ns);
        }
        let segments = data.lend();
        let in_flight = InFlight { user_data, op, data: Some(data), bounced: 0 };
        self.submit_bio(in_flight, Bio { segments, ..bio }, now_ns)
    }

    /// Submits a bio with the memory of a request.
    #[inline(always)]
    fn submit_bio(
        &mut self,
        in_flight: InFlight,
        bio: Bio,
        now_ns: u64,
    ) -> Result<(), (SubmitErrorKind, Option<GuestData>)> {
        let index = self.insert(in_flight);
        let bio = Bio { user_data: index, ..bio };
        // SAFETY: the segments were lent by the request's data, which `in_flight` keeps until the
        // completion is reaped, and after the queue is dropped. The module says why changes by the
        // guest are harmless. Addresses of guest memory are exposed.
        let submitted = unsafe { self.queue.queue_mut().submit_raw_at(bio, now_ns) };
        submitted.map_err(|(refusal, bio)| {
            let in_flight = self.remove(index, bio.segments);
            (refusal, in_flight.data)
        })
    }

    /// Submits a copy of a request's memory, or of its first part.
    #[cold]
    fn submit_bounced(
        &mut self,
        request: (Op, u64),
        data: GuestData,
        bio: Bio,
        now_ns: u64,
    ) -> Result<(), (SubmitErrorKind, Option<GuestData>)> {
        let Bio { start: offset, len, flags, .. } = bio;
        let part = len.min(BOUNCE_MAX);
        let buf = match self.bounce.take(part) {
            Ok(buf) => buf,
            Err(refusal) => return Err((refusal, Some(data))),
        };
        let index = self.submit_part(request, (data, buf), (offset, part, flags), now_ns)?;
        self.counters.bounced(len);
        if part < len {
            self.long_copies.push(LongCopy { index, flags, offset, left: len - part, done: 0 });
        }
        Ok(())
    }

    /// Submits a copy of the next part of a request's memory. Returns its index.
    fn submit_part(
        &mut self,
        (op, user_data): (Op, u64),
        (mut data, mut buf): (GuestData, Buf),
        (offset, part, flags): (u64, u64, BioFlags),
        now_ns: u64,
    ) -> Result<u64, (SubmitErrorKind, Option<GuestData>)> {
        let len = part as usize;
        let io = match op {
            Op::Write => {
                data.take_front(&mut buf[..len]);
                forebay::Io::write_part(buf, len, offset)
            }
            _ => forebay::Io::read_part(buf, len, offset),
        };
        let index = self.insert(InFlight { user_data, op, data: Some(data), bounced: part });
        let io = io.priority(self.priority.class(), self.priority.level());
        let io = if flags.contains(BioFlags::FUA) { io.fua() } else { io };
        let submitted = self.queue.queue_mut().submit_at(io.user_data(index), now_ns);
        submitted.map(|()| index).map_err(|error| {
            if let Some(buf) = error.io.into_buf() {
                self.bounce.give(buf);
            }
            (error.kind, self.remove(index, Segments::None).data)
        })
    }

    /// Submits the next part of a long copy, whose last one has ended.
    fn submit_next_part(
        &mut self,
        LongCopy { flags, offset, left, done, .. }: LongCopy,
        InFlight { user_data, op, data, bounced }: InFlight,
        buf: Buf,
    ) -> Result<(), Parts<GuestData>> {
        let (offset, done, part) = (offset + bounced, done + bounced, left.min(BOUNCE_MAX));
        let data = data.expect("a copy has memory");
        let submitted = self.submit_part(
            (op, user_data),
            (data, buf),
            (offset, part, flags),
            forebay::now_ns(),
        );
        match submitted {
            Ok(index) => {
                let left = left - part;
                self.long_copies.push(LongCopy { index, flags, offset, left, done });
                Ok(())
            }
            // The queue has room, because the last part has ended. So the disk has refused it.
            Err((_, data)) => Err((user_data, Err(BlockStatus::Invalid), data)),
        }
    }

    /// Adds a request to those at the disk, and returns its index.
    #[inline(always)]
    fn insert(&mut self, in_flight: InFlight) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            (self.in_flight.len() - 1) as u32
        });
        self.in_flight[index as usize] = Some(in_flight);
        index.into()
    }

    /// Removes a request from those at the disk.
    #[inline]
    fn remove(&mut self, index: u64, segments: Segments) -> InFlight {
        remove(&mut self.in_flight, &mut self.free, index, segments)
    }

    /// Appends the completions. Submits the next parts of long copies.
    #[inline]
    pub(super) fn reap(&mut self, done: &mut Vec<Parts<GuestData>>) {
        let GuestQueue { queue, in_flight, free, long_copies, .. } = self;
        let mut copied = Vec::new();
        queue.reap_all_raw_with(|completion: Completion, segments| {
            let Completion { user_data: index, result, buf, .. } = completion;
            let request = remove(in_flight, free, index, segments);
            if request.bounced > 0 {
                let at = long_copies.iter().position(|copy| copy.index == index);
                let long = at.map(|at| long_copies.swap_remove(at));
                copied.push(EndedCopy { request, long, result, buf });
            } else {
                done.push((request.user_data, result, request.data));
            }
        });
        for copy in copied {
            done.extend(self.end_copy(copy));
        }
    }

    /// Ends a copied request, or submits its next part. Returns its completion if it is over.
    #[cold]
    fn end_copy(&mut self, copy: EndedCopy) -> Option<Parts<GuestData>> {
        let EndedCopy { mut request, long, result, buf } = copy;
        let Some(buf) = buf else {
            // The request has ended early. All parts of a long copy have the buffer of the first.
            self.bounce.leave(if long.is_some() { BOUNCE_MAX } else { request.bounced });
            return Some(completion_of(request, long, result));
        };
        if let (Op::Read, Ok(len), Some(data)) = (request.op, result, &mut request.data) {
            data.fill_front(&buf[..len as usize]);
        }
        match long {
            Some(long) if long.left > 0 && result == Ok(request.bounced) => {
                self.submit_next_part(long, request, buf).err()
            }
            long => {
                self.bounce.give(buf);
                Some(completion_of(request, long, result))
            }
        }
    }
}

/// Returns the completion of a copied request. A long one has moved its earlier parts too.
fn completion_of(
    request: InFlight,
    long: Option<LongCopy>,
    result: Result<u64, BlockStatus>,
) -> Parts<GuestData> {
    let done = long.map_or(0, |long| long.done);
    (request.user_data, result.map(|len| done + len), request.data)
}

/// Removes a request from those at the disk, and returns its segments to its memory.
#[inline(always)]
fn remove(
    in_flight: &mut [Option<InFlight>],
    free: &mut Vec<u32>,
    index: u64,
    segments: Segments,
) -> InFlight {
    let mut removed = in_flight[index as usize].take().expect("a request ends once");
    free.push(index as u32);
    if let (Some(data), 0) = (&mut removed.data, removed.bounced) {
        data.give_back(segments);
    }
    removed
}
