//! The search on devices whose latency is known.

use super::*;

use proptest::prelude::*;

const TARGET: Duration = Duration::from_millis(10);

fn search(iodepth: u32, percentile: f64, runs_on: bool) -> Search {
    let window = Duration::from_millis(1);
    let options =
        TargetOptions { target: Some(TARGET), window, percentile: Some(percentile), runs_on };
    options.search(iodepth).expect("a target")
}

/// Records a window of at least 100 I/Os on a device that does `depth` I/Os one after another, each
/// in `service_us`. A percentage of I/Os takes long at any depth.
fn window(search: &mut Search, service_us: u64, slow_percent: u64) -> Step {
    // A window counts once it has as many I/Os as its depth.
    for io in 0..100 * u64::from(search.depth().div_ceil(100)) {
        let is_slow = io % 100 < slow_percent;
        let us = if is_slow { 1_000_000 } else { u64::from(search.depth()) * service_us };
        search.record(us * 1000);
    }
    search.end_window()
}

/// Runs a search to its end. Returns the depth and the number of windows.
fn found(mut search: Search, service_us: u64, slow_percent: u64) -> (u32, u32) {
    for windows in 1..100 {
        if window(&mut search, service_us, slow_percent) == Step::Found {
            return (search.depth(), windows);
        }
    }
    panic!("no end: {search:?}");
}

proptest! {
    #[test]
    fn greatest_depth_is_found_in_few_windows(
        iodepth in 1_u32..3000,
        service_us in 1_u64..10_000,
    ) {
        let (depth, windows) = found(search(iodepth, 100.0, false), service_us, 0);
        let greatest = u32::try_from(10_000 / service_us).unwrap_or(u32::MAX).min(iodepth);
        prop_assert_eq!(depth, greatest);
        prop_assert!(windows <= 2 * iodepth.ilog2() + 4, "{} windows", windows);
    }

    /// Whether a window meets the target is arbitrary here, as on a device without a steady
    /// latency.
    #[test]
    fn search_ends_on_any_device(results in prop::collection::vec(any::<bool>(), 2000)) {
        let mut search = search(500, 100.0, false);
        for is_met in results {
            for _ in 0..search.depth() {
                search.record(if is_met { 1 } else { u64::MAX });
            }
            prop_assert!((1..=500).contains(&search.depth()));
            match search.end_window() {
                Step::Found => return Ok(()),
                _ if search.is_hopeless() => return Ok(()),
                _ => {}
            }
        }
        prop_assert!(false, "no end");
    }
}

#[test]
fn percentile_leaves_out_the_slowest() {
    assert_eq!(found(search(64, 95.0, false), 1000, 5).0, 10);
    let mut missed = search(64, 95.0, false);
    assert_eq!(window(&mut missed, 1000, 6), Step::Continue);
    assert!(missed.is_hopeless() && missed.depth() == 1);
}

#[test]
fn window_without_an_io_counts_for_nothing() {
    let mut search = search(64, 100.0, false);
    assert_eq!((search.end_window(), search.depth()), (Step::Continue, 1));
}

#[test]
fn job_that_runs_on_follows_the_device() {
    let mut search = search(64, 100.0, true);
    let mut run = |service_us, windows| {
        (0..windows).for_each(|_| assert_ne!(window(&mut search, service_us, 0), Step::Found));
        search.depth()
    };
    let depth = run(1000, 30);
    assert!((9..=11).contains(&depth), "{depth}");
    // The device becomes slower, and then faster again.
    let depth = run(2500, 30);
    assert!((3..=5).contains(&depth), "{depth}");
    let depth = run(500, 100);
    assert!((18..=22).contains(&depth), "{depth}");
}

#[test]
fn window_with_fewer_ios_than_its_depth_goes_on() {
    let mut search = search(8, 100.0, false);
    assert_eq!(window(&mut search, 1, 0), Step::Restart);
    assert_eq!(search.depth(), 2);
    search.record(1);
    assert_eq!((search.end_window(), search.depth()), (Step::Continue, 2));
    search.record(1);
    assert_eq!((search.end_window(), search.depth()), (Step::Restart, 4));
}

#[test]
fn job_that_may_exceed_no_target_fails_at_a_depth_of_1_and_one_that_runs_on_recovers() {
    let slow = TARGET.as_micros() as u64 * 2;
    assert_eq!(window(&mut search(8, 100.0, false), slow, 0), Step::Missed);
    let mut some = search(8, 90.0, false);
    assert_eq!(window(&mut some, slow, 0), Step::Continue);
    assert!(some.is_hopeless());
    let mut runs_on = search(8, 100.0, true);
    assert_eq!(window(&mut runs_on, slow, 0), Step::Continue);
    for _ in 0..8 {
        assert_eq!(window(&mut runs_on, 10, 0), Step::Continue);
    }
    assert!(!runs_on.is_hopeless());
    assert!(runs_on.depth() > 1, "one bad window does not limit the rest");
}
