//! The table of supported options. Names, aliases, limits and defaults are fio's, as
//! `fio --cmdhelp` lists them.

mod data;
mod ends;
mod settings;
mod zones;

use std::time::Duration;

use self::settings::SETTINGS;
use super::{Kind, OptionSpec, engines, values};
use crate::job::{Eta, Fallocate, Given, OutputFormat, TerseVersion, control};
use crate::logs::histograms::COARSENESS_MAX;
use crate::measures::Unified;

const fn row(
    name: &'static str,
    aliases: &'static [&'static str],
    default: &'static str,
    help: &'static str,
    kind: Kind,
) -> OptionSpec {
    OptionSpec { name, aliases, kind, default, help }
}

/// Adds a warning to a job, or removes it.
fn warn_if(given: &mut Given, is_given: bool, text: &str) {
    given.warnings.retain(|known| known != text);
    if is_given {
        given.warnings.push(text.to_owned());
    }
}

/// The limit on depths. Buffers are allocated for each I/O in flight.
const DEPTH_MAX: u64 = 65_536;
const JOBS_MAX: u64 = 4096;
const FILENAME_FORMAT: &str = "$jobname.$jobnum.$filenum";
/// The limit on files of a clone. The number of a file has 16 bits in an I/O.
const FILES_MAX: u64 = 65_535;

/// The tables of which [`OPTIONS`] consists.
const TABLES: &[&[OptionSpec]] = &[MAIN, SETTINGS, ends::ROWS, zones::ROWS, data::ROWS];

/// All supported options.
pub static OPTIONS: &[OptionSpec] = &joined::<{ nr_rows() }>();

const fn nr_rows() -> usize {
    let (mut nr, mut table) = (0, 0);
    while table < TABLES.len() {
        nr += TABLES[table].len();
        table += 1;
    }
    nr
}

/// Returns the rows of all tables.
const fn joined<const N: usize>() -> [OptionSpec; N] {
    let mut all = [MAIN[0]; N];
    let (mut at, mut table) = (0, 0);
    while table < TABLES.len() {
        let mut row = 0;
        while row < TABLES[table].len() {
            all[at] = TABLES[table][row];
            (at, row) = (at + 1, row + 1);
        }
        table += 1;
    }
    all
}

/// The options of jobs and of the whole run, without those of the other tables.
#[rustfmt::skip]
const MAIN: &[OptionSpec] = &[
    row("name", &[], "", "start a job; 'global' sets defaults for the jobs after it",
        Kind::JobName),
    row("description", &[], "no description", "text for the report",
        Kind::Text { set: |g, text| g.measures.description = Some(text.to_owned()) }),
    row("kb_base", &[], "1024",
        "1024: k is 1024 and kib is 1000; 1000: the reverse, and the report prefers kB to KiB",
        Kind::Choice {
            words: &["1024", "1000"],
            set: |g, word| g.measures.units.decimal = word == "1000",
        }),
    row("unit_base", &[], "0", "unit of rates in the report; 0 or 8: bytes, 1: bits",
        Kind::Choice {
            words: &["0", "8", "1"],
            set: |g, word| g.measures.units.bits = word == "1",
        }),
    row("filename", &[], "JOB.CLONE.0, a file",
        "file, block device or device spec such as ram:1G (forebay help specs); several files with \
         colons between them",
        Kind::Text { set: |g, text| g.filename = Some(text.to_owned()) }),
    row("directory", &[], "the current directory",
        "directory of the files; several are separated by colons, and the clones use them in turn",
        Kind::Text { set: |g, text| g.files.directory = Some(text.to_owned()) }),
    row("filename_format", &[], FILENAME_FORMAT, "form of generated file names",
        Kind::Text { set: |g, text| {
            g.files.format = Some(text.to_owned()).filter(|text| text != FILENAME_FORMAT);
        } }),
    row("nrfiles", &["nr_files"], "1",
        "number of files of each clone; with filename, the number of names in it",
        Kind::Int { min: 1, max: FILES_MAX,
            set: |g, n| g.files.nrfiles = Some(n as u32).filter(|&n| n > 1) }),
    row("opendir", &[], "no directory", "use all files below this directory",
        Kind::Text { set: |g, text| g.files.opendir = Some(text.to_owned()) }),
    row("filesize", &[], "size divided by the number of files", "bytes of each file",
        Kind::Parsed { accepts: "a size such as 1m, or a range such as 4k-1m",
            set: |g, text| { g.files.filesize = values::filesize(text)?; Ok(()) } }),
    row("openfiles", &[], "all files",
        "number of files in use at a time; a file is used until its I/O is done",
        Kind::Int { min: 1, max: FILES_MAX, set: |g, n| g.files.openfiles = Some(n as u32) }),
    row("file_service_type", &[], "roundrobin", "the file of the next I/O",
        Kind::Parsed {
            accepts: "random, roundrobin or sequential, with a number of I/Os in a row as in \
                      random:8; zipf, pareto or normal, with a parameter as in zipf:1.2",
            set: |g, text| { g.files.service = values::service(text)?; Ok(()) } }),
    row("create_on_open", &[], "0",
        "give new files their length only, without writing data or allocating space",
        Kind::Bool { set: |g, on| g.files.create_on_open = on }),
    row("allow_file_create", &[], "1", "create missing files; 0: a missing file is an error",
        Kind::Bool { set: |g, on| g.files.must_exist = !on }),
    row("fallocate", &[], "native", "how the space of new files is allocated; with none and \
         truncate, the file system allocates it when it is written",
        Kind::Choice {
            words: &["native", "posix", "keep", "none", "truncate", "0", "1"],
            set: |g, word| g.files.fallocate = match word {
                "none" | "0" => Fallocate::No,
                "truncate" => Fallocate::Truncate,
                "keep" => Fallocate::KeepLength,
                _ => Fallocate::Extend,
            },
        }),
    row("file_append", &[], "0", "start at the end of the file, instead of at offset",
        Kind::Bool { set: |g, on| g.files.append = on }),
    row("unlink", &[], "0", "remove the regular files of the job when its last clone ends; if a \
         job that begins later uses a file, its unlink decides",
        Kind::Bool { set: |g, on| g.files.unlink = on }),
    row("rw", &["readwrite"], "read", "access pattern; read:4k skips 4k after each I/O, randread:8 \
         seeks after 8 I/Os",
        Kind::Parsed {
            accepts: "read, write, randread, randwrite, rw, readwrite, randrw, trim, randtrim",
            set: |g, text| {
                let (pattern, step) = values::pattern(text)?;
                (g.rw, g.load.step) = (Some(pattern), step);
                Ok(())
            },
        }),
    row("rw_sequencer", &[], "sequential",
        "with rw=randread:N: read on in order between seeks, or the same block again",
        Kind::Choice {
            words: &["sequential", "identical"],
            set: |g, word| g.load.identical = word == "identical",
        }),
    row("percentage_random", &[], "100",
        "percentage of the I/Os of a random pattern that are random",
        Kind::Parsed { accepts: "up to three percentages: read,write,trim",
            set: |g, text| {
                g.load.percentage_random = Some(values::each(text, values::percent)?);
                Ok(())
            } }),
    row("random_distribution", &[], "random", "distribution of random offsets",
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
            accepts: "a size such as 4096, 4k, 1m or 1g, where k = 1024 and kib = 1000, or up to \
                      three: read,write,trim",
            set: |g, text| {
                let each = values::each(text, values::block)?;
                let is_one = each[0].is_some() && each.iter().all(|bs| *bs == each[0]);
                g.bs = each[0].filter(|_| is_one);
                g.load.bs = Some(each).filter(|_| !is_one);
                Ok(())
            } }),
    row("bsrange", &["blocksize_range"], "bs alone", "range of bytes per I/O",
        Kind::Parsed { accepts: "a range such as 1k-4k, or up to three: read,write,trim",
            set: |g, text| {
                g.load.bsrange = Some(values::each(text, values::range)?);
                Ok(())
            } }),
    row("bssplit", &[], "bs alone", "bytes per I/O, with a percentage for each size",
        Kind::Parsed { accepts: "a split such as 4k/50:64k/50, or up to three: read,write,trim",
            set: |g, text| {
                g.load.bssplit = Some(values::each(text, values::split)?);
                Ok(())
            } }),
    row("bs_unaligned", &["blocksize_unaligned"], "0",
        "use any number of bytes in the range of bsrange, not only multiples of the minimum",
        Kind::Flag { set: |g, on| g.load.bs_unaligned = on }),
    row("blockalign", &["ba"], "as bs", "alignment of random offsets; blocks may then repeat",
        Kind::Parsed { accepts: "a size, or up to three: read,write,trim",
            set: |g, text| {
                g.load.blockalign = Some(values::each(text, values::block)?);
                Ok(())
            } }),
    row("size", &[], "all of the file or device", "length of the region to use",
        Kind::Size { set: |g, size| g.size = Some(size) }),
    row("io_size", &["io_limit"], "one pass over the region",
        "bytes to transfer, instead of one pass over the region",
        Kind::Size { set: |g, size| g.io_size = Some(size) }),
    row("number_ios", &[], "0", "end the job after this number of I/Os; 0: no limit",
        Kind::Int { min: 0, max: u64::MAX,
            set: |g, n| g.load.number_ios = Some(n).filter(|&n| n > 0) }),
    row("loops", &[], "1", "number of times to repeat the job",
        Kind::Int { min: 1, max: u32::MAX as u64, set: |g, n| g.loops = Some(n as u32) }),
    row("offset", &["fileoffset"], "0", "start of the region",
        Kind::Size { set: |g, size| g.offset = Some(size) }),
    row("offset_increment", &[], "0", "bytes to add to the offset for each clone after the first",
        Kind::Size { set: |g, size| g.offset_increment = Some(size) }),
    row("iodepth", &[], "1", "I/Os to keep in flight",
        Kind::Int { min: 1, max: DEPTH_MAX, set: |g, n| g.iodepth = Some(n as u32) }),
    row("iodepth_batch", &["iodepth_batch_submit"], "1", "I/Os to submit at a time; 0: iodepth",
        Kind::Int { min: 0, max: DEPTH_MAX, set: |g, n| g.iodepth_batch = Some(n as u32) }),
    row("iodepth_batch_complete_min", &["iodepth_batch_complete"], "1",
        "I/Os to wait for when the queue is full",
        Kind::Int { min: 0, max: DEPTH_MAX,
            set: |g, n| g.iodepth_batch_complete_min = Some(n as u32) }),
    row("iodepth_batch_complete_max", &[], "as the minimum", "most I/Os to reap at a time",
        Kind::Int { min: 0, max: DEPTH_MAX,
            set: |g, n| g.iodepth_batch_complete_max = Some(n as u32) }),
    row("iodepth_low", &[], "as iodepth",
        "drain a full queue to this depth before filling it again",
        Kind::Int { min: 0, max: DEPTH_MAX, set: |g, n| g.iodepth_low = Some(n as u32) }),
    row("serialize_overlap", &[], "0",
        "wait for I/Os in flight that overlap the next one",
        Kind::Bool { set: |g, on| g.load.serialize_overlap = on }),
    row("numjobs", &[], "1",
        "clones of the job, one thread each; with a filename they share one disk",
        Kind::Int { min: 1, max: JOBS_MAX, set: |g, n| g.numjobs = Some(n as u32) }),
    row("runtime", &["timeout"], "0", "end the job after this time; 0: no limit",
        Kind::Time { set: |g, time| g.runtime = Some(time) }),
    row("ramp_time", &[], "0", "run this long before measuring, in addition to the runtime",
        Kind::Time { set: |g, time| g.ramp_time = Some(time) }),
    row("startdelay", &["start_delay"], "0", "start this long after the other jobs",
        Kind::Time { set: |g, time| g.start_delay = Some(time) }),
    row("rate", &[], "0", "limit on bytes per second; 0: none",
        Kind::Parsed { accepts: "a size such as 500k or 1m, or up to three: read,write,trim",
            set: |g, text| {
                g.pace.rate = values::each(text, values::number)?.map(Option::unwrap_or_default);
                Ok(())
            } }),
    row("rate_iops", &[], "0", "limit on I/Os per second; 0: none",
        Kind::Parsed { accepts: "a number, or up to three: read,write,trim",
            set: |g, text| {
                let each = values::each(text, values::number)?;
                g.pace.rate_iops = each.map(Option::unwrap_or_default);
                Ok(())
            } }),
    row("rate_process", &[], "linear",
        "with a rate: even gaps between I/Os, or exponentially distributed ones",
        Kind::Choice {
            words: &["linear", "poisson"],
            set: |g, word| g.pace.poisson = word == "poisson",
        }),
    row("rate_min", &["ratemin"], "0", "fail below this number of bytes per second; 0: never",
        Kind::Parsed { accepts: "a size such as 500k or 1m, or up to three: read,write,trim",
            set: |g, text| {
                let each = values::each(text, values::number)?;
                g.control.rate_min = each.map(Option::unwrap_or_default);
                Ok(())
            } }),
    row("rate_iops_min", &[], "0", "fail below this number of I/Os per second; 0: never",
        Kind::Parsed { accepts: "a number, or up to three: read,write,trim",
            set: |g, text| {
                let each = values::each(text, values::number)?;
                g.control.rate_iops_min = each.map(Option::unwrap_or_default);
                Ok(())
            } }),
    row("rate_cycle", &["ratecycle"], "1000", "interval of the checks of rate_min, ms",
        Kind::Int { min: 1, max: u32::MAX as u64,
            set: |g, n| g.control.rate_cycle =
                Some(Duration::from_millis(n)).filter(|_| n != 1000) }),
    row("io_submit_mode", &[], "inline",
        "offload: keep I/O in flight while waiting for the rate",
        Kind::Choice {
            words: &["inline", "offload"],
            set: |g, word| g.control.offload = word == "offload",
        }),
    row("thinktime", &[], "0", "pause between I/Os; a number without unit is in microseconds",
        Kind::Parsed { accepts: "a time such as 500, 10ms or 1s",
            set: |g, text| { g.pace.thinktime = values::micros(text)?; Ok(()) } }),
    row("thinktime_spin", &[], "0", "part of the pause that the CPU spins, at its start",
        Kind::Parsed { accepts: "a time such as 500, 10ms or 1s",
            set: |g, text| { g.pace.thinktime_spin = values::micros(text)?; Ok(()) } }),
    row("thinktime_blocks", &[], "1", "I/Os between two pauses",
        Kind::Int { min: 0, max: u32::MAX as u64,
            // Both 0 and 1 are each I/O.
            set: |g, n| g.pace.thinktime_blocks = if n == 1 { 0 } else { n as u32 } }),
    row("prio", &[], "4 without a prioclass, else 0",
        "level of the I/O priority, 0 to 7; 0 is the highest",
        Kind::Int { min: 0, max: 7, set: |g, n| g.priority.prio = Some(n as u8) }),
    row("prioclass", &[], "2 with a prio, else 0",
        "class of the I/O priority, for scheduler=mq-deadline or bfq and the kernel below a file: \
         1 real-time, 2 best effort, 3 idle; 0: none",
        Kind::Int { min: 0, max: 3, set: |g, n| g.priority.prioclass = Some(n as u8) }),
    row("cmdprio_percentage", &[], "0",
        "percentage of the reads and writes that have the priority of cmdprio_class and cmdprio",
        Kind::Parsed { accepts: "a percentage, or two: read,write",
            set: |g, text| {
                let pair = values::pair(text, values::percent)?;
                g.priority.cmdprio_percentage = pair.map(Option::unwrap_or_default);
                Ok(())
            } }),
    row("cmdprio_bssplit", &[], "no size",
        "percentages of the reads and writes of certain sizes, with the priority of cmdprio_class \
         and cmdprio, or with a class and a level of their own",
        Kind::Parsed {
            accepts: "parts such as 64k/20 or 64k/20/1/0 with colons between them, or two lists: \
                      read,write",
            set: |g, text| {
                let pair = values::pair(text, values::size_shares)?;
                g.priority.cmdprio_bssplit = Some(pair.map(Option::unwrap_or_default));
                Ok(())
            } }),
    row("cmdprio_class", &[], "1, if there is a cmdprio_percentage",
        "class of that priority: 1 real-time, 2 best effort, 3 idle; 0: real-time",
        Kind::Parsed { accepts: "a number from 0 to 3, or two: read,write",
            set: |g, text| {
                let pair = values::pair(text, |text| values::up_to(text, 3))?;
                g.priority.cmdprio_class = Some(pair.map(Option::unwrap_or_default));
                Ok(())
            } }),
    row("cmdprio", &[], "0, if there is a cmdprio_percentage", "level of that priority",
        Kind::Parsed { accepts: "a number from 0 to 7, or two: read,write",
            set: |g, text| {
                let pair = values::pair(text, |text| values::up_to(text, 7))?;
                g.priority.cmdprio = Some(pair.map(Option::unwrap_or_default));
                Ok(())
            } }),
    row("max_latency", &[], "0",
        "end the job with an error at the first I/O that takes longer; a number without unit is in \
         microseconds; 0: no limit",
        Kind::Parsed { accepts: "a time such as 500, 10ms or 1s, or up to three: read,write,trim",
            set: |g, text| {
                let each = values::each(text, values::micros)?;
                let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                g.load.max_latency_ns = each.map(|time| time.map(ns).unwrap_or_default());
                Ok(())
            } }),
    row("time_based", &[], "0", "repeat the workload until the runtime is over",
        Kind::Flag { set: |g, on| g.time_based = Some(on) }),
    row("direct", &[], "as the spec says, else 0", "bypass the page cache",
        Kind::Bool { set: |g, on| g.direct = Some(on) }),
    row("buffered", &[], "as the spec says, else 1", "use the page cache: the opposite of direct",
        Kind::Bool { set: |g, on| g.direct = Some(!on) }),
    row("ioengine", &[], "that of the disk",
        "fio's engine: libaio and psync select the drivers aio and psync; psync and sync make \
         blocking calls, one at a time; file is the default one",
        Kind::Parsed {
            accepts: "libaio, io_uring, psync, sync, vsync, pvsync, pvsync2, mmap, posixaio, null, \
                      nbd, rbd, file",
            set: |g, word| { g.ioengine = engines::engine(word)?; Ok(()) } }),
    row("uri", &[], "none given", "ioengine=nbd: the URI of the export, as in a filename",
        Kind::Text { set: |g, text| g.remote.uri = Some(text.to_owned()) }),
    row("pool", &[], "none given", "ioengine=rbd: the pool of the image",
        Kind::Text { set: |g, text| g.remote.pool = Some(text.to_owned()) }),
    row("rbdname", &[], "none given", "ioengine=rbd: the name of the image",
        Kind::Text { set: |g, text| g.remote.image = Some(text.to_owned()) }),
    row("clientname", &[], "that of librados",
        "ioengine=rbd: name of the Ceph user, without the prefix client.",
        Kind::Text { set: |g, text| g.remote.client = Some(text.to_owned()) }),
    row("fixedbufs", &[], "as the spec says, else 0",
        "io_uring: register the I/O buffers of all jobs of the disk",
        Kind::Flag { set: |g, on| g.fixedbufs = Some(on) }),
    row("sqthread_poll", &[], "as the spec says, else 0",
        "io_uring: a kernel thread polls for submissions (SQPOLL)",
        Kind::Flag { set: |g, on| g.sqthread_poll = Some(on) }),
    row("invalidate", &[], "1", "drop the file's page cache before the start",
        Kind::Bool { set: |g, on| g.invalidate = Some(on) }),
    row("allow_mounted_write", &[], "0", "write to a block device even if it is mounted",
        Kind::Bool { set: |g, on| g.allow_mounted_write = Some(on) }),
    row("fsync", &[], "0", "call fsync after this number of writes; 0: never",
        Kind::Int { min: 0, max: u32::MAX as u64, set: |g, n| g.fsync = Some(n as u32) }),
    row("fdatasync", &[], "0", "call fdatasync after this number of writes; 0: never",
        Kind::Int { min: 0, max: u32::MAX as u64, set: |g, n| g.fdatasync = Some(n as u32) }),
    row("end_fsync", &[], "0", "call fsync at the end of each pass of a job that writes",
        Kind::Bool { set: |g, on| g.end_fsync = Some(on) }),
    row("fsync_on_close", &[], "0", "the same as end_fsync: each pass closes the file once",
        Kind::Bool { set: |g, on| g.fsync_on_close = Some(on) }),
    row("randseed", &[], "0x89", "seed of offsets and data",
        Kind::Int { min: 0, max: u64::MAX, set: |g, n| g.randseed = Some(n) }),
    row("norandommap", &[], "0", "draw each random block independently; blocks may repeat",
        Kind::Flag { set: |g, on| g.norandommap = Some(on) }),
    row("randrepeat", &[], "1", "use the same random offsets in every run",
        Kind::Bool { set: |g, on| g.randrepeat = Some(on) }),
    row("percentile_list", &[], "17 from 1 to 99.99", "percentiles to report",
        Kind::Parsed { accepts: "up to 20 numbers from 0 to 100, as in 50:99:99.9",
            set: |g, text| {
                g.measures.percentile_list = Some(values::percentiles(text)?);
                Ok(())
            } }),
    row("clat_percentiles", &[], "1", "report percentiles of the completion latency",
        Kind::Bool { set: |g, on| g.measures.clat_percentiles = Some(on).filter(|&on| !on) }),
    row("lat_percentiles", &[], "0", "report percentiles of the total latency",
        Kind::Bool { set: |g, on| g.measures.lat_percentiles = on }),
    row("slat_percentiles", &[], "0", "report percentiles of the submission latency",
        Kind::Bool { set: |g, on| g.measures.slat_percentiles = on }),
    row("unified_rw_reporting", &[], "none",
        "report reads, writes and trims as one direction (mixed), or both ways",
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
    row("disable_bw", &["disable_bw_measurement"], "0", "do not sample bandwidth and IOPS",
        Kind::Bool { set: |g, on| g.measures.disable_bw = on }),
    row("gtod_reduce", &[], "0", "set disable_lat, disable_clat, disable_slat and disable_bw",
        Kind::Bool { set: |g, on| g.measures.reduce(on) }),
    row("write_bw_log", &[], "no log", "write a bandwidth log; the value is the prefix of its name",
        Kind::Text { set: |g, text| g.logs.bw = Some(text.to_owned()) }),
    row("write_lat_log", &[], "no log",
        "write logs of the three latencies; the value is the prefix of their names",
        Kind::Text { set: |g, text| g.logs.lat = Some(text.to_owned()) }),
    row("write_iops_log", &[], "no log", "write a log of IOPS; the value is the prefix of its name",
        Kind::Text { set: |g, text| g.logs.iops = Some(text.to_owned()) }),
    row("write_hist_log", &[], "no log",
        "log histograms of the completion latency; the value is the prefix of the file name",
        Kind::Text { set: |g, text| g.logs.hist = Some(text.to_owned()) }),
    row("log_hist_msec", &[], "0", "interval of the histograms in the log, ms; 0: none",
        Kind::Int { min: 0, max: u32::MAX as u64, set: |g, n| g.logs.hist_msec = n }),
    row("log_hist_coarseness", &[], "0",
        "coarseness of the histograms in the log: each step halves the number of their buckets, \
         1856",
        Kind::Int { min: 0, max: COARSENESS_MAX, set: |g, n| g.logs.hist_coarseness = n as u8 }),
    row("log_avg_msec", &[], "0", "log averages over this number of milliseconds; 0: every I/O",
        Kind::Int { min: 0, max: u32::MAX as u64, set: |g, n| g.logs.avg_msec = n }),
    row("log_max_value", &[], "0", "log the maximum latency of each window, not the mean",
        Kind::Bool { set: |g, on| g.logs.max_value = on }),
    row("log_offset", &[], "0", "add offsets to the logs",
        Kind::Bool { set: |g, on| g.logs.offset = on }),
    row("log_prio", &[], "0",
        "log the priority of each I/O as class and level, not only whether it is real-time",
        Kind::Bool { set: |g, on| g.logs.prio = on }),
    row("per_job_logs", &[], "1", "write a separate log for each clone",
        Kind::Bool { set: |g, on| g.logs.shared = !on }),
    row("write_iolog", &[], "no log",
        "write all I/Os with their times to this file, for --read_iolog",
        Kind::Text { set: |g, text| g.replay.write = Some(text.to_owned()) }),
    row("read_iolog", &[], "no replay",
        "replay the I/Os of a log: an iolog of fio, a file of blktrace, or the directory of a \
         trace. Writes of the log change the files or devices that it names",
        Kind::Text { set: |g, text| g.replay.read = Some(text.to_owned()) }),
    row("replay_redirect", &[], "the files of the log", "replay all I/Os on this disk",
        Kind::Text { set: |g, text| g.replay.redirect = Some(text.to_owned()) }),
    row("replay_no_stall", &[], "0", "replay as fast as possible, and ignore the times of the log",
        Kind::Bool { set: |g, on| g.replay.changes.no_stall = on }),
    row("replay_time_scale", &[], "100", "speed of a replay in percent; 200 is twice as fast",
        Kind::Int { min: 1, max: u32::MAX as u64,
            set: |g, n| g.replay.changes.time_scale = if n == 100 { 0 } else { n as u32 } }),
    row("replay_align", &[], "0", "power of two to which offsets are rounded down and lengths up",
        Kind::Parsed { accepts: "0, or a power of two such as 4k", set: |g, text| {
            g.replay.changes.align = values::power_of_two(text)?;
            Ok(())
        } }),
    row("replay_scale", &[], "1", "divisor of the offsets of a replay",
        Kind::Int { min: 0, max: u32::MAX as u64,
            set: |g, n| g.replay.changes.scale = if n == 1 { 0 } else { n } }),
    row("replay_skip", &[], "no kind", "kinds of I/O to leave out of a replay",
        Kind::Parsed { accepts: "read, write, trim or sync, or several with commas",
            set: |g, text| { g.replay.changes.skip = values::skip(text)?; Ok(()) } }),
    row("group_reporting", &[], "0", "report all jobs of a group as one",
        Kind::Flag { set: |g, on| g.group_reporting = Some(on) }),
    row("thread", &["threads"], "1", "jobs are always threads, never processes",
        Kind::Flag { set: |g, on| warn_if(g, !on, "--thread=0 has no effect: jobs are always \
            threads") }),
    row("stonewall", &["wait_for_previous"], "0", "start when all jobs before it have ended",
        Kind::Flag { set: |g, on| g.stonewall = Some(on) }),
    row("wait_for", &[], "no job", "start when all clones of this job have ended",
        Kind::Text { set: |g, text| g.control.wait_for = Some(text.to_owned()) }),
    row("flow", &[], "0",
        "weight of the job: jobs with the same flow_id divide their I/Os by weight; 0: no flow",
        Kind::Int { min: 0, max: 1000, set: |g, n| g.control.flow = n as u32 }),
    row("flow_id", &[], "0", "number of the flow: the jobs among which flow divides the I/Os",
        Kind::Int { min: 0, max: u32::MAX as u64, set: |g, n| g.control.flow_id = n as u32 }),
    row("flow_sleep", &[], "0",
        "time that a job sleeps while it is ahead of its weight in the flow, us",
        Kind::Int { min: 0, max: u32::MAX as u64,
            set: |g, n| g.control.flow_sleep = Duration::from_micros(n) }),
    row("cpus_allowed", &[], "all processors", "processors of the job's threads",
        Kind::Parsed { accepts: "numbers and ranges, as in 0,4-7",
            set: |g, text| { g.placement.cpus = Some(control::numbers(text)?); Ok(()) } }),
    row("cpumask", &[], "all processors", "the same as cpus_allowed, as a bit mask",
        Kind::Int { min: 1, max: u64::MAX, set: |g, mask| {
            g.placement.cpus = Some((0..64).filter(|bit| mask >> bit & 1 == 1).collect());
        } }),
    row("cpus_allowed_policy", &[], "shared", "split: each clone has one of the processors",
        Kind::Choice {
            words: &["shared", "split"],
            set: |g, word| g.placement.split = word == "split",
        }),
    row("numa_cpu_nodes", &[], "all nodes", "NUMA nodes on whose processors the job runs",
        Kind::Parsed { accepts: "numbers and ranges, as in 0,2-3, or all",
            set: |g, text| {
                let nodes = if text == "all" { None } else { Some(control::numbers(text)?) };
                g.placement.nodes = nodes;
                Ok(())
            } }),
    row("numa_mem_policy", &[], "default", "NUMA nodes on which the memory of the job is allocated",
        Kind::Parsed { accepts: "default, local, prefer:NODE, bind:NODES or interleave:NODES",
            set: |g, text| { g.placement.memory = control::memory_policy(text)?; Ok(()) } }),
    row("nice", &[], "0", "number to add to the nice value of the job's threads",
        Kind::Parsed { accepts: "a number from -19 to 18",
            set: |g, text| { g.placement.nice = values::nice(text)?; Ok(()) } }),
    row("new_group", &[], "0", "start a new reporting group",
        Kind::Flag { set: |g, on| g.new_group = Some(on) }),
    row("output", &[], "standard output", "file for the report",
        Kind::RunText { set: |run, path| run.output = Some(path.into()) }),
    row("output-format", &[], "normal", "format of the report",
        Kind::RunParsed {
            accepts: "normal, terse, json, json+, or several with commas",
            set: |run, text| {
                run.format = OutputFormat::from_words(text)?;
                Ok(())
            },
        }),
    row("minimal", &[], "0", "the same as output-format=terse",
        Kind::RunFlag { set: |run, on| match on {
            true => run.format = OutputFormat::TERSE,
            false if run.format == OutputFormat::TERSE => run.format = OutputFormat::NORMAL,
            false => {}
        } }),
    row("append-terse", &[], "0", "print terse lines in addition to the other formats",
        Kind::RunFlag { set: |run, on| {
            if on {
                run.format = run.format.and_terse();
            }
        } }),
    row("terse-version", &[], "3", "version of terse lines",
        Kind::RunParsed { accepts: "2, 3, 4 or 5",
            set: |run, text| {
                let version = TerseVersion::of_number(text);
                run.terse_version = version.ok_or("there is no such version")?;
                Ok(())
            } }),
    row("status-interval", &[], "only at the end", "print the whole report at this interval",
        Kind::RunParsed { accepts: "a time such as 10, 10s, 500ms, 5m or 1h",
            set: |run, text| { run.status_interval = values::period(text)?; Ok(()) } }),
    row("eta-newline", &[], "stays on one line", "start a new progress line at this interval",
        Kind::RunParsed { accepts: "a time such as 10, 10s, 500ms, 5m or 1h",
            set: |run, text| { run.eta_newline = values::period(text)?; Ok(()) } }),
    row("eta", &[], "auto", "when to show a progress line; auto: on a terminal",
        Kind::RunChoice {
            words: &["always", "never", "auto"],
            set: |run, word| run.eta = match word {
                "always" => Eta::Always,
                "never" => Eta::Never,
                _ => Eta::Auto,
            },
        }),
    row("trace", &[], "no trace",
        "new directory for a trace of all disks, for blkparse and forebay trace report",
        Kind::RunText { set: |run, path| run.trace = Some(path.into()) }),
    row("insight", &[], "no socket",
        "socket at which forebay top shows the disks while the jobs run",
        Kind::RunText { set: |run, path| run.insight = Some(path.into()) }),
    row("section", &[], "all jobs", "run only jobs of this name; may be repeated",
        Kind::RunText { set: |run, name| run.sections.push(name.to_owned()) }),
    row("parse-only", &[], "0", "check the options and run nothing",
        Kind::RunFlag { set: |run, on| run.parse_only = on }),
    row("showcmd", &[], "0", "print the jobs as one command line, and run nothing",
        Kind::RunFlag { set: |run, on| run.showcmd = on }),
    row("readonly", &[], "0", "refuse jobs that write or trim, or need a longer file",
        Kind::RunFlag { set: |run, on| run.readonly = on }),
    row("warnings-fatal", &[], "0", "treat warnings as errors",
        Kind::RunFlag { set: |run, on| run.warnings_fatal = on }),
    row("help", &[], "", "show this list, or one option: --help=verify", Kind::Help),
];
