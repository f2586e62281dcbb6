//! The report of one run of a job file or a recorded load, as text.

use std::fmt::Write;

use forebay_sim::{LateRequest, Summary};

use super::run::Run;
use super::threads;

/// Returns the report of one run of a job file or a recorded load.
pub(super) fn text(run: Run<'_>, replay: &str) -> String {
    let summary = run.summary;
    let Summary { stats, tally, now_ns, nr_bios, .. } = summary;
    let seconds = *now_ns as f64 / 1e9;
    let merges = summary.nr_merges();
    let us = |ns: u64| ns as f64 / 1e3;
    let mut text = String::new();
    // Writing into a String does not fail.
    let _ = writeln!(text, "seed {}: no rule is broken", summary.seed);
    let _ = writeln!(
        text,
        "  virtual time : {seconds:.6} s, {} steps\n  \
           bios         : {nr_bios}, {} failed{}",
        summary.nr_steps,
        tally.nr_failed,
        statuses(tally.failures().map(|(status, nr)| (status.name(), nr))),
    );
    if let Some(load) = run.load.recorded() {
        let _ = writeln!(text, "  recording    : {}", threads::about(load));
    }
    for (rule, nr) in &summary.faults {
        let _ = writeln!(text, "  faults       : {nr} by {rule}");
    }
    text += &late(summary);
    text += &match run.has_times() {
        true => speed(&run),
        false => "  speed        : not shown: this device has random latencies\n".to_owned(),
    };
    for note in run.notes() {
        let _ = writeln!(text, "  note         : {note}");
    }
    let _ = writeln!(
        text,
        "  requests     : issued={}, commits={}, merges={merges}, splits={}, requeues={}, \
           retries={}\n  \
           tag waits    : {}, {:.1} us in total\n  \
           queue runs   : {}, {} of them skipped because another task was running the queue\n  \
           turns        : {}, {} of them empty\n  \
           flushes      : requested={}, issued={}, joined={}, elided={}\n  \
           checked      : {} blocks read, {} crash points, {} writes durable\n  \
           trace hash   : {:016x}\n  \
           replay with  : {replay}",
        stats.issued,
        stats.commits,
        stats.splits,
        stats.requeues,
        stats.retries,
        stats.tag_waits,
        us(stats.tag_wait_ns),
        stats.runs_made + summary.skipped_runs,
        summary.skipped_runs,
        stats.turns,
        stats.empty_turns,
        stats.flushes_asked,
        stats.flushes_issued,
        stats.flushes_joined,
        stats.flushes_elided,
        summary.nr_blocks_read,
        summary.nr_crash_points,
        summary.nr_promises,
        summary.hash,
    );
    text
}

/// Returns the number of failed bios of each status, in parentheses; nothing if none failed.
pub(super) fn statuses(failures: impl Iterator<Item = (&'static str, u64)>) -> String {
    let failures: Vec<_> = failures.map(|(status, nr)| format!("{nr} {status}")).collect();
    match failures.is_empty() {
        true => String::new(),
        false => format!(" ({})", failures.join(", ")),
    }
}

/// Returns the lines of requests over their time limit, and of a device that is gone.
fn late(summary: &Summary) -> String {
    let (late, mut text) = (&summary.late, String::new());
    // Writing into a String does not fail.
    if summary.stats.timeouts > 0 {
        let _ = writeln!(
            text,
            "  timeouts     : {} over the time limit, {} cancelled, {} bios ended early",
            summary.stats.timeouts, late.nr_cancelled, summary.stats.early_ends,
        );
    }
    for LateRequest { op, start, len, stage, .. } in &late.first {
        let stage = stage.name();
        let _ = writeln!(text, "  late         : {} of {len} bytes at {start}: {stage}", op.name());
    }
    if summary.is_device_gone {
        text += "  device       : gone at the end: new I/O ends with offline\n";
    }
    text
}

/// Returns the lines of IOPS and latencies, for a device with realistic times.
fn speed(run: &Run<'_>) -> String {
    let summary = run.summary;
    let latency = run.latencies();
    let us = |ns: u64| ns as f64 / 1e3;
    let fairness = run.fairness();
    let fairness = fairness.map_or(String::new(), |index| format!(", fairness {index:.2}"));
    let flush = &summary.tally.flush_latency;
    let flushes = match flush.count() {
        0 => String::new(),
        _ => format!(
            "  flushes (us) : avg={:.1}, p50={:.1}, p99={:.1}, max={:.1}\n",
            us(flush.mean()),
            us(flush.percentile(500_000)),
            us(flush.percentile(990_000)),
            us(flush.max()),
        ),
    };
    let late = run.lateness().map_or(String::new(), |late| {
        format!(
            "  late (us)    : avg={:.1}, p50={:.1}, p99={:.1}, max={:.1}\n",
            late.mean / 1e3,
            us(late.p50),
            us(late.p99),
            us(late.max),
        )
    });
    format!(
        "  speed        : {:.0} IOPS, {:.1} MB/s\n  \
           latency (us) : avg={:.1}, p50={:.1}, p99={:.1}, max={:.1}\n{late}  \
           threads      : {:.2} voluntary switches per I/O{fairness}\n{flushes}",
        summary.iops(),
        summary.mb_per_s(),
        latency.mean / 1e3,
        us(latency.p50),
        us(latency.p99),
        us(latency.max),
        summary.switches_per_io(),
    )
}
