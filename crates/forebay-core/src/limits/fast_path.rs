//! Fast path for plain bios.
//!
//! Most bios are a read or write of one segment that fits one request and carries no flag. The
//! consequences of the limits for such bios are computed once per disk. Each then costs a few
//! comparisons. All other bios take the full rules ([`QueueLimits::check`], [`crate::split`]).

use crate::bio::{Bio, BioFlags, Op, Segments};
use crate::limits::{QueueLimits, sectors_to_bytes};

/// The precomputed limits for plain bios of a disk.
#[derive(Debug)]
pub(crate) struct FastPath {
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
    pub(crate) fn of(limits: &QueueLimits) -> FastPath {
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
    pub(crate) fn accepts(&self, bio: &Bio) -> bool {
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

    fn kinds() -> [QueueLimits; 4] {
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
        let [plain, read_only, aligned, chunked] = found;
        assert!(plain[0] > 20 && plain[0] == plain[1], "{plain:?}");
        assert_eq!(read_only, [plain[0], 0]);
        assert!(aligned[0] > 5 && aligned[0] < plain[0], "{aligned:?}");
        assert_eq!(chunked, [0, 0]);
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
