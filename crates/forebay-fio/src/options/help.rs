//! The help text of the options, in groups.

use super::known::Verdict;
use super::{Found, Kind, OPTIONS, OptionSpec, known, lookup};
use crate::errors::UsageError;

/// Columns of a line of help.
const COLUMNS: usize = 96;

/// The groups, with the options of each in the order in which they are shown.
#[rustfmt::skip]
const GROUPS: &[(&str, &[&str])] = &[
    ("Jobs and devices", &[
        "name", "description", "filename", "ioengine", "direct", "buffered", "numjobs", "thread",
        "invalidate", "allow_mounted_write", "fixedbufs", "sqthread_poll", "uri", "pool",
        "rbdname", "clientname",
    ]),
    ("Order and ends of jobs", &[
        "stonewall", "new_group", "wait_for", "exitall", "exitall_on_error", "exit_what", "flow",
        "flow_id", "flow_sleep",
    ]),
    ("Latency target", &[
        "latency_target", "latency_window", "latency_percentile", "latency_run",
    ]),
    ("Steady state", &["steadystate", "steadystate_duration", "steadystate_ramp_time"]),
    ("Errors", &["continue_on_error", "ignore_error", "error_dump", "fill_device"]),
    ("Processors and memory", &[
        "cpus_allowed", "cpumask", "cpus_allowed_policy", "numa_cpu_nodes", "numa_mem_policy",
        "nice",
    ]),
    ("Files", &[
        "directory", "filename_format", "nrfiles", "opendir", "filesize", "openfiles",
        "file_service_type", "create_on_open", "allow_file_create", "fallocate", "file_append",
        "unlink",
    ]),
    ("Access pattern", &[
        "rw", "rw_sequencer", "percentage_random", "random_distribution", "rwmixread", "rwmixwrite",
        "norandommap", "randseed", "randrepeat",
    ]),
    ("Sizes", &[
        "bs", "bsrange", "bssplit", "bs_unaligned", "blockalign", "size", "offset",
        "offset_increment", "io_size", "number_ios", "loops", "zonemode", "zonesize", "zonerange",
        "zoneskip", "zonecapacity", "max_open_zones", "job_max_open_zones", "zone_reset_frequency",
        "zone_reset_threshold", "read_beyond_wp", "ignore_zone_limits",
    ]),
    ("Queue depth", &[
        "iodepth", "iodepth_batch", "iodepth_batch_complete_min", "iodepth_batch_complete_max",
        "iodepth_low", "serialize_overlap",
    ]),
    ("Time and rate", &[
        "runtime", "time_based", "max_latency", "ramp_time", "startdelay", "rate", "rate_iops",
        "rate_process", "rate_min", "rate_iops_min", "rate_cycle", "io_submit_mode",
        "thinktime", "thinktime_spin", "thinktime_blocks",
    ]),
    ("I/O priorities", &[
        "prio", "prioclass", "cmdprio_percentage", "cmdprio_bssplit", "cmdprio_class", "cmdprio",
    ]),
    ("Flushes", &["fsync", "fdatasync", "end_fsync", "fsync_on_close"]),
    ("Data and verification", &[
        "verify", "do_verify", "verify_only", "verify_fatal", "verify_pattern", "verify_interval",
        "verify_offset", "verify_backlog", "verify_backlog_batch", "verify_dump",
        "buffer_pattern", "zero_buffers", "refill_buffers", "scramble_buffers",
        "buffer_compress_percentage", "buffer_compress_chunk", "dedupe_percentage", "dedupe_mode",
        "dedupe_working_set_percentage", "dedupe_global",
    ]),
    ("Measurements and logs", &[
        "kb_base", "unit_base",
        "group_reporting", "percentile_list", "clat_percentiles", "lat_percentiles",
        "slat_percentiles", "unified_rw_reporting", "disable_lat", "disable_clat", "disable_slat",
        "disable_bw", "gtod_reduce", "write_bw_log", "write_lat_log", "write_iops_log",
        "write_hist_log", "log_hist_msec", "log_hist_coarseness",
        "log_avg_msec", "log_max_value", "log_offset", "log_prio", "per_job_logs",
    ]),
    ("Logs of I/Os, and their replay", &[
        "write_iolog", "read_iolog", "replay_redirect", "replay_no_stall", "replay_time_scale",
        "replay_align", "replay_scale", "replay_skip",
    ]),
    ("Settings of the block layer: keys of device specs (forebay help policies)", &[
        "plug", "nomerges", "kick", "queue_depth", "nr_requests", "wake", "tag_need", "tag_set",
        "reserved_tags", "async_depth", "nr_hw_queues", "run_queue", "scheduler", "device_depth",
        "fifo_batch", "read_expire", "write_expire", "writes_starved", "front_merges",
        "prio_aging_expire", "read_lat_nsec", "write_lat_nsec", "slice_idle_us", "max_budget",
        "timeout_sync", "fifo_expire_sync", "fifo_expire_async", "weight_by", "cost_read_io_ns",
        "cost_read_byte_ps", "cost_write_io_ns", "cost_write_byte_ps", "max_sectors_kb", "flush",
        "flush_pending_ms", "io_timeout_ms", "io_timeout_grace_ms", "elide", "exclusive", "iostats",
    ]),
    ("Limits and weight of each clone, in the block layer (forebay help policies)", &[
        "weight", "throttle_iops", "throttle_bps", "throttle_read_iops",
        "throttle_read_bps", "throttle_write_iops", "throttle_write_bps",
        "throttle_iops_burst", "throttle_bps_burst", "throttle_read_iops_burst",
        "throttle_read_bps_burst", "throttle_write_iops_burst",
        "throttle_write_bps_burst", "throttle_latency_target_us",
    ]),
    ("Report and run", &[
        "output", "output-format", "minimal", "append-terse", "terse-version", "status-interval",
        "eta", "eta-newline", "trace",
        "insight", "section", "parse-only", "showcmd", "readonly", "warnings-fatal", "help",
    ]),
];

/// Returns the help text of all options, in groups.
pub fn help() -> String {
    let group = |(title, options): (&str, Vec<&OptionSpec>)| {
        let options: String = options.into_iter().map(entry).collect();
        format!("{title}:\n{options}")
    };
    groups().map(group).collect::<Vec<_>>().join("\n")
}

/// Returns the groups of options, each with its title.
pub fn groups() -> impl Iterator<Item = (&'static str, Vec<&'static OptionSpec>)> {
    GROUPS.iter().map(|(title, names)| (*title, names.iter().filter_map(|it| named(it)).collect()))
}

/// Returns the help text of one option, by its name or an alias, with or without dashes.
///
/// # Errors
///
/// [`UsageError::UnknownOption`] if neither fio nor this program has it.
pub fn help_of(name: &str) -> Result<String, UsageError> {
    let name = name.trim_start_matches('-');
    Ok(match lookup(name)? {
        Found::Supported(spec) => entry(spec),
        Found::Ignored(foreign, why) => foreign_entry(foreign, "accepted with a warning", why),
        Found::Refused(foreign, instead) => foreign_entry(foreign, "not supported", instead),
    })
}

fn named(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|spec| spec.name == name)
}

/// Returns the lines of an option: names and default, description, values.
fn entry(spec: &OptionSpec) -> String {
    let names: Vec<_> = spec.names().map(|name| format!("--{name}")).collect();
    let values = match spec.kind {
        Kind::Help => String::new(),
        _ => spec.kind.accepted(),
    };
    lines_of(&names.join(", "), spec.default, spec.help, &values)
}

/// Returns the lines of help of one name: name and default, description, values. An empty default
/// is left out, and so are empty values.
pub fn lines_of(name: &str, default: &str, help: &str, values: &str) -> String {
    let default = match default {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    let mut text = format!("  {name}{default}\n{}", wrapped(help));
    if !values.is_empty() {
        text += &wrapped(&format!("values: {values}"));
    }
    text
}

fn foreign_entry(foreign: &known::Foreign, fate: &str, why: &str) -> String {
    let names: Vec<_> = foreign.names.iter().map(|name| format!("--{name}")).collect();
    let mut text = format!("  {}\n{}", names.join(", "), wrapped(&format!("{fate}: {why}")));
    if let (Verdict::Refused(_), [off, ..]) = (foreign.verdict, foreign.off) {
        text += &wrapped(&format!("accepted without effect: {off}, which is what happens anyway"));
    }
    text
}

/// Returns the text in indented lines of at most [`COLUMNS`] columns.
fn wrapped(text: &str) -> String {
    const INDENT: &str = "      ";
    let (mut out, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && INDENT.len() + line.len() + 1 + word.len() > COLUMNS {
            out += &format!("{INDENT}{line}\n");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    out + &format!("{INDENT}{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_in_exactly_one_group() {
        let shown = || GROUPS.iter().flat_map(|(_, names)| names.iter());
        for spec in OPTIONS {
            let nr = shown().filter(|name| **name == spec.name).count();
            assert_eq!(nr, 1, "--{} is in {nr} groups", spec.name);
        }
        assert_eq!(shown().count(), OPTIONS.len(), "a group names an option that is not there");
    }

    #[test]
    fn help_has_groups_values_and_defaults_in_lines_that_fit() {
        let help = help();
        let expected = "Queue depth:\n  --iodepth [default: 1]\n      I/Os to keep in flight\n";
        assert!(help.contains(expected), "{help}");
        let expected = "\n      values: a number from 1 to 65536\n  --iodepth_batch, ";
        assert!(help.contains(expected), "{help}");
        assert!(help.contains("\n      values: fair, batch, stash or single\n"), "{help}");
        assert!(help.lines().all(|line| line.len() <= COLUMNS), "{help}");
    }

    #[test]
    fn help_of_one_option_covers_aliases_and_options_of_fio() {
        let expected = "  --rw_sequencer [default: sequential]\n";
        assert!(help_of("rw-sequencer").expect("a row").starts_with(expected));
        assert_eq!(help_of("--blocksize"), help_of("bs"));
        let text = help_of("verify_state_save").expect("a name");
        let expected = "  --verify_state_save\n      not supported: verify state files are neither \
                        written nor read\n      accepted without effect: 0, which is what happens \
                        anyway\n";
        assert_eq!(text, expected);
        let text = help_of("clocksource").expect("a name");
        assert!(text.contains("accepted with a warning: "), "{text}");
        let error = help_of("iodpth").expect_err("no option").to_string();
        assert_eq!(error, "unknown option --iodpth; did you mean --iodepth?");
    }
}
