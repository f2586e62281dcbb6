//! Sequential readers with weights on a rotational disk, in virtual time.

use forebay_core::{Policy, SchedulerPolicy};
use forebay_fio::cmdline::{Parsed, parse};
use forebay_sim::{JobDisk, run_jobs};
use std::ffi::OsString;

/// The disk of the figure `sched`: 7,200 turns per minute, and a mean seek of 8.2 ms.
const HDD: &str = "hdd:seek_ns=1000000,stroke_ns=13500000,turn_ns=8333333";

/// Returns the I/Os of 128 KiB that each reader made in a minute, by weights.
fn ios(scheduler: SchedulerPolicy, nr_sorted: u32, iodepth: u32, weights: &[u32]) -> Vec<u64> {
    let job = |(nth, weight): (usize, &u32)| {
        format!(
            "--name=r{nth} --rw=read --bs=128k --size=100g --offset={}g --time_based --runtime=60 \
             --iodepth={iodepth} --weight={weight}",
            400 * nth
        )
    };
    let options: Vec<String> = weights.iter().enumerate().map(job).collect();
    let options = options.join(" ");
    let Ok(Parsed::Run(command)) = parse(options.split_whitespace().map(OsString::from)) else {
        panic!("the options are valid")
    };
    let mut disk = JobDisk::new(format!("{HDD},nr_sorted={nr_sorted}").parse().expect("a device"));
    disk.policy = Policy::default().scheduler(scheduler).nr_requests(Some(64));
    disk.policy.device_depth = Some(nr_sorted);
    let run = run_jobs(&command.jobs, 1, &disk, None);
    let summary = run.unwrap_or_else(|error| panic!("{error}")).expect("no rule is broken");
    summary.tally.ios_of_tasks.clone()
}

/// Returns the ratio of the heavy reader's bytes to the light one's, and both in percent of those
/// of one reader alone.
fn shares(scheduler: SchedulerPolicy, nr_sorted: u32, iodepth: u32) -> (f64, f64) {
    let alone = ios(scheduler, nr_sorted, iodepth, &[100])[0];
    let [light, heavy] = ios(scheduler, nr_sorted, iodepth, &[100, 400])[..] else {
        panic!("two readers")
    };
    (heavy as f64 / light as f64, 100.0 * (light + heavy) as f64 / alone as f64)
}

#[test]
fn bfq_divides_a_turning_disk_by_weight_and_keeps_its_throughput() {
    for (nr_sorted, iodepth) in [(1, 1), (32, 16)] {
        let (ratio, percent) = shares(SchedulerPolicy::Bfq, nr_sorted, iodepth);
        assert!((3.8..=4.2).contains(&ratio), "depth {iodepth}: {ratio}");
        assert!(percent >= 85.0, "depth {iodepth}: {percent} %");
    }
    // For comparison: the arm moves for each I/O, and weights have no effect without a wait for
    // tags.
    let (ratio, percent) = shares(SchedulerPolicy::MqDeadline, 1, 1);
    assert!((0.95..=1.05).contains(&ratio) && percent < 10.0, "{ratio}, {percent} %");
}
