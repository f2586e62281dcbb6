//! The software queue: it checks, plugs and merges the bios of one thread for one disk.
//!
//! Counterpart in Linux: `struct blk_mq_ctx`, with the part of `struct blk_plug` that belongs to
//! one disk.
//!
//! Most bios are *plain*: a read or write of one segment that fits one request and carries no flag.
//! The consequences of the limits for such bios are computed once per disk. Each then costs a few
//! comparisons. All other bios take the full rules ([`QueueLimits::check`], [`crate::split`]).

use crate::bio::{Bio, BioFlags, Op, Segments};
use crate::hint::cold_path;
use crate::limits::submit_error::SubmitErrorKind;
use crate::limits::{QueueLimits, sectors_to_bytes};
use crate::plug::{PlugList, UnplugCause};
use crate::policy::{MergePolicy, PlugPolicy, Policy};
use crate::request::{ChainSegments, QueuedBio, Request};
use crate::split;
use crate::stats::PlugCounters;
use crate::trace::{Trace, TraceEvent, TraceRecord, TraceWriter};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::{Drain, Vec};

/// The plug of one thread for one disk, and the outgoing requests that have left the plug and not
/// yet reached a hardware context.
#[derive(Debug)]
pub struct SoftwareQueue {
    limits: QueueLimits,
    fast_path: FastPath,
    /// The highest plug level that matters: all under `plug=per-level`, one under other policies
    /// that plug.
    level_max: u32,
    nomerges: MergePolicy,
    /// Flags that have no effect on this disk and are removed, because they would prevent merges.
    ignored: BioFlags,
    list: PlugList,
    /// Whether a request in the queue is marked NOWAIT, or is not a single command for all of its
    /// data.
    has_special: bool,
    counters: Arc<PlugCounters>,
    trace: Trace,
}

impl SoftwareQueue {
    /// Creates an empty queue.
    ///
    /// # Panics
    /// Panics if `limits` contradict themselves.
    pub fn new(limits: QueueLimits, policy: Policy, counters: Arc<PlugCounters>) -> SoftwareQueue {
        assert!(limits.validate().is_ok(), "limits are checked at open");
        SoftwareQueue {
            limits,
            fast_path: FastPath::of(&limits),
            level_max: match policy.plug {
                PlugPolicy::None => 0,
                PlugPolicy::PerLevel => u32::MAX,
                PlugPolicy::Outermost => 1,
            },
            nomerges: policy.nomerges,
            ignored: match policy.io_timeout_ns {
                0 => BioFlags::OWNED,
                _ => BioFlags::NONE,
            },
            list: PlugList::new(policy.queue_depth),
            has_special: false,
            counters,
            trace: Trace::default(),
        }
    }

    /// Records the stages of bios from now on, or no longer: of those that
    /// [`queue_traced_bio`](Self::queue_traced_bio) queues. See [`TraceEvent`].
    #[cold]
    pub fn set_trace(&mut self, writer: Option<TraceWriter>) {
        self.trace.set(writer);
    }

    /// Returns whether the stages of bios are recorded, and the reader of the records has not
    /// ended.
    pub fn is_traced(&self) -> bool {
        self.trace.is_read()
    }

    /// Returns whether the queue has a writer of records: for a reader, or for a probe only.
    pub fn has_trace(&self) -> bool {
        self.trace.is_on()
    }

    /// Returns whether any bio waits in the plug.
    #[inline]
    pub fn is_plugged(&self) -> bool {
        self.list.nr_plugged() > 0
    }

    /// Accepts bios up to this size of the disk from now on, which is whole blocks. Returns whether
    /// that is more than before. A smaller size changes nothing, and neither does any size if the
    /// disk has no fixed one.
    #[cold]
    pub fn grow(&mut self, capacity_bytes: u64) -> bool {
        if self.limits.capacity_bytes.is_none_or(|before| before >= capacity_bytes) {
            return false;
        }
        assert!(capacity_bytes.is_multiple_of(self.limits.logical_block_size.into()));
        self.limits.capacity_bytes = Some(capacity_bytes);
        self.fast_path = FastPath::of(&self.limits);
        true
    }

    /// Queues a bio. It then waits in the plug, merged or not, or is outgoing. If the plug was
    /// full, older requests become outgoing.
    ///
    /// `level` is the plug level of the caller, starting at 1, or 0 if no plug is open. `now` is a
    /// time in nanoseconds of any monotonic clock.
    ///
    /// # Errors
    /// Returns the reason and the bio if the bio is refused.
    // Always inlined: otherwise the result is returned through memory.
    #[inline(always)]
    pub fn queue_bio(
        &mut self,
        queued: Box<QueuedBio>,
        level: u32,
        now: u64,
    ) -> Result<(), (SubmitErrorKind, Box<QueuedBio>)> {
        self.queue::<false>(queued, level, now)
    }

    /// Same as [`queue_bio`](Self::queue_bio), and records the stages of the bio if the queue has a
    /// trace. A function of its own, because the caller of the other one has to test anyway whether
    /// a trace has begun.
    ///
    /// # Errors
    /// Same as [`queue_bio`](Self::queue_bio).
    #[cold]
    pub fn queue_traced_bio(
        &mut self,
        queued: Box<QueuedBio>,
        level: u32,
        now: u64,
    ) -> Result<(), (SubmitErrorKind, Box<QueuedBio>)> {
        self.queue::<true>(queued, level, now)
    }

    #[inline(always)]
    fn queue<const TRACED: bool>(
        &mut self,
        mut queued: Box<QueuedBio>,
        level: u32,
        now: u64,
    ) -> Result<(), (SubmitErrorKind, Box<QueuedBio>)> {
        queued.queued_ns = now;
        let level = level.min(self.level_max);
        let mut rq = match self.fast_path.accepts(&queued.bio) {
            true => {
                queued.bio.flags = queued.bio.flags.without(self.ignored);
                Request::of_plain(queued, level)
            }
            false => {
                cold_path();
                self.check(queued, level)?
            }
        };
        if TRACED {
            self.trace.request(TraceEvent::Queue, &rq, now);
        }
        match level {
            0 => {
                rq.unplugged_ns = now;
                self.list.push_outgoing(rq);
            }
            _ => self.plug_request::<TRACED>(rq, now),
        }
        Ok(())
    }

    /// Checks a bio against the full rules and converts it to a request.
    #[inline(never)]
    fn check(
        &mut self,
        mut queued: Box<QueuedBio>,
        level: u32,
    ) -> Result<Request, (SubmitErrorKind, Box<QueuedBio>)> {
        let bio = &queued.bio;
        if let Err(refusal) = self.limits.check(bio) {
            return Err((refusal, queued));
        }
        let segments = ChainSegments::new(&queued, 0, bio.len);
        let front = split::front(&self.limits, bio.op, bio.start, bio.len, segments);
        if front.len == 0 && bio.len > 0 {
            let max_segments = self.limits.max_segments;
            return Err((SubmitErrorKind::Unsplittable { max_segments }, queued));
        }
        // A bio that is refused keeps all of its flags.
        queued.bio.flags = queued.bio.flags.without(self.ignored);
        let rq = Request::of_bio(queued, front, &self.limits, level);
        self.has_special |= rq.is_nowait() || !rq.is_whole_data();
        Ok(rq)
    }

    /// Merges a request into the plug, or appends it. `TRACED`: the queue may have a trace.
    #[inline]
    fn plug_request<const TRACED: bool>(&mut self, rq: Request, now: u64) {
        let op = rq.op;
        let record = (TRACED && self.trace.is_on())
            .then(|| TraceRecord::of(TraceEvent::BackMerge, &rq, rq.len, now));
        match self.list.try_merge(&self.limits, self.nomerges, rq) {
            Ok(kind) => {
                self.counters.count_merge(op, kind);
                if let Some(record) = record {
                    self.trace.merge(record, kind);
                }
            }
            Err((rq, is_due)) => {
                if is_due {
                    self.unplug(UnplugCause::Limit, 1, now);
                }
                if TRACED && !self.is_plugged() {
                    self.trace.note(TraceEvent::Plug, 0, now);
                }
                self.list.push(rq);
            }
        }
    }

    /// Makes the plug's requests of `level` and above outgoing. Level 1 means all of them.
    #[inline]
    pub fn unplug(&mut self, cause: UnplugCause, level: u32, now: u64) {
        if self.list.detach(level, now) {
            self.counters.count_unplug(cause);
            self.trace.note(TraceEvent::Unplug, self.list.nr_outgoing() as u64, now);
        }
    }

    /// Returns whether requests are outgoing. If so, their hardware context needs a turn.
    #[inline]
    pub fn has_outgoing(&self) -> bool {
        self.list.nr_outgoing() > 0
    }

    /// Returns the number of outgoing requests.
    #[inline]
    pub fn nr_outgoing(&self) -> usize {
        self.list.nr_outgoing()
    }

    /// Drains the outgoing requests, oldest first.
    #[inline]
    pub fn outgoing(&mut self) -> Drain<'_, Request> {
        self.has_special &= self.is_plugged();
        self.list.outgoing()
    }

    /// Returns whether an outgoing request may be marked NOWAIT, or need more than one command.
    #[inline]
    pub(crate) fn has_special(&self) -> bool {
        self.has_special
    }

    /// Moves the outgoing requests to an empty list. None is special.
    #[inline(always)]
    pub(crate) fn move_outgoing(&mut self, empty: &mut Vec<Request>) {
        self.list.move_outgoing(empty);
    }
}

/// The precomputed limits for plain bios of a disk.
#[derive(Debug)]
struct FastPath {
    capacity: u64,
    /// Bits that must be 0 in the offset, the address and the length.
    start_mask: u64,
    addr_mask: u64,
    len_mask: u64,
    /// The longest bio that fits the disk, and one request at any offset; 0 if that depends on the
    /// offset.
    max_len: u64,
    /// The last of the operations that may be plain.
    last_op: Op,
}

// The order that `accepts` relies on.
const _: () = assert!(Op::Read as u8 == 0 && Op::Write as u8 == 1);

impl FastPath {
    fn of(limits: &QueueLimits) -> FastPath {
        let block_mask = limits.logical_block_size - 1;
        let dma = limits.dma_alignment;
        let depends = limits.chunk_sectors != 0 || limits.seg_boundary_mask != u64::MAX;
        let max_len = sectors_to_bytes(limits.max_sectors).min(u64::from(limits.max_segment_size));
        let capacity = limits.capacity_bytes.unwrap_or(i64::MAX as u64);
        FastPath {
            capacity,
            start_mask: block_mask.into(),
            addr_mask: dma.into(),
            len_mask: (dma | block_mask).into(),
            max_len: if depends { 0 } else { max_len.min(capacity) },
            last_op: if limits.read_only { Op::Read } else { Op::Write },
        }
    }

    /// Returns whether a bio is plain. A plain bio passes [`QueueLimits::check`] and needs one
    /// request with one segment and no step but its data.
    #[inline]
    fn accepts(&self, bio: &Bio) -> bool {
        let Segments::One(segment) = &bio.segments else { return false };
        let is_op = bio.op as u8 <= self.last_op as u8;
        let misaligned = (bio.start & self.start_mask)
            | (segment.addr as u64 & self.addr_mask)
            | (bio.len & self.len_mask);
        is_op
            && bio.flags.without(BioFlags::OWNED) == BioFlags::NONE
            && u64::from(segment.len) == bio.len
            && bio.len.wrapping_sub(1) < self.max_len
            // No length up to `max_len` exceeds the capacity.
            && bio.start <= self.capacity.wrapping_sub(bio.len)
            && misaligned == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bio::Segment;
    use crate::request::Steps;
    use crate::split;

    fn kinds() -> [QueueLimits; 5] {
        let plain = QueueLimits::default()
            .capacity_bytes(Some(1 << 20))
            .logical_block_size(512)
            .max_sectors(64)
            .max_segment_size(1 << 15);
        [
            plain,
            plain.read_only(true).volatile_cache(true),
            plain.dma_alignment(511).max_segment_size(4096),
            plain.chunk_sectors(8).capacity_bytes(None),
            plain.max_segment_size((1 << 15) - 1),
        ]
    }

    /// Returns how many of the bios were plain.
    fn check(limits: &QueueLimits, op: Op) -> usize {
        let fast_path = FastPath::of(limits);
        let starts = [0, 1, 512, 4096, (1 << 20) - 512, 1 << 20, u64::MAX - 511];
        let lens = [0, 1, 512, 4096, 1 << 15, (1 << 15) + 512, 1 << 20];
        let mut nr = 0;
        for (start, len) in starts.iter().flat_map(|start| lens.map(|len| (*start, len))) {
            for addr in [0x1000, 0x1001, 0x1200] {
                let bio = Bio::data(op, start, Segment { addr, len });
                let segments = || bio.segments.as_slice().iter().copied();
                let passes = limits.check(&bio).is_ok();
                let front = || split::front(limits, op, start, bio.len, segments());
                if fast_path.accepts(&bio) {
                    nr += 1;
                    assert!(passes, "{bio:?} on {limits:?}");
                    let front = front();
                    assert_eq!((front.len, front.nr_segments), (bio.len, 1), "{bio:?}");
                    assert_eq!(Steps::of(op, bio.flags, bio.len, limits), Steps::DATA);
                } else if limits.chunk_sectors == 0 && passes && bio.len > 0 {
                    let front = front();
                    let is_one = front.len == bio.len && front.nr_segments == 1;
                    assert!(
                        !is_one,
                        "{bio:?} needs one request but is not accepted, on {limits:?}"
                    );
                }
            }
        }
        nr
    }

    #[test]
    fn accepts_exactly_the_valid_bios_of_one_request() {
        let found = kinds().map(|limits| [Op::Read, Op::Write].map(|op| check(&limits, op)));
        let [plain, read_only, aligned, chunked, odd] = found;
        assert!(plain[0] > 20 && plain[0] == plain[1], "{plain:?}");
        assert_eq!(read_only, [plain[0], 0]);
        assert!(aligned[0] > 5 && aligned[0] < plain[0], "{aligned:?}");
        assert_eq!(chunked, [0, 0]);
        assert!(odd[0] > 5 && odd[0] < plain[0], "{odd:?}");
    }

    #[test]
    fn grown_disk_accepts_bios_up_to_its_new_end_and_never_shrinks() {
        let limits = kinds()[0];
        let mut queue = SoftwareQueue::new(limits, Policy::default(), Arc::default());
        let at = |start| Bio::data(Op::Read, start, Segment { addr: 0, len: 4096 });
        let accepts = |queue: &mut SoftwareQueue, bio: Bio| {
            let is_plain = queue.fast_path.accepts(&bio);
            assert_eq!(is_plain, queue.limits.check(&bio).is_ok());
            is_plain
        };
        assert!(!accepts(&mut queue, at(1 << 20)));
        assert!(queue.grow((1 << 20) + 4096));
        assert!(accepts(&mut queue, at(1 << 20)) && !accepts(&mut queue, at((1 << 20) + 512)));
        for size in [0, 1 << 20, (1 << 20) + 4096] {
            assert!(!queue.grow(size));
            assert!(accepts(&mut queue, at(1 << 20)));
        }
        let without_size = limits.capacity_bytes(None);
        assert!(!SoftwareQueue::new(without_size, Policy::default(), Arc::default()).grow(1 << 30));
    }

    #[test]
    fn rejects_bios_with_flags_or_other_operations() {
        let fast_path = FastPath::of(&kinds()[0]);
        let bio = Bio::data(Op::Write, 0, Segment { addr: 0, len: 512 });
        assert!(fast_path.accepts(&bio));
        for flag in [BioFlags::FUA, BioFlags::PREFLUSH, BioFlags::NOMERGE, BioFlags::NOWAIT] {
            assert!(!fast_path.accepts(&Bio { flags: flag, ..bio.clone() }), "{flag:?}");
        }
        assert!(!fast_path.accepts(&Bio::range(Op::Discard, 0, 512)));
        assert!(!fast_path.accepts(&Bio::flush()));
    }
}
