//! The loads of a calibration.
//!
//! Each constant of a model limits some load: the latency limits a single I/O, the byte rate large
//! I/Os, the number of channels many small ones. So the plan varies the depth at a fixed size, and
//! the size at a fixed depth. No I/O is larger than a request, because a model serves requests.

use forebay_fio::stats::Latency;
use std::fmt;

/// The depths of the loads with small I/Os.
const DEPTHS: [u32; 5] = [1, 4, 16, 64, 256];

/// The smallest and the largest I/O, in bytes, where the disk permits them. Model files describe
/// devices with requests of up to 256 KiB.
const SMALL: u32 = 4 << 10;
const LARGE: u32 = 256 << 10;

/// How a load accesses the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads of random blocks.
    RandomRead,
    /// Reads of one block after another.
    SequentialRead,
    /// Writes of random blocks.
    RandomWrite,
    /// Writes of one block after another.
    SequentialWrite,
}

impl Access {
    /// Returns the value of fio's option `rw`.
    pub fn word(self) -> &'static str {
        match self {
            Access::RandomRead => "randread",
            Access::SequentialRead => "read",
            Access::RandomWrite => "randwrite",
            Access::SequentialWrite => "write",
        }
    }

    /// Returns whether the load writes.
    pub fn writes(self) -> bool {
        matches!(self, Access::RandomWrite | Access::SequentialWrite)
    }

    /// Returns whether the blocks are random.
    pub fn is_random(self) -> bool {
        matches!(self, Access::RandomRead | Access::RandomWrite)
    }
}

/// A load: one job that keeps a fixed number of I/Os in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// How it accesses the disk.
    pub access: Access,
    /// The size of an I/O.
    pub block_bytes: u32,
    /// The number of I/Os in flight.
    pub depth: u32,
    /// The number of writes before each flush; 0 for no flush.
    pub sync_every: u32,
    /// The load checks the fit and takes no part in it.
    pub is_check: bool,
}

impl Probe {
    /// Returns the load as options of fio, without a disk and an end.
    pub fn options(&self) -> Vec<String> {
        let Probe { access, block_bytes, depth, sync_every, .. } = self;
        let mut options = vec![
            format!("--rw={}", access.word()),
            format!("--bs={block_bytes}"),
            format!("--iodepth={depth}"),
        ];
        if access.is_random() {
            // A map of the blocks of a large disk takes memory and time.
            options.push("--norandommap=1".to_owned());
        }
        if *sync_every > 0 {
            options.push(format!("--fsync={sync_every}"));
        }
        options
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Probe { access, block_bytes, depth, sync_every, .. } = self;
        match block_bytes.is_multiple_of(1024) {
            true => write!(f, "{} {}k depth={depth}", access.word(), block_bytes / 1024)?,
            false => write!(f, "{} {block_bytes} depth={depth}", access.word())?,
        }
        match sync_every {
            0 => Ok(()),
            nr => write!(f, " fsync={nr}"),
        }
    }
}

/// The limits of the disk to measure.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The logical block size in bytes.
    pub block_bytes: u32,
    /// The largest request in bytes.
    pub request_bytes: u32,
    /// The maximum number of requests at the device.
    pub queue_depth: u32,
    /// Whether the loads may write.
    pub writes: bool,
}

/// Returns the loads to measure.
pub fn plan(limits: &Limits) -> Vec<Probe> {
    let small = SMALL.max(limits.block_bytes);
    let large = LARGE.min(limits.request_bytes / small * small).max(small);
    let middle = (large / 4).max(small) / small * small;
    let of = |access, block_bytes, depth: u32, sync_every, is_check| Probe {
        access,
        block_bytes,
        depth: depth.min(limits.queue_depth),
        sync_every,
        is_check,
    };
    let read = |block_bytes, depth| of(Access::RandomRead, block_bytes, depth, 0, false);
    let mut probes: Vec<Probe> = DEPTHS.iter().map(|&depth| read(small, depth)).collect();
    probes.extend([read(middle, 1), read(large, 1), read(middle, 64), read(large, 16)]);
    probes.push(of(Access::SequentialRead, large, 4, 0, false));
    if limits.writes {
        let write = |access, block_bytes, depth, sync| of(access, block_bytes, depth, sync, false);
        probes.extend([
            write(Access::SequentialWrite, small, 1, 1),
            write(Access::SequentialWrite, small, 1, 64),
            write(Access::RandomWrite, small, 1, 16),
            write(Access::RandomWrite, small, 16, 64),
            write(Access::SequentialWrite, large, 1, 8),
        ]);
    }
    // Between the others in size and in depth.
    let check = (small * 4).min(large);
    probes.push(of(Access::RandomRead, check, 8, 0, true));
    let mut distinct: Vec<Probe> = Vec::new();
    for probe in probes {
        let is_same = |other: &Probe| Probe { is_check: probe.is_check, ..*other } == probe;
        if !distinct.iter().any(is_same) {
            distinct.push(probe);
        }
    }
    distinct
}

/// The figures of one run of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// I/Os per second.
    pub iops: f64,
    /// The 99th percentile of the latency, ns.
    pub p99_ns: f64,
    /// The ratio of the 95th to the 50th percentile of the latency.
    pub spread: f64,
    /// The processor time of an I/O outside the device, ns.
    pub cpu_ns: f64,
    /// The share of the time in which the load's processor was busy, 0 to 1.
    pub busy: f64,
}

/// A processor that is busy for a larger share of the time limits the load. The device may be
/// faster than measured.
const BUSY: f64 = 0.85;

impl Figures {
    /// Returns the figures of `nr_ios` I/Os in `time_ns`, for which the processor was busy for
    /// `busy_ns`.
    pub fn new(nr_ios: u64, time_ns: f64, busy_ns: f64, latency: &Latency) -> Figures {
        let (nr_ios, time_ns) = (nr_ios as f64, time_ns.max(1.0));
        let percentiles = latency.histogram.percentiles(&[50.0, 95.0, 99.0]);
        let [p50, p95, p99] = match *percentiles.as_slice() {
            [p50, p95, p99] => [p50, p95, p99].map(|ns| ns as f64),
            _ => [0.0; 3],
        };
        Figures {
            iops: nr_ios * 1e9 / time_ns,
            p99_ns: p99,
            spread: p95 / p50.max(1.0),
            cpu_ns: busy_ns / nr_ios.max(1.0),
            busy: busy_ns / time_ns,
        }
    }

    /// Returns whether the processor and not the device limited the load.
    pub fn is_of_processor(&self) -> bool {
        self.busy > BUSY
    }

    /// Returns the medians of several runs.
    ///
    /// # Panics
    /// Panics if there are none.
    pub fn median(runs: &[Figures]) -> Figures {
        let of = |figure: fn(&Figures) -> f64| {
            let mut values: Vec<f64> = runs.iter().map(figure).collect();
            values.sort_by(f64::total_cmp);
            let middle = values.len() / 2;
            match values.len() % 2 {
                0 => f64::midpoint(values[middle - 1], values[middle]),
                _ => values[middle],
            }
        };
        Figures {
            iops: of(|it| it.iops),
            p99_ns: of(|it| it.p99_ns),
            spread: of(|it| it.spread),
            cpu_ns: of(|it| it.cpu_ns),
            busy: of(|it| it.busy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NVME: Limits =
        Limits { block_bytes: 512, request_bytes: 256 << 10, queue_depth: 1023, writes: false };

    #[test]
    fn plan_without_writes_has_no_writes() {
        assert!(plan(&NVME).iter().all(|probe| !probe.access.writes() && probe.sync_every == 0));
        assert!(plan(&Limits { writes: true, ..NVME }).iter().any(|probe| probe.access.writes()));
    }

    #[test]
    fn plan_stays_within_the_limits_and_repeats_nothing() {
        for (block_bytes, request_bytes, queue_depth) in
            [(512, 256 << 10, 1023), (4096, 4096, 1), (512, 60 << 10, 32), (16 << 10, 1 << 20, 64)]
        {
            let limits = Limits { block_bytes, request_bytes, queue_depth, writes: true };
            let probes = plan(&limits);
            for (at, probe) in probes.iter().enumerate() {
                assert!(probe.block_bytes.is_multiple_of(block_bytes), "{probe}");
                assert!(probe.block_bytes <= request_bytes, "{probe}");
                assert!((1..=queue_depth).contains(&probe.depth), "{probe}");
                assert!(!probes[..at].contains(probe), "{probe}");
            }
        }
    }

    #[test]
    fn load_is_written_as_options() {
        let probe = Probe {
            access: Access::RandomWrite,
            block_bytes: 4096,
            depth: 16,
            sync_every: 64,
            is_check: false,
        };
        let options = probe.options().join(" ");
        assert_eq!(options, "--rw=randwrite --bs=4096 --iodepth=16 --norandommap=1 --fsync=64");
        assert_eq!(probe.to_string(), "randwrite 4k depth=16 fsync=64");
    }
}
