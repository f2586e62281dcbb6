//! Jobs with limits and weights as owners of I/O, in virtual time.

use forebay_fio::cmdline::{Parsed, parse};
use forebay_sim::{JobDisk, JobError, Summary, Wake, WakePolicy, run_jobs};
use std::ffi::OsString;

const LATENCY_NS: u64 = 10_000;

/// Runs a job of random reads of 4 KiB, with these options too.
fn run(options: &str) -> Summary {
    match try_run(options, |_| ()) {
        Ok(summary) => summary,
        Err(error) => panic!("{options}: {error}"),
    }
}

fn try_run(options: &str, set: impl Fn(&mut JobDisk)) -> Result<Summary, JobError> {
    let usual = ["--name=a", "--rw=randread", "--bs=4k", "--size=64m"];
    let options = usual.into_iter().chain(options.split_whitespace());
    let Ok(Parsed::Run(command)) = parse(options.map(OsString::from)) else {
        panic!("the options are valid")
    };
    let device = format!("fixed:latency_ns={LATENCY_NS},channels=64").parse();
    let mut disk = JobDisk::new(device.expect("a device"));
    set(&mut disk);
    Ok(run_jobs(&command.jobs, 1, &disk, None)?.expect("no rule is broken"))
}

/// Checks that a run took this time, apart from the last I/O and some steps.
fn check_time(options: &str, expected_ns: u64) {
    let took_ns = run(options).now_ns;
    let most_ns = expected_ns + LATENCY_NS + 20_000;
    assert!((expected_ns..=most_ns).contains(&took_ns), "{options}: {took_ns} of {expected_ns}");
}

#[test]
fn limits_of_jobs_are_exact() {
    // The first I/O of an owner starts at once, and then one at a time.
    let iops = "--number_ios=501 --iodepth=8 --throttle_iops=1000 --throttle_iops_burst=0";
    check_time(iops, 500_000_000);
    check_time(&format!("{iops} --numjobs=3"), 500_000_000);
    let burst = "--number_ios=501 --iodepth=8 --throttle_read_iops=1000 \
                 --throttle_read_iops_burst=100";
    check_time(burst, 400_000_000);
    let bytes = "--number_ios=257 --iodepth=4 --throttle_bps=1m --throttle_bps_burst=0";
    check_time(bytes, 1_000_000_000);
    let summary = run("--number_ios=20 --throttle_write_iops=1");
    assert_eq!(summary.stats.limit_waits, 0, "reads are not writes");
}

#[test]
fn weights_of_jobs_divide_the_tags() {
    let options = "--time_based --runtime=1 --iodepth=16 --weight=100 --name=b --rw=randread \
                   --bs=4k --size=64m --time_based --runtime=1 --iodepth=16 --weight=300";
    let set = |disk: &mut JobDisk| disk.policy.queue_depth = 4;
    let summary = try_run(options, set).unwrap_or_else(|error| panic!("{error}"));
    let [light, heavy] = summary.tally.ios_of_tasks[..] else { panic!("two jobs") };
    let ratio = heavy as f64 / light as f64;
    assert!((2.9..3.1).contains(&ratio), "{light} and {heavy}");
}

#[test]
fn owners_are_refused_where_the_layer_has_none() {
    let error = |options: &str, set: fn(&mut JobDisk)| match try_run(options, set) {
        Ok(_) => panic!("{options}"),
        Err(error) => error.to_string(),
    };
    let batch = |disk: &mut JobDisk| disk.set_wake(Wake::OfDisk(WakePolicy::Batch));
    assert_eq!(
        error("--throttle_iops=7", batch),
        "a: wake=batch: expected fair beside throttle_iops; leave one of them out"
    );
    let contexts = |disk: &mut JobDisk| disk.policy.nr_hw_queues = 2;
    assert_eq!(
        error("--weight=7", contexts),
        "a: nr_hw_queues=2: expected 1 beside a weight, which orders the I/O of one context"
    );
    assert_eq!(error("--weight=0", |_| ()), "a: weight=0: expected a number from 1 to 10000");
}
