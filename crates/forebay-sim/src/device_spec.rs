//! Simulated devices, parsed from text such as `nvme`, `hdd:seek_ns=4000000`,
//! `fixed:latency_ns=80000,channels=8` or `flaky:fail=1000`.

use crate::engine::Engine;
use forebay_core::{BlockStatus, Policy, QueueLimits, parse_size};
use forebay_model::machines::{self, Preset};
use forebay_model::{
    ConfiguredMachine, Faults, Fixed, Flaky, ModelFile, ModelFileError, PER_MILLION,
};
use std::str::FromStr;

/// The maximum of a time constant, ns; the machines have the same.
const NS_MAX: u64 = 1_000_000_000_000;
const CHANNELS_MAX: u64 = 1 << 16;
/// In parts per million. A device that is always busy would never do anything.
const BUSY_MAX: u32 = 900_000;
/// The maximum size: random jobs keep a bit for each block.
const CAPACITY_MAX: u64 = 16 << 40;

/// A simulated device, as the user specified it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceSpec {
    /// See [`Fixed`].
    Fixed {
        /// The latency of a command, ns.
        latency_ns: u64,
        /// The number of commands in service at once.
        channels: u32,
    },
    /// See [`Flaky`].
    Flaky {
        /// The shortest latency, ns.
        min_ns: u64,
        /// The mean of the additional latency, ns.
        mean_ns: u64,
        /// The faults.
        faults: Faults,
    },
    /// A device of [`machines`], with other constants or another size.
    Machine(MachineSpec),
}

/// The names of the constants that [`DeviceSpec::set`] takes.
const FIXED_CONSTANTS: [&str; 2] = ["latency_ns", "channels"];
const FLAKY_CONSTANTS: [&str; 10] = [
    "min_ns",
    "mean_ns",
    "fail",
    "offline",
    "refuse",
    "busy",
    "short",
    "none",
    "bad_block",
    "straggler",
];

/// A device of a published experiment.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    preset: &'static Preset,
    /// The values of the preset's parameters, in their order.
    values: Vec<u64>,
    capacity_bytes: u64,
}

impl PartialEq for MachineSpec {
    fn eq(&self, other: &MachineSpec) -> bool {
        let key = |spec: &MachineSpec| (spec.preset.name, spec.values.clone(), spec.capacity_bytes);
        key(self) == key(other)
    }
}

impl Eq for MachineSpec {}

impl Default for DeviceSpec {
    /// Returns eight channels of 80 us.
    fn default() -> DeviceSpec {
        DeviceSpec::Fixed { latency_ns: 80_000, channels: 8 }
    }
}

/// The defaults of `flaky`.
const FLAKY: DeviceSpec = DeviceSpec::Flaky {
    min_ns: 20_000,
    mean_ns: 60_000,
    faults: Faults {
        fail: 1_000,
        statuses: 1 << BlockStatus::Io as u16 | 1 << BlockStatus::Medium as u16,
        offline: 0,
        refuse: 0,
        busy: 10_000,
        short: 10_000,
        none: 0,
        bad_block: 10,
        straggler: 1_000,
    },
};

impl DeviceSpec {
    /// Returns the names of all devices.
    pub fn names() -> impl Iterator<Item = &'static str> {
        machines::ALL.iter().map(|preset| preset.name).chain(["fixed", "flaky"])
    }

    /// Returns whether the name of a device is the path of a model file: it contains a slash, or
    /// ends with `.model`.
    pub fn is_model_file(name: &str) -> bool {
        ModelFile::is_path(name)
    }

    /// Returns the device that the text of a model file describes.
    ///
    /// # Errors
    /// A line is wrong, the family is unknown, or a constant is unknown or out of range.
    pub fn from_model_file(text: &str) -> Result<DeviceSpec, ModelFileError> {
        let file = ModelFile::parse(text)?;
        if let Some(ConfiguredMachine { preset, values, capacity_bytes }) = file.machine()? {
            if capacity_bytes > CAPACITY_MAX {
                let size = file.constants().iter().find(|entry| entry.key == "size");
                let entry = size.unwrap_or(file.family());
                return Err(entry.error(format!("size={}: expected at most 16t", entry.value)));
            }
            return Ok(DeviceSpec::Machine(MachineSpec { preset, values, capacity_bytes }));
        }
        let family = file.family();
        let mut device = match family.value.as_str() {
            "fixed" => DeviceSpec::default(),
            "flaky" => FLAKY,
            name => {
                let names: Vec<_> = DeviceSpec::names().collect();
                let reason = format!("unknown family {name}; expected one of {}", names.join(", "));
                return Err(family.error(reason));
            }
        };
        for entry in file.constants() {
            device.set(&entry.key, &entry.value).map_err(|why| entry.error(why))?;
        }
        Ok(device)
    }

    /// Returns the default policy of a disk on this device.
    pub fn policy(&self) -> Policy {
        let default = Policy::default();
        match self {
            DeviceSpec::Machine(MachineSpec { preset, .. }) => {
                default.queue_depth(preset.queue_depth)
            }
            _ => default,
        }
    }

    /// Returns whether the latencies model a device, so that IOPS are meaningful.
    pub fn has_times(&self) -> bool {
        !matches!(self, DeviceSpec::Flaky { .. })
    }

    /// Returns whether a disk on it has only one hardware context. Such a device takes a flush only
    /// on its own, and a context holds back only its own requests while a flush runs.
    pub fn has_one_hw_queue(&self) -> bool {
        matches!(self, DeviceSpec::Machine(machine) if !machine.preset.flush_queueable)
    }

    /// Returns the device's own size in bytes. `None`: the size follows from the jobs.
    pub(crate) fn capacity_bytes(&self) -> Option<u64> {
        match self {
            DeviceSpec::Machine(machine) => Some(machine.capacity_bytes),
            _ => None,
        }
    }

    /// Returns the limits of a disk on it, of this size and logical block size.
    pub(crate) fn limits(&self, capacity_bytes: u64, block: u32) -> QueueLimits {
        if let DeviceSpec::Machine(MachineSpec { preset, .. }) = self {
            return preset.limits(capacity_bytes, block);
        }
        QueueLimits::default()
            .capacity_bytes(Some(capacity_bytes))
            .logical_block_size(block)
            .physical_block_size(block)
            .discard_granularity(block)
            .max_discard_sectors(1 << 16)
            .max_discard_segments(256)
            .max_write_zeroes_sectors(1 << 16)
            .volatile_cache(true)
            .fua(true)
    }

    /// Creates the device.
    pub(crate) fn build(&self, logical_block_size: u32) -> Engine {
        match self {
            &DeviceSpec::Fixed { latency_ns, channels } => {
                Engine::Model(Box::new(Fixed::new(latency_ns, channels)))
            }
            &DeviceSpec::Flaky { min_ns, mean_ns, faults } => {
                Engine::Model(Box::new(Flaky::new(logical_block_size, min_ns, mean_ns, faults)))
            }
            DeviceSpec::Machine(MachineSpec { preset, values, capacity_bytes }) => {
                Engine::Machine(preset.machine_of(values, *capacity_bytes))
            }
        }
    }

    /// Returns whether some device has a constant with this name.
    pub fn is_constant(key: &str) -> bool {
        let names = DeviceSpec::names();
        names.flat_map(str::parse).any(|device: DeviceSpec| device.has_constant(key))
    }

    /// Returns whether the device has a constant with this name.
    pub fn has_constant(&self, key: &str) -> bool {
        match self {
            DeviceSpec::Fixed { .. } => FIXED_CONSTANTS.contains(&key),
            DeviceSpec::Flaky { .. } => FLAKY_CONSTANTS.contains(&key),
            DeviceSpec::Machine(machine) => key == "size" || machine.preset.place_of(key).is_some(),
        }
    }

    /// Changes a constant.
    ///
    /// # Errors
    /// The device does not have this constant, or the value is out of range.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        let Some(value) = parse_size(text) else {
            return Err(format!(
                "{key}={text}: expected a whole number, such as 4000, or 4k for 4096"
            ));
        };
        let within = |min: u64, max: u64| match (min..=max).contains(&value) {
            true => Ok(value),
            false => Err(format!("{key}={value}: expected a number from {min} to {max}")),
        };
        let rate = |max: u32| within(0, max.into()).map(|rate| rate as u32);
        match self {
            DeviceSpec::Fixed { latency_ns, channels } => match key {
                "latency_ns" => *latency_ns = within(0, NS_MAX)?,
                "channels" => *channels = within(1, CHANNELS_MAX)? as u32,
                _ => {
                    return Err(format!(
                        "unknown constant {key}; fixed has latency_ns and channels"
                    ));
                }
            },
            DeviceSpec::Flaky { min_ns, mean_ns, faults } => match key {
                "min_ns" => *min_ns = within(0, NS_MAX)?,
                "mean_ns" => *mean_ns = within(0, NS_MAX)?,
                "fail" => faults.fail = rate(PER_MILLION)?,
                "offline" => faults.offline = rate(PER_MILLION)?,
                "refuse" => faults.refuse = rate(PER_MILLION)?,
                "busy" => faults.busy = rate(BUSY_MAX)?,
                "short" => faults.short = rate(PER_MILLION)?,
                "none" => faults.none = rate(PER_MILLION)?,
                "bad_block" => faults.bad_block = rate(PER_MILLION)?,
                "straggler" => faults.straggler = rate(PER_MILLION)?,
                _ => {
                    return Err(format!(
                        "unknown constant {key}; flaky has min_ns, mean_ns and, in parts per \
                         million, fail, offline, refuse, busy, short, none, bad_block and straggler"
                    ));
                }
            },
            DeviceSpec::Machine(machine) => return machine.set(key, value),
        }
        Ok(())
    }
}

impl MachineSpec {
    fn new(preset: &'static Preset) -> MachineSpec {
        let (values, capacity_bytes) = (preset.defaults(), preset.capacity_bytes);
        MachineSpec { preset, values, capacity_bytes }
    }

    fn set(&mut self, key: &str, value: u64) -> Result<(), String> {
        let MachineSpec { preset, values, capacity_bytes } = self;
        if key == "size" {
            let is_size = (1..=CAPACITY_MAX).contains(&value) && value.is_multiple_of(4096);
            *capacity_bytes = value;
            let error =
                || format!("size={value}: expected a positive multiple of 4096, at most 16t");
            return if is_size { Ok(()) } else { Err(error()) };
        }
        let Some(place) = preset.place_of(key) else {
            let names: Vec<_> = preset.parameters.iter().map(|parameter| parameter.name).collect();
            let names = names.join(", ");
            return Err(format!("unknown constant {key}; {} has size, {names}", preset.name));
        };
        let parameter = &preset.parameters[place];
        if !(parameter.min..=parameter.max).contains(&value) {
            return Err(format!("{key}={value}: expected {}", parameter.expected));
        }
        values[place] = value;
        Ok(())
    }
}

impl FromStr for DeviceSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceSpec, String> {
        let (name, keys) = text.split_once(':').unwrap_or((text, ""));
        let mut device = match (name, machines::named(name)) {
            ("fixed", _) => DeviceSpec::default(),
            ("flaky", _) => FLAKY,
            (_, Some(preset)) => DeviceSpec::Machine(MachineSpec::new(preset)),
            (_, None) => {
                let names: Vec<_> = DeviceSpec::names().collect();
                let names = names.join(", ");
                return Err(format!(
                    "unknown device; expected one of {names}, or a model file, whose name has a / \
                     or ends with .model"
                ));
            }
        };
        let mut known = Vec::new();
        for pair in keys.split(',').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("missing = in '{pair}'; expected KEY=VALUE"));
            };
            if known.contains(&key) {
                return Err(format!("{key} is given twice"));
            }
            known.push(key);
            device.set(key, value)?;
        }
        Ok(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_those_that_can_be_set() {
        for name in DeviceSpec::names() {
            let device: DeviceSpec = name.parse().expect(name);
            for key in FIXED_CONSTANTS.iter().chain(&FLAKY_CONSTANTS).chain(&["size", "seek_ns"]) {
                let error = device.clone().set(key, "0").err().unwrap_or_default();
                let is_unknown = error.starts_with("unknown constant");
                assert_eq!(device.has_constant(key), !is_unknown, "{name}: {key}: {error}");
            }
        }
    }

    #[test]
    fn devices_are_named_with_the_constants_that_differ() {
        let expected = DeviceSpec::Fixed { latency_ns: 5, channels: 8 };
        assert_eq!("fixed:latency_ns=5".parse(), Ok(expected));
        assert_eq!("fixed".parse(), Ok(DeviceSpec::default()));
        assert_eq!("flaky".parse(), Ok(FLAKY));
        let nvme: DeviceSpec = "nvme:size=2g,latency_ns=9000".parse().expect("a device");
        let DeviceSpec::Machine(machine) = &nvme else { panic!("{nvme:?}") };
        let place = machine.preset.place_of("latency_ns").expect("a constant");
        assert_eq!((machine.capacity_bytes, machine.values[place]), (2 << 30, 9000));
        assert_ne!(Ok(nvme), "nvme".parse());
    }

    #[test]
    fn model_file_describes_the_same_device_as_the_command_line() {
        for (text, same) in [
            ("family=nvme\nlatency_ns=9000\nsize=2g\n", "nvme:latency_ns=9000,size=2g"),
            ("family=fixed\nchannels=3", "fixed:channels=3"),
            ("family=flaky\nfail=7", "flaky:fail=7"),
        ] {
            assert_eq!(DeviceSpec::from_model_file(text).map_err(|e| e.to_string()), same.parse());
        }
        let refused = |text: &str| DeviceSpec::from_model_file(text).expect_err(text).to_string();
        assert_eq!(
            refused("family=fixed\n\nseek_ns=1"),
            "line 3: unknown constant seek_ns; fixed has latency_ns and channels"
        );
        assert!(
            refused("family=floppy").starts_with("line 1: unknown family floppy; expected one")
        );
        assert!(refused("family=fixed:channels=3").starts_with("line 1: unknown family fixed:"));
        assert!(refused("family=hdd\nsize=32t").starts_with("line 2: size=32t: expected at most"));
    }

    #[test]
    fn wrong_devices_are_refused_with_the_right_names() {
        let refused = |text: &str| text.parse::<DeviceSpec>().expect_err(text);
        assert!(
            refused("").contains("expected one of hdd, ssd-sas, nvme, virtio-ram, sata, fixed")
        );
        assert!(
            refused("nvme:seek_ns=1")
                .contains("unknown constant seek_ns; nvme has size, bytes_per_s")
        );
        assert!(refused("nvme:nr_channels=0").starts_with("nr_channels=0: expected"));
        assert!(refused("hdd:size=1000").contains("a positive multiple of 4096"));
        for wrong in ["fixed:channels=0", "fixed:fail=1", "flaky:fail", "flaky:fail=x"] {
            refused(wrong);
        }
    }
}
