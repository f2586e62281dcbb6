//! Limits of a device: the size and shape of the requests that it accepts.
//!
//! Counterpart in Linux: `struct queue_limits` (`block/blk-settings.c`). Names and units are the
//! kernel's, so that values can be compared with `/sys/block/X/queue`.

pub(crate) mod submit_error;

use crate::bio::{Bio, Op, Segment};
use crate::limits::submit_error::SubmitErrorKind;
use crate::setters::with_setters;
use core::fmt;

/// Base-2 logarithm of the sector size. A sector is always 512 bytes: `1 << SECTOR_SHIFT`.
pub const SECTOR_SHIFT: u32 = 9;

with_setters! {
    /// The limits of a disk. They do not change while the disk is open.
    ///
    /// The default is an ideal disk of capacity 0: 512-byte blocks, 1280 KiB requests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QueueLimits {
        /// The size of the device in bytes, or `None` for a file that grows. With `None` only
        /// ranges that end beyond `i64::MAX` are refused; the driver decides about access beyond
        /// the end of the file.
        pub capacity_bytes: Option<u64> = Some(0),
        /// The unit of addresses and lengths in bytes: 512 or 4096 for disks, 1 for files.
        pub logical_block_size: u32 = 512,
        /// The unit that the device writes without reading first, in bytes.
        pub physical_block_size: u32 = 512,
        /// The smallest efficient I/O, in bytes.
        pub io_min: u32 = 512,
        /// The best I/O size in bytes; 0 if the device reports none.
        pub io_opt: u32 = 0,
        /// The largest read or write that the driver accepts, in sectors.
        pub max_hw_sectors: u32 = 1280 * 2,
        /// The largest read or write that the layer issues, in sectors; at most `max_hw_sectors`.
        pub max_sectors: u32 = 1280 * 2,
        /// The maximum number of segments of a request.
        pub max_segments: u32 = 128,
        /// The largest segment in bytes. A longer one counts as several.
        pub max_segment_size: u32 = u32::MAX,
        /// No segment crosses a multiple of this value plus one. `u64::MAX` means no boundary.
        pub seg_boundary_mask: u64 = u64::MAX,
        /// Segments of one request may join only at addresses where these bits are 0. 0 means no
        /// restriction.
        pub virt_boundary_mask: u64 = 0,
        /// The bits of a memory address and of a segment's length that must be 0. If any bit is
        /// set, segments must also be whole logical blocks.
        pub dma_alignment: u32 = 0,
        /// No read or write crosses a multiple of this, in sectors; 0 for none.
        pub chunk_sectors: u32 = 0,
        /// The unit of a discard in bytes; 0 if discard is not supported.
        pub discard_granularity: u32 = 0,
        /// The largest discard in sectors; 0 if discard is not supported.
        pub max_discard_sectors: u32 = 0,
        /// The maximum number of ranges of one discard.
        pub max_discard_segments: u32 = 1,
        /// The largest write-zeroes in sectors; 0 if it is not supported.
        pub max_write_zeroes_sectors: u32 = 0,
        /// Whether completed writes may be lost before the next flush.
        pub volatile_cache: bool = false,
        /// Whether the driver can make a single write durable. If not, and with a volatile cache,
        /// the layer issues a flush after such a write.
        pub fua: bool = false,
        /// Whether a FUA write is a sync of the whole file, as `RWF_DSYNC` is. Its failure may
        /// then be that of an earlier write, and no flush reports it again. The layer therefore
        /// treats a failed one as a failed flush.
        pub fua_is_sync: bool = false,
        /// Whether the success of a FUA write proves its own data durable while another sync is in
        /// flight. If not (a page cache reports a failed write-back to one of several syncs), the
        /// layer issues one sync at a time, and a flush follows the other writes with FUA.
        pub fua_queueable: bool = true,
        /// Whether a flush may be in flight together with other commands. If not, the device
        /// refuses either as busy while the other runs.
        ///
        /// Source: "block: hold queue if flush is running for non-queueable flush drive", 2011.
        pub flush_queueable: bool = true,
        /// Whether a short write has written nothing beyond its count (K6 of
        /// [`Driver`](crate::Driver)). If not, the rest is resent only if no overlapping write can
        /// have been issued since.
        pub exact_counts: bool = true,
        /// Whether the device is rotational.
        pub rotational: bool = false,
        /// Whether the device refuses writes.
        pub read_only: bool = false,
    }
}

/// Contradictory limits: an error of the driver or of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsError(&'static str);

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for LimitsError {}

impl QueueLimits {
    /// Checks that the limits do not contradict each other.
    ///
    /// # Errors
    /// Returns the violated relation.
    pub fn validate(&self) -> Result<(), LimitsError> {
        let block = self.logical_block_size;
        let rules = [
            (block.is_power_of_two(), "logical_block_size must be a power of two"),
            (
                self.physical_block_size.is_power_of_two() && self.physical_block_size >= block,
                "physical_block_size must be a power of two, at least logical_block_size",
            ),
            (self.max_sectors > 0, "max_sectors must be at least 1"),
            (self.max_sectors <= self.max_hw_sectors, "max_sectors must be at most max_hw_sectors"),
            (
                sectors_to_bytes(self.max_sectors) >= u64::from(block),
                "max_sectors must hold at least one logical block",
            ),
            (self.max_segments > 0, "max_segments must be at least 1"),
            (self.max_segment_size >= block, "max_segment_size must hold one logical block"),
            (
                self.seg_boundary_mask.wrapping_add(1) == 0
                    || (self.seg_boundary_mask + 1).is_power_of_two()
                        && self.seg_boundary_mask >= u64::from(block) - 1,
                "seg_boundary_mask must be a power of two less one, and hold one logical block",
            ),
            (
                self.virt_boundary_mask.wrapping_add(1).is_power_of_two(),
                "virt_boundary_mask must be a power of two less one",
            ),
            (
                self.dma_alignment.wrapping_add(1).is_power_of_two(),
                "dma_alignment must be a power of two less one",
            ),
            (
                sectors_to_bytes(self.chunk_sectors).is_multiple_of(u64::from(block)),
                "chunk_sectors must be whole logical blocks",
            ),
            (
                (self.max_discard_sectors == 0) == (self.discard_granularity == 0),
                "max_discard_sectors and discard_granularity must both be set, or neither",
            ),
            (
                self.discard_granularity.is_multiple_of(block),
                "discard_granularity must be whole logical blocks",
            ),
            (
                self.max_discard_sectors == 0
                    || sectors_to_bytes(self.max_discard_sectors)
                        >= u64::from(self.discard_granularity),
                "max_discard_sectors must hold one discard_granularity",
            ),
            (self.max_discard_segments > 0, "max_discard_segments must be at least 1"),
            (
                self.max_write_zeroes_sectors == 0
                    || sectors_to_bytes(self.max_write_zeroes_sectors) >= u64::from(block),
                "max_write_zeroes_sectors must hold one logical block",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, why)) => Err(LimitsError(why)),
            None => Ok(()),
        }
    }

    /// Checks a bio. This is done once, at the border; below it the same facts are asserted.
    ///
    /// # Errors
    /// Returns what is wrong with the bio.
    #[inline]
    pub fn check(&self, bio: &Bio) -> Result<(), SubmitErrorKind> {
        if bio.op == Op::Flush {
            return match (bio.len, bio.segments.as_slice().is_empty()) {
                (0, true) => Ok(()),
                (0, false) => {
                    Err(SubmitErrorKind::Memory { op: bio.op, len: bio.segments.len_bytes() })
                }
                (len, _) => Err(SubmitErrorKind::FlushLength(len)),
            };
        }
        let mask = u64::from(self.logical_block_size) - 1;
        if (bio.start | bio.len) & mask != 0 {
            return Err(self.misaligned(bio));
        }
        let end = bio.end().unwrap_or(u64::MAX);
        if end > self.capacity_bytes.unwrap_or(i64::MAX as u64) {
            return Err(SubmitErrorKind::OutOfRange {
                start: bio.start,
                len: bio.len,
                capacity: self.capacity_bytes.unwrap_or(i64::MAX as u64),
            });
        }
        if bio.op.is_write() && self.read_only {
            return Err(SubmitErrorKind::ReadOnly);
        }
        self.check_op(bio)
    }

    #[inline]
    fn check_op(&self, bio: &Bio) -> Result<(), SubmitErrorKind> {
        match bio.op {
            Op::Read | Op::Write => {
                if bio.segments.len_bytes() != bio.len {
                    return Err(SubmitErrorKind::Memory {
                        op: bio.op,
                        len: bio.segments.len_bytes(),
                    });
                }
                self.check_memory(bio)
            }
            Op::Discard if self.max_discard_sectors == 0 => {
                Err(SubmitErrorKind::NotSupported(bio.op))
            }
            Op::WriteZeroes if self.max_write_zeroes_sectors == 0 => {
                Err(SubmitErrorKind::NotSupported(bio.op))
            }
            _ if !bio.segments.as_slice().is_empty() => {
                Err(SubmitErrorKind::Memory { op: bio.op, len: bio.segments.len_bytes() })
            }
            _ => Ok(()),
        }
    }

    /// Checks the addresses and lengths of segments against the device's DMA alignment.
    #[inline]
    fn check_memory(&self, bio: &Bio) -> Result<(), SubmitErrorKind> {
        if self.dma_alignment == 0 {
            return Ok(());
        }
        let dma = self.dma_alignment as usize;
        let block = self.logical_block_size as usize - 1;
        let misplaced = |s: &&Segment| s.addr & dma != 0 || s.len as usize & (dma | block) != 0;
        let mut segments = bio.segments.as_slice().iter().filter(|segment| segment.len > 0);
        match segments.find(misplaced) {
            Some(s) => Err(SubmitErrorKind::MemoryMisaligned {
                addr: s.addr,
                len: s.len,
                addr_unit: self.dma_alignment + 1,
                len_unit: (self.dma_alignment + 1).max(self.logical_block_size),
            }),
            None => Ok(()),
        }
    }

    #[cold]
    fn misaligned(&self, bio: &Bio) -> SubmitErrorKind {
        SubmitErrorKind::Misaligned {
            start: bio.start,
            len: bio.len,
            unit: self.logical_block_size,
        }
    }

    /// Returns the largest size in bytes of a request of `op` that begins at `start`. The size ends
    /// at the next chunk boundary.
    #[inline]
    pub(crate) fn max_bytes_at(&self, op: Op, start: u64) -> u64 {
        match op {
            Op::Discard => sectors_to_bytes(self.max_discard_sectors),
            Op::WriteZeroes => sectors_to_bytes(self.max_write_zeroes_sectors),
            Op::Read | Op::Write | Op::Flush => {
                let max = sectors_to_bytes(self.max_sectors);
                if self.chunk_sectors == 0 {
                    return max;
                }
                let chunk = sectors_to_bytes(self.chunk_sectors);
                max.min(chunk - start % chunk)
            }
        }
    }
}

/// Converts sectors to bytes.
#[inline]
pub(crate) fn sectors_to_bytes(nr_sectors: u32) -> u64 {
    u64::from(nr_sectors) << SECTOR_SHIFT
}
