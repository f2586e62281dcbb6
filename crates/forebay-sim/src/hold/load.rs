//! The load of a program that submits bios one by one.

use crate::device_spec::DeviceSpec;
use forebay_core::HoldLimits;
use forebay_model::Random;

/// A program, its device, and the policy.
#[derive(Clone, Debug)]
pub struct HoldLoad {
    /// The device.
    pub device: DeviceSpec,
    /// The limits of the hold. `None`: nothing is held.
    pub hold: Option<HoldLimits>,
    /// How many bios the program keeps outstanding.
    pub depth: u32,
    /// How many requests may be at the device.
    pub queue_depth: u32,
    /// The largest request in sectors; `None` for that of the device.
    pub max_sectors: Option<u32>,
    /// The number of bios.
    pub nr_bios: u32,
    /// The length of a bio in bytes.
    pub len: u64,
    /// How many bios the program waits for if it has enough outstanding.
    pub nr_awaited: u32,
    /// The kinds of bios and calls.
    pub mix: HoldMix,
    /// The costs of the program's calls.
    pub costs: HoldCosts,
    /// The user of the policy passes held bios on before the program waits for them, as I10
    /// requires. False shows the cost of a user that does not.
    pub passes_on_before_waits: bool,
    /// The longest time by which a completion or a deadline is processed late, ns.
    pub late_ns: u64,
}

/// The kinds of bios and calls of a program, in percent of its bios. The rest are reads, each by
/// its own call, where the bio before has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldMix {
    /// A bio is elsewhere.
    pub jump: u32,
    /// The operation changes between read and write.
    pub turn: u32,
    /// A bio carries a flag.
    pub flag: u32,
    /// A flush.
    pub flush: u32,
    /// Several bios under one plug.
    pub plug: u32,
    /// A pause without a call.
    pub pause: u32,
    /// The program waits for all of its bios.
    pub drain: u32,
}

impl HoldMix {
    /// All bios are reads in order.
    pub const SEQUENTIAL: HoldMix =
        HoldMix { jump: 0, turn: 0, flag: 0, flush: 0, plug: 0, pause: 0, drain: 0 };
    /// All bios are reads elsewhere than the end of the one before.
    pub const RANDOM: HoldMix = HoldMix { jump: 100, ..HoldMix::SEQUENTIAL };
}

/// Costs on the program's processor, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldCosts {
    /// The cost of each call.
    pub call_ns: u64,
    /// The cost of each request that a call passes on.
    pub request_ns: u64,
}

impl Default for HoldLoad {
    /// Sequential reads of 4 KiB, 128 outstanding, on eight channels of 80 us, with the hold.
    fn default() -> HoldLoad {
        HoldLoad {
            device: DeviceSpec::default(),
            hold: Some(HoldLimits::default()),
            depth: 128,
            queue_depth: 256,
            max_sectors: None,
            nr_bios: 20_000,
            len: 4096,
            nr_awaited: 1,
            mix: HoldMix::SEQUENTIAL,
            costs: HoldCosts { call_ns: 300, request_ns: 1_000 },
            passes_on_before_waits: true,
            late_ns: 0,
        }
    }
}

/// Draws a random load.
pub(super) fn draw(random: &mut Random, nr_bios: u32) -> HoldLoad {
    let depth = random.pick(&[1, 3, 8, 16, 20, 32, 64, 128]);
    let device = random.pick(&[
        "fixed:latency_ns=20000,channels=4",
        "fixed:latency_ns=3000,channels=1",
        "ssd-sas",
        "nvme",
        "virtio-ram",
        "flaky:mean_ns=20000",
        "flaky:min_ns=5000,mean_ns=5000,busy=500000",
    ]);
    let mut percent = |max: u64| match random.chance(1, 2) {
        true => 0,
        false => random.below(max + 1) as u32,
    };
    let mix = HoldMix {
        jump: percent(30),
        turn: percent(20),
        flag: percent(10),
        flush: percent(4),
        plug: percent(10),
        pause: percent(10),
        drain: percent(4),
    };
    HoldLoad {
        device: device.parse().expect("a device"),
        hold: Some(draw_limits(random)),
        depth,
        queue_depth: random.pick(&[8, 64, 256]),
        max_sectors: random.pick(&[None, None, Some(64), Some(256)]),
        nr_bios,
        len: random.pick(&[512, 4096, 4096, 65_536, 200 * 1024]),
        nr_awaited: random.between(1, u64::from(depth)) as u32,
        mix,
        costs: HoldCosts { call_ns: random.below(2_000), request_ns: random.below(3_000) },
        passes_on_before_waits: random.chance(1, 2),
        late_ns: random.pick(&[0, 1_000, 30_000]),
    }
}

/// Draws the limits of the hold; mostly the default ones, with other groups.
fn draw_limits(random: &mut Random) -> HoldLimits {
    let default = HoldLimits {
        groups: random.between(1, 8) as u32,
        writes: random.chance(1, 2),
        ..HoldLimits::default()
    };
    if random.chance(1, 2) {
        return default;
    }
    HoldLimits {
        outstanding_min: random.between(0, 8) as u32,
        bios_max: random.between(1, 40) as u32,
        bytes_max: random.pick(&[1, 8192, 65_536, 1 << 20]),
        time_ns: random.pick(&[1, 5_000, 50_000, 1_000_000]),
        ..default
    }
}
