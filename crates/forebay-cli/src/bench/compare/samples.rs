//! Fixed figures for tests.

use forebay_fio::generator::Direction;
use forebay_fio::sample::{DirectionSample, Sample};

use super::comparison::{Comparison, rows};
use super::measure::{Before, Measured, Run};

/// A run at `speed` times 100000 IOPS.
pub(super) fn run(speed: f64, total_ios: u64, cpu_us: f64) -> Run {
    let read = DirectionSample {
        direction: Direction::Read,
        total_ios,
        iops: 100_000.0 * speed,
        bw_bytes: 409_600_000.0 * speed,
        clat_mean_ns: 10_000.0 / speed,
        clat_p50_ns: Some(8000.0 / speed),
        clat_p99_ns: Some(20_000.0 * speed),
        clat_p999_ns: Some(1_500_000.0),
    };
    let sample = Sample {
        version: "fio-3.33".to_owned(),
        directions: vec![read],
        switches: total_ios / 2,
        merges: 0,
        system_calls: None,
    };
    Run { sample, cpu_us }
}

/// Returns five pairs of 500,000 (A) and 400,100 I/Os (B), in which B always has a speed of 1.
pub(super) fn measured() -> Measured {
    let pair = |speed: f64| {
        let mut a = run(speed, 500_000, 1_550_000.0);
        a.sample.system_calls = Some(1_000_000);
        [a, run(1.0, 400_100, 2_140_000.0)]
    };
    Measured {
        before: [
            Before { start_cpu_us: 50_000.0, start_ios: 0, syscalls: Some(2.0) },
            Before { start_cpu_us: 140_000.0, start_ios: 100, syscalls: Some(2.5) },
        ],
        pairs: [1.02, 0.9, 1.1, 1.05, 0.99].map(pair).into(),
        was_stopped: false,
    }
}

/// Returns the complete comparison of these pairs.
pub(super) fn comparison() -> Comparison {
    let measured = measured();
    Comparison {
        titles: ["forebay, disk.img?direct=on".to_owned(), "fio-3.33, io_uring, x".to_owned()],
        workload: "rw=randread, bs=4k".to_owned(),
        commands: ["forebay bench --name=a".to_owned(), "fio --thread --name=a".to_owned()],
        nr_asked: 5,
        nr_pairs: measured.pairs.len(),
        is_counted: true,
        machine: "A Processor, 2 processors, Linux 6.1".to_owned(),
        notes: Vec::new(),
        rows: rows(&measured),
    }
}
