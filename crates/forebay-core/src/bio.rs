//! The bio: one I/O request of a caller.

use crate::origin::Origin;
use alloc::vec::Vec;

/// The operation of a bio or a request.
///
/// Counterpart in Linux: `enum req_op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read from the device into memory.
    Read,
    /// Write from memory to the device.
    Write,
    /// Make every write that ended before it durable. Has no range and no memory.
    Flush,
    /// Declare that a range is no longer needed. The device decides what the range reads as
    /// afterwards.
    Discard,
    /// Make a range read as zeroes without transferring them.
    WriteZeroes,
}

impl Op {
    /// All operations, in the order of the counters.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

    /// Returns the name used in messages and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::WriteZeroes => "write_zeroes",
        }
    }

    /// Returns whether the operation moves bytes between memory and device.
    pub const fn moves_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }

    /// Returns whether the operation changes the contents of the device.
    pub const fn is_write(self) -> bool {
        matches!(self, Op::Write | Op::Discard | Op::WriteZeroes)
    }
}

/// A set of flags on a bio.
///
/// Counterpart in Linux: `REQ_FUA`, `REQ_PREFLUSH`, `REQ_NOMERGE`, `REQ_NOWAIT`,
/// `BLK_MQ_REQ_RESERVED`, `REQ_BACKGROUND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BioFlags(u16);

impl BioFlags {
    /// No flags.
    pub const NONE: BioFlags = BioFlags(0);
    /// The write is durable when it ends.
    pub const FUA: BioFlags = BioFlags(1);
    /// Every write that ended before this bio was queued is made durable before this bio's data is
    /// written.
    pub const PREFLUSH: BioFlags = BioFlags(2);
    /// Do not merge this bio with others.
    pub const NOMERGE: BioFlags = BioFlags(4);
    /// Do not wait for a tag. If none is free, the bio ends with
    /// [`BlockStatus::Again`](crate::BlockStatus::Again) and none of it is issued. A bio that needs
    /// more requests than there are tags ends with `NotSupported`.
    pub const NOWAIT: BioFlags = BioFlags(8);
    /// The bio may use a reserved tag, and goes before bios that may not. Meant for the few I/Os
    /// that other I/O depends on. Without reserved tags the flag has no effect.
    pub const RESERVED: BioFlags = BioFlags(16);
    /// Background I/O. Such bios use at most `async_depth` tags of a hardware context, so that
    /// foreground I/O finds free ones.
    pub const BACKGROUND: BioFlags = BioFlags(32);
    /// On a flush: also make all metadata of the file durable, as `fsync` does. Without it a flush
    /// covers what is needed to read the data back, as `fdatasync` does. Such a flush is never
    /// elided.
    pub const FSYNC: BioFlags = BioFlags(64);
    /// On a flush: cover only what had ended at a durable point. The point is the bio's `start`
    /// ([`Bio::flush_up_to`]).
    pub const UP_TO: BioFlags = BioFlags(128);
    /// The submitter keeps the memory valid until the driver is done with it, even if the bio ends
    /// earlier (H5). Bios with and without this flag do not merge.
    pub const OWNED: BioFlags = BioFlags(256);

    /// Returns the flags as bits, for records.
    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the flags of these bits.
    pub(crate) const fn from_bits(bits: u16) -> BioFlags {
        BioFlags(bits)
    }

    /// Returns whether all flags of `other` are set.
    pub const fn contains(self, other: BioFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any flag of `other` is set.
    pub const fn intersects(self, other: BioFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn union(self, other: BioFlags) -> BioFlags {
        BioFlags(self.0 | other.0)
    }

    /// Returns this set without the flags of `other`.
    #[must_use]
    pub const fn without(self, other: BioFlags) -> BioFlags {
        BioFlags(self.0 & !other.0)
    }
}

/// A contiguous range of the caller's memory. The core never dereferences the address; only a
/// driver does.
///
/// Counterpart in Linux: `struct bio_vec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The address of the first byte.
    pub addr: usize,
    /// The length in bytes.
    pub len: u32,
}

/// The memory of a bio: none, one segment (the common case, stored inline), or several.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Segments {
    /// No memory: flush, discard, write-zeroes.
    #[default]
    None,
    /// One segment.
    One(Segment),
    /// Several segments, in the order of the bytes on the device. The list keeps its capacity, so
    /// a caller that gets it back can fill it again without an allocation.
    Many(Vec<Segment>),
}

impl Segments {
    /// Returns all segments in order.
    pub fn as_slice(&self) -> &[Segment] {
        match self {
            Segments::None => &[],
            Segments::One(segment) => core::slice::from_ref(segment),
            Segments::Many(segments) => segments,
        }
    }

    /// Returns the sum of the segment lengths in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.as_slice().iter().map(|segment| u64::from(segment.len)).sum()
    }
}

/// One I/O as its caller requests it. Device addresses are byte offsets.
///
/// Counterpart in Linux: `struct bio`. It addresses sectors; this one addresses bytes, because a
/// file may be accessed at any byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bio {
    /// The operation.
    pub op: Op,
    /// The flags.
    pub flags: BioFlags,
    /// The priority and the owner.
    pub origin: Origin,
    /// The first byte on the device.
    pub start: u64,
    /// The number of bytes on the device.
    pub len: u64,
    /// The memory: `len` bytes for [`Op::Read`] and [`Op::Write`], none otherwise.
    pub segments: Segments,
    /// Returned with the result. The layer does not interpret it.
    pub user_data: u64,
}

impl Bio {
    /// Creates a bio that moves data between `segment` and the device at `start`. `op` is
    /// `Op::Read` or `Op::Write`.
    pub fn data(op: Op, start: u64, segment: Segment) -> Bio {
        Bio { segments: Segments::One(segment), ..Bio::range(op, start, u64::from(segment.len)) }
    }

    /// Creates a bio without memory for a range of the device.
    pub fn range(op: Op, start: u64, len: u64) -> Bio {
        Bio {
            op,
            flags: BioFlags::NONE,
            origin: Origin::NONE,
            start,
            len,
            segments: Segments::None,
            user_data: 0,
        }
    }

    /// Creates a flush: it makes every write that has ended durable.
    pub fn flush() -> Bio {
        Bio::range(Op::Flush, 0, 0)
    }

    /// Creates a flush that also makes all metadata of the file durable.
    pub fn fsync() -> Bio {
        Bio { flags: BioFlags::FSYNC, ..Bio::flush() }
    }

    /// Creates a flush that covers every write with a durable point up to `point`. An ended write
    /// reports its point.
    pub fn flush_up_to(point: u64) -> Bio {
        Bio { flags: BioFlags::UP_TO, start: point, ..Bio::flush() }
    }

    /// Returns the offset after the last byte, or `None` if it exceeds `u64`.
    pub fn end(&self) -> Option<u64> {
        self.start.checked_add(self.len)
    }
}
