//! What every job of fio may say.

use super::{Foreign, ignored, refused};

const SHELL: &str = "run it in the shell";
const ONE_FILE: &str = "a job works on one file or device; write one job for each";
const BLOCKS: &str = "use --bs=SIZE, and a job for each size";
const OFFSETS: &str = "use --offset with a job for each region";
const DISTRIBUTION: &str = "offsets are uniform; use --offset and --size for a hot region";
const PACE: &str = "jobs run as fast as they can; lower --iodepth for less load";
const LOGS: &str = "no logs are written; the JSON report has percentiles and rates";
const REPLAY: &str = "traces are neither written nor replayed";
const VERIFY: &str = "use --verify=crc32c, which reads back all that was written at the end";
const TRIM: &str = "use a job with --rw=trim or --rw=randtrim";
const DATA: &str = "blocks are filled with data that does not compress";
const ZONES: &str = "zoned devices are not supported; name a device without zones";
const PLACEMENT: &str = "hints for the device are not passed on";
const PRIORITY: &str = "run forebay under nice or ionice";
const PROCESSORS: &str = "run forebay under taskset or numactl";
const END: &str = "each job ends by itself; use --runtime, and --stonewall to order jobs";
const ORDER: &str = "use --stonewall, which waits for all jobs before it";
const LATENCY: &str = "search by hand: a job for each --iodepth, with --stonewall between";
const STEADY: &str = "use --runtime, and several jobs with --stonewall to see the trend";
const FLUSH: &str = "use --fsync=N or --end_fsync=1";
const ERRORS: &str = "the first error ends a job";
const PERCENTILES: &str = "the report has fio's default percentiles";
const GROUP: &str = "run forebay in that group or as that user";
const SPRANDOM: &str = "write the device twice with --rw=randwrite before the measurement";

const NOT_MEASURED: &str = "all latencies are measured, at the same cost for every job";
const NO_FILES: &str = "it says how files are made before the start, which is not measured";

#[rustfmt::skip]
pub(super) static OPTIONS: &[Foreign] = &[
    // Ignored: the same is measured, and reported.
    ignored(&["description"], "the report does not show it"),
    ignored(&["gtod_reduce"], NOT_MEASURED),
    ignored(&["disable_lat", "disable_clat", "disable_slat", "disable_bw_measurement",
        "disable_bw"], NOT_MEASURED),
    ignored(&["gtod_cpu", "clocksource"], "the clock is the system's monotonic one"),
    ignored(&["unlink"], "files are left in place"),
    ignored(&["fallocate"], NO_FILES),
    ignored(&["create_serialize", "create_fsync"], NO_FILES),
    ignored(&["unique_filename", "per_job_logs"], "there is nothing that it would name"),
    ignored(&["random_generator"], "offsets come from a permutation: uniform, each block once"),
    ignored(&["disk_util", "unit_base"], "the report has one form"),
    ignored(&["error_dump", "verify_dump"], "the message names the offset that is wrong"),
    ignored(&["verify_fatal"], "the first wrong block ends the job in any case"),
    // Order and ends of jobs.
    refused(&["wait_for"], ORDER),
    refused(&["startdelay", "start_delay"], ORDER),
    refused(&["loops"], "use --io_size, or --time_based=1 with --runtime"),
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
    refused(&["fsync_on_close"], FLUSH),
    // What is done.
    refused(&["ba", "blockalign"], "offsets are multiples of --bs from --offset on"),
    refused(&["bsrange", "blocksize_range"], BLOCKS),
    refused(&["bssplit"], BLOCKS),
    refused(&["bs_unaligned", "blocksize_unaligned"], BLOCKS),
    refused(&["bs_is_seq_rand"], BLOCKS),
    refused(&["allrandrepeat", "use_os_rand"], "use --randseed"),
    refused(&["ignore_error", "continue_on_error"], ERRORS),
    refused(&["rw_sequencer", "rwmixcycle"], OFFSETS),
    refused(&["serialize_overlap"], "use --iodepth=1"),
    refused(&["io_submit_mode"], "a job submits its I/O itself"),
    refused(&["offset_increment", "offset_align"], OFFSETS),
    refused(&["number_ios"], "use --io_size"),
    refused(&["softrandommap"], "use --norandommap=1"),
    refused(&["random_distribution", "percentage_random", "num_range"], DISTRIBUTION),
    refused(&["fdatasync"], FLUSH),
    refused(&["write_barrier", "sync_file_range", "sync"], FLUSH),
    refused(&["atomic"], "atomic writes are not supported"),
    refused(&["sprandom", "spr_op", "spr_num_regions", "spr_cache_size"], SPRANDOM),
    // Pace.
    refused(&["ramp_time"], STEADY),
    refused(&["ramp_size"], STEADY),
    refused(&["thinktime", "thinktime_spin", "thinktime_blocks", "thinktime_blocks_type",
        "thinktime_iotime", "thinkcycles"], PACE),
    refused(&["rate"], PACE),
    refused(&["rate_iops"], PACE),
    refused(&["rate_min", "ratemin", "rate_iops_min", "rate_process", "rate_cycle", "ratecycle",
        "rate_ignore_thinktime"], PACE),
    refused(&["max_latency", "latency_target", "latency_window", "latency_percentile",
        "latency_run"], LATENCY),
    refused(&["steadystate", "ss", "steadystate_duration", "ss_dur", "steadystate_ramp_time",
        "ss_ramp", "steadystate_check_interval", "ss_interval"], STEADY),
    // Verification and trims.
    refused(&["verify_only"], VERIFY),
    refused(&["verify_interval", "verify_offset", "verify_pattern", "verify_async",
        "verify_async_cpus", "verify_backlog", "verify_backlog_batch", "experimental_verify",
        "verify_state_load", "verify_state_save", "verify_pattern_interval",
        "verify_write_sequence", "verify_header_seed", "verifysort", "verifysort_nr"], VERIFY),
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
    refused(&["zero_buffers", "refill_buffers"], DATA),
    refused(&["scramble_buffers", "buffer_pattern", "buffer_compress_percentage",
        "buffer_compress_chunk", "dedupe_percentage", "dedupe_mode",
        "dedupe_working_set_percentage", "dedupe_global"], DATA),
    // Logs and the report.
    refused(&["write_bw_log"], LOGS),
    refused(&["write_lat_log"], LOGS),
    refused(&["write_iops_log"], LOGS),
    refused(&["write_hist_log"], LOGS),
    refused(&["log_avg_msec"], LOGS),
    refused(&["bwavgtime"], LOGS),
    refused(&["iopsavgtime"], LOGS),
    refused(&["log_window_value", "log_issue_time", "log_entries", "log_hist_msec",
        "log_hist_coarseness", "log_max_value", "log_offset", "log_prio", "log_compression",
        "log_compression_cpus", "log_store_compressed", "log_unix_epoch", "log_alternate_epoch",
        "log_alternate_epoch_clock_id"], LOGS),
    refused(&["clat_percentiles"], PERCENTILES),
    refused(&["lat_percentiles"], PERCENTILES),
    refused(&["slat_percentiles"], PERCENTILES),
    refused(&["percentile_list"], PERCENTILES),
    refused(&["block_error_percentiles", "significant_figures"], PERCENTILES),
    refused(&["stats"], "all jobs are reported"),
    refused(&["unified_rw_reporting"], "directions are reported one by one"),
    refused(&["kb_base"], "write sizes as 4k for 4096 and 4ki for 4000"),
];
