//! Header of a verified block, in fio 3.33's layout.
//!
//! | bytes | content (little-endian) |
//! |---|---|
//! | 0..2 | magic, 0xacca |
//! | 2..4 | number of the checksum |
//! | 4..8 | length of the block in bytes |
//! | 8..16 | seed of the data |
//! | 16..24 | offset of the block in bytes |
//! | 24..28, 28..32 | start of the write: seconds and nanoseconds of the monotonic clock |
//! | 32..34 | number of the thread, from 1 on |
//! | 34..36 | number of the write, modulo 2^16 |
//! | 36..40 | CRC-32C of the 36 bytes before, without the final inversion |

/// Bytes of the header, without the checksum of the data that follows it.
pub const HEADER_LEN: usize = 40;

/// The first two bytes of a header.
pub const MAGIC: u16 = 0xacca;

/// Bytes that the CRC covers.
const COVERED: usize = 36;

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) code: u16,
    pub(super) len: u32,
    pub(super) seed: u64,
    pub(super) offset: u64,
    pub(super) time_ns: u64,
    pub(super) thread: u16,
    pub(super) number: u16,
}

impl Header {
    /// Writes the header to the start of a block.
    pub(super) fn write(&self, block: &mut [u8]) {
        const NS: u64 = 1_000_000_000;
        block[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        block[2..4].copy_from_slice(&self.code.to_le_bytes());
        block[4..8].copy_from_slice(&self.len.to_le_bytes());
        block[8..16].copy_from_slice(&self.seed.to_le_bytes());
        block[16..24].copy_from_slice(&self.offset.to_le_bytes());
        block[24..28].copy_from_slice(&((self.time_ns / NS) as u32).to_le_bytes());
        block[28..32].copy_from_slice(&((self.time_ns % NS) as u32).to_le_bytes());
        block[32..34].copy_from_slice(&self.thread.to_le_bytes());
        block[34..36].copy_from_slice(&self.number.to_le_bytes());
        let crc = !crc32c::crc32c(&block[..COVERED]);
        block[36..40].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the header of a block, without checking it.
    pub(super) fn read(block: &[u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| block[at + i]));
        let wide = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Self {
            code: short(block, 2),
            len: word(4),
            seed: wide(8),
            offset: wide(16),
            time_ns: u64::from(word(24)) * 1_000_000_000 + u64::from(word(28)),
            thread: short(block, 32),
            number: short(block, 34),
        }
    }
}

fn short(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// Returns the magic number that a block starts with.
pub(super) fn magic(block: &[u8]) -> u16 {
    short(block, 0)
}

/// Returns the CRC of a block's header, and the one that the header has.
pub(super) fn crcs(block: &[u8]) -> (u32, u32) {
    let found = u32::from_le_bytes(std::array::from_fn(|i| block[COVERED + i]));
    (!crc32c::crc32c(&block[..COVERED]), found)
}
