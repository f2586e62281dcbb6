//! What every job of fio may say.

use super::{Foreign, ignored, refused};

const SHELL: &str = "run it in the shell";
const ONE_FILE: &str = "a job works on one file or device; write one job for each";
const BLOCKS: &str = "use --bs=READ,WRITE, a size for each direction";
const OFFSETS: &str = "use --offset with a job for each region";
const DISTRIBUTION: &str = "the whole region is drawn from; use --random_distribution";
const PACE: &str = "use --rate or --rate_iops, and --thinktime";
const LOGS: &str = "use --write_lat_log, --write_bw_log or --write_iops_log, with --log_avg_msec";
const REPLAY: &str = "traces are neither written nor replayed";
const VERIFY: &str = "use --verify, which reads back all that was written at the end";
const TRIM: &str = "use a job with --rw=trim or --rw=randtrim";
const DATA: &str = "use --buffer_pattern or --zero_buffers";
const ZONES: &str = "zoned devices are not supported; name a device without zones";
const PLACEMENT: &str = "hints for the device are not passed on";
const PRIORITY: &str = "run forebay under nice or ionice";
const PROCESSORS: &str = "run forebay under taskset or numactl";
const END: &str = "each job ends by itself; use --runtime, and --stonewall to order jobs";
const ORDER: &str = "use --stonewall, which waits for all jobs before it";
const LATENCY: &str = "search by hand: a job for each --iodepth, with --stonewall between";
const STEADY: &str = "use --runtime, and several jobs with --stonewall to see the trend";
const FLUSH: &str = "use --fsync=N, --fdatasync=N or --end_fsync=1";
const ERRORS: &str = "the first error ends a job";
const PERCENTILES: &str = "use --percentile_list";
const GROUP: &str = "run forebay in that group or as that user";
const SPRANDOM: &str = "write the device twice with --rw=randwrite before the measurement";

const NO_FILES: &str = "it says how files are made before the start, which is not measured";

#[rustfmt::skip]
pub(super) static OPTIONS: &[Foreign] = &[
    // Ignored: the same is measured, and reported.
    ignored(&["description"], "the report does not show it"),
    ignored(&["clocksource"], "the clock is the system's monotonic one"),
    ignored(&["unlink"], "files are left in place"),
    ignored(&["fallocate"], NO_FILES),
    ignored(&["create_serialize", "create_fsync"], NO_FILES),
    ignored(&["unique_filename"], "there is nothing that it would name"),
    ignored(&["random_generator"], "offsets come from a permutation: uniform, each block once"),
    ignored(&["disk_util", "unit_base"], "the report has one form"),
    ignored(&["error_dump"], "the message names the offset that is wrong"),
    // Order and ends of jobs.
    refused(&["wait_for"], ORDER),
    refused(&["exitall", "exitall_on_error"], END),
    refused(&["exit_what"], END),
    refused(&["exec_prerun", "exec_postrun"], SHELL),
    refused(&["profile"], "write the jobs of the profile"),
    refused(&["flow", "flow_id", "flow_sleep", "flow_watermark"], PACE),
    // Files.
    refused(&["directory"], "write the path into --filename"),
    refused(&["filename_format"], "write it into --filename"),
    refused(&["lockfile"], ONE_FILE),
    refused(&["opendir", "nrfiles", "nr_files", "openfiles", "file_service_type", "filesize"],
        ONE_FILE),
    refused(&["file_append"], OFFSETS),
    refused(&["fill_device", "fill_fs"], "without --size a job works on all there is"),
    refused(&["fadvise_hint", "fadvise_stream"], "use --direct=1, or --invalidate=1"),
    refused(&["overwrite"], "lay the file out with a job of --rw=write first"),
    refused(&["create_on_open", "create_only", "allow_file_create"],
        "files are made before the start; make them beforehand"),
    refused(&["pre_read"], "use a job with --rw=read and --direct=0 before, with --stonewall"),
    refused(&["unlink_each_loop"], SHELL),
    // What is done.
    refused(&["bs_is_seq_rand"], BLOCKS),
    refused(&["allrandrepeat", "use_os_rand"], "use --randseed"),
    refused(&["ignore_error", "continue_on_error"], ERRORS),
    refused(&["rwmixcycle"], OFFSETS),
    refused(&["serialize_overlap"], "use --iodepth=1"),
    refused(&["io_submit_mode"], "a job submits its I/O itself"),
    refused(&["offset_increment", "offset_align"], OFFSETS),
    refused(&["softrandommap"], "use --norandommap=1"),
    refused(&["num_range"], DISTRIBUTION),
    refused(&["write_barrier", "sync_file_range", "sync"], FLUSH),
    refused(&["atomic"], "atomic writes are not supported"),
    refused(&["sprandom", "spr_op", "spr_num_regions", "spr_cache_size"], SPRANDOM),
    // Pace.
    refused(&["ramp_size"], STEADY),
    refused(&["thinktime_blocks_type", "thinktime_iotime", "thinkcycles"], PACE),
    refused(&["rate_min", "ratemin", "rate_iops_min", "rate_cycle", "ratecycle",
        "rate_ignore_thinktime"], PACE),
    refused(&["max_latency", "latency_target", "latency_window", "latency_percentile",
        "latency_run"], LATENCY),
    refused(&["steadystate", "ss", "steadystate_duration", "ss_dur", "steadystate_ramp_time",
        "ss_ramp", "steadystate_check_interval", "ss_interval"], STEADY),
    // Verification and trims.
    refused(&["verify_interval", "verify_offset", "verify_async", "verify_async_cpus",
        "verify_backlog", "verify_backlog_batch", "experimental_verify", "verify_state_load",
        "verify_state_save", "verify_pattern_interval", "verify_write_sequence",
        "verify_header_seed", "verifysort", "verifysort_nr"], VERIFY),
    refused(&["trim_percentage", "trim_verify_zero", "trim_backlog", "trim_backlog_batch"], TRIM),
    // Traces.
    refused(&["write_iolog", "read_iolog", "read_iolog_chunked", "replay_no_stall",
        "replay_redirect", "replay_scale", "replay_align", "replay_time_scale", "replay_skip",
        "merge_blktrace_file", "merge_blktrace_scalars", "merge_blktrace_iters"], REPLAY),
    // Devices.
    refused(&["ioscheduler"], "write it to /sys/block/DEVICE/queue/scheduler"),
    refused(&["zonemode", "zonesize", "zonecapacity", "zonerange", "zoneskip", "read_beyond_wp",
        "max_open_zones", "job_max_open_zones", "ignore_zone_limits", "zone_reset_threshold",
        "zone_reset_frequency", "recover_zbd_write_error"], ZONES),
    refused(&["write_hint", "dataplacement", "fdp", "plids", "fdp_pli", "plid_select",
        "fdp_pli_select", "dp_scheme"], PLACEMENT),
    // Memory and processors.
    refused(&["lockmem"], "run it in a memory group of that size"),
    refused(&["mem", "iomem", "mem_align", "iomem_align", "hugepage-size"],
        "buffers are ordinary memory"),
    refused(&["nice", "prio", "prioclass", "priohint"], PRIORITY),
    refused(&["cpumask", "cpus_allowed", "cpus_allowed_policy", "numa_cpu_nodes",
        "numa_mem_policy"], PROCESSORS),
    refused(&["cgroup", "cgroup_nodelete", "cgroup_weight", "uid", "gid"], GROUP),
    // The data.
    refused(&["buffer_compress_percentage", "buffer_compress_chunk", "dedupe_percentage",
        "dedupe_mode", "dedupe_working_set_percentage", "dedupe_global"], DATA),
    // Logs and the report.
    refused(&["write_hist_log"], "use --output-format=json+, which has the buckets"),
    refused(&["bwavgtime"], LOGS),
    refused(&["iopsavgtime"], LOGS),
    refused(&["log_window_value", "log_issue_time", "log_entries", "log_hist_msec",
        "log_hist_coarseness", "log_prio", "log_compression", "log_compression_cpus",
        "log_store_compressed", "log_unix_epoch", "log_alternate_epoch",
        "log_alternate_epoch_clock_id"], LOGS),
    refused(&["block_error_percentiles", "significant_figures"], PERCENTILES),
    refused(&["stats"], "all jobs are reported"),
    refused(&["kb_base"], "write sizes as 4k for 4096 and 4ki for 4000"),
];
