//! The set of blocks that a job has written, to be read back.

use std::collections::BTreeMap;

use forebay_fio::generator::{Direction, Op, Region};
use forebay_fio::job::Job;

use super::block_set::BlockSet;

/// The written blocks of a region.
#[derive(Debug)]
pub(super) enum Written {
    /// One bit for each block, if all blocks have one size.
    Blocks { region: Region, bs: u32, blocks: BlockSet },
    /// Offset and length of each piece, if sizes vary. Overwritten pieces are removed.
    Pieces(BTreeMap<u64, u32>),
    /// The blocks of several files.
    Files(Vec<Self>),
}

impl Written {
    /// Returns the empty set for these regions, one of each file.
    pub(super) fn none(regions: &[Region], job: &Job) -> Self {
        match *regions {
            [region] => Self::of_one(region, job),
            _ => Self::Files(regions.iter().map(|&region| Self::of_one(region, job)).collect()),
        }
    }

    fn of_one(region: Region, job: &Job) -> Self {
        match job.variety {
            Some(_) => Self::Pieces(BTreeMap::new()),
            None => {
                let blocks = BlockSet::new(region.len / u64::from(job.bs));
                Self::Blocks { region, bs: job.bs, blocks }
            }
        }
    }

    /// Returns the memory that the set takes, or may grow to.
    pub(super) fn bytes(region: Region, job: &Job) -> u64 {
        /// Bytes of a piece in the map, with the map's own overhead.
        const PIECE: u64 = 24;
        let blocks = region.len / u64::from(job.bs);
        if job.variety.is_some() { blocks * PIECE } else { BlockSet::bytes(blocks) }
    }

    /// Records a write from the generator.
    pub(super) fn insert(&mut self, op: Op) {
        match self {
            Self::Blocks { region, bs, blocks } => {
                blocks.insert((op.offset - region.offset) / u64::from(*bs));
            }
            Self::Pieces(pieces) => {
                // As in fio, a piece that is partly overwritten is not read back.
                remove_overlapping(pieces, op);
                pieces.insert(op.offset, op.len);
            }
            Self::Files(files) => files[usize::from(op.file)].insert(op),
        }
    }

    /// Removes what overlaps a write that has failed.
    pub(super) fn forget(&mut self, op: Op) {
        match self {
            Self::Blocks { .. } => self.remove(&op),
            Self::Pieces(pieces) => remove_overlapping(pieces, op),
            Self::Files(files) => files[usize::from(op.file)].forget(op),
        }
    }

    /// Returns whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Blocks { blocks, .. } => blocks.is_empty(),
            Self::Pieces(pieces) => pieces.is_empty(),
            Self::Files(files) => files.iter().all(Self::is_empty),
        }
    }

    /// Removes all blocks.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Blocks { blocks, .. } => blocks.clear(),
            Self::Pieces(pieces) => pieces.clear(),
            Self::Files(files) => files.iter_mut().for_each(Self::clear),
        }
    }

    /// Removes the first blocks, at most `max`, and returns reads of them.
    pub(super) fn take(&mut self, max: u64) -> Vec<Op> {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let ops: Vec<_> = self.reads().take(max).collect();
        ops.iter().for_each(|op| self.remove(op));
        ops
    }

    fn remove(&mut self, op: &Op) {
        match self {
            Self::Blocks { region, bs, blocks } => {
                blocks.remove((op.offset - region.offset) / u64::from(*bs));
            }
            Self::Pieces(pieces) => {
                pieces.remove(&op.offset);
            }
            Self::Files(files) => files[usize::from(op.file)].remove(op),
        }
    }

    /// Returns reads of all written blocks, file by file and by offset.
    pub(super) fn reads(&self) -> impl Iterator<Item = Op> + '_ {
        let files = match self {
            Self::Files(files) => files.as_slice(),
            one => std::slice::from_ref(one),
        };
        let files = (0..).zip(files);
        files.flat_map(|(file, one)| one.reads_of_one().map(move |op| Op { file, ..op }))
    }

    fn reads_of_one(&self) -> impl Iterator<Item = Op> + '_ {
        let read = |offset, len| Op { direction: Direction::Read, file: 0, offset, len };
        let (blocks, pieces) = match self {
            Self::Blocks { region, bs, blocks } => (Some((region, *bs, blocks)), None),
            Self::Pieces(pieces) => (None, Some(pieces)),
            // Files are not nested.
            Self::Files(_) => (None, None),
        };
        let blocks = blocks.into_iter().flat_map(move |(region, bs, blocks)| {
            blocks.iter().map(move |block| read(region.offset + block * u64::from(bs), bs))
        });
        let pieces = pieces.into_iter().flatten();
        blocks.chain(pieces.map(move |(&offset, &len)| read(offset, len)))
    }
}

/// Removes the pieces that overlap an I/O.
fn remove_overlapping(pieces: &mut BTreeMap<u64, u32>, op: Op) {
    let (begin, end) = (op.offset, op.offset + u64::from(op.len));
    while let Some((&at, _)) =
        pieces.range(..end).next_back().filter(|&(&at, &len)| at + u64::from(len) > begin)
    {
        pieces.remove(&at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, len: u32) -> Op {
        Op { direction: Direction::Write, file: 0, offset, len }
    }

    #[test]
    fn written_blocks_are_read_back_once_and_in_order() {
        let region = Region { offset: 8192, len: 100 * 4096 };
        let mut written = Written::Blocks { region, bs: 4096, blocks: BlockSet::new(100) };
        assert!(written.is_empty());
        for block in [99, 0, 63, 64, 0] {
            written.insert(write(8192 + block * 4096, 4096));
        }
        let blocks: Vec<_> = written.reads().map(|op| (op.offset - 8192) / 4096).collect();
        assert_eq!(blocks, [0, 63, 64, 99]);
        assert!(!written.is_empty());
        written.clear();
        assert!(written.is_empty());
    }

    #[test]
    fn taken_blocks_are_not_read_back_again() {
        let region = Region { offset: 8192, len: 100 * 4096 };
        let blocks = Written::Blocks { region, bs: 4096, blocks: BlockSet::new(100) };
        for mut written in [blocks, Written::Pieces(BTreeMap::new())] {
            for block in [99, 0, 63, 64] {
                written.insert(write(8192 + block * 4096, 4096));
            }
            let offsets =
                |ops: Vec<Op>| ops.iter().map(|op| (op.offset - 8192) / 4096).collect::<Vec<_>>();
            assert_eq!(offsets(written.take(3)), [0, 63, 64]);
            assert_eq!(offsets(written.take(u64::MAX)), [99]);
            assert!(written.is_empty());
        }
    }

    #[test]
    fn blocks_whose_write_has_failed_are_not_read_back() {
        let region = Region { offset: 0, len: 100 * 4096 };
        let blocks = Written::Blocks { region, bs: 4096, blocks: BlockSet::new(100) };
        let files = Written::Files(vec![Written::Pieces(BTreeMap::new())]);
        for mut written in [blocks, Written::Pieces(BTreeMap::new()), files] {
            (0..4).for_each(|block| written.insert(write(block * 4096, 4096)));
            written.forget(write(4096, 4096));
            let offsets: Vec<_> = written.reads().map(|op| op.offset).collect();
            assert_eq!(offsets, [0, 8192, 12_288]);
        }
    }

    /// A scan of the map for each batch would take minutes.
    #[test]
    fn batches_of_a_sparse_set_do_not_scan_the_map() {
        const BLOCKS: u64 = 1 << 27;
        let region = Region { offset: 0, len: BLOCKS * 4096 };
        let blocks = BlockSet::new(BLOCKS);
        let mut written = Written::Blocks { region, bs: 4096, blocks };
        for batch in 1..=10_000 {
            let offsets = [BLOCKS - 1, BLOCKS - batch - 1].map(|block| block * 4096);
            offsets.iter().for_each(|&offset| written.insert(write(offset, 4096)));
            let taken: Vec<_> = written.take(2).iter().map(|op| op.offset).collect();
            assert_eq!(taken, [offsets[1], offsets[0]]);
            assert!(written.is_empty());
        }
    }

    #[test]
    fn overwritten_blocks_are_not_read_back() {
        let mut written = Written::Pieces(BTreeMap::new());
        for (offset, len) in [(0, 4096), (8192, 8192), (4096, 1024), (4096, 5000), (20_000, 10)] {
            written.insert(write(offset, len));
        }
        let pieces: Vec<_> = written.reads().map(|op| (op.offset, op.len)).collect();
        assert_eq!(pieces, [(0, 4096), (4096, 5000), (20_000, 10)]);
    }
}
