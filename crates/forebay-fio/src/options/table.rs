//! The table of options. Names, aliases, limits and defaults are fio's, as `fio --cmdhelp` lists
//! them.

use super::{Kind, OptionSpec, values};
use crate::job::{Engine, Eta, Method, OutputFormat, Unified};
use crate::verify::Checksum;
use crate::verify::pattern::Pattern;

const fn row(
    name: &'static str,
    aliases: &'static [&'static str],
    default: &'static str,
    help: &'static str,
    kind: Kind,
) -> OptionSpec {
    OptionSpec { name, aliases, kind, default, help }
}

/// An option of the layer itself: a key of specs by the same name.
macro_rules! policy {
    ($name:literal, $help:literal) => {
        row(
            $name,
            &[],
            "",
            $help,
            Kind::Policy { accepts: concat!("what the key ", $name, " of a device spec takes") },
        )
    };
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
    row("rw", &["readwrite"], "read", "what is done, and in which order; read:4k leaves so much \
         out between I/Os, randread:8 seeks after so many",
        Kind::Parsed {
            accepts: "read, write, randread, randwrite, rw, readwrite, randrw, trim, randtrim",
            set: |g, text| {
                let (pattern, step) = values::pattern(text)?;
                (g.rw, g.load.step) = (Some(pattern), step);
                Ok(())
            },
        }),
    row("rw_sequencer", &[], "sequential", "what the I/Os between two seeks do",
        Kind::Choice {
            words: &["sequential", "identical"],
            set: |g, word| g.load.identical = word == "identical",
        }),
    row("percentage_random", &[], "100", "how many I/Os of a random pattern are random",
        Kind::Parsed { accepts: "up to three percentages: read,write,trim",
            set: |g, text| {
                g.load.percentage_random = Some(values::each(text, values::percent)?);
                Ok(())
            } }),
    row("random_distribution", &[], "random", "how often each block is drawn",
        Kind::Parsed {
            accepts: "random, zipf:theta, pareto:h, normal:deviation, or zoned:accesses/length:...",
            set: |g, text| {
                g.load.random_distribution = Some(values::distribution(text)?);
                Ok(())
            } }),
    row("rwmixread", &[], "50", "percentage of reads in a mixed pattern",
        Kind::Int { min: 0, max: 100, set: |g, n| g.rwmixread = Some(n as u8) }),
    row("rwmixwrite", &[], "50", "percentage of writes in a mixed pattern",
        Kind::Int { min: 0, max: 100, set: |g, n| g.rwmixread = Some(100 - n as u8) }),
    row("bs", &["blocksize"], "4096", "bytes per I/O",
        Kind::Parsed {
            accepts: "a size such as 4096, 4k, 1m or 1g (k = 1024, ki = 1000), or up to three: \
                      read,write,trim",
            set: |g, text| {
                let each = values::each(text, values::block)?;
                let is_one = each[0].is_some() && each.iter().all(|bs| *bs == each[0]);
                g.bs = each[0].filter(|_| is_one);
                g.load.bs = Some(each).filter(|_| !is_one);
                Ok(())
            } }),
    row("bsrange", &["blocksize_range"], "", "bytes per I/O, from the smallest to the largest",
        Kind::Parsed { accepts: "a range such as 1k-4k, or up to three: read,write,trim",
            set: |g, text| {
                g.load.bsrange = Some(values::each(text, values::range)?);
                Ok(())
            } }),
    row("bssplit", &[], "", "bytes per I/O, with the percentage of each size",
        Kind::Parsed { accepts: "a split such as 4k/50:64k/50, or up to three: read,write,trim",
            set: |g, text| {
                g.load.bssplit = Some(values::each(text, values::split)?);
                Ok(())
            } }),
    row("bs_unaligned", &["blocksize_unaligned"], "0", "a range's sizes are any number of bytes",
        Kind::Flag { set: |g, on| g.load.bs_unaligned = on }),
    row("blockalign", &["ba"], "as bs", "what random offsets are multiples of; turns the map off",
        Kind::Parsed { accepts: "a size, or up to three: read,write,trim",
            set: |g, text| {
                g.load.blockalign = Some(values::each(text, values::block)?);
                Ok(())
            } }),
    row("size", &[], "", "length of the region that is worked on",
        Kind::Size { set: |g, size| g.size = Some(size) }),
    row("io_size", &["io_limit"], "", "bytes to transfer, instead of one pass over the region",
        Kind::Size { set: |g, size| g.io_size = Some(size) }),
    row("number_ios", &[], "", "I/Os after which the job ends, if it has not ended before",
        Kind::Int { min: 0, max: u64::MAX,
            set: |g, n| g.load.number_ios = Some(n).filter(|&n| n > 0) }),
    row("loops", &[], "1", "how often all of it is done",
        Kind::Int { min: 1, max: u32::MAX as u64, set: |g, n| g.loops = Some(n as u32) }),
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
    row("ramp_time", &[], "0", "run so long before anything counts, in addition to the runtime",
        Kind::Time { set: |g, time| g.ramp_time = Some(time) }),
    row("startdelay", &["start_delay"], "0", "begin so long after the other jobs",
        Kind::Time { set: |g, time| g.start_delay = Some(time) }),
    row("rate", &[], "", "bytes per second at most",
        Kind::Parsed { accepts: "a size such as 500k or 1m, or up to three: read,write,trim",
            set: |g, text| {
                g.pace.rate = values::each(text, values::number)?.map(Option::unwrap_or_default);
                Ok(())
            } }),
    row("rate_iops", &[], "", "I/Os per second at most",
        Kind::Parsed { accepts: "a number, or up to three: read,write,trim",
            set: |g, text| {
                let each = values::each(text, values::number)?;
                g.pace.rate_iops = each.map(Option::unwrap_or_default);
                Ok(())
            } }),
    row("rate_process", &[], "linear", "whether the gaps that a rate leaves are even or drawn",
        Kind::Choice {
            words: &["linear", "poisson"],
            set: |g, word| g.pace.poisson = word == "poisson",
        }),
    row("thinktime", &[], "0", "pause so long between I/Os; a bare number is microseconds",
        Kind::Parsed { accepts: "a time such as 500, 10ms or 1s",
            set: |g, text| { g.pace.thinktime = values::micros(text)?; Ok(()) } }),
    row("thinktime_spin", &[], "0", "how much of a pause the CPU is busy, at its begin",
        Kind::Parsed { accepts: "a time such as 500, 10ms or 1s",
            set: |g, text| { g.pace.thinktime_spin = values::micros(text)?; Ok(()) } }),
    row("thinktime_blocks", &[], "1", "I/Os between two pauses",
        Kind::Int { min: 0, max: u32::MAX as u64,
            // Both 0 and 1 are each I/O.
            set: |g, n| g.pace.thinktime_blocks = if n == 1 { 0 } else { n as u32 } }),
    row("time_based", &[], "0", "go on until the runtime is over, pass after pass",
        Kind::Flag { set: |g, on| g.time_based = Some(on) }),
    row("direct", &[], "as the spec says, else 0", "bypass the page cache",
        Kind::Bool { set: |g, on| g.direct = Some(on) }),
    row("buffered", &[], "as the spec says, else 1", "use the page cache: the opposite of direct",
        Kind::Bool { set: |g, on| g.direct = Some(!on) }),
    row("ioengine", &[], "", "whose place is taken; psync, sync: blocking calls, at iodepth 1",
        Kind::Choice {
            words: &["libaio", "io_uring", "psync", "sync", "null"],
            set: |g, word| g.ioengine = Engine::from_word(word),
        }),
    row("fixedbufs", &[], "", "io_uring: register the buffers, all that the jobs of a disk have",
        Kind::Flag { set: |g, on| g.fixedbufs = Some(on) }),
    row("sqthread_poll", &[], "", "io_uring: a thread of the kernel takes what is submitted",
        Kind::Flag { set: |g, on| g.sqthread_poll = Some(on) }),
    row("invalidate", &[], "1", "drop the file's page cache before the start",
        Kind::Bool { set: |g, on| g.invalidate = Some(on) }),
    row("allow_mounted_write", &[], "0", "write to a block device even if it is mounted",
        Kind::Bool { set: |g, on| g.allow_mounted_write = Some(on) }),
    row("fsync", &[], "0", "fsync between so many writes and the next I/O; 0: never",
        Kind::Int { min: 0, max: u32::MAX as u64, set: |g, n| g.fsync = Some(n as u32) }),
    row("fdatasync", &[], "0", "the same by fdatasync: no more than reading needs",
        Kind::Int { min: 0, max: u32::MAX as u64, set: |g, n| g.fdatasync = Some(n as u32) }),
    row("end_fsync", &[], "0", "fsync at the end of each pass of a job that writes",
        Kind::Bool { set: |g, on| g.end_fsync = Some(on) }),
    row("fsync_on_close", &[], "0", "the same: a job's one file is closed there, and not before",
        Kind::Bool { set: |g, on| g.fsync_on_close = Some(on) }),
    row("randseed", &[], "0x89", "the seed of offsets and data",
        Kind::Int { min: 0, max: u64::MAX, set: |g, n| g.randseed = Some(n) }),
    row("norandommap", &[], "0", "draw random blocks independently, so that some repeat",
        Kind::Flag { set: |g, on| g.norandommap = Some(on) }),
    row("randrepeat", &[], "1", "the same seed gives the same offsets",
        Kind::Bool { set: |g, on| g.randrepeat = Some(on) }),
    row("verify", &[], "0", "write checksums into the blocks, and check them when they are read",
        Kind::Choice {
            words: &["crc32c", "xxhash", "pattern", "0", "none"],
            set: |g, word| {
                g.checks.method = match word {
                    "crc32c" => Method::Header(Checksum::Crc32c),
                    "xxhash" => Method::Header(Checksum::Xxhash),
                    "pattern" => Method::Pattern,
                    _ => Method::None,
                };
                g.verify = Some(g.checks.method != Method::None);
            },
        }),
    row("verify_pattern", &[], "", "fill blocks with this; it alone is checked by verify=pattern",
        Kind::Parsed { accepts: "numbers, texts in double quotes, and %o, as in 0xff%o\"abc\"12",
            set: |g, text| { g.checks.pattern = Some(Pattern::parse(text, true)?); Ok(()) } }),
    row("verify_only", &[], "0", "write nothing: check what an earlier run has written",
        Kind::Flag { set: |g, on| g.checks.only = on }),
    row("verify_fatal", &[], "0", "end the job at the first bad block",
        Kind::Bool { set: |g, on| g.checks.fatal = on }),
    row("verify_dump", &[], "0", "accepted: bad blocks are not written to files",
        Kind::Bool { set: |g, on| if on {
            g.warnings = vec!["--verify_dump: bad blocks are not written to files".to_owned()];
        } }),
    row("buffer_pattern", &[], "", "what writes that are not verified are filled with",
        Kind::Parsed { accepts: "numbers and texts in double quotes, as in 0xff\"abc\"12",
            set: |g, text| {
                g.checks.buffer_pattern = Some(Pattern::parse(text, false)?);
                Ok(())
            } }),
    row("zero_buffers", &[], "0", "writes that are not verified are zeros",
        Kind::Flag { set: |g, on| g.checks.zero_buffers = on }),
    row("refill_buffers", &[], "0", "each write has new data, rather than that of its buffer",
        Kind::Flag { set: |g, on| g.checks.refill_buffers = on }),
    row("scramble_buffers", &[], "1", "accepted: buffers keep their data, unless refilled",
        Kind::Bool { set: |_, _| {} }),
    row("do_verify", &[], "1", "with verify: read back what was written",
        Kind::Bool { set: |g, on| g.do_verify = Some(on) }),
    row("percentile_list", &[], "", "the percentiles to show",
        Kind::Parsed { accepts: "up to 20 numbers from 0 to 100, as in 50:99:99.9",
            set: |g, text| {
                g.measures.percentile_list = Some(values::percentiles(text)?);
                Ok(())
            } }),
    row("clat_percentiles", &[], "1", "show percentiles of the completion latency",
        Kind::Bool { set: |g, on| g.measures.clat_percentiles = Some(on).filter(|&on| !on) }),
    row("lat_percentiles", &[], "0", "show percentiles of the total latency",
        Kind::Bool { set: |g, on| g.measures.lat_percentiles = on }),
    row("slat_percentiles", &[], "0", "show percentiles of the submission latency",
        Kind::Bool { set: |g, on| g.measures.slat_percentiles = on }),
    row("unified_rw_reporting", &[], "none", "report all directions as one, or that too",
        Kind::Choice {
            words: &["none", "mixed", "both", "0", "1", "2"],
            set: |g, word| g.measures.unified = match word {
                "mixed" | "1" => Unified::Mixed,
                "both" | "2" => Unified::Both,
                _ => Unified::No,
            },
        }),
    row("disable_lat", &[], "0", "do not measure the total latency",
        Kind::Bool { set: |g, on| g.measures.disable_lat = on }),
    row("disable_clat", &[], "0", "do not measure the completion latency",
        Kind::Bool { set: |g, on| g.measures.disable_clat = on }),
    row("disable_slat", &[], "0", "do not measure the submission latency",
        Kind::Bool { set: |g, on| g.measures.disable_slat = on }),
    row("disable_bw", &["disable_bw_measurement"], "0", "take no samples of bandwidth and IOPS",
        Kind::Bool { set: |g, on| g.measures.disable_bw = on }),
    row("gtod_reduce", &[], "0", "all four of these: no clock is read for an I/O",
        Kind::Bool { set: |g, on| g.measures.reduce(on) }),
    row("gtod_cpu", &[], "", "accepted: a clock is read where it is needed, without a system call",
        Kind::Int { min: 0, max: u32::MAX as u64, set: |_, _| {} }),
    row("write_bw_log", &[], "", "log the bandwidth to files whose names begin so",
        Kind::Text { set: |g, text| g.logs.bw = Some(text.to_owned()) }),
    row("write_lat_log", &[], "", "log the three latencies to files whose names begin so",
        Kind::Text { set: |g, text| g.logs.lat = Some(text.to_owned()) }),
    row("write_iops_log", &[], "", "log the I/Os to files whose names begin so",
        Kind::Text { set: |g, text| g.logs.iops = Some(text.to_owned()) }),
    row("log_avg_msec", &[], "0", "log means over so many milliseconds; 0: every I/O",
        Kind::Int { min: 0, max: u32::MAX as u64, set: |g, n| g.logs.avg_msec = n }),
    row("log_max_value", &[], "0", "log the largest latency of a window, not the mean",
        Kind::Bool { set: |g, on| g.logs.max_value = on }),
    row("log_offset", &[], "0", "log the offsets too",
        Kind::Bool { set: |g, on| g.logs.offset = on }),
    row("per_job_logs", &[], "1", "a log of its own for each clone",
        Kind::Bool { set: |g, on| g.logs.shared = !on }),
    row("group_reporting", &[], "0", "report the clones of a job as one",
        Kind::Flag { set: |g, on| g.group_reporting = Some(on) }),
    row("thread", &[], "0", "accepted: jobs are threads in any case",
        Kind::Flag { set: |_, _| {} }),
    row("stonewall", &["wait_for_previous"], "0", "begin when all jobs before it have ended",
        Kind::Flag { set: |g, on| g.stonewall = Some(on) }),
    row("new_group", &[], "0", "begin a group of reports",
        Kind::Flag { set: |g, on| g.new_group = Some(on) }),
    policy!("plug", "the layer's plug policy"),
    policy!("nomerges", "the layer's merge policy"),
    policy!("kick", "when the layer tells the driver to begin"),
    policy!("wake", "who waits for a tag, and whom a free one wakes"),
    policy!("nr_requests", "how many of the tags may be in use"),
    policy!("reserved_tags", "how many tags are kept for reserved I/O, which no job does"),
    policy!("async_depth", "how many tags background I/O may have, which no job does"),
    policy!("tag_set", "the name of a set of tags that disks share"),
    policy!("run_queue", "when completions run the queue again"),
    policy!("flush", "what goes first beside a flush that the device takes alone"),
    policy!("flush_pending_ms", "how long flushes wait for writes at most, ms"),
    policy!("elide", "whether a flush that has nothing to do ends at once"),
    policy!("exclusive", "whether the file or device is opened for its disk alone"),
    policy!("queue_depth", "requests that each hardware context keeps in flight"),
    policy!("nr_hw_queues", "hardware contexts: one is shared, the others have a thread each"),
    policy!("max_sectors_kb", "the largest request that the layer makes, KiB"),
    policy!("iostats", "whether the layer keeps statistics"),
    row("output", &[], "", "the file that the report goes to",
        Kind::RunText { set: |run, path| run.output = Some(path.into()) }),
    row("output-format", &[], "normal", "how the report is printed",
        Kind::RunParsed {
            accepts: "normal, json, json+, or several with commas",
            set: |run, text| {
                run.format = OutputFormat::from_words(text).ok_or("it is none of the words")?;
                Ok(())
            },
        }),
    row("status-interval", &[], "", "print the whole report again and again, so often",
        Kind::RunParsed { accepts: "a time such as 10, 10s, 500ms, 5m or 1h",
            set: |run, text| { run.status_interval = values::period(text)?; Ok(()) } }),
    row("eta-newline", &[], "", "begin a new line for the progress, so often",
        Kind::RunParsed { accepts: "a time such as 10, 10s, 500ms, 5m or 1h",
            set: |run, text| { run.eta_newline = values::period(text)?; Ok(()) } }),
    row("eta", &[], "auto", "when a progress line is shown",
        Kind::RunChoice {
            words: &["always", "never", "auto"],
            set: |run, word| run.eta = match word {
                "always" => Eta::Always,
                "never" => Eta::Never,
                _ => Eta::Auto,
            },
        }),
    row("section", &[], "", "run this job of the job files, and others that are named so",
        Kind::RunText { set: |run, name| run.sections.push(name.to_owned()) }),
    row("parse-only", &[], "0", "read the options and run nothing",
        Kind::RunFlag { set: |run, on| run.parse_only = on }),
    row("showcmd", &[], "0", "print the jobs as one command line, and run nothing",
        Kind::RunFlag { set: |run, on| run.showcmd = on }),
    row("readonly", &[], "0", "refuse jobs that write or trim",
        Kind::RunFlag { set: |run, on| run.readonly = on }),
    row("warnings-fatal", &[], "0", "take a warning for an error",
        Kind::RunFlag { set: |run, on| run.warnings_fatal = on }),
    row("help", &[], "", "show this list", Kind::Help),
];
