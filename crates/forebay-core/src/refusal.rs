//! Why a bio was not taken: checked once, at the border, before anything is submitted.

use crate::bio::Op;
use core::fmt;

/// Why a bio was refused. Nothing of it was queued, and it is given back to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Start or length is not a multiple of the logical block size.
    Misaligned {
        /// First byte.
        start: u64,
        /// Length, bytes.
        len: u64,
        /// The logical block size, bytes.
        unit: u32,
    },
    /// The range ends beyond the disk.
    OutOfRange {
        /// First byte.
        start: u64,
        /// Length, bytes.
        len: u64,
        /// The size of the disk, bytes.
        capacity: u64,
    },
    /// A memory segment's address or length does not suit the device.
    MemoryMisaligned {
        /// Address of the segment.
        addr: usize,
        /// Length of the segment, bytes.
        len: u32,
        /// What the address must be a multiple of, bytes.
        addr_unit: u32,
        /// What the length must be a multiple of, bytes.
        len_unit: u32,
    },
    /// The memory is not what the operation needs.
    Memory {
        /// The operation.
        op: Op,
        /// How much memory there is (or, for a flush, how long its range is), bytes.
        len: u64,
    },
    /// A write to a read-only disk.
    ReadOnly,
    /// The disk cannot do this.
    NotSupported(Op),
    /// No cut of this bio fits the disk's segment limits: its memory is in pieces too small.
    Unsplittable {
        /// How many segments one request may have.
        max_segments: u32,
    },
    /// As many bios are in the layer as it takes at once.
    WouldBlock,
    /// The disk was opened before this process was forked off.
    Forked,
    /// A future needs a thread of the disk, and the system starts none.
    NoThread {
        /// The system's error number.
        errno: i32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Refusal::Misaligned { start, len, unit } => write!(
                f,
                "misaligned: start {start} and length {len} must be multiples of the logical \
                 block size, {unit} bytes"
            ),
            Refusal::OutOfRange { start, len, capacity } => write!(
                f,
                "out of range: {len} bytes at {start} end beyond the disk's {capacity} bytes"
            ),
            Refusal::MemoryMisaligned { addr, len, addr_unit, len_unit } => write!(
                f,
                "misaligned memory: address {addr:#x} must be a multiple of {addr_unit}, length \
                 {len} of {len_unit}; use a `Buf`, which is aligned for every disk"
            ),
            Refusal::Memory { op: op @ (Op::Read | Op::Write), len } => {
                write!(f, "a {} of another length than its memory, {len} bytes", op.name())
            }
            Refusal::Memory { op, len } => {
                write!(f, "a {} has no memory, and {len} bytes were given", op.name())
            }
            Refusal::ReadOnly => f.write_str("the disk is read-only"),
            Refusal::NotSupported(op) => write!(f, "the disk does not support {}", op.name()),
            Refusal::Unsplittable { max_segments } => write!(
                f,
                "memory in too many pieces: {max_segments} segments, the most that one request \
                 may have, hold less than a logical block; use larger segments"
            ),
            Refusal::WouldBlock => f.write_str(
                "as many bios are in the layer as it takes at once; reap some, then try again",
            ),
            Refusal::NoThread { errno } => write!(
                f,
                "no thread of the disk can be started to complete futures (error {errno}); raise \
                 the limit of processes (ulimit -u), or drive the disk by `Disk::poll_fd`"
            ),
            Refusal::Forked => f.write_str(
                "the disk was opened by the parent of this process; open it again after the fork",
            ),
        }
    }
}

impl core::error::Error for Refusal {}
