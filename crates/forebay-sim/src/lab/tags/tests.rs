//! Results of jobs that need more tags than exist, on a device with few.

use super::*;
use crate::lab::costs::Costs;
use crate::lab::measured::Measured;
use crate::lab::work::Worker;
use crate::lab::world::{self, TagLoad};
use forebay_core::{TagNeed, WakePolicy};
use forebay_model::machines;

fn measure_tags(load: &TagLoad) -> Measured {
    run(load, Extras::default()).0
}

fn load(wake: WakePolicy, worker: Worker) -> TagLoad {
    TagLoad {
        device: machines::named("ssd-sas").expect("a preset"),
        nr_jobs: 8,
        depth: 64,
        block_bytes: 1 << 20,
        nr_tags: 16,
        wake,
        tag_need: TagNeed::Auto,
        is_mixed: false,
        costs: Costs::default(),
        worker,
        warm_up_ns: 100_000_000,
        run_ns: 1_000_000_000,
        seed: 1,
    }
}

#[test]
fn threads_sleep_for_tags_unless_bios_wait_for_them() {
    for (wake, sleeps) in [(WakePolicy::Batch, true), (WakePolicy::Fair, false)] {
        let measured = measure_tags(&load(wake, Worker::Absent));
        assert_eq!(measured.nr_tag_sleeps > 0, sleeps, "{}", wake.name());
        assert_eq!(measured.nr_vain_wakes > 0, sleeps, "{}", wake.name());
        assert!(measured.ios_of_jobs.iter().all(|nr| *nr > 0), "{:?}", measured.ios_of_jobs);
    }
}

#[test]
fn worker_runs_only_behind_an_elevator_that_holds_requests() {
    let runs = |worker| measure_tags(&load(WakePolicy::Batch, worker)).nr_worker_runs;
    let (few, all) = (Worker::Behind { device_depth: 4 }, Worker::Behind { device_depth: 16 });
    assert_eq!(runs(Worker::Absent), 0);
    // Threads that go to sleep leave work to it in both cases.
    assert!(runs(few) > runs(all) && runs(all) > 0, "{} {}", runs(few), runs(all));
}

#[test]
fn each_wait_for_tags_and_each_io_is_counted_within_the_measurement() {
    let measured = measure_tags(&load(WakePolicy::Single, Worker::Absent));
    let nr_ios: u64 = measured.ios_of_jobs.iter().sum();
    let nr_waits = measured.tag_waits.count();
    // Each I/O, and each job that waits at the end.
    assert!((nr_ios..=nr_ios + 8).contains(&nr_waits), "{nr_waits} of {nr_ios}");
    assert_eq!(measured.latencies[0].count(), nr_ios);
}

#[test]
fn both_worlds_have_the_same_figures() {
    let worker = Worker::Behind { device_depth: 8 };
    for wake in WakePolicy::ALL {
        let load = load(wake, worker);
        let (here, there) = (measure_tags(&load), world::measure_tags(&load));
        let name = wake.name();
        let near = |what: &str, here: f64, there: f64, bound: f64| {
            let off = (here - there).abs();
            assert!(off <= there * bound, "{name}, {what}: {here}, {there}");
        };
        near("iops", here.iops(), there.iops(), 0.01);
        near("least share", here.least_share(), there.least_share(), 0.05);
        near("tag switches", here.tag_switches_per_s(), there.tag_switches_per_s(), 0.05);
        let completions = [&here, &there].map(Measured::completion_switches_per_s);
        near("completion switches", completions[0], completions[1], 0.05);
        let of_worker = [&here, &there].map(Measured::run_queue_switches_per_s);
        near("worker", of_worker[0], of_worker[1], 0.1);
        near("vain wakes", here.vain_wakes_per_s(), there.vain_wakes_per_s(), 0.1);
    }
}
