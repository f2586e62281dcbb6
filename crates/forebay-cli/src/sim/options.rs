//! The options of a job file in virtual time: the supported ones, and errors for the others.
//!
//! An accepted option has its effect. So an option that is not listed here is an error, with its
//! position in the file, unless its value is the default or matches the simulator's fixed
//! behaviour.

use std::sync::Arc;

use forebay_fio::job::{Engine, Given, Job, JobList, RunOptions};
use forebay_fio::options::{self, Found};
use forebay_fio::origin::{Origin, Source};

use super::settings::{self, Settings, Tasks};
use crate::bench::is_same;
use crate::failure::Failure;

/// Options that the simulator honours, with any value.
#[rustfmt::skip]
const HONOURED: &[&str] = &[
    "name", "description", "kb_base",
    "rw", "rw_sequencer", "percentage_random", "random_distribution",
    "rwmixread", "rwmixwrite", "norandommap", "randseed", "randrepeat", "bs", "bsrange", "bssplit",
    "blockalign", "size", "offset", "io_size", "number_ios", "iodepth",
    "zonemode", "zonesize", "zonerange", "zoneskip",
    "iodepth_batch", "iodepth_batch_complete_max", "numjobs", "runtime",
    "time_based", "fsync", "end_fsync", "fsync_on_close", "weight", "throttle_iops",
    "throttle_bps", "throttle_read_iops", "throttle_read_bps", "throttle_write_iops",
    "throttle_write_bps", "throttle_iops_burst", "throttle_bps_burst",
    "throttle_read_iops_burst", "throttle_read_bps_burst", "throttle_write_iops_burst",
    "throttle_write_bps_burst", "throttle_latency_target_us", "prio", "prioclass",
    "cmdprio_percentage", "cmdprio_bssplit", "cmdprio_class", "cmdprio",
];

/// Options about the device, or about files.
#[rustfmt::skip]
const OF_DEVICES: &[&str] = &[
    "ioengine", "invalidate", "allow_mounted_write", "fixedbufs", "sqthread_poll",
];

const FILENAME: &str = "filename";

/// Options about the report.
#[rustfmt::skip]
const OF_REPORTS: &[&str] = &[
    "new_group", "unit_base",
    "percentile_list", "clat_percentiles", "lat_percentiles", "slat_percentiles",
    "unified_rw_reporting", "disable_lat", "disable_clat", "disable_slat", "disable_bw",
    "gtod_reduce", "write_bw_log", "write_lat_log", "write_iops_log",
    "write_hist_log", "log_hist_msec", "log_hist_coarseness", "log_avg_msec",
    "log_max_value", "log_offset", "log_prio", "per_job_logs",
];

/// Returns the settings that the job file gives for the disk. As in `bench`, an option beside
/// another value of a key of the filename is an error. A device from the command line replaces the
/// filename's device with its constants, and not its other keys.
///
/// # Errors
///
/// All options that the simulator does not honour.
pub(super) fn check(command: &JobList, has_device: bool) -> Result<Settings, Failure> {
    let mut refused: Vec<(&Arc<Origin>, String)> = Vec::new();
    let (mut of_filename, mut settings) = (Settings::default(), Settings::default());
    for (job, origins) in command.jobs.iter().zip(&command.origins) {
        for origin in origins {
            // A default of all jobs is refused once.
            if refused.iter().any(|(known, _)| Arc::ptr_eq(known, origin)) {
                continue;
            }
            let Origin { name, value, .. } = &**origin;
            let checked = match *name {
                FILENAME if has_device => settings::add_keys_of_spec(&mut of_filename, value),
                FILENAME => settings::add_spec(&mut of_filename, value),
                name if is_policy(name) => {
                    settings::check(name, value, Tasks::Jobs).map(|()| settings.add(name, value))
                }
                _ => of_job(job, origin, origins),
            };
            if let Err(reason) = checked {
                refused.push((origin, reason));
            }
        }
    }
    let names = options::OPTIONS.iter().map(|spec| spec.name).filter(|name| is_policy(name));
    for name in names.chain([FILENAME]) {
        let only_keys = name == FILENAME && has_device;
        if refused.iter().all(|(origin, _)| origin.name != name) {
            refused.extend(disagreement(command, name, only_keys));
        }
    }
    for (key, value) in settings.pairs() {
        let other = of_filename.get(key).filter(|other| !is_same(key, value, other));
        let origins = command.origins.iter().flatten();
        let origin = origins.clone().find(|origin| origin.name == key && origin.value == value);
        let (Some(other), Some(origin)) = (other, origin) else { continue };
        let reason =
            format!("contradicts the key {key}={other} in the filename: leave one of them out");
        if !refused.iter().any(|(known, _)| Arc::ptr_eq(known, origin)) {
            refused.push((origin, reason));
        }
    }
    match refused.is_empty() {
        true => Ok(of_filename.then(&settings)),
        false => {
            let messages = refused.iter().map(|(origin, reason)| message(origin, reason));
            Err(Failure::Several { messages: messages.collect(), usage: true })
        }
    }
}

/// Returns why an option of a job is refused.
fn of_job(job: &Job, origin: &Arc<Origin>, all: &[Arc<Origin>]) -> Result<(), String> {
    let no = |why: &str| Err(format!("not simulated: {why}; leave it out"));
    match origin.name {
        "zonemode" if job.zoned().is_some() || job.zone_size_is_from_device => {
            no("sim has no zones with write pointers")
        }
        name if HONOURED.contains(&name) => Ok(()),
        // These make iodepth 1, which is honoured.
        "ioengine" if job.ioengine.is_some_and(Engine::is_blocking) => Ok(()),
        // There is no page cache.
        "direct" | "buffered" if job.direct == Some(true) => Ok(()),
        // The first job has nothing to wait for.
        "stonewall" if job.stage == 0 => Ok(()),
        // The report always covers all jobs as one group.
        "group_reporting" => Ok(()),
        "iodepth_batch_complete_min" if job.iodepth_batch_complete_min > 0 => Ok(()),
        _ if is_default(origin, all) => Ok(()),
        "stonewall" => {
            Err("not simulated: all jobs run at once; write each stage into its own file"
                .to_owned())
        }
        "direct" | "buffered" => no("the simulated device has no page cache"),
        "iodepth_batch_complete_min" => no("jobs do not poll"),
        name if OF_DEVICES.contains(&name) => no("the simulated device has no files or engines"),
        name if OF_REPORTS.contains(&name) => no("forebay sim has its own report, of all jobs"),
        _ => Err("not simulated; leave it out".to_owned()),
    }
}

fn is_policy(name: &str) -> bool {
    let found = options::lookup(name);
    matches!(found, Ok(Found::Supported(spec)) if matches!(spec.kind, options::Kind::Policy { .. }))
}

/// Returns whether an option changes neither a job of defaults nor the job of these options.
fn is_default(origin: &Arc<Origin>, all: &[Arc<Origin>]) -> bool {
    let others = || all.iter().filter(|other| !Arc::ptr_eq(other, origin));
    let alone = [Arc::clone(origin)];
    let is_same = |a, b: Option<Job>| b.is_some() && a == b;
    is_same(job_of([].iter()), job_of(alone.iter()))
        && is_same(job_of(all.iter()), job_of(others()))
}

/// Returns the job of these options; `None` if they contradict each other.
fn job_of<'a>(origins: impl Iterator<Item = &'a Arc<Origin>>) -> Option<Job> {
    let (mut given, mut run) = (Given::default(), RunOptions::default());
    for Origin { name, value, .. } in origins.map(AsRef::as_ref) {
        let Ok(Found::Supported(spec)) = options::lookup(name) else { return None };
        spec.apply(name, value, &mut given, &mut run).ok()?;
    }
    Job::new(String::new(), given, Vec::new()).ok()
}

/// Returns an error if a setting of the device is not the same for all jobs. With `only_keys`, only
/// the keys of specs must be the same.
fn disagreement<'a>(
    command: &'a JobList,
    name: &str,
    only_keys: bool,
) -> Option<(&'a Arc<Origin>, String)> {
    let in_force = |value: &'a str| match only_keys {
        true => value.split_once('?').map(|(_, keys)| keys),
        false => Some(value),
    };
    let of_job = |origins: &'a Vec<Arc<Origin>>| origins.iter().find(|origin| origin.name == name);
    let value = |origins| of_job(origins).and_then(|origin| in_force(&origin.value));
    let first = command.origins.first()?;
    let differs = command.origins.iter().any(|origins| value(origins) != value(first));
    let origin = command.origins.iter().find_map(of_job).filter(|_| differs)?;
    let reason = format!(
        "not simulated: all jobs share one device, and {name} differs between them; give it in \
         [global]"
    );
    Some((origin, reason))
}

fn message(origin: &Origin, reason: &str) -> String {
    let Origin { name, value, source } = origin;
    let text = format!("{name}={value}: {reason}");
    match source {
        Source::CommandLine => format!("--{text}"),
        Source::File(place) => place.refuse(text).to_string(),
    }
}

#[cfg(test)]
mod tests;
