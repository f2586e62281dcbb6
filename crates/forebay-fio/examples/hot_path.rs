//! Cost of the functions that run once per I/O, in nanoseconds per call.
//!
//! ```text
//! cargo run --release -p forebay-fio --example hot_path
//! ```
//!
//! An argument says how many calls instead of 20 million: under callgrind fewer do.

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use forebay_fio::generator::{Direction, Generator, Pattern, Region, Workload};
use forebay_fio::random::Xoshiro256;
use forebay_fio::stats::JobStats;
use forebay_fio::verify::{Format, Stamp, Write as BlockWrite};

const CALLS: u64 = 20_000_000;

fn main() -> std::io::Result<()> {
    let calls = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(CALLS);
    let mut out = std::io::stdout().lock();
    for word in ["read", "rw", "randread", "randrw"] {
        for (label, blocks) in [("2^18 blocks", 1 << 18), ("2^18 + 1 blocks", (1 << 18) + 1)] {
            let mut generator = Generator::new(&workload(word, blocks));
            let ns = per_call(calls, || generator.next());
            writeln!(out, "generator, {word:8} {label:16} {ns:6.2} ns")?;
        }
    }

    let mut rng = Xoshiro256::new(1, 1);
    let latencies: Vec<u64> = (0..4096).map(|_| 5_000 + rng.below(200_000)).collect();
    let (mut stats, mut at) = (JobStats::new(0), 0);
    let ns = per_call(calls, || {
        at = (at + 1) % latencies.len();
        let ns = latencies[at];
        stats.record_slat(Direction::Read, ns / 16);
        stats.record_complete(Direction::Read, 4096, ns, ns + ns / 16);
        stats.tick(ns);
    });
    writeln!(out, "statistics of one I/O              {ns:6.2} ns")?;
    black_box(&stats);

    let stamp = Stamp { seed: 1, generation: 1 };
    let mut block = vec![0; 4096];
    let (format, write) = (Format::default(), BlockWrite::default());
    let ns = per_call(calls / 200, || format.fill(black_box(&mut block), 4096, stamp, write));
    writeln!(out, "fill a block of 4096 bytes         {ns:6.0} ns")?;
    let ns = per_call(calls / 200, || format.check(&block, 4096, 4096, Some(stamp)));
    writeln!(out, "check a block of 4096 bytes        {ns:6.0} ns")
}

fn workload(word: &str, blocks: u64) -> Workload {
    Workload {
        pattern: Pattern::from_word(word).expect("a word of fio"),
        rwmixread: 50,
        bs: 4096,
        region: Region { offset: 0, len: blocks * 4096 },
        io_size: None,
        norandommap: false,
        seed: 1,
        stream: 0,
        variety: None,
    }
}

fn per_call<T>(calls: u64, mut call: impl FnMut() -> T) -> f64 {
    let start = Instant::now();
    (0..calls).for_each(|_| {
        black_box(call());
    });
    start.elapsed().as_nanos() as f64 / calls as f64
}
