//! I/O priorities of jobs. I/Os of different priorities do not merge, so the number of requests
//! shows the priorities that the layer got, at any speed.

use serde_json::Value;

use crate::common::{bench, bench_json, folder, stderr};

/// Returns the number of requests of one batch of 32 adjacent reads.
fn requests(args: &str) -> u64 {
    let args = format!(
        "--name=a --filename=ram:128k --scheduler=mq-deadline --rw=read --bs=4k --iodepth=32 \
         --iodepth_batch=32 {args}"
    );
    let report: Value = bench_json(&folder(), &args);
    report["forebay"][0]["requests"]["read"].as_u64().unwrap_or_else(|| panic!("{report}"))
}

#[test]
fn adjacent_reads_merge_unless_their_priorities_differ() {
    assert_eq!(requests(""), 1);
    assert_eq!(requests("--prioclass=1 --prio=3"), 1);
    assert_eq!(requests("--prioclass=3 --cmdprio_percentage=100"), 1);
    assert_eq!(requests("--cmdprio_percentage=0,100"), 1, "the percentage of writes");
    let mixed = requests("--cmdprio_percentage=50");
    assert!(mixed > 5, "{mixed}");
    assert_eq!(requests("--cmdprio_percentage=50"), mixed, "the seed determines the priorities");
    let same = "--prioclass=3 --prio=2 --cmdprio_percentage=50 --cmdprio_class=3 --cmdprio=2";
    assert_eq!(requests(same), 1);
}

#[test]
fn blocking_calls_with_priorities_verify_what_they_wrote() {
    let args = "--name=a --ioengine=psync --filename=ram:1M --rw=randwrite --verify=crc32c \
                --cmdprio_percentage=30 --scheduler=mq-deadline";
    let report = bench_json(&folder(), args);
    assert_eq!(report["jobs"][0]["write"]["total_ios"], 256, "{report}");
    assert_eq!(report["jobs"][0]["read"]["total_ios"], 256, "{report}");
    let trims = "--name=a --ioengine=sync --filename=ram:1M --rw=trim --prio=2 \
                 --scheduler=mq-deadline";
    assert_eq!(bench_json(&folder(), trims)["jobs"][0]["trim"]["total_ios"], 256);
}

#[test]
fn priorities_without_a_scheduler_that_orders_by_them_are_noted() {
    let output = bench(&folder(), "--name=a --filename=ram:1M --prioclass=1");
    let note =
        "forebay: a: its I/O priorities have no effect on ram:1M: only scheduler=mq-deadline";
    assert!(stderr(&output).contains(note), "{}", stderr(&output));
}
