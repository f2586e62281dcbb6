//! Results of jobs that need more tags than exist, on a device with few.

use super::*;
use crate::lab::costs::Costs;
use forebay_core::{TagNeed, WakePolicy};
use forebay_model::machines;

fn load(wake: WakePolicy, worker: Worker) -> TagLoad {
    TagLoad {
        device: machines::named("ssd-sas").expect("a preset"),
        constants: &[],
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
fn job_wakes_once_for_each_whole_io() {
    // Two jobs, whose I/Os have all tags: they sleep for nothing else.
    let load = load(WakePolicy::Stash, Worker::Absent);
    let measured = measure_tags(&TagLoad { nr_jobs: 2, depth: 4, ..load });
    let nr_ios: u64 = measured.ios_of_jobs.iter().sum();
    assert_eq!(measured.nr_tag_sleeps, 0);
    let nr_sleeps = measured.nr_completion_sleeps;
    assert!(nr_sleeps > 0 && nr_sleeps <= nr_ios, "{nr_sleeps} for {nr_ios}");
}
