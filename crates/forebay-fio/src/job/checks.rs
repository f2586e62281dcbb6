//! What blocks are filled with, and how they are checked.

use crate::verify::Checksum;
use crate::verify::pattern::Pattern;

/// The options of `verify`, and those of the data that is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checks {
    /// `verify`: how a block shows that it is whole.
    pub method: Method,
    /// `verify_pattern`: what blocks are filled with.
    pub pattern: Option<Pattern>,
    /// `verify_only`: whether nothing is written, and what an earlier run wrote is checked.
    pub only: bool,
    /// `verify_fatal`: whether the first bad block ends the job.
    pub fatal: bool,
    /// `buffer_pattern`: the data of writes that are not verified.
    pub buffer_pattern: Option<Pattern>,
    /// `zero_buffers`: whether that is zeros.
    pub zero_buffers: bool,
    /// `refill_buffers`: whether each write has new data.
    pub refill_buffers: bool,
}

impl Method {
    /// fio's word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Header(Checksum::Crc32c) => "crc32c",
            Self::Header(Checksum::Xxhash) => "xxhash",
            Self::Pattern => "pattern",
            Self::None => "none",
        }
    }
}

/// How blocks are checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Method {
    /// By a header with a checksum.
    Header(Checksum),
    /// By comparing all of it with the pattern.
    Pattern,
    /// Not at all.
    #[default]
    None,
}
