//! A record of a trace: one stage that a request has reached.

use crate::bio::{Bio, BioFlags, Op};
use crate::request::Header;
use crate::status::BlockStatus;

/// A stage of a request, or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEvent {
    /// Q: a bio is queued.
    Queue,
    /// M: the bio merges with a request at its back, or as one more range of a discard.
    BackMerge,
    /// F: the bio merges with a request at its front.
    FrontMerge,
    /// G: the request has got a tag.
    GetTag,
    /// S: the request waits for a tag.
    Sleep,
    /// P: the plug of a thread gets its first request.
    Plug,
    /// U: requests leave the plug. The number is how many.
    Unplug,
    /// I: the request is queued in the scheduler.
    Insert,
    /// D: the request is issued to the driver.
    Issue,
    /// R: the driver is busy, so the request is issued again later.
    Requeue,
    /// X: the request is split. The number is the length of the front part.
    Split,
    /// C: the command is complete. The length is what it has moved.
    Complete,
    /// Message: a request waits for the next flush.
    FlushWait,
    /// Message: a request joins the flush that runs.
    FlushJoin,
    /// Message: a request needs no flush, because what it covers is durable.
    FlushElided,
    /// Message: a limit has held a request back. The number is the time in nanoseconds.
    LimitWait,
    /// Message: the flush that a request needed has succeeded or failed. The number is the time in
    /// nanoseconds since the first bio of the request was queued.
    FlushDone,
    /// Records are missing here, because the ring was full. The number is how many.
    Lost,
}

impl TraceEvent {
    /// All events, in the order of their numbers.
    pub const ALL: [TraceEvent; 18] = [
        TraceEvent::Queue,
        TraceEvent::BackMerge,
        TraceEvent::FrontMerge,
        TraceEvent::GetTag,
        TraceEvent::Sleep,
        TraceEvent::Plug,
        TraceEvent::Unplug,
        TraceEvent::Insert,
        TraceEvent::Issue,
        TraceEvent::Requeue,
        TraceEvent::Split,
        TraceEvent::Complete,
        TraceEvent::FlushWait,
        TraceEvent::FlushJoin,
        TraceEvent::FlushElided,
        TraceEvent::LimitWait,
        TraceEvent::FlushDone,
        TraceEvent::Lost,
    ];
}

/// A record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When, in nanoseconds of the clock that the layer was called with.
    pub time_ns: u64,
    /// The stage.
    pub event: TraceEvent,
    /// The operation; [`Op::Flush`] for records that are about no request.
    pub op: Op,
    /// The flags of the request.
    pub flags: BioFlags,
    /// The first byte on the device.
    pub start: u64,
    /// The number of bytes; or the number of the event, for those that have one and no range.
    pub len: u64,
    /// For [`TraceEvent::Complete`] and [`TraceEvent::FlushDone`], the failure.
    pub status: Option<BlockStatus>,
    /// A second length in bytes. For [`TraceEvent::Split`], of the front part; for messages about
    /// a request, of its range, at most `u32::MAX`.
    pub second_len: u32,
}

/// The size of a packed record, in words.
pub(super) const NR_WORDS: usize = 4;

impl TraceRecord {
    /// Returns the record of an event of a request of `len` bytes.
    ///
    /// A turn may issue a request that was queued after the turn has read the clock. No record of
    /// that request is older than its Q.
    #[inline(always)]
    pub(crate) fn of(event: TraceEvent, rq: &Header, len: u64, now: u64) -> TraceRecord {
        let (op, flags) = (rq.op, rq.flags);
        // A flush has no range. Its start may be a durable point.
        let (start, len) = if op == Op::Flush { (0, 0) } else { (rq.start, len) };
        let time_ns = now.max(rq.unplugged_ns);
        TraceRecord { time_ns, event, op, flags, start, len, status: None, second_len: 0 }
    }

    /// Returns the record of an event of a bio.
    pub(crate) fn of_bio(event: TraceEvent, bio: &Bio, now: u64) -> TraceRecord {
        let (op, flags) = (bio.op, bio.flags);
        let (start, len) = if op == Op::Flush { (0, 0) } else { (bio.start, bio.len) };
        TraceRecord { time_ns: now, event, op, flags, start, len, status: None, second_len: 0 }
    }

    /// Returns the record as that of a message, with a number.
    pub(crate) fn with_number(self, number: u64) -> TraceRecord {
        TraceRecord { len: number, ..self }.with_second(self.len)
    }

    /// Returns the record of an event without a request.
    pub(crate) fn note(event: TraceEvent, number: u64, now: u64) -> TraceRecord {
        TraceRecord {
            time_ns: now,
            event,
            op: Op::Flush,
            flags: BioFlags::NONE,
            start: 0,
            len: number,
            status: None,
            second_len: 0,
        }
    }

    /// Returns the record with this status.
    pub(crate) fn with_status(self, status: Option<BlockStatus>) -> TraceRecord {
        TraceRecord { status, ..self }
    }

    /// Returns the record with a second length.
    pub(crate) fn with_second(self, len: u64) -> TraceRecord {
        TraceRecord { second_len: u32::try_from(len).unwrap_or(u32::MAX), ..self }
    }

    /// Returns the record as words.
    #[inline(always)]
    pub(super) fn pack(&self) -> [u64; NR_WORDS] {
        let status = self.status.map_or(0, |status| status as u64 + 1);
        let kind = self.event as u64 | (self.op as u64) << 8 | status << 12;
        let rest = kind | u64::from(self.flags.bits()) << 16 | u64::from(self.second_len) << 32;
        [self.time_ns, self.start, self.len, rest]
    }

    /// Returns the record of packed words. Words that no record packs to give the last event, the
    /// first operation, or no status.
    pub(super) fn unpack([time_ns, start, len, rest]: [u64; NR_WORDS]) -> TraceRecord {
        let at = |shift: u32, mask: u64| (rest >> shift & mask) as usize;
        let status = at(12, 0xf).checked_sub(1).and_then(|nth| BlockStatus::ALL.get(nth));
        TraceRecord {
            time_ns,
            event: TraceEvent::ALL.get(at(0, 0xff)).copied().unwrap_or(TraceEvent::Lost),
            op: Op::ALL.get(at(8, 0xf)).copied().unwrap_or(Op::Read),
            flags: BioFlags::from_bits(at(16, 0xffff) as u16),
            start,
            len,
            status: status.copied(),
            second_len: at(32, u32::MAX.into()) as u32,
        }
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn packed_record_unpacks_to_itself() {
        let statuses = BlockStatus::ALL.into_iter().map(Some).chain([None]);
        for (nth, status) in statuses.enumerate() {
            for event in TraceEvent::ALL {
                for op in Op::ALL {
                    let record = TraceRecord {
                        time_ns: u64::MAX - nth as u64,
                        event,
                        op,
                        flags: BioFlags::OWNED.union(BioFlags::FUA),
                        start: 1 << 63,
                        len: u64::MAX,
                        status,
                        second_len: u32::MAX,
                    };
                    assert_eq!(TraceRecord::unpack(record.pack()), record);
                }
            }
        }
    }
}
