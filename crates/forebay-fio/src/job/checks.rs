//! The data of writes, and the verification of blocks.

use crate::data::DataOptions;
use crate::generator::sizes::SizeRule;
use crate::verify::Format;
use crate::verify::digest::Checksum;
use crate::verify::pattern::Pattern;

/// The options of `verify` and of the data to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checks {
    /// `verify`: the method.
    pub method: Method,
    /// `verify_pattern`: the data of verified blocks.
    pub pattern: Option<Pattern>,
    /// `verify_interval`: bytes between two headers; `None`: one header in each I/O, or in each
    /// part as long as the smallest write if sizes vary.
    pub interval: Option<u32>,
    /// `verify_offset`: where the header is in its block.
    pub header_at: u32,
    /// `verify_backlog`: writes after which blocks are read back; 0: at the end.
    pub backlog: u64,
    /// `verify_backlog_batch`: blocks to read back then; 0: as `verify_backlog`.
    pub backlog_batch: u64,
    /// `verify_dump`: whether to write bad blocks to files.
    pub dump: bool,
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
    /// `dedupe_*`, `buffer_compress_*`, `scramble_buffers`.
    pub data: DataOptions,
}

impl Checks {
    /// Returns the format of blocks with a header, in a job with these sizes of reads, if it reads,
    /// and writes. The interval is chosen as in fio: writes are multiples of it.
    pub(super) fn format(
        &self,
        reads: Option<&SizeRule>,
        writes: &SizeRule,
        unaligned: bool,
    ) -> Format {
        let checksum = match self.method {
            Method::Header(checksum) => checksum,
            _ => Checksum::default(),
        };
        let interval = if unaligned { 0 } else { self.interval_of(reads, writes) };
        Format { checksum, pattern: self.pattern.clone(), interval, header_at: self.header_at }
    }

    fn interval_of(&self, reads: Option<&SizeRule>, writes: &SizeRule) -> u32 {
        let smallest = writes.min();
        let given = self.interval.unwrap_or(smallest).min(smallest);
        let interval = match reads {
            Some(reads) if given < smallest => given.min(reads.min()),
            _ => given,
        };
        let units = writes.units();
        if interval > 0 && units.iter().all(|unit| unit.is_multiple_of(interval)) {
            return interval;
        }
        units.into_iter().fold(0, gcd)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Method {
    /// Returns the method of fio's name, `None` for "no verification".
    pub(crate) fn from_word(word: &str) -> Self {
        match word {
            "pattern" => Self::Pattern,
            "null" => Self::Null,
            // Since version 2 of fio, both words mean the same.
            "crc32c-intel" => Self::Header(Checksum::Crc32c),
            word => Checksum::from_word(word).map_or(Self::None, Self::Header),
        }
    }

    /// Returns whether blocks have a header.
    pub fn has_header(self) -> bool {
        matches!(self, Self::Header(_))
    }

    /// Returns fio's name for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Header(checksum) => checksum.word(),
            Self::Pattern => "pattern",
            Self::Null => "null",
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
    /// Blocks are read back, and nothing is compared.
    Null,
    /// Not at all.
    #[default]
    None,
}
