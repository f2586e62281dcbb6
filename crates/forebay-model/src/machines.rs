//! The machines by name, for drivers, simulators and programs.

use crate::{
    Hdd, HddParams, Machine, Nvme, NvmeParams, Parameter, Sata, SataParams, SsdSas, SsdSasParams,
    VirtioRam, VirtioRamParams,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use forebay_core::QueueLimits;

/// A device of a published experiment.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name.
    pub name: &'static str,
    /// A one-line description.
    pub summary: &'static str,
    /// The size in bytes.
    pub capacity_bytes: u64,
    /// Whether the device is rotational.
    pub rotational: bool,
    /// The largest request of the experiment, in sectors of 512 bytes.
    pub max_sectors: u32,
    /// The maximum number of requests at the device at once.
    pub queue_depth: u32,
    /// Whether writes may be lost before the next flush. If not, a flush completes at once.
    pub volatile_cache: bool,
    /// Whether a flush may be in flight together with other commands.
    pub flush_queueable: bool,
    /// The constants, in order.
    pub parameters: &'static [Parameter],
    build: fn(&[u64], u64) -> Box<dyn Machine>,
}

/// The largest request of the experiments with reads of 1 MiB: `max_sectors_kb` was 256.
const KIB_256: u32 = 512;

/// All machines.
pub static ALL: [Preset; 5] = [
    Preset {
        name: "hdd",
        summary: "a rotational disk of 4 TB: 120 random reads of 1 MiB per second",
        capacity_bytes: 4_000_000_000_000,
        rotational: true,
        max_sectors: KIB_256,
        // Not published. This is the block layer's usual number, of which the disk sorts a part.
        queue_depth: 256,
        volatile_cache: false,
        flush_queueable: true,
        parameters: HddParams::PARAMETERS,
        build: |values, size| Box::new(Hdd::new(HddParams::from_values(values), size)),
    },
    Preset {
        name: "ssd-sas",
        summary: "a SAS disk of 1.8 TB of flash: 1.129 GB/s, 198k I/Os per second",
        capacity_bytes: 1_800_000_000_000,
        rotational: false,
        max_sectors: KIB_256,
        queue_depth: 1024,
        volatile_cache: false,
        flush_queueable: true,
        parameters: SsdSasParams::PARAMETERS,
        build: |values, _| Box::new(SsdSas::new(SsdSasParams::from_values(values))),
    },
    Preset {
        name: "nvme",
        summary: "an NVMe disk of 1.5 TB of flash: 3.165 GB/s",
        // A multiple of 4 KiB.
        capacity_bytes: 1_500_000_000_000 / 4096 * 4096,
        rotational: false,
        max_sectors: KIB_256,
        queue_depth: 1023,
        volatile_cache: false,
        flush_queueable: true,
        parameters: NvmeParams::PARAMETERS,
        build: |values, _| Box::new(Nvme::new(NvmeParams::from_values(values))),
    },
    Preset {
        name: "virtio-ram",
        summary: "64 GiB of a host's memory behind a virtual controller: 190k I/Os at depth 16",
        capacity_bytes: 64 << 30,
        rotational: false,
        max_sectors: KIB_256,
        // The deepest published row.
        queue_depth: 1024,
        volatile_cache: false,
        flush_queueable: true,
        parameters: VirtioRamParams::PARAMETERS,
        build: |values, _| Box::new(VirtioRam::new(VirtioRamParams::from_values(values))),
    },
    Preset {
        name: "sata",
        summary: "a SATA disk of 500 GB: a volatile cache, a flush only by itself",
        capacity_bytes: 500_107_862_016,
        rotational: true,
        max_sectors: KIB_256,
        queue_depth: 32,
        volatile_cache: true,
        flush_queueable: false,
        parameters: SataParams::PARAMETERS,
        build: |values, _| Box::new(Sata::new(SataParams::from_values(values))),
    },
];

/// Returns the machine with this name.
pub fn named(name: &str) -> Option<&'static Preset> {
    ALL.iter().find(|preset| preset.name == name)
}

impl Preset {
    /// Creates the machine with its published constants and size.
    pub fn machine(&self) -> Box<dyn Machine> {
        self.machine_of(&self.defaults(), self.capacity_bytes)
    }

    /// Creates the machine with its published size, and these constants in place of its own.
    ///
    /// # Panics
    /// Panics if the machine has no constant of such a name, or a value is out of range.
    pub fn machine_with(&self, constants: &[(&str, u64)]) -> Box<dyn Machine> {
        let mut values = self.defaults();
        for (name, value) in constants {
            let at = self.parameters.iter().position(|parameter| parameter.name == *name);
            values[at.unwrap_or_else(|| panic!("{} has no constant {name}", self.name))] = *value;
        }
        self.machine_of(&values, self.capacity_bytes)
    }

    /// Creates the machine with these constants, in the order of its parameters, and this size.
    ///
    /// # Panics
    /// Panics if the number of values is wrong or a value is out of range, or if the size is 0.
    pub fn machine_of(&self, values: &[u64], capacity_bytes: u64) -> Box<dyn Machine> {
        for (parameter, value) in self.parameters.iter().zip(values) {
            let Parameter { name, min, max, .. } = parameter;
            assert!((min..=max).contains(&value), "{name} is {value}, not {min} to {max}");
        }
        (self.build)(values, capacity_bytes)
    }

    /// Returns the published constants, in the order of the parameters.
    pub fn defaults(&self) -> Vec<u64> {
        self.parameters.iter().map(|parameter| parameter.default).collect()
    }

    /// Returns the limits of a disk on the device, with this size and logical block size in bytes.
    /// A trim or a write of zeroes may cover 2 GiB, and a trim 256 ranges.
    pub fn limits(&self, capacity_bytes: u64, block_size: u32) -> QueueLimits {
        let limits = QueueLimits::default();
        limits
            .capacity_bytes(Some(capacity_bytes))
            .logical_block_size(block_size)
            .physical_block_size(block_size.max(512))
            .io_min(block_size)
            .discard_granularity(block_size.max(512))
            .max_discard_sectors(1 << 22)
            .max_discard_segments(256)
            .max_write_zeroes_sectors(1 << 22)
            .max_hw_sectors(limits.max_hw_sectors.max(self.max_sectors))
            .max_sectors(self.max_sectors)
            .rotational(self.rotational)
            .volatile_cache(self.volatile_cache)
            .flush_queueable(self.flush_queueable)
    }

    /// Returns the index of the parameter with this name.
    pub fn place_of(&self, name: &str) -> Option<usize> {
        self.parameters.iter().position(|parameter| parameter.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{READ, finish};
    use crate::{Command, Done, Random};

    #[test]
    fn every_name_names_one_device_whose_constants_are_in_range() {
        for preset in &ALL {
            assert!(core::ptr::eq(named(preset.name).expect("it is there"), preset));
            let in_range = |it: &Parameter| (it.min..=it.max).contains(&it.default);
            assert!(preset.parameters.iter().all(in_range), "{}", preset.name);
            assert!(preset.capacity_bytes.is_multiple_of(4096), "{}", preset.name);
            for (place, parameter) in preset.parameters.iter().enumerate() {
                assert_eq!(preset.place_of(parameter.name), Some(place));
            }
        }
        assert!(named("floppy").is_none());
    }

    #[test]
    fn constants_are_in_the_order_of_their_names() {
        let params = HddParams::from_values(&[1, 2000, 3, 4, 5]);
        let (stroke_ns, turn_ns) = (4, 5);
        let expected =
            HddParams { seek_ns: 1, bytes_per_s: 2000, nr_sorted: 3, stroke_ns, turn_ns };
        assert_eq!(params, expected);
        assert_eq!(HddParams::default(), HddParams::from_values(&ALL[0].defaults()));
        let what = named("hdd").map(|hdd| hdd.parameters[1].what);
        assert_eq!(what, Some("Bytes that pass the head in a second: 256 KiB in 1.6 ms."));
    }

    #[test]
    #[should_panic(expected = "bytes_per_s is 0, not 1000 to")]
    fn constants_out_of_range_are_refused() {
        named("nvme").expect("it is there").machine_of(&[0, 0, 1], 4096);
    }

    /// Runs a hundred commands at random times and places, with `nr_looks` looks in between.
    fn run(preset: &Preset, seed: u64, nr_looks: u32) -> Vec<Done> {
        let (mut places, mut random) = (Random::new(seed, 1), Random::new(seed, 2));
        let mut machine = preset.machine();
        let (mut now, mut done) = (0, Vec::new());
        for id in 0..100 {
            let next = now + places.exponential(2_000_000);
            for look in 1..=nr_looks {
                let at = now + (next - now) * u64::from(look) / u64::from(nr_looks);
                done.extend(core::iter::from_fn(|| machine.take_done(at, &mut random)));
            }
            now = next;
            let command = Command { start: places.below(1 << 20) * 4096, ..READ };
            while !machine.may_begin(&command, now) {
                now += 1_000_000;
            }
            machine.begin(id, &command, now, &mut random);
        }
        done.extend(finish(&mut *machine, &mut random));
        done
    }

    #[test]
    fn machines_depend_on_the_seed_and_not_on_queries() {
        for preset in &ALL {
            let once = run(preset, 7, 0);
            assert_eq!(once.len(), 100);
            assert!(once.is_sorted_by_key(|done| done.done_at_ns), "{}", preset.name);
            assert_eq!(once, run(preset, 7, 0), "{}", preset.name);
            assert_eq!(once, run(preset, 7, 3), "{}", preset.name);
            assert_ne!(once, run(preset, 8, 0), "{}", preset.name);
        }
    }
}
