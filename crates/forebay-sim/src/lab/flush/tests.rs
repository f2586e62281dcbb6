//! Exact results of threads that write and flush, in virtual time: S1, and that hold and requeue
//! differ only in the number of requeues. The checkers bound the wait of each flush (F6).

use super::*;
use forebay_model::machines;

const ROUNDS: FsyncShape = FsyncShape::AllFiles { nr_writes: 100, nr_files: 128 };

fn load(nr_threads: u32, shape: FsyncShape, flush: FlushPolicy, elide: bool) -> FlushLoad {
    FlushLoad {
        device: machines::named("sata").expect("a preset"),
        nr_threads,
        shape,
        block_bytes: 16 << 10,
        range_bytes: 2 << 30,
        flush,
        elide,
        costs: Costs::default(),
        late_per_million: 1000,
        late_ns: 1_000_000,
        warm_up_ns: 1_000_000_000,
        run_ns: 5_000_000_000,
        seed: 1,
    }
}

fn measure(nr_threads: u32, shape: FsyncShape, flush: FlushPolicy) -> FlushMeasured {
    measure_flushes(&load(nr_threads, shape, flush, false))
}

#[test]
fn tail_loses_a_tenth_to_three_tenths_against_hold_with_16_threads() {
    for seed in 1..=8 {
        let [tail, hold] = [FlushPolicy::Tail, FlushPolicy::Hold].map(|flush| {
            let load = load(16, FsyncShape::EachWrite, flush, false);
            measure_flushes(&FlushLoad { seed, ..load }).iops()
        });
        assert!((0.70..=0.90).contains(&(tail / hold)), "seed {seed}: {tail} of {hold}");
    }
}

#[test]
fn measured_figures_are_the_computed_ones() {
    for nr_threads in [1, 16, 64] {
        let without = FlushPolicy::ALL.map(|flush| (flush, false));
        for (flush, elide) in without.into_iter().chain([(FlushPolicy::Hold, true)]) {
            let load = load(nr_threads, FsyncShape::EachWrite, flush, elide);
            let computed = load.closed_form().expect("there is one");
            let off = measure_flushes(&load).iops() / computed - 1.0;
            assert!(off.abs() < 0.01, "{nr_threads} threads, {}: {off}", flush.name());
        }
    }
    assert_eq!(load(1, ROUNDS, FlushPolicy::Hold, false).closed_form(), None);
}

#[test]
fn requeue_differs_from_hold_in_requeues_alone() {
    for shape in [FsyncShape::EachWrite, ROUNDS] {
        let [hold, requeue] =
            [FlushPolicy::Hold, FlushPolicy::Requeue].map(|flush| measure(16, shape, flush));
        assert_eq!(hold.nr_writes, requeue.nr_writes, "{shape:?}");
        assert_eq!(hold.counts.issued, requeue.counts.issued, "{shape:?}");
        assert!(hold.counts.requeues < requeue.counts.requeues, "{shape:?}");
    }
}

#[test]
fn flushes_that_are_asked_for_are_issued_or_joined_or_elided() {
    for (flush, elide) in [(FlushPolicy::Tail, false), (FlushPolicy::Hold, true)] {
        for shape in [FsyncShape::EachWrite, ROUNDS] {
            let FlushCounts { asked, issued, joined, elided, .. } =
                measure_flushes(&load(16, shape, flush, elide)).counts;
            // Some requests wait when the measurement begins, and some when it ends.
            assert!(asked.abs_diff(issued + joined + elided) <= 16, "{shape:?}");
            assert!(issued > 0 && (elided > 0 || !elide || shape == FsyncShape::EachWrite));
        }
    }
    let one = measure(1, FsyncShape::EachWrite, FlushPolicy::Hold);
    assert_eq!(one.counts.joined, 0, "no other thread can join");
}

#[test]
fn the_same_load_gives_the_same_figures() {
    for flush in FlushPolicy::ALL {
        let [one, other] = [(); 2].map(|()| measure(16, FsyncShape::EachWrite, flush));
        assert_eq!((one.nr_writes, one.counts), (other.nr_writes, other.counts));
        assert_eq!(one.fsyncs.max(), other.fsyncs.max());
    }
}
