//! The bounds of the experiments in virtual time, as tests: the results are exact and
//! deterministic.

use super::published::{ROTATION, RUN, SMALL, TAGS, Tags};
use super::rows::{Part, Row, metric};
use super::virtual_time::{self, load};
use forebay_sim::lab::{Measured, RunCosts, RunQueue, TagLoad, WakePolicy, measure_tags};

/// Returns a shorter load than the reported one, because the build under test is slow.
fn shorter(load: TagLoad) -> TagLoad {
    TagLoad { warm_up_ns: load.warm_up_ns / 4, run_ns: load.run_ns / 6, ..load }
}

fn measure(table: &Tags, nr_jobs: u32, wake: WakePolicy) -> Measured {
    measure_tags(&shorter(load(table, nr_jobs, wake)))
}

#[track_caller]
fn check_within(what: &str, value: f64, published: f64, bound: f64) {
    let off = value / published - 1.0;
    assert!(off.abs() <= bound, "{what}: {value:.1}, published {published}: {:+.1} %", off * 100.0);
}

/// Checks the reads per second of all cells, and that the policies keep their share of the row of
/// one job.
fn check_iops(table: &Tags, loss_of_batch: std::ops::RangeInclusive<f64>) {
    let of = |jobs, wake| measure(table, jobs, wake).iops();
    let alone = of(1, WakePolicy::Batch);
    for (jobs, [before, after, ..]) in table.rows {
        let batch = of(*jobs, WakePolicy::Batch);
        let stash = of(*jobs, WakePolicy::Stash);
        let what = |policy| format!("{}, {jobs} jobs, {policy}", table.device);
        check_within(&what("batch"), batch, *before, table.bound);
        check_within(&what("stash"), stash, *after, table.bound);
        check_within(&what("stash, of 1 job"), stash, alone, 0.02);
        check_within(&what("fair, of 1 job"), of(*jobs, WakePolicy::Fair), alone, 0.02);
        let loss = 1.0 - batch / alone;
        assert!(*jobs == 1 || loss_of_batch.contains(&loss), "{} loses {loss:.3}", what("batch"));
    }
}

#[test]
fn the_disk_that_turns_loses_an_eighth_to_a_sixth_with_batches_and_nothing_with_the_others() {
    check_iops(&TAGS[0], 0.12..=0.17);
}

#[test]
fn a_disk_with_rotational_latency_fits_the_published_rows_too() {
    check_iops(&ROTATION, 0.08..=0.15);
}

#[test]
fn flash_loses_nothing() {
    check_iops(&TAGS[1], -0.01..=0.01);
    check_iops(&TAGS[2], -0.01..=0.01);
}

#[test]
fn stash_and_fair_switch_several_times_less_than_batch_with_every_sleep_counted() {
    for (table, [stash, fair]) in TAGS.iter().zip([[1.3, 6.5], [4.4, 4.4], [3.9, 3.9]]) {
        let batch = measure(table, 72, WakePolicy::Batch).switches_per_s();
        for (wake, factor) in [(WakePolicy::Stash, stash), (WakePolicy::Fair, fair)] {
            let measured = measure(table, 72, wake);
            let of_wake = measured.switches_per_s();
            assert!(measured.nr_completion_sleeps > 0, "{}: {}", table.device, wake.name());
            assert!(of_wake * factor <= batch, "{}: {of_wake} of {batch}", table.device);
        }
    }
}

#[test]
fn fair_starves_no_job_and_bounds_waits_by_twice_the_fair_share() {
    for table in &TAGS {
        for jobs in [24, 72, 1024] {
            let load = load(table, jobs, WakePolicy::Fair);
            // With 1024 jobs a job has a read in each of at least 14 rounds.
            let load = TagLoad { run_ns: load.run_ns / 3, ..load };
            let measured = measure_tags(&load);
            let share = measured.least_share();
            assert!(share >= 0.9, "{}, {jobs} jobs: {share}", table.device);
            let fair_share_ns = virtual_time::fair_wait_us(&load, &measured) * 1000.0;
            let longest_ns = measured.tag_waits.max() as f64;
            assert!(longest_ns <= 2.0 * fair_share_ns, "{}, {jobs} jobs", table.device);
        }
    }
}

#[test]
fn small_reads_never_exceed_the_device_and_stash_starves() {
    for table in &SMALL {
        let jobs = table.rows.iter().map(|(jobs, _)| *jobs).filter(|jobs| *jobs >= 128);
        for jobs in jobs.take(1) {
            let [batch, stash] =
                [WakePolicy::Batch, WakePolicy::Stash].map(|wake| measure(table, jobs, wake));
            let cap = if table.device == "nvme" { 774_000.0 } else { 198_000.0 };
            assert!(batch.iops() <= cap && stash.iops() <= cap, "{}", table.experiment);
            check_within(table.experiment, stash.iops(), batch.iops(), 0.01);
            let is_short_of_tags = table.depth > table.nr_tags;
            if is_short_of_tags && table.device == "ssd-sas" {
                assert!(stash.jain() < 0.6 && batch.jain() > 0.9, "{}", table.experiment);
                // Longer than ten times the longest wait under `batch`.
                assert!(stash.tag_waits.max() > 100 * batch.tag_waits.max() / 10);
            }
        }
    }
}

#[test]
fn a_cell_has_a_row_for_each_metric_beside_the_published_value() {
    for (wake, published) in [
        (WakePolicy::Batch, [Some(2984.0), Some(24_221.0)]),
        (WakePolicy::Stash, [Some(2990.0), Some(4054.0)]),
        (WakePolicy::Single, [None, None]),
        (WakePolicy::Fair, [None, None]),
    ] {
        let rows = virtual_time::of_cell(&TAGS[2], 72, wake);
        let names: Vec<_> = rows.iter().map(|row| row.metric).collect();
        let expected = [
            "iops",
            "context_switches_per_s",
            "tag_wait_switches_per_s",
            "completion_wait_switches_per_s",
            "run_queue_switches_per_s",
            "vain_wakeups_per_s",
            "tag_wait_p99_us",
            "tag_wait_max_us",
            "fair_wait_us",
            "jain",
            "least_job_share",
        ];
        assert_eq!(names, expected);
        assert_eq!([rows[0].published, rows[1].published], published);
        let of_cell = |row: &Row| (row.experiment, row.device, row.x, row.policy);
        assert!(rows.iter().all(|row| of_cell(row) == ("tags", "nvme", 72, wake.name())));
        let sum: f64 = rows[2..5].iter().map(|row| row.value).sum();
        assert!((rows[1].value - sum).abs() < 1e-6, "{} {sum}", rows[1].value);
        // Under the other two policies, nearly each completion frees a tag for which a thread
        // already sleeps.
        let sleeps_for_completions = matches!(wake, WakePolicy::Stash | WakePolicy::Fair);
        assert_eq!(rows[3].value > 1.0, sleeps_for_completions, "{}", wake.name());
    }
}

#[test]
fn cost_of_queueing_pending_work_gives_the_published_gains() {
    let rows = virtual_time::run();
    let gains = |part: Part| -> Vec<f64> {
        let of_part = |row: &&Row| row.part == part && row.metric == metric::GAIN;
        rows.iter().filter(of_part).map(|row| row.value).collect()
    };
    let modelled = gains(Part::VirtualModelled);
    assert_eq!(modelled.len(), RUN.len());
    for (gain, (depth, [.., published])) in modelled.iter().zip(RUN) {
        assert!((gain - published).abs() <= 10.0, "depth {depth}: {gain}");
    }
    assert!(
        gains(Part::VirtualAsItIs).iter().all(|gain| gain.abs() < 1e-9),
        "nothing was injected"
    );
    let marked = rows.iter().filter(|row| row.part == Part::VirtualModelled);
    assert!(
        marked.clone().count() > 0 && marked.clone().all(|row| row.note.starts_with("modelled"))
    );
}

#[test]
fn the_same_load_gives_the_same_figures() {
    let measured = || measure(&TAGS[2], 18, WakePolicy::Batch);
    let (one, other) = (measured(), measured());
    assert_eq!(one.ios_of_jobs, other.ios_of_jobs);
    assert_eq!((one.nr_tag_sleeps, one.nr_vain_wakes), (other.nr_tag_sleeps, other.nr_vain_wakes));
    assert_eq!(one.tag_waits.max(), other.tag_waits.max());
}

#[test]
fn the_injected_costs_are_those_that_the_published_rows_imply() {
    let costs = RunCosts::default();
    let without = costs.without_queueing();
    assert_eq!(without, RunCosts { queue_ns: 0, requeue_ns: 0, test_ns: 0, ..costs });
    // The extra time for each read at depth 1024, relative to 250k per second.
    let surplus_ns = 1e9 / RUN[3].1[0] - costs.base_ns as f64;
    assert!((0.9..=1.0).contains(&(surplus_ns / costs.requeue_ns as f64)), "{surplus_ns}");
    assert_eq!(RunQueue::ALL.map(RunQueue::name), ["always", "dedupe"]);
}
