//! fio's options: their names, values and effects.
//!
//! [`OPTIONS`] has one row for each supported option, and [`known`] has fio's other options:
//! together they list every name. This module finds names and applies values. [`help`] prints the
//! table.

pub(crate) mod engines;
mod help;
pub mod known;
mod nearest;
mod table;
pub(crate) mod values;

use crate::errors::{Short, UsageError};
use crate::job::{Given, RunOptions};
use crate::units::{self, GivenSize, NumberError, decimal};

pub use self::help::{groups, help, help_of, lines_of};
use self::known::{Foreign, Verdict};
pub use self::nearest::nearest;
pub use self::table::OPTIONS;

/// One option: a row of the table.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// The name in reports, without dashes.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// The values that it takes, and what they set.
    pub kind: Kind,
    /// The default value, for the help text; empty if there is none.
    pub default: &'static str,
    /// A short description.
    pub help: &'static str,
}

/// The values of an option, and the function that stores them.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum Kind {
    /// A count within limits.
    Int { min: u64, max: u64, set: fn(&mut Given, u64) },
    /// Bytes within limits.
    Bytes { min: u64, max: u64, set: fn(&mut Given, u64) },
    /// Bytes or a percentage.
    Size { set: fn(&mut Given, GivenSize) },
    /// A time, in seconds by default.
    Time { set: fn(&mut Given, std::time::Duration) },
    /// 0 or 1; the value is required.
    Bool { set: fn(&mut Given, bool) },
    /// 0 or 1; the option without a value means 1.
    Flag { set: fn(&mut Given, bool) },
    /// One of these words.
    Choice { words: &'static [&'static str], set: fn(&mut Given, &str) },
    /// Any text.
    Text { set: fn(&mut Given, &str) },
    /// A text with its own syntax.
    Parsed { accepts: &'static str, set: fn(&mut Given, &str) -> Result<(), String> },
    /// A key of device specs by the same name: the value is passed on unchanged.
    Policy { accepts: &'static str },
    /// A limit or the weight of the job as an owner of I/O, passed on unchanged.
    Owner { accepts: &'static str },
    /// For the whole run: one of these words.
    RunChoice { words: &'static [&'static str], set: fn(&mut RunOptions, &str) },
    /// For the whole run: a text with its own syntax.
    RunParsed { accepts: &'static str, set: fn(&mut RunOptions, &str) -> Result<(), String> },
    /// For the whole run: any text.
    RunText { set: fn(&mut RunOptions, &str) },
    /// For the whole run: 0 or 1; the option without a value means 1.
    RunFlag { set: fn(&mut RunOptions, bool) },
    /// Opens a job.
    JobName,
    /// Shows the help text.
    Help,
}

/// The option that a name belongs to.
#[derive(Debug, Clone, Copy)]
pub enum Found {
    /// A supported option.
    Supported(&'static OptionSpec),
    /// An option of fio that has no effect here, and why.
    Ignored(&'static Foreign, &'static str),
    /// An option of fio that is not supported, and what to do instead. Its value may still be one
    /// that changes nothing ([`Foreign::off`]).
    Refused(&'static Foreign, &'static str),
}

impl Found {
    /// Returns whether the value is optional. The next argument is then never taken for it.
    pub fn is_flag(&self) -> bool {
        match self {
            Self::Supported(spec) => spec.is_flag(),
            Self::Ignored(foreign, _) | Self::Refused(foreign, _) => foreign.is_flag,
        }
    }

    /// Returns whether the value is the prefix of log files, which a job file may leave out.
    pub fn is_log(&self) -> bool {
        const LOGS: [&str; 4] =
            ["write_bw_log", "write_lat_log", "write_iops_log", "write_hist_log"];
        matches!(self, Self::Supported(spec) if LOGS.contains(&spec.name))
    }

    /// Returns a description of the accepted values.
    pub fn accepted(&self) -> String {
        match self {
            Self::Supported(spec) => spec.kind.accepted(),
            Self::Ignored(..) | Self::Refused(..) => "the values that fio takes".to_owned(),
        }
    }
}

/// Finds an option by its name or an alias. A dash and an underscore are the same.
///
/// # Errors
///
/// [`UsageError::UnknownOption`] if neither fio nor this program has it.
pub fn lookup(name: &str) -> Result<Found, UsageError> {
    if let Some(spec) = OPTIONS.iter().find(|spec| spec.names().any(|known| same_name(known, name)))
    {
        return Ok(Found::Supported(spec));
    }
    if let Some(foreign) = known::find(name) {
        return Ok(match foreign.verdict {
            Verdict::Ignored(why) => Found::Ignored(foreign, why),
            Verdict::Refused(instead) => Found::Refused(foreign, instead),
        });
    }
    let normal = name.trim_start_matches('-').replace('-', "_");
    let nearest = nearest(&normal, OPTIONS.iter().flat_map(OptionSpec::names));
    Err(UsageError::UnknownOption { name: name.to_owned(), nearest })
}

/// Returns whether two names are equal, with dashes equal to underscores.
fn same_name(a: &str, b: &str) -> bool {
    let normal = |byte: u8| if byte == b'-' { b'_' } else { byte };
    a.len() == b.len() && a.bytes().map(normal).eq(b.bytes().map(normal))
}

impl OptionSpec {
    /// Returns whether the value is optional. The next argument is then never taken for it.
    pub fn is_flag(&self) -> bool {
        matches!(self.kind, Kind::Flag { .. } | Kind::RunFlag { .. } | Kind::Help)
    }

    /// Returns whether it applies to the whole run, not to one job.
    pub fn is_of_run(&self) -> bool {
        use Kind::{Help, RunChoice, RunFlag, RunParsed, RunText};
        let is_run = matches!(self.kind, RunChoice { .. } | RunText { .. } | RunFlag { .. });
        is_run || matches!(self.kind, RunParsed { .. } | Help)
    }

    /// Returns whether its value has numbers whose units depend on `kb_base`.
    fn has_sizes(&self) -> bool {
        match self.kind {
            Kind::Int { .. } | Kind::Bytes { .. } | Kind::Size { .. } => true,
            Kind::Parsed { .. } => WITH_SIZES.contains(&self.name),
            _ => false,
        }
    }

    /// Returns the name and the aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Sets the option to `value`. `used` is its name as the user wrote it.
    ///
    /// # Errors
    ///
    /// [`UsageError::BadValue`] if the option does not take the value.
    pub fn apply(
        &self,
        used: &str,
        value: &str,
        given: &mut Given,
        run: &mut RunOptions,
    ) -> Result<(), UsageError> {
        self.set(value, given, run).map_err(|reason| UsageError::BadValue {
            name: used.to_owned(),
            value: value.to_owned(),
            reason,
            accepted: self.kind.accepted(),
        })
    }

    fn set(&self, value: &str, given: &mut Given, run: &mut RunOptions) -> Result<(), String> {
        let translated;
        let value = match given.measures.units.decimal && self.has_sizes() {
            true => {
                translated = decimal::translated(value);
                &translated
            }
            false => value,
        };
        let number = |error: NumberError| error.to_string();
        given.texts.retain(|(name, _)| *name != self.name);
        if value != self.default && is_by_text(self.name, value) {
            given.texts.push((self.name, value.to_owned()));
            // Texts are in the notation of the default base, so the other base comes after them.
            given.texts.sort_by_key(|(name, _)| *name == "kb_base");
        }
        match self.kind {
            Kind::Int { min, max, set } | Kind::Bytes { min, max, set } => {
                set(given, within(units::parse_bytes(value).map_err(number)?, min, max)?);
            }
            Kind::Size { set } => set(given, units::parse_given_size(value).map_err(number)?),
            Kind::Time { set } => set(given, units::parse_time(value).map_err(number)?),
            Kind::Bool { set } | Kind::Flag { set } => {
                set(given, units::parse_bool(value).map_err(number)?);
            }
            Kind::RunFlag { set } => set(run, units::parse_bool(value).map_err(number)?),
            Kind::Choice { words, set } => set(given, one_of(value, words)?),
            Kind::RunParsed { set, .. } => set(run, value)?,
            Kind::RunChoice { words, set } => set(run, one_of(value, words)?),
            Kind::Text { .. } | Kind::RunText { .. } if value.is_empty() => {
                return Err("empty value".to_owned());
            }
            Kind::Parsed { set, .. } => set(given, value)?,
            Kind::Text { set } => set(given, value),
            Kind::RunText { set } => set(run, value),
            Kind::Policy { .. } => {
                given.policies.retain(|(name, _)| *name != self.name);
                given.policies.push((self.name, value.to_owned()));
            }
            Kind::Owner { .. } => {
                given.owner.retain(|(name, _)| *name != self.name);
                given.owner.push((self.name, value.to_owned()));
            }
            Kind::JobName | Kind::Help => {}
        }
        Ok(())
    }
}

/// Options with a syntax of their own that has sizes or counts.
#[rustfmt::skip]
const WITH_SIZES: &[&str] = &[
    "rw", "random_distribution", "bs", "bsrange", "bssplit", "blockalign", "filesize",
    "file_service_type", "rate", "rate_iops", "rate_min", "rate_iops_min", "replay_align",
    "cmdprio_bssplit",
];

/// Options that keep their values as given, because their values have a syntax of their own.
#[rustfmt::skip]
const BY_TEXT: &[&str] = &[
    "description", "kb_base", "unit_base",
    "rw_sequencer", "percentage_random", "random_distribution", "bsrange",
    "bssplit", "bs_unaligned", "blockalign", "number_ios",
    "loops", "max_latency", "serialize_overlap", "ramp_time", "startdelay", "rate",
    "rate_iops", "rate_process", "thinktime", "thinktime_spin",
    "thinktime_blocks", "prio", "prioclass", "cmdprio_percentage", "cmdprio_bssplit",
    "cmdprio_class", "cmdprio",
    "buffer_compress_percentage", "buffer_compress_chunk", "dedupe_percentage", "dedupe_mode",
    "dedupe_working_set_percentage", "dedupe_global", "scramble_buffers",
    "zonemode", "zonesize", "zonerange", "zoneskip", "zonecapacity",
    "max_open_zones", "job_max_open_zones",
    "zone_reset_frequency", "zone_reset_threshold", "read_beyond_wp", "ignore_zone_limits",
    "directory", "filename_format", "nrfiles", "filesize", "openfiles", "file_service_type",
    "opendir", "unlink", "create_on_open", "allow_file_create", "file_append", "offset_increment",
    "fallocate", "exitall", "exitall_on_error", "exit_what", "wait_for", "flow", "flow_id",
    "flow_sleep", "rate_min", "rate_iops_min", "rate_cycle", "io_submit_mode", "cpus_allowed",
    "cpumask", "cpus_allowed_policy", "numa_cpu_nodes", "numa_mem_policy", "nice", "uri", "pool",
    "continue_on_error", "ignore_error", "error_dump", "fill_device", "steadystate",
    "steadystate_duration", "steadystate_ramp_time", "latency_target", "latency_window",
    "latency_percentile", "latency_run",
    "rbdname", "clientname", "fdatasync", "verify_pattern", "verify_only",
    "verify_fatal", "verify_dump", "verify_interval", "verify_offset", "verify_backlog",
    "verify_backlog_batch", "buffer_pattern", "zero_buffers",
    "refill_buffers", "percentile_list", "clat_percentiles", "lat_percentiles",
    "slat_percentiles", "unified_rw_reporting",
    "write_bw_log",
    "write_lat_log", "write_iops_log", "write_hist_log", "log_hist_msec", "log_hist_coarseness",
    "log_avg_msec", "log_max_value",
    "log_offset", "log_prio", "per_job_logs", "write_iolog", "read_iolog", "replay_redirect",
    "replay_no_stall", "replay_time_scale", "replay_align", "replay_scale", "replay_skip",
];

/// Returns whether an option keeps this value as given.
fn is_by_text(name: &str, value: &str) -> bool {
    match name {
        "rw" => value.contains(':'),
        "bs" => value.contains(','),
        _ => BY_TEXT.contains(&name),
    }
}

impl Kind {
    /// Returns a description of the accepted values.
    pub fn accepted(&self) -> String {
        match self {
            Self::Int { min, max, .. } => format!("a number from {min} to {max}"),
            Self::Bytes { .. } => {
                "one size such as 4096, 4k, 1m or 1g, where k = 1024 and kib = 1000".to_owned()
            }
            Self::Size { .. } => {
                "a size such as 4096, 4k, 1m or 1g, 1% to 100%, or zones as in 2z".to_owned()
            }
            Self::Time { .. } => "a time such as 10, 10s, 500ms, 5m or 1h".to_owned(),
            Self::Bool { .. } => "0 or 1".to_owned(),
            Self::Flag { .. } | Self::RunFlag { .. } => "no value, 0 or 1".to_owned(),
            Self::Choice { words, .. } | Self::RunChoice { words, .. } => words.join(", "),
            Self::Text { .. } | Self::RunText { .. } | Self::JobName => "any text".to_owned(),
            Self::Policy { accepts }
            | Self::Owner { accepts }
            | Self::Parsed { accepts, .. }
            | Self::RunParsed { accepts, .. } => (*accepts).to_owned(),
            Self::Help => "no value, or an option".to_owned(),
        }
    }

    /// Returns the accepted values if these are a list of words; otherwise nothing.
    pub fn words(&self) -> Vec<&'static str> {
        match self {
            Self::Choice { words, .. } | Self::RunChoice { words, .. } => words.to_vec(),
            Self::Bool { .. } | Self::Flag { .. } | Self::RunFlag { .. } => vec!["0", "1"],
            Self::Policy { accepts }
            | Self::Owner { accepts }
            | Self::Parsed { accepts, .. }
            | Self::RunParsed { accepts, .. } => words_of(accepts),
            _ => Vec::new(),
        }
    }
}

/// Returns the words of a list such as `auto, one or parts`; nothing if the text is no such list.
pub fn words_of(accepts: &'static str) -> Vec<&'static str> {
    let list = accepts.strip_suffix(", or several with commas").unwrap_or(accepts);
    let words: Vec<_> = list.split(", ").flat_map(|part| part.split(" or ")).collect();
    let are_words = words.iter().all(|word| !word.contains([' ', ':']));
    if words.len() > 1 && are_words { words } else { Vec::new() }
}

fn within(number: u64, min: u64, max: u64) -> Result<u64, String> {
    if number < min {
        Err(format!("below the minimum, {min}"))
    } else if number > max {
        Err(format!("above the maximum, {max}"))
    } else {
        Ok(number)
    }
}

fn one_of<'a>(value: &'a str, words: &[&'static str]) -> Result<&'a str, String> {
    if words.contains(&value) {
        return Ok(value);
    }
    Err(match nearest(value, words.iter().copied()) {
        Some(word) => format!("unknown value '{}'; did you mean '{word}'?", Short(value)),
        None => format!("unknown value '{}'", Short(value)),
    })
}

#[cfg(test)]
mod tests;
