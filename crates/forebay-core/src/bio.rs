//! The bio: one I/O as its caller asked for it.

use alloc::boxed::Box;

/// What a bio or a request does.
///
/// Counterpart in Linux: `enum req_op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read from the device into memory.
    Read,
    /// Write from memory to the device.
    Write,
    /// Make every write that has ended before it durable. Has no range and no memory.
    Flush,
    /// Tell the device that a range is not needed any more. What it reads as afterwards is the
    /// device's choice.
    Discard,
    /// Make a range read as zeroes, without moving them.
    WriteZeroes,
}

impl Op {
    /// Every operation, in the order of the counters.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

    /// The name used in messages and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::WriteZeroes => "write_zeroes",
        }
    }

    /// Whether bytes move between memory and device.
    pub const fn moves_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }

    /// Whether the content of the device changes.
    pub const fn is_write(self) -> bool {
        matches!(self, Op::Write | Op::Discard | Op::WriteZeroes)
    }
}

/// A set of flags on a bio.
///
/// Counterpart in Linux: `REQ_FUA`, `REQ_PREFLUSH`, `REQ_NOMERGE`, `REQ_NOWAIT`,
/// `BLK_MQ_REQ_RESERVED`, `REQ_BACKGROUND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BioFlags(u8);

impl BioFlags {
    /// No flag.
    pub const NONE: BioFlags = BioFlags(0);
    /// This write is durable when it ends.
    pub const FUA: BioFlags = BioFlags(1);
    /// Every write that ended before this bio was queued is durable before its data is written.
    pub const PREFLUSH: BioFlags = BioFlags(2);
    /// Never merge this bio with another.
    pub const NOMERGE: BioFlags = BioFlags(4);
    /// Rather than wait for a tag, end with [`BlockStatus::Again`](crate::BlockStatus::Again), and
    /// nothing of it done. Where it takes more requests than there are tags, it ends with
    /// `NotSupported`.
    pub const NOWAIT: BioFlags = BioFlags(8);
    /// It may have one of the tags that are reserved, and goes before what may not: for the few
    /// I/Os that others depend on. Without reserved tags it means nothing.
    pub const RESERVED: BioFlags = BioFlags(16);
    /// Nobody waits for it: it may have no more tags than the disk's `async_depth` says, so that
    /// others find some.
    pub const BACKGROUND: BioFlags = BioFlags(32);
    /// Of a flush: all metadata of the file too, as `fsync` does; without it, what is needed to
    /// read the data back, as `fdatasync` does. Such a flush is never elided.
    pub const FSYNC: BioFlags = BioFlags(64);
    /// Of a flush: only what had ended at a durable point, which is the bio's `start`
    /// ([`Bio::flush_up_to`]).
    pub const UP_TO: BioFlags = BioFlags(128);

    /// Whether all of `other` is set.
    pub const fn contains(self, other: BioFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is set.
    pub const fn intersects(self, other: BioFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets together.
    #[must_use]
    pub const fn union(self, other: BioFlags) -> BioFlags {
        BioFlags(self.0 | other.0)
    }
}

/// A stretch of the caller's memory. The core never follows the address; only a driver does.
///
/// Counterpart in Linux: `struct bio_vec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The address of the first byte.
    pub addr: usize,
    /// The length, bytes.
    pub len: u32,
}

/// The memory of a bio: none, one segment (the usual case, kept inline), or several.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Segments {
    /// No memory: flush, discard, write-zeroes.
    #[default]
    None,
    /// One segment.
    One(Segment),
    /// Several segments, in the order of the device's bytes.
    Many(Box<[Segment]>),
}

impl Segments {
    /// All segments, in order.
    pub fn as_slice(&self) -> &[Segment] {
        match self {
            Segments::None => &[],
            Segments::One(segment) => core::slice::from_ref(segment),
            Segments::Many(segments) => segments,
        }
    }

    /// The sum of the lengths, bytes.
    pub fn len_bytes(&self) -> u64 {
        self.as_slice().iter().map(|segment| u64::from(segment.len)).sum()
    }
}

/// One I/O as its caller asked for it. Addresses on the device are bytes.
///
/// Counterpart in Linux: `struct bio`, whose sector is a byte offset here, because a file may be
/// addressed by single bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bio {
    /// What to do.
    pub op: Op,
    /// How to do it.
    pub flags: BioFlags,
    /// The first byte on the device.
    pub start: u64,
    /// How many bytes on the device.
    pub len: u64,
    /// The memory, `len` bytes of it for [`Op::Read`] and [`Op::Write`], none otherwise.
    pub segments: Segments,
    /// Returned with the bio's end; the layer does not look at it.
    pub user_data: u64,
}

impl Bio {
    /// A bio that moves `segment` from (`Op::Read`) or to (`Op::Write`) the device at `start`.
    pub fn data(op: Op, start: u64, segment: Segment) -> Bio {
        Bio { segments: Segments::One(segment), ..Bio::range(op, start, u64::from(segment.len)) }
    }

    /// A bio without memory over a range of the device.
    pub fn range(op: Op, start: u64, len: u64) -> Bio {
        Bio { op, flags: BioFlags::NONE, start, len, segments: Segments::None, user_data: 0 }
    }

    /// A bio that makes what has ended durable.
    pub fn flush() -> Bio {
        Bio::range(Op::Flush, 0, 0)
    }

    /// A bio that makes what has ended durable, and all metadata of the file.
    pub fn fsync() -> Bio {
        Bio { flags: BioFlags::FSYNC, ..Bio::flush() }
    }

    /// A bio that ends when every write is durable whose durable point, which it was given when it
    /// ended, is not after `point`.
    pub fn flush_up_to(point: u64) -> Bio {
        Bio { flags: BioFlags::UP_TO, start: point, ..Bio::flush() }
    }

    /// The byte after the last, or `None` where that is beyond 2^64.
    pub fn end(&self) -> Option<u64> {
        self.start.checked_add(self.len)
    }
}
