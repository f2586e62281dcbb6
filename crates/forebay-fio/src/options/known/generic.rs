//! fio's options of every job.

use super::{Foreign, OFF, ignored, refused, unless};

const SHELL: &str = "run the command in a shell before or after forebay";
const BLOCKS: &str = "use --bs=READ,WRITE, a size for each direction";
const PACE: &str = "use --rate, --rate_iops or --thinktime";
const LOGS: &str = "use --write_lat_log, --write_bw_log or --write_iops_log, with --log_avg_msec";
const MERGE: &str = "name the directory of the files of blktrace with --read_iolog, which merges \
                     them by time";
const VERIFY: &str = "use --verify, which reads all written blocks back at the end";
const VERIFY_STATE: &str = "verify state files are neither written nor read";
const TRIM: &str = "use a job with --rw=trim or --rw=randtrim";
const ZONES: &str = "zones are emulated, so no write fails at a write pointer";
const PLACEMENT: &str = "hints are not passed to the device";
const STEADY: &str = "the rates are sampled once a second";
const FLUSH: &str = "use --fsync=N, --fdatasync=N or --end_fsync=1";
const GROUP: &str = "run forebay in that group or as that user";
const SPRANDOM: &str = "write the device twice with --rw=randwrite before the measurement";

const NO_FILES: &str = "it is about creating files, which happens before the measurement";

#[rustfmt::skip]
pub(super) static OPTIONS: &[Foreign] = &[
    // Ignored: the measurement and the report are the same.
    ignored(&["clocksource"], "the clock is always CLOCK_MONOTONIC"),
    ignored(&["gtod_cpu"], "reading the clock takes no system call"),
    ignored(&["create_serialize", "create_fsync"], NO_FILES),
    ignored(&["unique_filename"], "it is for network clients"),
    ignored(&["random_generator"], "offsets are a random permutation: each block once per pass"),
    ignored(&["read_iolog_chunked"], "the whole log is read before the start"),
    ignored(&["verify_async", "verify_async_cpus"], "the thread of each job checks its blocks; if \
        the checks limit the rate, raise --numjobs"),
    ignored(&["disk_util"], "the report has one form"),
    // Order and ends of jobs.
    refused(&["exec_prerun", "exec_postrun"], SHELL),
    refused(&["profile"], "write the jobs of the profile"),
    refused(&["flow_watermark"], PACE),
    // Files.
    unless(&["none"], refused(&["lockfile"], "jobs do not lock files")),
    refused(&["fadvise_hint", "fadvise_stream"], "use --direct=1 or --invalidate=1"),
    unless(OFF, refused(&["overwrite"], "lay out the file with a job of --rw=write first")),
    unless(OFF, refused(&["create_only"],
        "files are created before the start; create them beforehand")),
    unless(OFF, refused(&["pre_read"], "use a job of --rw=read and --direct=0 before it, with \
        --stonewall between them")),
    unless(OFF, refused(&["unlink_each_loop"], SHELL)),
    // Access.
    unless(OFF, refused(&["bs_is_seq_rand"], BLOCKS)),
    unless(OFF, refused(&["allrandrepeat"], "use --randrepeat and --randseed")),
    refused(&["use_os_rand"], "use --randseed"),
    refused(&["rwmixcycle"], "use --rwmixread, which holds for the whole job"),
    refused(&["offset_align"], "write an aligned --offset"),
    unless(OFF, refused(&["softrandommap"], "use --norandommap=1")),
    refused(&["num_range"], "trims have one range each; use --bs"),
    refused(&["write_barrier", "sync_file_range"], FLUSH),
    unless(&["none", "0"], refused(&["sync"], FLUSH)),
    unless(OFF, refused(&["atomic"], "atomic writes are not supported")),
    refused(&["sprandom", "spr_op", "spr_num_regions", "spr_cache_size"], SPRANDOM),
    // Pace.
    refused(&["ramp_size"], "use --ramp_time"),
    refused(&["thinktime_blocks_type", "thinktime_iotime"], "use --thinktime_blocks"),
    refused(&["thinkcycles"], "use --thinktime_spin"),
    unless(OFF, refused(&["rate_ignore_thinktime"], PACE)),
    unless(&["1", "1s"], refused(&["steadystate_check_interval", "ss_interval"], STEADY)),
    // Verification and trims.
    refused(&["verify_header_seed", "verify_pattern_interval"], VERIFY),
    unless(OFF, refused(&["experimental_verify"], VERIFY)),
    unless(OFF, refused(&["verify_state_load"], VERIFY_STATE)),
    unless(OFF, refused(&["verify_state_save"], VERIFY_STATE)),
    unless(OFF, refused(&["verify_write_sequence"], VERIFY)),
    refused(&["verifysort", "verifysort_nr"], "blocks are read back in order of their offsets"),
    refused(&["trim_percentage", "trim_verify_zero", "trim_backlog", "trim_backlog_batch"], TRIM),
    // Traces.
    refused(&["merge_blktrace_file", "merge_blktrace_scalars", "merge_blktrace_iters"], MERGE),
    // Devices.
    refused(&["ioscheduler"], "write the name to /sys/block/DEVICE/queue/scheduler"),
    refused(&["recover_zbd_write_error"], ZONES),
    refused(&["write_hint", "dataplacement", "fdp", "plids", "fdp_pli", "plid_select",
        "fdp_pli_select", "dp_scheme"], PLACEMENT),
    // Memory and processors.
    refused(&["lockmem"], "run forebay in a memory cgroup of that size"),
    unless(&["malloc"], ignored(&["mem", "iomem"], "I/O buffers are ordinary memory")),
    refused(&["mem_align", "iomem_align", "hugepage-size"], "I/O buffers are ordinary memory"),
    refused(&["priohint"], "no driver passes hints of a priority to its device"),
    unless(OFF, refused(&["cgroup_nodelete"], GROUP)),
    refused(&["cgroup", "cgroup_weight", "uid", "gid"], GROUP),
    // Logs and the report.
    refused(&["bwavgtime", "iopsavgtime"], LOGS),
    unless(OFF, refused(&["log_store_compressed", "log_unix_epoch",
        "log_alternate_epoch"], LOGS)),
    refused(&["log_window_value", "log_issue_time", "log_entries", "log_compression",
        "log_compression_cpus", "log_alternate_epoch_clock_id"], LOGS),
    unless(OFF, refused(&["block_error_percentiles"], "use --continue_on_error=1, which counts \
        errors")),
    refused(&["significant_figures"], "use --output-format=json, which has all digits"),
    unless(&["1", "true", "yes", "on"], refused(&["stats"], "all jobs are reported")),
];
