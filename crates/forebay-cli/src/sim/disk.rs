//! The simulated disk: its device, and the settings that a job file and the command line give.
//!
//! A setting has its key of a disk spec. Each one takes effect or is refused by name.

use forebay::Spec;
use forebay_sim::{BadKnob, DeviceSpec, JobDisk, KNOBS, Knob, WakePolicy, parse_size};

/// The key of the device, beside those of a disk spec.
pub(super) const DEVICE: &str = "device";
const MAX_SECTORS_KB: &str = "max_sectors_kb";
const WAKE: &str = "wake";

/// Keys of a disk spec that have no effect in virtual time.
const NOT_SIMULATED: &[(&str, &str)] = &[
    ("kick", "a commit takes no time here"),
    ("run_queue", "`forebay lab run` simulates it"),
    ("async_depth", "jobs submit no background I/O"),
    ("iostats", "the report has no latencies inside the layer"),
    ("nr_bios", "iodepth limits the I/Os of a job"),
    ("tag_set", "there is one disk"),
    ("service", "jobs make all progress themselves"),
    ("fua", "jobs write without FUA"),
    ("flush_pending_ms", "jobs write without FUA, and no flush waits for others"),
    ("exclusive", "there is no other program"),
    ("lock", "there is no other program"),
    ("read_only", "use readonly=1 or rw=read"),
    ("data", "the checkers need the data"),
    ("seed", "use --seed"),
    ("logical_block_size", "it follows from the block sizes of the jobs"),
];

/// Settings in the order in which they were given; a later one replaces an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings(Vec<(String, String)>);

impl Settings {
    /// Adds a setting.
    pub(super) fn add(&mut self, key: &str, value: &str) {
        self.0.push((key.to_owned(), value.to_owned()));
    }

    /// Returns the settings with those of `later` after them.
    pub(super) fn and(&self, later: &Settings) -> Settings {
        Settings(self.0.iter().chain(&later.0).cloned().collect())
    }

    /// Returns the value of a key that is in force.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Returns the disk.
    ///
    /// # Errors
    /// A setting that is wrong or not simulated, or one that contradicts another.
    pub(super) fn disk(&self) -> Result<JobDisk, String> {
        let device = self.get(DEVICE).map(device).transpose()?;
        let mut disk = JobDisk::new(device.unwrap_or_default());
        for (key, value) in &self.0 {
            if key != DEVICE {
                apply(&mut disk, key, value).map_err(|why| format!("{key}={value}: {why}"))?;
            }
        }
        let bad = |BadKnob { knob, value, expected }: BadKnob| {
            format!("{}={value}: expected {expected}", knob.key)
        };
        disk.policy.check().map_err(bad)?;
        Ok(disk)
    }
}

/// Parses `key=value`.
///
/// # Errors
/// It has no `=`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let pair = pair.map(|(key, value)| (key.to_owned(), value.to_owned()));
    pair.ok_or_else(|| "expected KEY=VALUE, such as wake=batch".to_owned())
}

fn device(text: &str) -> Result<DeviceSpec, String> {
    text.parse().map_err(|error| format!("{DEVICE}={text}: {error}"))
}

/// Checks a setting by itself.
///
/// # Errors
/// It is wrong, or not simulated.
pub(super) fn check(key: &str, value: &str) -> Result<(), String> {
    match key {
        DEVICE => value.parse::<DeviceSpec>().map(|_| ()),
        _ => apply(&mut JobDisk::new(DeviceSpec::default()), key, value),
    }
}

fn apply(disk: &mut JobDisk, key: &str, value: &str) -> Result<(), String> {
    if let Some((_, why)) = NOT_SIMULATED.iter().find(|(name, _)| *name == key) {
        return Err(format!("not simulated: {why}; leave it out"));
    }
    if key == MAX_SECTORS_KB {
        let kib = parse_size(value).filter(|kib| (1..=1 << 20).contains(kib));
        let kib = kib.ok_or("expected a number of KiB, 1 to 1048576")?;
        disk.max_sectors = Some(kib as u32 * 2);
        return Ok(());
    }
    // Only the simulator has the policy that hangs.
    if (key, value) == (WAKE, WakePolicy::StashV1.name()) {
        disk.policy.wake = WakePolicy::StashV1;
        return Ok(());
    }
    match Knob::named(key) {
        Some(knob) if knob.set(&mut disk.policy, value) => Ok(()),
        Some(knob) => Err(format!("expected {}", knob.values.expected())),
        None => Err(format!("no setting of the simulated disk; there are {}", keys())),
    }
}

/// Returns the keys that have an effect, with commas.
pub(super) fn keys() -> String {
    let is_simulated = |key: &&str| !NOT_SIMULATED.iter().any(|(name, _)| name == key);
    let knobs = KNOBS.iter().map(|knob| knob.key).filter(is_simulated);
    let keys: Vec<_> = [DEVICE].into_iter().chain(knobs).chain([MAX_SECTORS_KB]).collect();
    keys.join(", ")
}

/// Adds what a spec such as `model:nvme?latency_ns=9000&wake=batch` sets.
///
/// # Errors
/// The spec is not of a modelled device, or a key is wrong or not simulated.
pub(super) fn add_spec(settings: &mut Settings, text: &str) -> Result<(), String> {
    let spec = Spec::parse(text).map_err(|error| error.to_string())?;
    if spec.driver() != "model" {
        return Err("not simulated: the device must be a modelled one, such as model:nvme; leave \
                    it out, and use --device"
            .to_owned());
    }
    let query = text.split_once('?').map_or("", |(_, query)| query);
    let (mut device, mut others) = (spec.target().to_owned(), Vec::new());
    for text in query.split('&').filter(|text| !text.is_empty()) {
        let (key, value) = pair(text)?;
        // A constant of the device, if the device takes it.
        let mark = if device.contains(':') { ',' } else { ':' };
        let with = format!("{device}{mark}{key}={value}");
        match with.parse::<DeviceSpec>() {
            Ok(_) => device = with,
            Err(why) if Knob::named(&key).is_none() && is_constant(&device, &key) => {
                return Err(why);
            }
            Err(_) => others.push((key, value)),
        }
    }
    check(DEVICE, &device)?;
    settings.add(DEVICE, &device);
    for (key, value) in others {
        check(&key, &value).map_err(|why| format!("{key}={value}: {why}"))?;
        settings.add(&key, &value);
    }
    Ok(())
}

/// Returns whether a key is the name of one of the device's constants, or of its size.
fn is_constant(device: &str, key: &str) -> bool {
    let name = device.split(':').next().unwrap_or_default();
    let preset = forebay_sim::machines::named(name);
    key == "size" || preset.is_some_and(|preset| preset.place_of(key).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[&str]) -> Settings {
        let pairs = pairs.iter().map(|text| pair(text).expect("a pair"));
        Settings(pairs.collect())
    }

    #[test]
    fn later_settings_replace_earlier_ones_and_the_device_sets_the_depth() {
        let disk = settings(&["device=nvme", "wake=batch", "wake=stash"]).disk().expect("a disk");
        assert_eq!((disk.policy.wake, disk.policy.queue_depth), (WakePolicy::Stash, 1023));
        let base = settings(&["queue_depth=8"]);
        let disk = base.and(&settings(&["device=hdd", "max_sectors_kb=64"])).disk();
        let disk = disk.expect("a disk");
        assert_eq!((disk.policy.queue_depth, disk.max_sectors), (8, Some(128)));
    }

    #[test]
    fn wrong_settings_are_refused_by_name() {
        let refused = |pairs: &[&str]| settings(pairs).disk().expect_err("wrong");
        assert!(refused(&["kick=deferred"]).starts_with("kick=deferred: not simulated: a commit"));
        assert!(refused(&["wakes=fair"]).contains("there are device, plug, nomerges, wake"));
        assert!(refused(&["device=floppy"]).starts_with("device=floppy: no device has this name"));
        let few = refused(&["queue_depth=4", "nr_requests=5"]);
        assert_eq!(few, "nr_requests=5: expected a number from 1 to queue_depth, which is 4");
        assert!(refused(&["plug=maybe"]).contains("expected outermost, per-level or none"));
    }

    #[test]
    fn spec_of_a_modelled_device_sets_device_and_policy() {
        let mut found = Settings::default();
        add_spec(&mut found, "model:nvme?latency_ns=9000&wake=batch&size=2g").expect("a spec");
        assert_eq!(found, settings(&["device=nvme:latency_ns=9000,size=2g", "wake=batch"]));
        for (spec, why) in [
            ("disk.img", "must be a modelled one"),
            ("model:floppy", "no device has this name"),
            ("model:hdd?seek_ns=x", "seek_ns=x: expected a whole number"),
            ("model:hdd?service=off", "service=off: not simulated: jobs make"),
            ("model:hdd?colour=red", "colour=red: no setting"),
        ] {
            let error = add_spec(&mut Settings::default(), spec).expect_err(spec);
            assert!(error.contains(why), "{spec}: {error}");
        }
    }
}
