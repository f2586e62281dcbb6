//! Which blocks a job has written: one bit per block, so that they can be read back.

use forebay_fio::generator::{Direction, Op, Region};

/// The written blocks of a region.
#[derive(Debug)]
pub(super) struct Written {
    region: Region,
    bs: u32,
    bits: Vec<u64>,
}

impl Written {
    /// None of the blocks of `region`.
    pub(super) fn none(region: Region, bs: u32) -> Self {
        Self { region, bs, bits: vec![0; (Self::bytes(region, bs) / 8) as usize] }
    }

    /// How much memory that takes.
    pub(super) fn bytes(region: Region, bs: u32) -> u64 {
        (region.len / u64::from(bs)).div_ceil(64) * 8
    }

    /// Notes the block at `offset`, which is one that the generator gave.
    pub(super) fn insert(&mut self, offset: u64) {
        let block = (offset - self.region.offset) / u64::from(self.bs);
        self.bits[(block / 64) as usize] |= 1 << (block % 64);
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.bits.iter().all(|&bits| bits == 0)
    }

    /// Reads of all written blocks, by offset.
    pub(super) fn reads(&self) -> impl Iterator<Item = Op> + '_ {
        let blocks = self.bits.iter().zip(0_u64..).flat_map(|(&bits, word)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
        });
        blocks.map(|block| Op {
            direction: Direction::Read,
            offset: self.region.offset + block * u64::from(self.bs),
            len: self.bs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_once_and_in_order() {
        let mut written = Written::none(Region { offset: 8192, len: 100 * 4096 }, 4096);
        assert!(written.is_empty());
        for block in [99, 0, 63, 64, 0] {
            written.insert(8192 + block * 4096);
        }
        let blocks: Vec<_> = written.reads().map(|op| (op.offset - 8192) / 4096).collect();
        assert_eq!(blocks, [0, 63, 64, 99]);
        assert!(!written.is_empty());
    }
}
