//! Tests of modelled devices: order, time, several queues, and terabytes.

use super::device::NAMES;
use super::state::State;
use crate::Disk;
use crate::driver::testing::{Numbers, data, device, issue, queue, reap};
use crate::driver::timer::Timer;
use crate::driver::{Device, DriverQueue, Mode, Waiter};
use crate::sys::clock;
use forebay_core::{Bio, Driver, Issue, Op, Tag};
use forebay_model::{Command, Random, machines};
use std::sync::Arc;
use std::time::Duration;

/// A wait that nothing ends lasts this long; no other wait does.
const LONG: Duration = Duration::from_secs(100);

const MIB: u64 = 1 << 20;

fn shared(device: &dyn Device) -> DriverQueue {
    device.open_queue(64, Mode::Shared).expect("a queue")
}

/// Runs one request from issue to completion.
fn run(driver: &mut dyn Driver, bio: Bio) {
    issue(driver, 0, bio);
    driver.wait(1, None);
    let done = reap(driver);
    assert!(done.len() == 1 && done[0].result.is_ok(), "{done:?}");
}

/// Reads this block and checks that all its bytes are `expected`.
fn check_block(driver: &mut dyn Driver, at: u64, expected: u8) {
    let mut buf = [99; 512];
    run(driver, data(Op::Read, at, &mut buf, 512));
    assert_eq!(buf, [expected; 512], "the block at {at}");
}

#[test]
fn error_for_a_wrong_name_lists_all_names() {
    let names: Vec<&str> = machines::ALL.iter().map(|preset| preset.name).collect();
    assert!(NAMES.starts_with(&format!("one of {}, or", names.join(", "))), "{NAMES}");
}

#[test]
fn model_file_names_the_device_and_keys_override_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("my.model");
    std::fs::write(&path, "family=nvme\nlatency_ns=7\nsize=8m # MiB\nnr_channels=3\n")
        .expect("a file");
    let disk = Disk::open(&format!("model:{}?latency_ns=9", path.display())).expect("a disk");
    assert_eq!(disk.capacity_bytes(), Some(8 * MIB));
    let model = disk.info().features.iter().find(|it| it.name == "model").expect("a feature");
    let constants = "bytes_per_s=3165000000, latency_ns=9, nr_channels=3";
    let text = format!("{:?}", model.state);
    assert!(text.contains("the family nvme of ") && text.contains(constants), "{text}");
    std::fs::write(&path, "family=nvme\nseek_ns=7\n").expect("a file");
    let error = Disk::open(&format!("model:{}", path.display())).expect_err("hdd's constant");
    let expected = format!("{}: line 2: unknown constant seek_ns; nvme has size", path.display());
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[test]
fn requests_complete_in_the_order_of_the_sweep_and_in_time() {
    let mut driver = queue("model:hdd?seek_ns=100000000", Mode::Owned).driver;
    let mut bufs = [[0; 512]; 4];
    let begin = clock::now_ns();
    // The first request keeps the arm busy until all others are issued.
    for (tag, (at, buf)) in [500, 900, 100, 700].into_iter().zip(&mut bufs).enumerate() {
        issue(&mut *driver, tag, data(Op::Read, at * MIB, buf, 512));
    }
    driver.wait(4, None);
    assert!(clock::now_ns() - begin >= 4 * 50_000_000, "four positionings of 50 ms at least");
    let tags: Vec<usize> = reap(&mut *driver).iter().map(|done| done.tag.index()).collect();
    assert_eq!(tags, [0, 3, 1, 2]);
}

#[test]
fn wait_for_several_sleeps_again_after_the_first() {
    let preset = machines::named("hdd").expect("a preset");
    for seed in 0..50 {
        let state = State::new(preset.machine(), Random::new(1, seed));
        let timer = Arc::new(Timer::punctual());
        let queue = state.add_queue(Arc::clone(&timer), 2);
        for tag in 0..2 {
            let start = (tag as u64 + 1) << 40;
            let command = Command { op: Op::Read, start, len: 512 };
            assert!(state.begin(queue, Tag::from_index(tag), &command));
        }
        while !state.has_done(queue, 1) {
            timer.wait(None);
        }
        // The arm needs milliseconds to move, unless this thread was preempted for as long: then
        // the check shows nothing.
        if !state.has_done(queue, 2) {
            timer.wait(None);
            assert!(state.has_done(queue, 2), "the wait has ended before there was anything new");
            return;
        }
    }
    panic!("the second command was done with the first, fifty times");
}

#[test]
fn queues_share_one_arm_and_get_their_own_completions() {
    let device = device("model:hdd?seek_ns=4000000&data=off");
    let mut queues = [0; 3].map(|_| shared(&*device));
    let mut buf = [0; 512];
    let begin = clock::now_ns();
    for (nth, queue) in queues.iter_mut().enumerate() {
        issue(&mut *queue.driver, nth, data(Op::Read, (nth as u64 + 1) * MIB, &mut buf, 512));
    }
    // The queue served last waits. It takes the completions of all and keeps those of the others.
    queues[2].driver.wait(1, None);
    assert!(clock::now_ns() - begin >= 3 * 2_000_000, "one after another");
    for (nth, queue) in queues.iter_mut().enumerate() {
        queue.waiter.wait(Some(LONG));
        let done = reap(&mut *queue.driver);
        assert!(done.len() == 1 && done[0].tag.index() == nth, "{done:?}");
    }
    assert!(clock::now_ns() - begin < LONG.as_nanos() as u64);
}

#[test]
fn a_flush_is_refused_beside_others_and_they_beside_it_and_it_takes_its_time() {
    const SLOW: &str = "command_ns=20000000&flush_ns=20000000&position_ns=30000000";
    let mut driver = queue(&format!("model:sata?{SLOW}"), Mode::Owned).driver;
    let (mut one, mut two) = ([7; 512], [8; 512]);
    assert_eq!(issue(&mut *driver, 0, data(Op::Write, 0, &mut one, 512)), Issue::Queued);
    assert_eq!(issue(&mut *driver, 1, Bio::flush()), Issue::Busy);
    driver.wait(1, None);
    assert_eq!(reap(&mut *driver).len(), 1);
    let begin = clock::now_ns();
    assert_eq!(issue(&mut *driver, 1, Bio::flush()), Issue::Queued);
    assert_eq!(issue(&mut *driver, 2, data(Op::Write, 0, &mut two, 512)), Issue::Busy);
    assert_eq!(issue(&mut *driver, 3, Bio::flush()), Issue::Busy);
    driver.wait(1, None);
    assert!(clock::now_ns() - begin >= 50_000_000, "a flush of a dirty cache, by the model");
    assert_eq!(reap(&mut *driver).iter().map(|done| done.tag.index()).collect::<Vec<_>>(), [1]);
    // A refused request has moved no data.
    check_block(&mut *driver, 0, 7);
}

#[test]
fn a_device_whose_flush_goes_alone_has_one_hardware_context() {
    for keys in ["", "?service=off", "?nr_hw_queues=1", "?run_queue=always"] {
        let disk = Disk::open(&format!("model:sata{keys}")).expect("a disk");
        assert_eq!(disk.info().policy.nr_hw_queues, 1, "{keys}");
        assert_eq!(disk.info().policy.queue_depth, 32, "{keys}");
        let limits = disk.limits();
        assert!(limits.volatile_cache && !limits.fua && !limits.flush_queueable, "{keys}");
    }
}

#[test]
fn a_queue_that_ends_leaves_nothing_to_the_next() {
    let device = device("model:nvme?latency_ns=3000000&data=off");
    let mut buf = [0; 512];
    let mut first = shared(&*device);
    issue(&mut *first.driver, 5, data(Op::Read, 0, &mut buf, 512));
    drop(first);
    // Its place is not free as long as it is in flight.
    let mut second = shared(&*device);
    issue(&mut *second.driver, 7, data(Op::Read, 0, &mut buf, 512));
    second.driver.wait(1, None);
    let tags: Vec<usize> = reap(&mut *second.driver).iter().map(|done| done.tag.index()).collect();
    assert_eq!(tags, [7]);
    let mut third = shared(&*device);
    run(&mut *third.driver, data(Op::Read, 0, &mut buf, 512));
}

#[test]
fn without_data_reads_leave_their_buffers() {
    let mut driver = queue("model:virtio-ram?data=off", Mode::Owned).driver;
    run(&mut *driver, data(Op::Write, 0, &mut [7; 512], 512));
    check_block(&mut *driver, 0, 99);
}

#[test]
fn written_blocks_are_read_back_and_others_are_zero() {
    // The device tracks ranges of 2 MiB, and the disk ends within one.
    let len = 9 * MIB + 4096;
    let mut driver = queue(&format!("model:nvme?latency_ns=0&size={len}"), Mode::Owned).driver;
    let mut across = vec![7; 8192];
    run(&mut *driver, data(Op::Write, 4 * MIB - 4096, &mut across, 1000));
    run(&mut *driver, data(Op::Write, len - 512, &mut [8; 512], 512));
    for (at, expected) in [
        (0, 0),
        (2 * MIB, 0),
        (4 * MIB - 4608, 0),
        (4 * MIB - 4096, 7),
        (4 * MIB + 3584, 7),
        (4 * MIB + 4096, 0),
        (6 * MIB, 0),
        (len - 1024, 0),
        (len - 512, 8),
    ] {
        check_block(&mut *driver, at, expected);
    }
    let mut buf = vec![99; 1 << 20];
    run(&mut *driver, data(Op::Read, 4 * MIB - 8192, &mut buf, 100_000));
    let is_seven = |at: usize| (4096..4096 + 8192).contains(&at);
    assert!(buf.iter().enumerate().all(|(at, byte)| *byte == if is_seven(at) { 7 } else { 0 }));
}

#[test]
fn zeroes_reach_exactly_as_far_as_asked() {
    let mut driver = queue("model:nvme?latency_ns=0&size=40M", Mode::Owned).driver;
    for (start, end) in [(512, 40 * MIB - 512), (3 * MIB, 5 * MIB), (MIB + 512, 9 * MIB + 512)] {
        let edges = [(start - 512, 7), (start, 0), (end - 512, 0), (end, 7)];
        for (at, _) in edges {
            run(&mut *driver, data(Op::Write, at, &mut [7; 512], 512));
        }
        run(&mut *driver, Bio::range(Op::Discard, start, end - start));
        for (at, kept) in edges {
            check_block(&mut *driver, at, kept);
        }
    }
}

/// Returns the size of this process's page tables, KiB.
fn page_tables_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:")).expect("VmPTE");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
#[cfg_attr(miri, ignore = "it has no procfs")]
fn reads_of_terabytes_that_were_never_written_take_no_memory() {
    const NR: u64 = 8192;
    let mut driver = queue("model:nvme?latency_ns=0&size=1T", Mode::Owned).driver;
    let before = page_tables_kib();
    let mut numbers = Numbers(3);
    let mut buf = [99; 512];
    for _ in 0..NR {
        let at = numbers.below((1 << 40) / 512) * 512;
        run(&mut *driver, data(Op::Read, at, &mut buf, 512));
        assert_eq!(buf, [0; 512]);
    }
    run(&mut *driver, Bio::range(Op::WriteZeroes, 0, 2 << 30));
    // Access to each would take a page of 4 KiB for nearly every read. (Other tests run meanwhile.)
    let taken = page_tables_kib().saturating_sub(before);
    assert!(taken < NR * 4 / 2, "{taken} KiB of page tables");
}
