//! Unit tests of `comparison`.

use super::super::samples::measured;
use super::*;

#[test]
fn a_row_has_medians_and_ratios_pair_by_pair() {
    let rows = rows(&measured());
    let titles: Vec<_> = rows.iter().map(Row::title).collect();
    assert_eq!(titles[0], "IOPS");
    assert!(!titles.contains(&"merges per I/O".to_owned()), "{titles:?}");
    let iops = &rows[0];
    assert_eq!(iops.medians, [Some(102_000.0), Some(100_000.0)]);
    assert_eq!(iops.verdict, Some(Verdict::Undecided), "one pair is at 0.9");
    assert_eq!(iops.ratios().count(), 5);
}

#[test]
fn figure_missing_on_one_side_has_no_ratio() {
    let rows = rows(&Measured { before: Default::default(), ..measured() });
    let calls = rows.iter().find(|row| row.metric == Metric::Syscalls).expect("a row");
    assert_eq!((calls.medians[1], calls.ratio, calls.verdict), (None, None, None));
}

/// Returns the sample measurement with writes on the sides for which `has_writes`.
fn with_writes(has_writes: impl Fn(usize, usize) -> bool) -> Measured {
    let mut measured = measured();
    for (nth, pair) in measured.pairs.iter_mut().enumerate() {
        for (side, run) in pair.iter_mut().enumerate() {
            if has_writes(nth, side) {
                let mut more = run.sample.directions[0].clone();
                more.direction = Direction::Write;
                run.sample.directions.push(more);
            }
        }
    }
    measured
}

fn write_row(rows: &[Row], metric: Metric) -> &Row {
    let is_it = |row: &&Row| (row.metric, row.direction) == (metric, Some(Direction::Write));
    rows.iter().find(is_it).expect("a row")
}

#[test]
fn direction_without_io_on_one_side_is_zero_iops() {
    let only_b = rows(&with_writes(|_, side| side == 1));
    for metric in [Metric::Iops, Metric::Bandwidth] {
        let row = write_row(&only_b, metric);
        assert_eq!(row.medians[0], Some(0.0));
        assert_eq!(row.ratio.map(|ratio| (ratio.min, ratio.max)), Some((0.0, 0.0)));
        assert_eq!(row.verdict, Some(Verdict::Worse));
    }
    let only_a = rows(&with_writes(|_, side| side == 0));
    let row = write_row(&only_a, Metric::Iops);
    assert_eq!(row.ratio.map(|ratio| ratio.median), Some(f64::INFINITY));
    assert_eq!(row.verdict, Some(Verdict::Ok));
    // A does no writes in one pair of five.
    let rows = rows(&with_writes(|nth, side| nth > 0 || side == 1));
    let ratio = write_row(&rows, Metric::Iops).ratio.expect("pairs");
    assert_eq!((ratio.min, ratio.interval.map(|interval| interval.low)), (0.0, Some(0.0)));
}

#[test]
fn latency_without_a_sample_on_one_side_is_undecided() {
    for only in [0, 1] {
        let rows = rows(&with_writes(|_, side| side == only));
        for metric in [Metric::P50, Metric::P99] {
            let row = write_row(&rows, metric);
            assert_eq!((row.ratio, row.verdict), (None, Some(Verdict::Undecided)));
        }
        assert_eq!(write_row(&rows, Metric::Mean).medians[1 - only], None);
    }
    // Nine pairs with a ratio would decide, but the tenth has none.
    let mut pairs = vec![[Some(1.0), Some(1.0)]; 9];
    assert_eq!(Row::new(Metric::P99, None, pairs.clone()).verdict, Some(Verdict::Ok));
    pairs.push([Some(1.0), None]);
    assert_eq!(Row::new(Metric::P99, None, pairs).verdict, Some(Verdict::Undecided));
    // Without latencies on either side there is nothing to judge.
    assert_eq!(Row::new(Metric::P99, None, vec![[None; 2]; 5]).verdict, None);
}

#[test]
fn caution_shows_small_ratios_with_their_digits() {
    let mut comparison = super::super::samples::comparison();
    let ratios = [0.001, 0.002, 0.002, 0.002, 0.004];
    comparison.rows[0].ratio = Spread::of(ratios);
    let cautions = comparison.cautions();
    assert!(cautions[0].contains(" range from 0.0010 to 0.0040: "), "{cautions:?}");
}

#[test]
fn hardly_any_of_either_have_no_ratio() {
    let row = |a, b| Row::new(Metric::Switches, None, vec![[Some(a), Some(b)]; 5]);
    assert_eq!(row(0.0002, 0.0008).ratio, None);
    assert_eq!(row(0.0002, 1.0).ratio.map(|ratio| ratio.median), Some(0.0002));
}

#[test]
fn directions_are_named_if_there_are_several() {
    let titles: Vec<_> = rows(&with_writes(|_, _| true)).iter().map(Row::title).collect();
    assert!(titles.contains(&"read latency p99, us".to_owned()), "{titles:?}");
    assert!(titles.contains(&"write IOPS".to_owned()), "{titles:?}");
    assert!(titles.contains(&"CPU per I/O, us".to_owned()), "{titles:?}");
}
