//! Families of models, and the speed that each predicts for a load.
//!
//! A prediction is the steady state of the model, in closed form: the time between two completions
//! is the longest of the times that its parts need. The simulator runs the models themselves, and
//! tests compare the two.

use super::probe::{Access, Probe};
use forebay_model::{HddParams, Parameter, machines};

/// A family of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Channels with one time for every command.
    Fixed,
    /// Channels, and a pipe with a byte rate.
    Nvme,
    /// A pipe with a time for each request and for each page, and a latency.
    VirtioRam,
    /// One arm that is positioned for each random command.
    Hdd,
    /// Channels, and a pipe with a byte rate and a command rate.
    SsdSas,
    /// A volatile cache and a flush, one command at a time.
    Sata,
}

/// The constants of [`Family::Fixed`], which is no machine.
const FIXED: [Parameter; 2] = [
    Parameter {
        name: "latency_ns",
        what: "The latency of a command, ns.",
        default: 80_000,
        min: 0,
        max: 1_000_000_000_000,
        expected: "a number of nanoseconds, up to 1 000 000 000 000",
    },
    Parameter {
        name: "channels",
        what: "The number of commands in service at once.",
        default: 8,
        min: 1,
        max: 65_536,
        expected: "a number from 1 to 65536",
    },
];

/// The constants of `hdd` that a fit has: all but the stroke and the turn, which come last.
const NR_OF_HDD: usize = 3;

impl Family {
    /// All families. Those with few constants come first.
    pub const ALL: [Family; 6] =
        [Family::Fixed, Family::Nvme, Family::VirtioRam, Family::Hdd, Family::SsdSas, Family::Sata];

    /// Returns the name, which is that of the device in the simulator.
    pub fn name(self) -> &'static str {
        match self {
            Family::Fixed => "fixed",
            Family::Nvme => "nvme",
            Family::VirtioRam => "virtio-ram",
            Family::Hdd => "hdd",
            Family::SsdSas => "ssd-sas",
            Family::Sata => "sata",
        }
    }

    /// Returns the family with this name.
    pub fn named(name: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.name() == name)
    }

    /// Returns the constants, in order.
    pub fn constants(self) -> &'static [Parameter] {
        match self {
            Family::Fixed => &FIXED,
            // The fit has one mean positioning. A disk with an angle is not a family of its own.
            Family::Hdd => &HddParams::PARAMETERS[..NR_OF_HDD],
            _ => machines::named(self.name()).map_or(&[], |preset| preset.parameters),
        }
    }

    /// Returns whether the family can be fitted without writes. The costs of `sata`'s flush and of
    /// its cache show only in writes.
    pub fn needs_writes(self) -> bool {
        self == Family::Sata
    }

    /// Returns whether a model file of this family names the size of the device.
    pub fn has_size(self) -> bool {
        self != Family::Fixed
    }

    /// Returns the predicted time from one completion to the next, ns. `values` are the constants
    /// in order; `cpu_ns` is the processor time of an I/O outside the device.
    pub fn interval_ns(self, values: &[f64], probe: &Probe, cpu_ns: f64) -> f64 {
        let len = f64::from(probe.block_bytes);
        let depth = f64::from(probe.depth);
        // An I/O takes `alone_ns` by itself. Its device completes one every `serial_ns` at best.
        let of = |alone_ns: f64, serial_ns: f64| ((alone_ns + cpu_ns) / depth).max(serial_ns);
        match (self, values) {
            (Family::Fixed, &[latency, channels]) => of(latency, latency / channels),
            (Family::Nvme, &[rate, latency, channels]) => {
                let pipe = transfer_ns(len, rate);
                of(latency + pipe, pipe.max(latency / channels))
            }
            (Family::SsdSas, &[rate, commands, latency, channels]) => {
                let pipe = transfer_ns(len, rate).max(1e9 / commands);
                of(latency + pipe, pipe.max(latency / channels))
            }
            (Family::VirtioRam, &[request, page, latency]) => {
                let pipe = request + page * len / 4096.0;
                of(latency + pipe, pipe)
            }
            (Family::Hdd, &[seek, rate, _]) => {
                let seek = if probe.access.is_random() { seek } else { 0.0 };
                let arm = seek + transfer_ns(len, rate);
                of(arm, arm)
            }
            (Family::Sata, &[command, link, flush, position, rate, _, seek, _]) => {
                let disk = match probe.access.writes() {
                    false => command + seek + transfer_ns(len, rate),
                    true => {
                        let nr = f64::from(probe.sync_every.max(1));
                        let extents = if probe.access == Access::RandomWrite { nr } else { 1.0 };
                        let back = extents * position + nr * transfer_ns(len, rate);
                        command + transfer_ns(len, link) + (flush + back) / nr
                    }
                };
                of(disk, disk)
            }
            _ => unreachable!("{} has {} constants", self.name(), self.constants().len()),
        }
    }

    /// Returns values from which a search for the constants starts, in order. `guess` is what the
    /// figures show at first sight.
    pub(super) fn starts(self, guess: &Guess) -> Vec<Vec<f64>> {
        let &Guess { alone_ns, serial_ns, bytes_per_s } = guess;
        let channels: Vec<f64> = (0..=10).map(|power| f64::from(1 << power)).collect();
        let rates = || vec![bytes_per_s, bytes_per_s * 10.0];
        match self {
            Family::Fixed => vec![vec![alone_ns], channels],
            Family::Nvme => vec![rates(), vec![alone_ns], channels],
            Family::SsdSas => {
                vec![rates(), vec![1e9 / serial_ns, 1e10 / serial_ns], vec![alone_ns], channels]
            }
            Family::VirtioRam => {
                let parts = |of: f64| vec![of * 0.01, of * 0.3, of * 0.9];
                let page = 4096e9 / bytes_per_s;
                vec![parts(serial_ns), vec![page, serial_ns * 0.5], vec![alone_ns]]
            }
            Family::Hdd => vec![vec![alone_ns], rates(), vec![32.0]],
            Family::Sata => {
                let defaults = self.constants().iter().map(|it| vec![it.default as f64]);
                let mut starts: Vec<_> = defaults.collect();
                (starts[4], starts[6]) = (rates(), vec![alone_ns]);
                starts
            }
        }
    }
}

/// Coarse properties of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guess {
    /// The time of a single small I/O, ns.
    pub(super) alone_ns: f64,
    /// The shortest time between two completions of any load, ns.
    pub(super) serial_ns: f64,
    /// The highest throughput of any load.
    pub(super) bytes_per_s: f64,
}

fn transfer_ns(len_bytes: f64, bytes_per_s: f64) -> f64 {
    len_bytes * 1e9 / bytes_per_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_devices_with_the_same_constants() {
        for family in Family::ALL {
            assert_eq!(Family::named(family.name()), Some(family));
            for constant in family.constants() {
                let text = format!("{}:{}={}", family.name(), constant.name, constant.default);
                let parsed = text.parse::<crate::DeviceSpec>();
                assert_eq!(parsed, family.name().parse(), "{text}");
            }
        }
        assert_eq!(Family::named("flaky"), None);
    }

    #[test]
    fn prediction_is_the_longest_time_of_the_parts() {
        let read = |block_bytes, depth| Probe {
            access: Access::RandomRead,
            block_bytes,
            depth,
            sync_every: 0,
            is_check: false,
        };
        let nvme = |probe: &Probe| Family::Nvme.interval_ns(&[4.096e9, 80_000.0, 40.0], probe, 0.0);
        let times = [read(4096, 1), read(4096, 81), read(4096, 1000), read(1 << 20, 8)];
        let times = times.map(|probe| nvme(&probe).round());
        assert_eq!(times, [81_000.0, 2_000.0, 2_000.0, 256_000.0]);
        let hdd = |access, depth| {
            let probe = Probe { access, ..read(4096, depth) };
            Family::Hdd.interval_ns(&[1000.0, 4.096e9, 32.0], &probe, 100.0)
        };
        assert!((hdd(Access::RandomRead, 1) - 2100.0).abs() < 1e-6);
        assert!((hdd(Access::SequentialRead, 4) - 1000.0).abs() < 1e-6);
    }
}
