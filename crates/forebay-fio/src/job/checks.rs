//! The data of writes, and the verification of blocks.

use crate::verify::Checksum;
use crate::verify::pattern::Pattern;

/// The options of `verify` and of the data to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checks {
    /// `verify`: the method.
    pub method: Method,
    /// `verify_pattern`: the data of verified blocks.
    pub pattern: Option<Pattern>,
    /// `verify_only`: whether to write nothing and verify the data of an earlier run.
    pub only: bool,
    /// `verify_fatal`: whether to end the job at the first bad block.
    pub fatal: bool,
    /// `buffer_pattern`: the data of writes without verification.
    pub buffer_pattern: Option<Pattern>,
    /// `zero_buffers`: whether that data is zeros.
    pub zero_buffers: bool,
    /// `refill_buffers`: whether to make new data for each write.
    pub refill_buffers: bool,
}

impl Method {
    /// Returns fio's name for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Header(Checksum::Crc32c) => "crc32c",
            Self::Header(Checksum::Xxhash) => "xxhash",
            Self::Pattern => "pattern",
            Self::None => "none",
        }
    }
}

/// How blocks are verified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Method {
    /// By a header with a checksum.
    Header(Checksum),
    /// By comparing the block with the pattern.
    Pattern,
    /// Not at all.
    #[default]
    None,
}
