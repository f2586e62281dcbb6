//! Verification of blocks: a header with a checksum, and data that follows from it.
//!
//! With `verify=crc32c` or `xxhash` every written block begins with a header that describes the
//! block, so that a later read detects torn, stale, misplaced and changed data. fio's HOWTO
//! describes the same idea, but the layout differs: neither program can verify the other's blocks.
//! Blocks of `verify=pattern` are the same as fio's.
//!
//! | bytes | content (little-endian) |
//! |---|---|
//! | 0..4 | magic, [`MAGIC`] |
//! | 4..8 | length of the block in bytes |
//! | 8..16 | offset of the block in bytes |
//! | 16..24 | generation: one number per run, which shows data of an older run |
//! | 24..32 | seed of the job |
//! | 32..36 | checksum of the data that follows the header |
//! | 36..40 | CRC-32C of the 36 bytes before |
//! | 40.. | data drawn from (seed, offset, generation), or the pattern |
//!
//! The checksum is CRC-32C, or XXH32 if the magic is [`MAGIC_XXHASH`]. With `verify=pattern` blocks
//! have no header: see [`pattern`].

pub mod pattern;
mod xxhash;

use thiserror::Error;

use self::pattern::Pattern;
use crate::random::Xoshiro256;

/// The first four bytes of a block with CRC-32C, as a little-endian number ("FBvc").
pub const MAGIC: u32 = u32::from_le_bytes(*b"FBvc");

/// The first four bytes of a block with XXH32 ("FBvx").
pub const MAGIC_XXHASH: u32 = u32::from_le_bytes(*b"FBvx");

/// The checksum in a block's header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Checksum {
    /// CRC-32C.
    #[default]
    Crc32c,
    /// XXH32.
    Xxhash,
}

impl Checksum {
    fn magic(self) -> u32 {
        match self {
            Self::Crc32c => MAGIC,
            Self::Xxhash => MAGIC_XXHASH,
        }
    }

    fn of(self, data: &[u8]) -> u32 {
        match self {
            Self::Crc32c => crc32c::crc32c(data),
            Self::Xxhash => xxhash::xxh32(data),
        }
    }
}

/// Bytes of the header, and of the smallest block that can be verified.
pub const HEADER_LEN: usize = 40;

/// The identity of the job and the run in a block's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The seed of the job.
    pub seed: u64,
    /// The number of the run.
    pub generation: u64,
}

/// An error in a block. Offsets and lengths are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The block has no header.
    #[error(
        "verify: no header at offset {offset}: expected magic {expected:#010x}, found \
         {found:#010x}; check that the block was written with the same verify and bs"
    )]
    Magic {
        /// The offset of the block.
        offset: u64,
        /// The expected magic number.
        expected: u32,
        /// The bytes found.
        found: u32,
    },
    /// The checksum of the header is wrong.
    #[error(
        "verify: damaged header at offset {offset}: expected crc {expected:#010x}, \
         found {found:#010x}"
    )]
    Header {
        /// The offset of the block.
        offset: u64,
        /// The checksum of the header's bytes.
        expected: u32,
        /// The checksum in the header.
        found: u32,
    },
    /// The block belongs to another offset.
    #[error(
        "verify: misplaced block at offset {offset}: expected offset {offset}, found offset {found}"
    )]
    Offset {
        /// The offset of the block.
        offset: u64,
        /// The offset in the header.
        found: u64,
    },
    /// The block was written with another block size.
    #[error(
        "verify: block of another size at offset {offset}: expected {expected} bytes, found {found}"
    )]
    Length {
        /// The offset of the block.
        offset: u64,
        /// The length of the block that was read.
        expected: u64,
        /// The length in the header.
        found: u64,
    },
    /// The block is from another run or another job.
    #[error(
        "verify: stale block at offset {offset}: expected generation {}, seed {}; found generation \
         {}, seed {}", expected.generation, expected.seed, found.generation, found.seed
    )]
    Stale {
        /// The offset of the block.
        offset: u64,
        /// The identity of the last write.
        expected: Stamp,
        /// The identity in the header.
        found: Stamp,
    },
    /// The checksum of the data is wrong.
    #[error(
        "verify: damaged data at offset {offset}: expected crc {expected:#010x}, \
         found {found:#010x}"
    )]
    Data {
        /// The offset of the block.
        offset: u64,
        /// The checksum in the header.
        expected: u32,
        /// The checksum of the data.
        found: u32,
    },
    /// A byte differs from the pattern.
    #[error(
        "verify: bad pattern at offset {offset}, byte {at}: expected {expected:#04x}, \
         found {found:#04x}"
    )]
    Pattern {
        /// The offset of the block.
        offset: u64,
        /// The position of the byte in the block.
        at: usize,
        /// The byte of the pattern.
        expected: u8,
        /// The byte found.
        found: u8,
    },
}

/// Fills a block that will be written at `offset`: a header with CRC-32C, and random data.
///
/// # Panics
///
/// If the block is shorter than [`HEADER_LEN`] or longer than 4 GiB.
pub fn fill(block: &mut [u8], offset: u64, stamp: Stamp) {
    fill_with(block, offset, stamp, Checksum::Crc32c, None);
}

/// Fills a block as [`fill`] does, with this checksum, and with the pattern as data if there is
/// one.
///
/// # Panics
///
/// As [`fill`].
pub fn fill_with(
    block: &mut [u8],
    offset: u64,
    stamp: Stamp,
    checksum: Checksum,
    pattern: Option<&Pattern>,
) {
    let len = u32::try_from(block.len()).expect("a block is at most 4 GiB");
    let (header, data) = split(block);
    match pattern {
        Some(pattern) => pattern.fill(data, offset),
        None => Xoshiro256::new(stamp.seed ^ offset, stamp.generation).fill(data),
    }
    header[0..4].copy_from_slice(&checksum.magic().to_le_bytes());
    header[4..8].copy_from_slice(&len.to_le_bytes());
    header[8..16].copy_from_slice(&offset.to_le_bytes());
    header[16..24].copy_from_slice(&stamp.generation.to_le_bytes());
    header[24..32].copy_from_slice(&stamp.seed.to_le_bytes());
    header[32..36].copy_from_slice(&checksum.of(data).to_le_bytes());
    let crc = crc32c::crc32c(&header[..36]);
    header[36..40].copy_from_slice(&crc.to_le_bytes());
}

/// Checks a block that was read at `offset` against a pattern that fills all of it.
///
/// # Errors
///
/// [`Mismatch::Pattern`] with the first byte that differs.
pub fn check_pattern(block: &[u8], offset: u64, pattern: &Pattern) -> Result<(), Mismatch> {
    match pattern.first_difference(block, offset) {
        None => Ok(()),
        Some(pattern::Difference { at, expected, found }) => {
            Err(Mismatch::Pattern { offset, at, expected, found })
        }
    }
}

/// Checks a block that was read at `offset`: header, offset, data and, if `expected` is given, the
/// run that wrote it.
///
/// # Errors
///
/// The first [`Mismatch`]: the offset, the expected value, and the value found.
///
/// # Panics
///
/// If the block is shorter than [`HEADER_LEN`].
pub fn check(block: &[u8], offset: u64, expected: Option<Stamp>) -> Result<(), Mismatch> {
    check_with(block, offset, expected, Checksum::Crc32c)
}

/// Checks a block as [`check`] does, with this checksum.
///
/// # Errors
///
/// As [`check`].
///
/// # Panics
///
/// As [`check`].
pub fn check_with(
    block: &[u8],
    offset: u64,
    expected: Option<Stamp>,
    checksum: Checksum,
) -> Result<(), Mismatch> {
    let (header, data) = block.split_at(HEADER_LEN);
    let found = read_u32(header, 0);
    if found != checksum.magic() {
        return Err(Mismatch::Magic { offset, expected: checksum.magic(), found });
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
    let (expected, found) = (read_u32(header, 32), checksum.of(data));
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
mod tests;
