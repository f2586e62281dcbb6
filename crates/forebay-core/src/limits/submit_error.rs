//! Reasons for refusing a bio. Each bio is checked once, when it is submitted.

use crate::bio::Op;
use core::fmt;

/// Why a bio was refused. No part of it was queued, and the caller gets it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitErrorKind {
    /// The start or the length is not a multiple of the logical block size.
    Misaligned {
        /// The first byte.
        start: u64,
        /// The length in bytes.
        len: u64,
        /// The logical block size in bytes.
        unit: u32,
    },
    /// The range ends beyond the end of the disk.
    OutOfRange {
        /// The first byte.
        start: u64,
        /// The length in bytes.
        len: u64,
        /// The size of the disk in bytes.
        capacity: u64,
    },
    /// The address or length of a memory segment does not fit the device.
    MemoryMisaligned {
        /// The address of the segment.
        addr: usize,
        /// The length of the segment in bytes.
        len: u32,
        /// The required alignment of the address in bytes.
        addr_unit: u32,
        /// The required unit of the length in bytes.
        len_unit: u32,
    },
    /// The memory does not match the operation.
    Memory {
        /// The operation.
        op: Op,
        /// The length of the memory in bytes.
        len: u64,
    },
    /// A flush has a length: it concerns the whole disk.
    FlushLength(u64),
    /// The bio writes to a read-only disk.
    ReadOnly,
    /// The disk does not support the operation.
    NotSupported(Op),
    /// No part of this bio fits the disk's segment limits: its memory segments are too small.
    Unsplittable {
        /// The maximum number of segments of a request.
        max_segments: u32,
    },
    /// The queue already holds the maximum number of bios.
    WouldBlock,
    /// The disk was opened before this process was forked.
    Forked,
    /// A future needs the service thread of the disk, and the system cannot start one.
    NoThread {
        /// The system's error number (`errno`).
        errno: i32,
    },
}

impl fmt::Display for SubmitErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SubmitErrorKind::Misaligned { start, len, unit } => write!(
                f,
                "misaligned: start {start} and length {len} must be multiples of the logical \
                 block size, {unit} bytes"
            ),
            SubmitErrorKind::OutOfRange { start, len, capacity } => write!(
                f,
                "out of range: {len} bytes at {start} end beyond the disk's {capacity} bytes"
            ),
            SubmitErrorKind::MemoryMisaligned { addr, len, addr_unit, len_unit } => write!(
                f,
                "misaligned memory: address {addr:#x} must be a multiple of {addr_unit}, length \
                 {len} of {len_unit}; use a `Buf`, which is aligned for every disk"
            ),
            SubmitErrorKind::Memory { op: op @ (Op::Read | Op::Write), len } => {
                write!(f, "the length of the {} differs from its memory, {len} bytes", op.name())
            }
            SubmitErrorKind::Memory { op, len } => {
                write!(f, "a {} takes no memory, but {len} bytes were given", op.name())
            }
            SubmitErrorKind::FlushLength(len) => write!(
                f,
                "a flush concerns the whole disk, but has a length of {len} bytes; submit it with \
                 length 0"
            ),
            SubmitErrorKind::ReadOnly => f.write_str("the disk is read-only"),
            SubmitErrorKind::NotSupported(op) => {
                write!(f, "the disk does not support {}", op.name())
            }
            SubmitErrorKind::Unsplittable { max_segments } => write!(
                f,
                "memory segments too small: {max_segments} segments, the maximum per request, hold \
                 less than a logical block; use larger segments"
            ),
            SubmitErrorKind::WouldBlock => {
                f.write_str("the queue is full; reap completions, then try again")
            }
            SubmitErrorKind::NoThread { errno } => write!(
                f,
                "cannot start the service thread that futures need (errno {errno}); raise the \
                 process limit (ulimit -u), or drive the disk from an event loop with \
                 `Disk::poll_handle`"
            ),
            SubmitErrorKind::Forked => f.write_str(
                "the disk was opened by the parent of this process; open it again after the fork",
            ),
        }
    }
}

impl core::error::Error for SubmitErrorKind {}
