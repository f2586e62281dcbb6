//! Errors of verification.

use thiserror::Error;

/// An error in a block. Offsets and lengths are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The block has no header.
    #[error(
        "verify: no header at offset {offset}: expected magic {expected:#06x}, found {found:#06x}; \
         check that the block was written with the same verify and bs"
    )]
    Magic {
        /// The offset of the block.
        offset: u64,
        /// The expected magic number.
        expected: u16,
        /// The bytes found.
        found: u16,
    },
    /// The header has the layout of a later version of fio.
    #[error(
        "verify: unknown layout {layout:#04x} of the header at offset {offset}: write the blocks \
         with fio 3.33 or with this program"
    )]
    Layout {
        /// The offset of the block.
        offset: u64,
        /// The layout's number.
        layout: u8,
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
    /// The block was written with another block size or another interval.
    #[error(
        "verify: block of another size at offset {offset}: expected {expected} bytes, found \
         {found}; check bs and verify_interval"
    )]
    Length {
        /// The offset of the block.
        offset: u64,
        /// The length of the block that was read.
        expected: u64,
        /// The length in the header.
        found: u64,
    },
    /// The block has another checksum.
    #[error(
        "verify: the block at offset {offset} has a checksum of type {found}, expected {expected}; \
         use the verify option of the run that wrote it"
    )]
    Checksum {
        /// The offset of the block.
        offset: u64,
        /// The expected checksum.
        expected: &'static str,
        /// The checksum of the header: its name, or its number.
        found: String,
    },
    /// The block is from another run, another job or another file.
    #[error(
        "verify: stale block at offset {offset}: expected seed {expected:#018x}, found \
         {found:#018x} of another run, job or file (thread {thread}, write {number})"
    )]
    Stale {
        /// The offset of the block.
        offset: u64,
        /// The seed of the last write.
        expected: u64,
        /// The seed in the header.
        found: u64,
        /// The number of the thread in the header.
        thread: u16,
        /// The number of the write in the header.
        number: u16,
    },
    /// The checksum of the data is wrong.
    #[error(
        "verify: damaged data at offset {offset}: expected {checksum} {expected}, found {found}"
    )]
    Data {
        /// The offset of the block.
        offset: u64,
        /// The name of the checksum.
        checksum: &'static str,
        /// The checksum in the header, in hexadecimal.
        expected: String,
        /// The checksum of the data, in hexadecimal.
        found: String,
    },
    /// A byte differs from the data that were written.
    #[error(
        "verify: damaged data at offset {offset}, byte {at}: expected {expected:#04x}, \
         found {found:#04x}"
    )]
    Byte {
        /// The offset of the block.
        offset: u64,
        /// The position of the byte in the block.
        at: usize,
        /// The byte that was written.
        expected: u8,
        /// The byte found.
        found: u8,
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

impl Mismatch {
    /// Returns the offset of the block.
    pub fn offset(&self) -> u64 {
        match self {
            Self::Magic { offset, .. }
            | Self::Layout { offset, .. }
            | Self::Header { offset, .. }
            | Self::Offset { offset, .. }
            | Self::Length { offset, .. }
            | Self::Checksum { offset, .. }
            | Self::Stale { offset, .. }
            | Self::Data { offset, .. }
            | Self::Byte { offset, .. }
            | Self::Pattern { offset, .. } => *offset,
        }
    }

    /// Returns whether the header of the block is wrong, so that its data were not checked.
    pub fn is_of_header(&self) -> bool {
        !matches!(self, Self::Data { .. } | Self::Byte { .. } | Self::Pattern { .. })
    }
}

/// Returns bytes in hexadecimal; of a long field, its beginning.
pub(super) fn hex(bytes: &[u8]) -> String {
    /// Bytes of the longest hash that is shown whole.
    const SHOWN: usize = 32;
    let text: String = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > SHOWN { format!("{text}...") } else { text }
}
