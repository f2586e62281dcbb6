//! The published tables, as data. They are complete, and nothing in them is computed.
//!
//! Sources: for `tags`, "blk-mq: provide more tags for woken-up process when tag allocation is
//! busy" and what followed in its thread (linux-block, 2020), where "5.6.15" is before and
//! "patched" is after; for `run`, "blk-mq: avoid repeatedly scheduling the same work to run
//! hardware queue" (linux-block, 2019); for `flush`, "block: hold queue if flush is running for
//! non-queueable flush drive" (linux-kernel, 2011).

/// A cell of a table that was left empty.
const NONE: f64 = f64::NAN;

/// The published figures of one device with one block size and depth, before and after, by number
/// of jobs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tags {
    /// Name in the rows.
    pub(super) experiment: &'static str,
    /// Name of the device model.
    pub(super) device: &'static str,
    /// Constants of the model that differ from its defaults.
    pub(super) constants: &'static [(&'static str, u64)],
    /// Length of each read in bytes.
    pub(super) block_bytes: u64,
    /// Number of reads that all jobs together keep in flight.
    pub(super) depth: u32,
    /// Number of tags: `nr_requests` of the elevator, or else those of the device.
    pub(super) nr_tags: u32,
    /// The device's maximum reads per second, derived from the other rows.
    pub(super) cap_iops: f64,
    /// The largest allowed deviation of the reads per second.
    pub(super) bound: f64,
    /// Jobs, reads per second before and after, context switches per second before and after.
    pub(super) rows: &'static [(u32, [f64; 4])],
}

/// Reads of 1 MiB, in requests of 256 KiB, on the rotational disk.
const HDD: Tags = Tags {
    experiment: "tags",
    device: "hdd",
    constants: &[],
    block_bytes: 1 << 20,
    depth: 1024,
    nr_tags: 256,
    cap_iops: 120.0,
    bound: 0.05,
    rows: &[
        (1, [120.0, 119.0, 1162.0, 1188.0]),
        (24, [105.0, 121.0, 1715.0, 1105.0]),
        (48, [102.0, 121.0, 1967.0, 1105.0]),
        (72, [100.0, 119.0, 1908.0, 1106.0]),
    ],
};

/// The same figures beside a disk whose seeks depend on the distance, and that turns 7200 times per
/// minute. It was not published which part of the disk the reads covered. The longest
/// seek takes 2 ms more than the shortest one. If that is 13.5 ms over the whole disk, and grows
/// with the square root of the distance, it is 2 ms over a fiftieth of the disk.
pub(super) const ROTATION: Tags = Tags {
    experiment: "tags-rotation",
    constants: &[
        ("seek_ns", 700_000),
        ("bytes_per_s", 205_000_000),
        ("stroke_ns", 2_000_000),
        ("turn_ns", 8_333_333),
    ],
    ..HDD
};

/// Reads of 1 MiB, in requests of 256 KiB.
pub(super) const TAGS: [Tags; 3] = [
    HDD,
    Tags {
        experiment: "tags",
        device: "ssd-sas",
        constants: &[],
        block_bytes: 1 << 20,
        depth: 1024,
        nr_tags: 256,
        cap_iops: 1077.0,
        bound: 0.02,
        rows: &[
            (1, [1075.0, 1076.0, 5123.0, 5264.0]),
            (24, [1075.0, 1076.0, 15238.0, 3859.0]),
            (48, [1076.0, 1076.0, 19015.0, 3617.0]),
            (72, [1076.0, 1077.0, 19050.0, 3662.0]),
        ],
    },
    Tags {
        experiment: "tags",
        device: "nvme",
        constants: &[],
        block_bytes: 1 << 20,
        depth: 1024,
        nr_tags: 1023,
        cap_iops: 3018.0,
        bound: 0.02,
        rows: &[
            (1, [3018.0, 3018.0, 6292.0, 6469.0]),
            (18, [3015.0, 3016.0, 19428.0, 4253.0]),
            (36, [3001.0, 3005.0, 21290.0, 3928.0]),
            (54, [2993.0, 2997.0, 23060.0, 3957.0]),
            (72, [2984.0, 2990.0, 24221.0, 4054.0]),
        ],
    },
];

/// Returns the table of reads of 4 KiB, in thousands per second, before and after.
const fn small(
    experiment: &'static str,
    device: &'static str,
    depth: u32,
    rows: &'static [(u32, [f64; 4])],
) -> Tags {
    let is_nvme = device.len() == "nvme".len();
    Tags {
        experiment,
        device,
        constants: &[],
        block_bytes: 4096,
        depth,
        nr_tags: if is_nvme { 1023 } else { 256 },
        cap_iops: if is_nvme { 774_000.0 } else { 198_000.0 },
        bound: 0.05,
        rows,
    }
}

const fn k(before: f64, after: f64) -> [f64; 4] {
    [before * 1000.0, after * 1000.0, NONE, NONE]
}

/// Reads of 4 KiB.
pub(super) const SMALL: [Tags; 6] = [
    small(
        "tags-4k-256",
        "ssd-sas",
        256,
        &[
            (1, k(193.0, 192.0)),
            (2, k(197.0, 196.0)),
            (4, k(198.0, 198.0)),
            (8, k(197.0, 197.0)),
            (16, k(197.0, 198.0)),
            (32, k(198.0, 198.0)),
            (64, k(195.0, 195.0)),
            (128, k(193.0, 192.0)),
            (256, k(198.0, 198.0)),
        ],
    ),
    small(
        "tags-4k-512",
        "ssd-sas",
        512,
        &[
            (1, k(193.0, 194.0)),
            (2, k(197.0, 196.0)),
            (4, k(198.0, 197.0)),
            (8, k(197.0, 219.0)),
            (16, k(197.0, 394.0)),
            (32, k(198.0, 395.0)),
            (64, k(196.0, 592.0)),
            (128, k(199.0, 591.0)),
            (256, k(196.0, 591.0)),
            (512, k(198.0, 591.0)),
        ],
    ),
    small(
        "tags-4k-1024",
        "ssd-sas",
        1024,
        &[
            (1, k(195.0, 192.0)),
            (2, k(196.0, 197.0)),
            (4, k(197.0, 197.0)),
            (8, k(198.0, 197.0)),
            (16, k(197.0, 198.0)),
            (32, k(197.0, 243.0)),
            (64, k(197.0, 393.0)),
            (128, k(197.0, 986.0)),
            (256, k(200.0, 976.0)),
            (512, k(203.0, 984.0)),
            (1024, k(202.0, 354.0)),
        ],
    ),
    small(
        "tags-4k-256",
        "nvme",
        256,
        &[
            (1, k(398.0, 394.0)),
            (4, k(774.0, 775.0)),
            (16, k(774.0, 774.0)),
            (64, k(774.0, 775.0)),
            (256, k(778.0, 784.0)),
        ],
    ),
    small(
        "tags-4k-1024",
        "nvme",
        1024,
        &[
            (1, k(406.0, 405.0)),
            (4, k(774.0, 773.0)),
            (16, k(774.0, 774.0)),
            (64, k(777.0, 773.0)),
            (256, k(783.0, 783.0)),
            (1024, k(764.0, 755.0)),
        ],
    ),
    small(
        "tags-4k-2048",
        "nvme",
        2048,
        &[
            (1, k(369.0, 377.0)),
            (4, k(774.0, 774.0)),
            (16, k(774.0, 774.0)),
            (64, k(767.0, 773.0)),
            (256, k(784.0, 781.0)),
            (1024, k(741.0, 1416.0)),
            (2048, k(754.0, 753.0)),
        ],
    ),
];

/// Figures of `run`: reads of 4 KiB by 8 jobs. Each row has the total number of reads in flight,
/// reads per second before and after, and the gain published with them, in percent.
pub(super) const RUN: [(u32, [f64; 3]); 4] = [
    (16, [190_000.0, 190_000.0, 0.0]),
    (64, [235_000.0, 240_000.0, 2.0]),
    (256, [180_000.0, 256_000.0, 42.0]),
    (1024, [156_000.0, 250_000.0, 60.0]),
];

/// Allowed deviation of a gain, in percentage points.
pub(super) const RUN_BOUND_POINTS: f64 = 10.0;

/// Figure of `flush`: writes per second if a flush is queued behind requeued requests, relative to
/// those if the queue is held. "About 20 %" were lost; this project chose the number of threads.
pub(super) const FLUSH_TAIL_OF_HOLD: f64 = 0.8;

/// The number of threads for that figure.
pub(super) const FLUSH_THREADS: u32 = 16;

/// Allowed deviation of that figure: the published one is a range, not a target.
pub(super) const FLUSH_BOUND: f64 = 0.1;

impl Tags {
    /// Returns the published figures for this number of jobs, before or after: reads per second and
    /// context switches per second.
    pub(super) fn of(&self, nr_jobs: u32, policy: &str) -> (Option<f64>, Option<f64>) {
        let Some((_, cells)) = self.rows.iter().find(|(jobs, _)| *jobs == nr_jobs) else {
            return (None, None);
        };
        let given = |value: f64| Some(value).filter(|value| !value.is_nan());
        match policy {
            "batch" => (given(cells[0]), given(cells[2])),
            "stash" => (given(cells[1]), given(cells[3])),
            _ => (None, None),
        }
    }

    /// Returns whether a published figure exceeds the maximum of the device.
    pub(super) fn is_artefact(&self, published_iops: f64) -> bool {
        published_iops > self.cap_iops * 1.05
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_have_the_published_shape_and_sums() {
        let sum = |table: &Tags, at: usize| -> f64 {
            table.rows.iter().map(|(_, cells)| cells[at]).filter(|cell| !cell.is_nan()).sum()
        };
        let all: Vec<_> = TAGS.iter().chain(&SMALL).collect();
        let rows: Vec<_> = all.iter().map(|table| table.rows.len()).collect();
        assert_eq!(rows, [4, 4, 5, 9, 10, 11, 5, 6, 7]);
        let sums = |at| all.iter().map(|table| sum(table, at)).collect::<Vec<_>>();
        let before = [427.0, 4302.0, 15011.0, 1766e3, 1969e3, 2179e3, 3498e3, 4278e3, 4963e3];
        let after = [480.0, 4305.0, 15026.0, 1764e3, 3960e3, 4917e3, 3502e3, 4263e3, 5648e3];
        assert_eq!((sums(0), sums(1)), (before.to_vec(), after.to_vec()));
        assert_eq!((sum(all[0], 2), sum(all[0], 3)), (6752.0, 4504.0));
        assert_eq!((sum(all[1], 2), sum(all[1], 3)), (58426.0, 16402.0));
        assert_eq!((sum(all[2], 2), sum(all[2], 3)), (94291.0, 22661.0));
        for table in all {
            assert!(table.rows.is_sorted_by_key(|(jobs, _)| *jobs), "{}", table.experiment);
        }
    }

    #[test]
    fn the_gains_of_run_are_those_of_its_columns() {
        for (depth, [before, after, gain]) in RUN {
            let computed = (after / before - 1.0) * 100.0;
            assert!((computed - gain).abs() < 0.6, "{depth}: {computed}");
        }
    }

    #[test]
    fn the_cells_beyond_the_devices_are_known() {
        let artefacts = SMALL.iter().flat_map(|table| {
            let of = table.rows.iter().map(move |(jobs, cells)| (table, *jobs, cells[1]));
            of.filter(|(table, _, iops)| table.is_artefact(*iops))
        });
        let jobs: Vec<_> = artefacts.map(|(table, jobs, _)| (table.depth, jobs)).collect();
        let of_512 = [8, 16, 32, 64, 128, 256, 512].map(|jobs| (512, jobs));
        let of_1024 = [32, 64, 128, 256, 512, 1024].map(|jobs| (1024, jobs));
        let expected: Vec<_> = of_512.into_iter().chain(of_1024).chain([(2048, 1024)]).collect();
        assert_eq!(jobs, expected);
    }
}
