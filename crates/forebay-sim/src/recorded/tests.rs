//! Recorded loads in virtual time.

use super::*;
use crate::wake::Wake;
use crate::{CpuCosts, DeviceSpec};
use forebay_core::WakePolicy;
use forebay_fio::generator::Direction;

const LATENCY_NS: u64 = 80_000;
const US: u64 = 1_000;

fn io(due_ns: u64, direction: Direction, block: u64) -> Step {
    Step { due_ns, offset: block * 4096, len: 4096, file: 0, act: Act::Io(direction) }
}

fn read(due_ns: u64, block: u64) -> Step {
    io(due_ns, Direction::Read, block)
}

fn thread(name: &str, steps: Vec<Step>) -> RecordedThread {
    RecordedThread { name: name.to_owned(), steps }
}

/// Returns a disk whose steps take 1 ns, on `channels` channels of [`LATENCY_NS`].
fn disk(channels: u32) -> JobDisk {
    let mut disk = JobDisk::new(DeviceSpec::Fixed { latency_ns: LATENCY_NS, channels });
    disk.cpu = Some(CpuCosts::default());
    disk
}

#[track_caller]
fn run(load: &RecordedLoad, seed: u64, disk: &JobDisk) -> Summary {
    let result = run_recorded(load, seed, disk, None).expect("a good load");
    result.unwrap_or_else(|violation| panic!("{violation}"))
}

#[track_caller]
fn load(threads: Vec<RecordedThread>, iodepth: u32) -> RecordedLoad {
    RecordedLoad::new(threads, iodepth).expect("a good load")
}

/// Returns the largest latency and the largest lateness of a run, in us, rounded down.
fn worst_us(summary: &Summary) -> (u64, u64) {
    let lateness = summary.lateness().expect("a recorded load");
    (summary.io_latency().moments.max() / US, lateness.moments.max() / US)
}

/// A thread without a time limit in its wait would reap the first I/O, or submit the second one,
/// too late.
#[test]
fn thread_reaps_completions_while_it_waits_for_the_next_time() {
    for nr_hw_queues in [1, 2] {
        let mut disk = disk(8);
        disk.policy.nr_hw_queues = nr_hw_queues;
        let steps = [0, 10, 30, 1_000, 1_090].map(|due_us| read(due_us * US, due_us));
        let summary = run(&load(vec![thread("a", steps.into())], 8), 1, &disk);
        assert_eq!((summary.nr_ios(), worst_us(&summary)), (5, (80, 0)), "{nr_hw_queues}");
        let end_us = summary.now_ns / US;
        assert!((1_170..1_171).contains(&end_us), "{end_us}");
    }
}

#[test]
fn followers_return_at_their_time_limit_and_the_leader_passes_the_baton() {
    let often = |first: u64| (0..200).map(move |nth| read(first + nth * 7 * US, nth)).collect();
    let threads = (0..4).map(|nth| thread("t", often(nth * US))).collect();
    let load = load(threads, 64);
    let mut disk = disk(64);
    for seed in 0..20 {
        let summary = run(&load, seed, &disk);
        assert_eq!(summary.nr_ios(), 800);
        assert_eq!(worst_us(&summary), (80, 0), "seed {seed}");
        // Each step takes time, and tasks interleave.
        disk.cpu = None;
        assert_eq!(run(&load, seed, &disk).nr_ios(), 800);
        disk.cpu = Some(CpuCosts::default());
    }
}

#[test]
fn ios_beyond_the_depth_are_late_and_their_latencies_count_from_the_time_they_were_due() {
    let reads = |due_ns: u64| (0..10).map(|nth| read(due_ns, nth)).collect();
    let summary = run(&load(vec![thread("a", reads(US))], 2), 1, &disk(8));
    // Five batches of two: the last one is submitted after four others.
    assert_eq!(worst_us(&summary), (400, 320));
    let lateness = summary.lateness().expect("a recorded load");
    assert_eq!((lateness.moments.count(), lateness.moments.min() / US), (10, 0));
    // Without times, latencies count from the submission.
    let summary = run(&load(vec![thread("a", reads(0))], 2), 1, &disk(8));
    assert_eq!(summary.io_latency().moments.max() / US, 80);
    assert!(summary.lateness().is_none());
}

#[test]
fn syncs_block_their_thread_and_trims_wait_for_each_other() {
    let sync = Step { act: Act::Sync, offset: 0, len: 0, ..read(1, 0) };
    let trim = |block| io(1, Direction::Trim, block);
    let steps = vec![io(1, Direction::Write, 0), sync, trim(3), trim(3), read(1, 4)];
    let other = vec![trim(3), trim(3)];
    let summary = run(&load(vec![thread("a", steps), thread("b", other)], 8), 1, &disk(8));
    let nr_trims: u64 =
        summary.tally.clones.iter().map(|it| it.stats.directions[2].total_ios).sum();
    assert_eq!((summary.nr_ios(), nr_trims), (6, 4), "each trim stays a trim");
    let syncs = summary.tally.clones.iter().map(|it| it.stats.sync.moments.count());
    assert_eq!(syncs.sum::<u64>(), 1);
    assert!(worst_us(&summary).1 >= 80, "the trim waits for the sync");
}

#[test]
fn same_seed_gives_the_same_run_under_each_wake_policy() {
    let steps = |first: u64| {
        let direction =
            |nth: u64| if nth.is_multiple_of(3) { Direction::Write } else { Direction::Read };
        (0..120).map(|nth| io(nth * US, direction(nth), (nth + first) % 64)).collect()
    };
    let threads = (0..6).map(|nth| thread(&format!("pid {nth}"), steps(nth * 11))).collect();
    let load = load(threads, 32);
    for policy in WakePolicy::ALL {
        let mut disk = JobDisk::new(DeviceSpec::Fixed { latency_ns: LATENCY_NS, channels: 4 });
        disk.set_wake(Wake::OfDisk(policy));
        (disk.policy.queue_depth, disk.policy.nr_requests) = (8, Some(8));
        for seed in 0..5 {
            let first = run(&load, seed, &disk);
            assert_eq!(first.nr_ios(), 720);
            assert_eq!(first.hash, run(&load, seed, &disk).hash, "{policy:?} {seed}");
        }
    }
}

#[test]
fn more_threads_than_the_limit_share_simulated_ones() {
    let threads = (0..130).map(|nth| thread(&nth.to_string(), vec![read(nth * US, nth)]));
    let load = load(threads.collect(), 8);
    assert_eq!((load.nr_recorded(), load.names().len()), (130, RECORDED_THREADS_MAX));
    let names: Vec<_> = load.names().collect();
    assert_eq!((names[0], names[1], names[2]), ("0, 64, 128", "1, 65, 129", "2, 66"));
    assert_eq!((load.nr_steps(), load.last_ns()), (130, 129 * US));
    assert_eq!(run(&load, 1, &disk(8)).nr_ios(), 130);
}

#[test]
fn fairness_is_that_of_the_speeds_of_the_threads() {
    let one = |blocks: u32| {
        let step = Step { len: blocks * 4096, ..read(1, 0) };
        vec![thread("a", vec![read(1, 0); 4]), thread("b", vec![step; 4])]
    };
    let even = run(&load(one(1), 8), 1, &disk(8)).fairness_of_speeds();
    assert!(even > 0.99, "{even}");
    // The second thread has one I/O at a time, and each has to wait for four others.
    let late = vec![thread("a", vec![read(1, 0)]), thread("b", vec![read(1, 1); 40])];
    let uneven = run(&load(late, 1), 1, &disk(8)).fairness_of_speeds();
    assert!((0.5..0.7).contains(&uneven), "{uneven}");
}

#[test]
fn loads_that_cannot_be_simulated_are_refused() {
    let refused = |steps: Vec<Step>| {
        RecordedLoad::new(vec![thread("pid 7", steps)], 8).expect_err("refused").to_string()
    };
    assert_eq!(refused(Vec::new()), "the recording has no I/O");
    for step in [
        Step { offset: 100, ..read(0, 0) },
        Step { len: 700, ..read(0, 0) },
        Step { len: 0, ..read(0, 0) },
        Step { len: 16 << 20, ..read(0, 0) },
        Step { offset: u64::MAX - 511, ..read(0, 0) },
    ] {
        let error = refused(vec![step]);
        assert!(
            error.starts_with("pid 7: an I/O of ") && error.contains(" expected mul"),
            "{error}"
        );
    }
    let small = "nvme:size=1m".parse().expect("a device");
    let far = load(vec![thread("a", vec![read(0, 300)])], 8);
    let error = run_recorded(&far, 1, &JobDisk::new(small), None).expect_err("too small");
    assert_eq!(
        error.to_string(),
        "the recording uses 1232896 bytes of its disk, and the device has 1048576: give a larger \
         device, such as size=2097152 after its name"
    );
    let end = Step { offset: (1 << 60) - 4096, ..read(0, 0) };
    assert_eq!(run(&load(vec![thread("a", vec![end])], 8), 1, &disk(8)).nr_ios(), 1);
}
