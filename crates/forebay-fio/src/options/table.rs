//! The table of options. Names, aliases, limits and defaults are fio's, as `fio --cmdhelp` lists
//! them.

use super::{Kind, OptionSpec};
use crate::generator::Pattern;
use crate::job::{Engine, Eta, OutputFormat};

const fn row(
    name: &'static str,
    aliases: &'static [&'static str],
    default: &'static str,
    help: &'static str,
    kind: Kind,
) -> OptionSpec {
    OptionSpec { name, aliases, kind, default, help }
}

/// A depth or count that must fit into 32 bits; buffers are allocated for it, hence the limit.
const DEPTH_MAX: u64 = 65_536;
const JOBS_MAX: u64 = 4096;

/// Every option that is supported.
#[rustfmt::skip]
pub static OPTIONS: &[OptionSpec] = &[
    row("name", &[], "", "open a job, or with 'global' set defaults for the jobs that follow",
        Kind::JobName),
    row("filename", &[], "", "the device: a file, a block device or a spec such as ram:1G",
        Kind::Text { set: |g, text| g.filename = Some(text.to_owned()) }),
    row("rw", &["readwrite"], "read", "what is done, and in which order",
        Kind::Choice {
            words: &["read", "write", "randread", "randwrite", "rw", "readwrite", "randrw", "trim",
                "randtrim"],
            set: |g, word| g.rw = Pattern::from_word(word),
        }),
    row("rwmixread", &[], "50", "percentage of reads in a mixed pattern",
        Kind::Int { min: 0, max: 100, set: |g, n| g.rwmixread = Some(n as u8) }),
    row("rwmixwrite", &[], "50", "percentage of writes in a mixed pattern",
        Kind::Int { min: 0, max: 100, set: |g, n| g.rwmixread = Some(100 - n as u8) }),
    row("bs", &["blocksize"], "4096", "bytes per I/O",
        Kind::Bytes { min: 1, max: 1 << 30, set: |g, n| g.bs = Some(n as u32) }),
    row("size", &[], "", "length of the region that is worked on",
        Kind::Size { set: |g, size| g.size = Some(size) }),
    row("io_size", &["io_limit"], "", "bytes to transfer, instead of one pass over the region",
        Kind::Size { set: |g, size| g.io_size = Some(size) }),
    row("offset", &["fileoffset"], "0", "where the region begins",
        Kind::Size { set: |g, size| g.offset = Some(size) }),
    row("iodepth", &[], "1", "I/Os kept in flight",
        Kind::Int { min: 1, max: DEPTH_MAX, set: |g, n| g.iodepth = Some(n as u32) }),
    row("iodepth_batch", &["iodepth_batch_submit"], "1", "I/Os submitted at a time; 0: iodepth",
        Kind::Int { min: 0, max: DEPTH_MAX, set: |g, n| g.iodepth_batch = Some(n as u32) }),
    row("iodepth_batch_complete_min", &["iodepth_batch_complete"], "1",
        "I/Os waited for when the queue is full",
        Kind::Int { min: 0, max: DEPTH_MAX,
            set: |g, n| g.iodepth_batch_complete_min = Some(n as u32) }),
    row("iodepth_batch_complete_max", &[], "as the minimum", "I/Os reaped at a time at most",
        Kind::Int { min: 0, max: DEPTH_MAX,
            set: |g, n| g.iodepth_batch_complete_max = Some(n as u32) }),
    row("iodepth_low", &[], "as iodepth",
        "how far a full queue is drained before it is filled again",
        Kind::Int { min: 0, max: DEPTH_MAX, set: |g, n| g.iodepth_low = Some(n as u32) }),
    row("numjobs", &[], "1", "clones of the job, a thread each, on one disk if it has a filename",
        Kind::Int { min: 1, max: JOBS_MAX, set: |g, n| g.numjobs = Some(n as u32) }),
    row("runtime", &["timeout"], "0", "end the job after this time; 0: no limit",
        Kind::Time { set: |g, time| g.runtime = Some(time) }),
    row("time_based", &[], "0", "go on until the runtime is over, pass after pass",
        Kind::Flag { set: |g, on| g.time_based = Some(on) }),
    row("direct", &[], "0", "bypass the page cache",
        Kind::Bool { set: |g, on| g.direct = Some(on) }),
    row("buffered", &[], "1", "use the page cache: the opposite of direct",
        Kind::Bool { set: |g, on| g.direct = Some(!on) }),
    row("ioengine", &[], "", "whose place is taken; psync, sync: blocking calls, at iodepth 1",
        Kind::Choice {
            words: &["libaio", "io_uring", "psync", "sync", "null"],
            set: |g, word| g.ioengine = Engine::from_word(word),
        }),
    row("fixedbufs", &[], "0", "io_uring: register the buffers, all that the jobs of a disk have",
        Kind::Bool { set: |g, on| g.fixedbufs = Some(on) }),
    row("sqthread_poll", &[], "0", "io_uring: a thread of the kernel takes what is submitted",
        Kind::Bool { set: |g, on| g.sqthread_poll = Some(on) }),
    row("invalidate", &[], "1", "drop the file's page cache before the start",
        Kind::Bool { set: |g, on| g.invalidate = Some(on) }),
    row("allow_mounted_write", &[], "0", "write to a block device even if it is mounted",
        Kind::Bool { set: |g, on| g.allow_mounted_write = Some(on) }),
    row("fsync", &[], "0", "flush between so many writes and the next I/O; 0: never",
        Kind::Int { min: 0, max: u32::MAX as u64, set: |g, n| g.fsync = Some(n as u32) }),
    row("end_fsync", &[], "0", "flush at the end of the job",
        Kind::Bool { set: |g, on| g.end_fsync = Some(on) }),
    row("randseed", &[], "0x89", "the seed of offsets and data",
        Kind::Int { min: 0, max: u64::MAX, set: |g, n| g.randseed = Some(n) }),
    row("norandommap", &[], "0", "draw random blocks independently, so that some repeat",
        Kind::Flag { set: |g, on| g.norandommap = Some(on) }),
    row("randrepeat", &[], "1", "the same seed gives the same offsets",
        Kind::Bool { set: |g, on| g.randrepeat = Some(on) }),
    row("verify", &[], "0", "write checksums into the blocks, and check them when they are read",
        Kind::Choice {
            words: &["crc32c", "0", "none"],
            set: |g, word| g.verify = Some(word == "crc32c"),
        }),
    row("do_verify", &[], "1", "with verify: read back what was written",
        Kind::Bool { set: |g, on| g.do_verify = Some(on) }),
    row("group_reporting", &[], "0", "report the clones of a job as one",
        Kind::Flag { set: |g, on| g.group_reporting = Some(on) }),
    row("thread", &[], "0", "accepted: jobs are threads in any case",
        Kind::Flag { set: |_, _| {} }),
    row("plug", &[], "", "the layer's plug policy",
        Kind::Policy { accepts: "what the key plug of a device spec takes" }),
    row("nomerges", &[], "", "the layer's merge policy",
        Kind::Policy { accepts: "what the key nomerges of a device spec takes" }),
    row("kick", &[], "", "when the layer tells the driver to begin",
        Kind::Policy { accepts: "what the key kick of a device spec takes" }),
    row("queue_depth", &[], "", "requests that each hardware context keeps in flight",
        Kind::Policy { accepts: "what the key queue_depth of a device spec takes" }),
    row("nr_hw_queues", &[], "", "hardware contexts: one is shared, the others have a thread each",
        Kind::Policy { accepts: "what the key nr_hw_queues of a device spec takes" }),
    row("max_sectors_kb", &[], "", "the largest request that the layer makes, KiB",
        Kind::Policy { accepts: "what the key max_sectors_kb of a device spec takes" }),
    row("iostats", &[], "", "whether the layer keeps statistics",
        Kind::Policy { accepts: "what the key iostats of a device spec takes" }),
    row("output", &[], "", "the file that the report goes to",
        Kind::RunText { set: |run, path| run.output = Some(path.into()) }),
    row("output-format", &[], "normal", "how the report is printed",
        Kind::RunChoice {
            words: &["normal", "json"],
            set: |run, word| run.format = match word {
                "json" => OutputFormat::Json,
                _ => OutputFormat::Normal,
            },
        }),
    row("eta", &[], "auto", "when a progress line is shown",
        Kind::RunChoice {
            words: &["always", "never", "auto"],
            set: |run, word| run.eta = match word {
                "always" => Eta::Always,
                "never" => Eta::Never,
                _ => Eta::Auto,
            },
        }),
    row("help", &[], "", "show this list", Kind::Help),
];
