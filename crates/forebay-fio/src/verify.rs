//! Blocks that can be checked: a header with CRC-32C, and data that follows from it.
//!
//! With `verify=crc32c` every written block begins with a header that names what belongs there, so
//! that a later read finds data that is torn, stale, in the wrong place, or changed. fio's HOWTO
//! describes the same idea; the layout is our own, and fio does not check our blocks, nor we fio's.
//!
//! | bytes | content (little-endian) |
//! |---|---|
//! | 0..4 | magic, [`MAGIC`] |
//! | 4..8 | length of the block in bytes |
//! | 8..16 | offset of the block in bytes |
//! | 16..24 | generation: one number per run, so that an older run's data is noticed |
//! | 24..32 | seed of the job |
//! | 32..36 | CRC-32C of the data that follows the header |
//! | 36..40 | CRC-32C of the 36 bytes before |
//! | 40.. | data drawn from (seed, offset, generation) |

use thiserror::Error;

use crate::random::Xoshiro256;

/// The first four bytes of a verifiable block, as a little-endian number ("FBvc").
pub const MAGIC: u32 = u32::from_le_bytes(*b"FBvc");

/// Bytes of the header: the smallest block that can be verified.
pub const HEADER_LEN: usize = 40;

/// What a job writes into its blocks besides their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The seed of the job.
    pub seed: u64,
    /// The number of the run.
    pub generation: u64,
}

/// What is wrong with a block. Offsets and lengths are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// There is no header.
    #[error(
        "verify: no header at offset {offset}: expected magic {MAGIC:#010x}, found {found:#010x} \
         (was this block written with verify=crc32c and the same bs?)"
    )]
    Magic {
        /// Where it was read.
        offset: u64,
        /// What is there instead.
        found: u32,
    },
    /// The header's own checksum is wrong.
    #[error(
        "verify: damaged header at offset {offset}: expected crc {expected:#010x}, \
         found {found:#010x}"
    )]
    Header {
        /// Where it was read.
        offset: u64,
        /// The checksum that the header's bytes have.
        expected: u32,
        /// The checksum that it says.
        found: u32,
    },
    /// The block belongs somewhere else.
    #[error(
        "verify: misplaced block at offset {offset}: expected offset {offset}, found offset {found}"
    )]
    Offset {
        /// Where it was read.
        offset: u64,
        /// Where it says that it belongs.
        found: u64,
    },
    /// The block was written with another block size.
    #[error(
        "verify: block of another size at offset {offset}: expected {expected} bytes, found {found}"
    )]
    Length {
        /// Where it was read.
        offset: u64,
        /// Bytes that were read.
        expected: u64,
        /// Bytes that it says.
        found: u64,
    },
    /// The block is from another run or another job.
    #[error(
        "verify: stale block at offset {offset}: expected generation {}, seed {}; found generation \
         {}, seed {}", expected.generation, expected.seed, found.generation, found.seed
    )]
    Stale {
        /// Where it was read.
        offset: u64,
        /// What was written last.
        expected: Stamp,
        /// What is there.
        found: Stamp,
    },
    /// The data does not fit its checksum.
    #[error(
        "verify: damaged data at offset {offset}: expected crc {expected:#010x}, \
         found {found:#010x}"
    )]
    Data {
        /// Where it was read.
        offset: u64,
        /// The checksum in the header.
        expected: u32,
        /// The checksum of what is there.
        found: u32,
    },
}

/// Fills a block that will be written at `offset`.
///
/// # Panics
///
/// If the block is shorter than [`HEADER_LEN`] or longer than 4 GiB.
pub fn fill(block: &mut [u8], offset: u64, stamp: Stamp) {
    let len = u32::try_from(block.len()).expect("a block is at most 4 GiB");
    let (header, data) = split(block);
    let mut draws = Xoshiro256::new(stamp.seed ^ offset, stamp.generation);
    for chunk in data.chunks_mut(8) {
        let bytes = draws.draw().to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
    header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&len.to_le_bytes());
    header[8..16].copy_from_slice(&offset.to_le_bytes());
    header[16..24].copy_from_slice(&stamp.generation.to_le_bytes());
    header[24..32].copy_from_slice(&stamp.seed.to_le_bytes());
    header[32..36].copy_from_slice(&crc32c::crc32c(data).to_le_bytes());
    let crc = crc32c::crc32c(&header[..36]);
    header[36..40].copy_from_slice(&crc.to_le_bytes());
}

/// Checks a block that was read at `offset`: its header, its place, its data, and, if `expected` is
/// given, that it is from this run.
///
/// # Errors
///
/// The first [`Mismatch`], which names the offset, what was expected, and what was found.
///
/// # Panics
///
/// If the block is shorter than [`HEADER_LEN`].
pub fn check(block: &[u8], offset: u64, expected: Option<Stamp>) -> Result<(), Mismatch> {
    let (header, data) = block.split_at(HEADER_LEN);
    let magic = read_u32(header, 0);
    if magic != MAGIC {
        return Err(Mismatch::Magic { offset, found: magic });
    }
    let (crc, found) = (crc32c::crc32c(&header[..36]), read_u32(header, 36));
    if crc != found {
        return Err(Mismatch::Header { offset, expected: crc, found });
    }
    let place = read_u64(header, 8);
    if place != offset {
        return Err(Mismatch::Offset { offset, found: place });
    }
    let (len, expected_len) = (u64::from(read_u32(header, 4)), block.len() as u64);
    if len != expected_len {
        return Err(Mismatch::Length { offset, expected: expected_len, found: len });
    }
    let stamp = Stamp { generation: read_u64(header, 16), seed: read_u64(header, 24) };
    if let Some(expected) = expected.filter(|&expected| expected != stamp) {
        return Err(Mismatch::Stale { offset, expected, found: stamp });
    }
    let (expected, found) = (read_u32(header, 32), crc32c::crc32c(data));
    if expected != found {
        return Err(Mismatch::Data { offset, expected, found });
    }
    Ok(())
}

fn split(block: &mut [u8]) -> (&mut [u8], &mut [u8]) {
    assert!(block.len() >= HEADER_LEN, "a verifiable block has at least {HEADER_LEN} bytes");
    block.split_at_mut(HEADER_LEN)
}

fn read_u32(header: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| header[at + i]))
}

fn read_u64(header: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| header[at + i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { seed: 0x89, generation: 3 };

    fn block(len: usize, offset: u64) -> Vec<u8> {
        let mut block = vec![0; len];
        fill(&mut block, offset, STAMP);
        block
    }

    #[track_caller]
    fn check_mismatch(block: &[u8], offset: u64, message: &str) {
        let mismatch = check(block, offset, Some(STAMP)).expect_err(message);
        let text = mismatch.to_string();
        assert!(text.starts_with(message), "{text}");
    }

    #[test]
    fn what_was_filled_checks() {
        for len in [HEADER_LEN, HEADER_LEN + 1, 512, 4096, 65_536 + 3] {
            assert_eq!(check(&block(len, 12_288), 12_288, Some(STAMP)), Ok(()), "{len}");
            assert_eq!(check(&block(len, 12_288), 12_288, None), Ok(()), "{len}");
        }
    }

    #[test]
    fn data_differs_by_offset_generation_and_seed() {
        let data = |offset, seed, generation| {
            let mut block = vec![0; 512];
            fill(&mut block, offset, Stamp { seed, generation });
            block.split_off(HEADER_LEN)
        };
        assert_ne!(data(0, 1, 1), data(512, 1, 1));
        assert_ne!(data(0, 1, 1), data(0, 2, 1));
        assert_ne!(data(0, 1, 1), data(0, 1, 2));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let good = block(256, 4096);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&bad, 4096, Some(STAMP)).is_err(), "bit {bit}");
            assert!(check(&bad, 4096, None).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn mismatches_name_offset_expected_and_found() {
        check_mismatch(
            &[0; 512],
            40_960,
            "verify: no header at offset 40960: expected magic 0x63764246, found 0x00000000",
        );
        check_mismatch(
            &block(512, 512),
            1024,
            "verify: misplaced block at offset 1024: expected offset 1024, found offset 512",
        );
        check_mismatch(
            &block(512, 0)[..256],
            0,
            "verify: block of another size at offset 0: expected 256 bytes, found 512",
        );
        let mut torn = block(512, 0);
        torn[256..].fill(0);
        check_mismatch(&torn, 0, "verify: damaged data at offset 0: expected crc 0x");
        let mut header = block(512, 0);
        header[20] ^= 1;
        check_mismatch(&header, 0, "verify: damaged header at offset 0: expected crc 0x");
    }

    #[test]
    fn an_older_run_is_stale() {
        let mut old = vec![0; 512];
        fill(&mut old, 0, Stamp { generation: 2, ..STAMP });
        check_mismatch(
            &old,
            0,
            "verify: stale block at offset 0: expected generation 3, seed 137; found generation 2, \
             seed 137",
        );
        assert_eq!(check(&old, 0, None), Ok(()));
    }
}
