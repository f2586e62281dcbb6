//! The options of the data that jobs write, and of its verification.

use super::row;
use crate::job::Method;
use crate::options::{Kind, OptionSpec};
use crate::verify::pattern::Pattern;

#[rustfmt::skip]
pub(super) const ROWS: &[OptionSpec] = &[
    row("verify", &[], "0", "write checksums into the blocks, and check them when reading",
        Kind::Choice {
            words: &["crc32c", "crc32c-intel", "crc32", "crc64", "crc16", "crc7", "md5", "sha1",
                "sha256", "sha512", "sha3-224", "sha3-256", "sha3-384", "sha3-512", "xxhash",
                "meta", "pattern", "null", "0", "none"],
            set: |g, word| {
                g.checks.method = Method::from_word(word);
                g.verify = Some(g.checks.method != Method::None);
            },
        }),
    row("verify_pattern", &[], "random data",
        "fill blocks with this pattern; verify=pattern checks the pattern alone",
        Kind::Parsed { accepts: "numbers, texts in double quotes, and %o, as in 0xff%o\"abc\"12",
            set: |g, text| { g.checks.pattern = Some(Pattern::parse(text, true)?); Ok(()) } }),
    row("verify_only", &[], "0", "write nothing; check the data of an earlier run",
        Kind::Flag { set: |g, on| g.checks.only = on }),
    row("verify_fatal", &[], "0", "end the job at the first bad block",
        Kind::Bool { set: |g, on| g.checks.fatal = on }),
    row("verify_dump", &[], "0",
        "write each bad block to FILE.OFFSET.received, the expected data to FILE.OFFSET.expected",
        Kind::Bool { set: |g, on| g.checks.dump = on }),
    row("verify_interval", &[], "the smallest write",
        "bytes between headers; where it does not divide the sizes, their greatest common divisor",
        Kind::Int { min: 80, max: u32::MAX as u64,
            set: |g, n| g.checks.interval = Some(n as u32) }),
    row("verify_offset", &[], "0", "offset of the header in its block, bytes; 0: at the start",
        Kind::Int { min: 0, max: u32::MAX as u64, set: |g, n| g.checks.header_at = n as u32 }),
    row("verify_backlog", &[], "0",
        "read written blocks back after this number of writes, and the rest at the end; 0: all at \
         the end",
        Kind::Int { min: 0, max: u64::MAX, set: |g, n| g.checks.backlog = n }),
    row("verify_backlog_batch", &[], "0", "blocks to read back each time; 0: verify_backlog",
        Kind::Int { min: 0, max: u32::MAX as u64, set: |g, n| g.checks.backlog_batch = n }),
    row("do_verify", &[], "1", "with verify: read the data back at the end",
        Kind::Bool { set: |g, on| g.do_verify = Some(on) }),
    row("buffer_pattern", &[], "random data",
        "fill the data of writes without verify with this pattern",
        Kind::Parsed { accepts: "numbers and texts in double quotes, as in 0xff\"abc\"12",
            set: |g, text| {
                g.checks.buffer_pattern = Some(Pattern::parse(text, false)?);
                Ok(())
            } }),
    row("zero_buffers", &[], "0", "write zeros, in jobs without verify",
        Kind::Flag { set: |g, on| g.checks.zero_buffers = on }),
    row("refill_buffers", &[], "0", "make new data for each write instead of reusing the buffer",
        Kind::Flag { set: |g, on| g.checks.refill_buffers = on }),
    row("scramble_buffers", &[], "1",
        "change a few bytes in each sector of a buffer that is written again",
        Kind::Bool { set: |g, on| g.checks.data.is_unscrambled = !on }),
    row("buffer_compress_percentage", &[], "none given",
        "percentage of each chunk that is zeros or buffer_pattern; the rest is random",
        Kind::Int { min: 0, max: 100, set: |g, n| g.checks.data.compress = Some(n as u8) }),
    row("buffer_compress_chunk", &[], "512",
        "bytes of a chunk of compressible data; 0: the smallest write",
        Kind::Int { min: 0, max: 1 << 30,
            set: |g, n| g.checks.data.chunk = Some(n as u32).filter(|&n| n != 512) }),
    row("dedupe_percentage", &[], "0", "percentage of writes that repeat earlier data",
        Kind::Int { min: 0, max: 100, set: |g, n| g.checks.data.dedupe = n as u8 }),
    row("dedupe_mode", &[], "repeat",
        "the source of duplicates: the last new data (repeat), or some of the first (working_set)",
        Kind::Choice {
            words: &["repeat", "working_set"],
            set: |g, word| g.checks.data.has_working_set = word == "working_set",
        }),
    row("dedupe_working_set_percentage", &[], "5",
        "size of that working set, as a percentage of size",
        Kind::Int { min: 0, max: 100,
            set: |g, n| g.checks.data.working_set = Some(n as u8).filter(|&n| n != 5) }),
    row("dedupe_global", &[], "0", "clones of all jobs with this option share a working set",
        Kind::Bool { set: |g, on| g.checks.data.is_global = on }),
];
