//! Settings of the simulated disk, from the job file and the command line.
//!
//! Keys are those of a disk spec, `device`, and processor costs. Each takes effect or is refused by
//! name.

use forebay::{BadKnob, SETTINGS, Setting, Spec};
use forebay_fio::options::nearest;
use forebay_sim::{CpuCosts, DeviceSpec, JobDisk, Wake, machines};

use super::device;

/// The key of the device, in addition to the keys of a disk spec.
pub(super) const DEVICE: &str = "device";
const MAX_SECTORS_KB: &str = "max_sectors_kb";
const WAKE: &str = "wake";

/// Keys of a disk spec that have no effect in virtual time: the reason, and the remedy.
const NOT_SIMULATED: &[(&str, &str)] = &[
    ("kick", "committing a batch takes no virtual time; leave it out"),
    ("iostats", "the report has no latencies inside the layer; leave it out"),
    ("nr_bios", "iodepth limits the I/Os of a job; leave it out"),
    ("tag_set", "only one disk is simulated; leave it out"),
    ("service", "the jobs' threads complete all I/O; leave it out"),
    ("fua", "jobs write without FUA; leave it out"),
    ("flush_pending_ms", "no flush waits for writes to join it; leave it out"),
    ("exclusive", "no other program is simulated; leave it out"),
    ("lock", "no other program is simulated; leave it out"),
    ("takeover_wait_ms", "no other program is simulated; leave it out"),
    ("read_only", "use rw=read"),
    ("data", "the checkers read the data back; leave it out"),
    ("seed", "use --seed"),
    ("logical_block_size", "it follows from the block sizes of the jobs; leave it out"),
];

/// Keys of [`NOT_SIMULATED`] that have an effect on the tasks of a scenario file.
const ONLY_IN_SCENARIOS: [&str; 1] = ["flush_pending_ms"];

/// Keys of [`NOT_SIMULATED`] for which a scenario file has another reason.
const NOT_IN_SCENARIOS: &[(&str, &str)] = &[
    ("nr_bios", "`max_burst` limits the I/Os of a task; leave it out"),
    ("service", "the tasks' threads complete all I/O; leave it out"),
    ("fua", "durable writes are set by `fua` of a task; leave it out"),
    ("read_only", "give tasks without writes"),
    ("seed", "use `seed` at the top of the file, or --seed"),
    ("logical_block_size", "use block_size in [disk]"),
];

/// The tasks that use the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tasks {
    /// Jobs of fio.
    Jobs,
    /// The tasks of a scenario file, which also submit background I/O and durable writes.
    Scenario,
}

/// Settings in the order in which they were given; a later one replaces an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings(Vec<(String, String)>);

impl Settings {
    /// Adds a setting.
    pub(super) fn add(&mut self, key: &str, value: &str) {
        self.0.push((key.to_owned(), value.to_owned()));
    }

    /// Returns these settings followed by those of `later`.
    pub(super) fn then(&self, later: &Settings) -> Settings {
        Settings(self.0.iter().chain(&later.0).cloned().collect())
    }

    /// Returns the value in force of a key.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Returns the keys with their values, in order.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns the device, as the user wrote it.
    pub(super) fn device(&self) -> &str {
        self.get(DEVICE).unwrap_or("fixed")
    }

    /// Returns the settings in force that have no effect on the disk, each with the reason. A
    /// default counts as having one.
    pub(super) fn idle(&self, disk: &JobDisk) -> Vec<(&str, String)> {
        let mut idle = Vec::new();
        for (key, value) in &self.0 {
            let Some(setting) = Setting::named(key) else { continue };
            let Some(knob) = setting.knob() else { continue };
            if self.get(key) == Some(value) && !setting.is_default(value) && !disk.has_effect(knob)
            {
                let (device, when) = (self.device(), knob.when);
                let reason =
                    format!("{key}={value}: no effect on {device}: needs {when}; leave it out");
                idle.push((key.as_str(), reason));
            }
        }
        idle
    }

    /// Returns the disk.
    ///
    /// # Errors
    /// A setting that is wrong, not simulated or without effect, or that contradicts another one.
    pub(super) fn disk(&self, tasks: Tasks) -> Result<JobDisk, String> {
        let disk = self.disk_with_idle(tasks)?;
        match self.idle(&disk).into_iter().next() {
            Some((_, reason)) => Err(reason),
            None => Ok(disk),
        }
    }

    /// Same as [`disk`](Self::disk), but settings may have no effect.
    ///
    /// # Errors
    /// The other errors of [`disk`](Self::disk).
    pub(super) fn disk_with_idle(&self, tasks: Tasks) -> Result<JobDisk, String> {
        let device = self.device();
        let parsed =
            device::parse(device).map_err(|error| format!("{DEVICE}={device}: {error}"))?;
        let mut disk = JobDisk::new(parsed);
        for (key, value) in self.0.iter().filter(|(key, _)| key != DEVICE) {
            let applied = match DeviceSpec::is_constant(key) {
                true if DeviceSpec::is_model_file(device) => disk.device.set(key, value),
                true => Err(constant_elsewhere(device, key, value)),
                false => apply(&mut disk, key, value, tasks),
            };
            applied.map_err(|why| format!("{key}={value}: {why}"))?;
        }
        disk.policy.check().map_err(|BadKnob { knob, value, expected }| {
            format!("{}={value}: expected {expected}", knob.key)
        })?;
        disk.choose_scheduler();
        let nr_hw_queues = disk.policy.nr_hw_queues;
        if nr_hw_queues > 1 && !disk.policy.scheduler.is_none() {
            return Err(format!(
                "nr_hw_queues={nr_hw_queues}: expected 1 with a scheduler, which orders one \
                 context; or add scheduler=none"
            ));
        }
        if nr_hw_queues > 1 && disk.device.has_one_hw_queue() {
            return Err(format!(
                "nr_hw_queues={nr_hw_queues}: expected 1, because {device} accepts a flush only \
                 while it is idle"
            ));
        }
        Ok(disk)
    }
}

/// Returns why a constant of a device is no setting of the disk.
fn constant_elsewhere(device: &str, key: &str, value: &str) -> String {
    let name = device.split(':').next().unwrap_or_default();
    let has = |name: &str| name.parse().is_ok_and(|device: DeviceSpec| device.has_constant(key));
    let other = DeviceSpec::names().find(|other| has(other)).unwrap_or(name);
    match has(name) {
        true => format!(
            "a constant of the device; use --device {name}:{key}={value}, or --compare \
             device={name}:{key}={value}"
        ),
        false if key == "size" => format!(
            "the size of {name} follows from the jobs; leave it out, or use --device \
             {other}:size={value}"
        ),
        false => {
            format!("{name} has no such constant; use --device {other}:{key}={value}")
        }
    }
}

/// Parses `key=value`.
///
/// # Errors
/// The text has no `=`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let pair = pair.map(|(key, value)| (key.to_owned(), value.to_owned()));
    pair.ok_or_else(|| "expected KEY=VALUE, such as wake=batch".to_owned())
}

/// Checks a single setting. A constant of a device is checked with its device.
///
/// # Errors
/// The setting is wrong, or not simulated.
pub(super) fn check(key: &str, value: &str, tasks: Tasks) -> Result<(), String> {
    match key {
        DEVICE => device::parse(value).map(|_| ()),
        _ if DeviceSpec::is_constant(key) => Ok(()),
        _ => apply(&mut JobDisk::new(DeviceSpec::default()), key, value, tasks),
    }
}

/// Returns the wake policy with this name, including `stash-v1`, which only the simulator has.
///
/// # Errors
/// Returns a description of the values if there is none.
pub(super) fn wake_policy(name: &str) -> Result<Wake, String> {
    Wake::named(name).ok_or_else(|| "expected fair, batch, stash, single or stash-v1".to_owned())
}

fn apply(disk: &mut JobDisk, key: &str, value: &str, tasks: Tasks) -> Result<(), String> {
    if let Some(why) = not_simulated(key, tasks) {
        let is_default = Setting::named(key).is_some_and(|setting| setting.is_default(value));
        return if is_default { Ok(()) } else { Err(format!("not simulated: {why}")) };
    }
    if let Some(set) = disk.set_cpu_cost(key, value) {
        return set;
    }
    let unknown = || match nearest(key, simulated(tasks)) {
        Some(near) => format!("unknown setting; did you mean {near}?"),
        None => format!("unknown setting; the simulated disk has {}", keys(tasks)),
    };
    let setting = Setting::named(key).ok_or_else(unknown)?;
    let bad = || format!("expected {}", setting.values.expected());
    match (key, setting.knob()) {
        (WAKE, _) => disk.set_wake(wake_policy(value)?),
        (MAX_SECTORS_KB, _) => {
            let kib = setting.values.number(value).ok_or_else(bad)?;
            disk.max_sectors = Some(kib as u32 * 2);
        }
        (_, Some(knob)) if knob.set(&mut disk.policy, value) => {}
        _ => return Err(bad()),
    }
    Ok(())
}

/// Returns why a key of a disk spec has no effect; `None` if it has one, or is no key.
fn not_simulated(key: &str, tasks: Tasks) -> Option<&'static str> {
    let of_tasks = match tasks {
        Tasks::Scenario if ONLY_IN_SCENARIOS.contains(&key) => return None,
        Tasks::Scenario => NOT_IN_SCENARIOS,
        Tasks::Jobs => &[],
    };
    let mut reasons = of_tasks.iter().chain(NOT_SIMULATED);
    reasons.find(|(name, _)| *name == key).map(|(_, why)| *why)
}

/// Returns whether a key is one of a modelled disk that is not simulated.
#[cfg(test)]
pub(super) fn is_known(key: &str) -> bool {
    NOT_SIMULATED.iter().any(|(name, _)| *name == key)
}

/// Returns the keys that have an effect.
fn simulated(tasks: Tasks) -> impl Iterator<Item = &'static str> {
    let is_simulated = move |key: &&str| not_simulated(key, tasks).is_none();
    let settings = SETTINGS.iter().map(|setting| setting.key).filter(is_simulated);
    [DEVICE].into_iter().chain(settings).chain(CpuCosts::KEYS)
}

/// Returns the keys that have an effect, separated by commas.
fn keys(tasks: Tasks) -> String {
    let keys: Vec<_> = simulated(tasks).collect();
    let of_files = match tasks {
        Tasks::Scenario => " and, in a scenario file, size and block_size",
        Tasks::Jobs => "",
    };
    keys.join(", ") + of_files
}

/// Adds the device and the settings of a spec such as `model:nvme?latency_ns=9000&wake=batch`.
///
/// # Errors
/// The spec is not of a modelled device, or a key is wrong or not simulated.
pub(super) fn add_spec(settings: &mut Settings, text: &str) -> Result<(), String> {
    let spec = Spec::parse(text).map_err(|error| error.to_string())?;
    if spec.driver() != "model" {
        return Err("not simulated: expected a modelled device, such as model:nvme; remove this \
                    line, and give --device if you want another device"
            .to_owned());
    }
    if DeviceSpec::is_model_file(spec.target()) {
        check(DEVICE, spec.target(), Tasks::Jobs)?;
        settings.add(DEVICE, spec.target());
        return add_keys(settings, spec.keys());
    }
    let Some(preset) = machines::named(spec.target()) else {
        let names: Vec<_> = machines::ALL.iter().map(|preset| preset.name).collect();
        let names = names.join(", ");
        return Err(format!("unknown device; expected one of {names}, or a model file"));
    };
    let is_constant = |key: &str| key == "size" || preset.place_of(key).is_some();
    let (constants, others): (Vec<_>, Vec<_>) =
        spec.keys().iter().partition(|(key, _)| is_constant(key));
    let constants: Vec<_> = constants.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let device = match constants.is_empty() {
        true => preset.name.to_owned(),
        false => format!("{}:{}", preset.name, constants.join(",")),
    };
    check(DEVICE, &device, Tasks::Jobs)?;
    if let Some((key, value)) = others.iter().find(|(key, _)| DeviceSpec::is_constant(key)) {
        let names: Vec<_> = preset.parameters.iter().map(|parameter| parameter.name).collect();
        let (name, names) = (preset.name, names.join(", "));
        return Err(format!("{key}={value}: unknown constant; {name} has size, {names}"));
    }
    settings.add(DEVICE, &device);
    add_keys(settings, others)
}

/// Adds the settings of a spec whose device another one replaces, with the device's constants.
///
/// # Errors
/// A key is wrong or not simulated.
pub(super) fn add_keys_of_spec(settings: &mut Settings, text: &str) -> Result<(), String> {
    if !text.contains('?') {
        return Ok(());
    }
    let spec = Spec::parse(text).map_err(|error| error.to_string())?;
    if spec.driver() != "model" {
        return add_keys(settings, spec.keys());
    }
    let mut all = Settings::default();
    add_spec(&mut all, text)?;
    settings.0.extend(all.0.into_iter().filter(|(key, _)| key != DEVICE));
    Ok(())
}

/// Adds the keys of a spec, except those that belong to its device.
fn add_keys<'a>(
    settings: &mut Settings,
    given: impl IntoIterator<Item = &'a (String, String)>,
) -> Result<(), String> {
    for (key, value) in given {
        // The device is the spec's target, not a key.
        let is_known = key != DEVICE;
        let why = || format!("unknown key; the simulated disk has {}", keys(Tasks::Jobs));
        let checked = if is_known { check(key, value, Tasks::Jobs) } else { Err(why()) };
        checked.map_err(|why| format!("{key}={value}: {why}"))?;
        settings.add(key, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
