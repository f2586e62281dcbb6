//! Processor costs of jobs, in virtual time.

use forebay_fio::cmdline::{Parsed, parse};
use forebay_sim::{CpuCosts, JobDisk, Summary, run_jobs};
use std::ffi::OsString;

const NR_IOS: u64 = 100;

/// Runs `numjobs` jobs of [`NR_IOS`] reads each, one at a time, on a device with a latency of 1 us.
fn run(numjobs: u32, cpu: CpuCosts) -> Summary {
    let numjobs = format!("--numjobs={numjobs}");
    let number_ios = format!("--number_ios={NR_IOS}");
    let options = ["--name=a", "--rw=randread", "--bs=4k", "--size=64m", &number_ios, &numjobs];
    let Ok(Parsed::Run(command)) = parse(options.map(OsString::from)) else {
        panic!("the options are valid")
    };
    let device = "fixed:latency_ns=1000,channels=64".parse().expect("a device");
    let mut disk = JobDisk::new(device);
    disk.cpu = Some(cpu);
    let outcome = run_jobs(&command.jobs, 1, &disk, None).expect("a simulated load");
    outcome.expect("no rule is broken")
}

#[test]
fn each_cost_of_an_io_adds_its_time_to_a_job_that_waits_for_each_io() {
    let cheap = CpuCosts { submit_ns: 1, ..CpuCosts::default() };
    let before_ns = run(1, cheap).now_ns;
    for dear in [
        CpuCosts { submit_ns: 10_001, ..cheap },
        CpuCosts { request_ns: 10_000, ..cheap },
        CpuCosts { complete_ns: 10_000, ..cheap },
        CpuCosts { reap_ns: 10_000, ..cheap },
    ] {
        let took_ns = run(1, dear).now_ns - before_ns;
        // The device works while the job issues a request: that hides a microsecond.
        let least_ns = NR_IOS * 8_900;
        assert!((least_ns..=NR_IOS * 10_100).contains(&took_ns), "{dear:?}: {took_ns}");
    }
}

#[test]
fn submissions_of_tasks_overlap_and_turns_of_a_shared_context_do_not() {
    let submissions = CpuCosts { submit_ns: 10_000, ..CpuCosts::default() };
    let alone_ns = run(1, submissions).now_ns;
    assert!(run(8, submissions).now_ns < alone_ns * 2);
    let turns = CpuCosts { submit_ns: 1, turn_ns: 10_000, ..CpuCosts::default() };
    let summary = run(8, turns);
    assert!(summary.now_ns >= summary.stats.turns * turns.turn_ns, "{}", summary.now_ns);
}

#[test]
fn layer_alone_passes_a_million_ios_per_second_with_the_measured_costs() {
    let summary = run(8, CpuCosts::OF_NULL);
    let iops = summary.nr_ios() as f64 * 1e9 / summary.now_ns as f64;
    assert!((1e6..2e7).contains(&iops), "{iops}");
}
