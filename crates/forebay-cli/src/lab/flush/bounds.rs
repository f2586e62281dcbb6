//! The bounds of the experiment in virtual time, as tests: the results are exact and deterministic.

use super::super::rows::Deviation;
use super::*;
use std::sync::OnceLock;

/// Returns the rows, which all tests share.
fn all() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(super::virtual_time)
}

#[test]
fn each_cell_has_a_row_of_each_metric() {
    let rows = all();
    for (experiment, ..) in SHAPES {
        for Side { name, .. } in SIDES {
            for x in THREADS {
                let of_cell = |row: &&Row| {
                    (row.experiment, row.device, row.policy, row.x) == (experiment, "sata", name, x)
                };
                let metrics: Vec<_> = rows.iter().filter(of_cell).map(|row| row.metric).collect();
                let is_hold = name == "hold";
                let mut expected = vec![metric::IOPS];
                expected.extend((!is_hold).then_some(metric::IOPS_OF_HOLD));
                expected.push(metric::IOPS_OF_ONE);
                let has_form = experiment == "flush-each";
                expected.extend(has_form.then_some(metric::CLOSED_FORM));
                expected.extend([
                    metric::FSYNC_P50,
                    metric::FSYNC_P99,
                    metric::FLUSHES_ASKED,
                    metric::FLUSHES_ISSUED,
                    metric::FLUSHES_JOINED,
                    metric::FLUSHES_ELIDED,
                    metric::REQUEUES,
                ]);
                assert_eq!(metrics, expected, "{experiment}, {name}, {x}");
            }
        }
    }
}

#[test]
fn tail_is_compared_with_the_published_fifth_and_deviations_have_reasons() {
    let rows = all();
    let published: Vec<_> = rows.iter().filter(|row| row.published.is_some()).collect();
    let [each, rounds] = published[..] else { panic!("{published:?}") };
    for row in [each, rounds] {
        assert_eq!((row.metric, row.policy, row.x), (metric::IOPS_OF_HOLD, "tail", 16));
        assert_eq!(row.published, Some(0.8));
        assert_eq!(row.note.is_empty(), !row.is_over(), "{row:?}");
    }
    assert!((0.70..=0.90).contains(&each.value), "{each:?}");
    assert!(matches!(each.deviation(), Some(Deviation::Points(_))));
}

#[test]
fn gain_of_more_threads_is_the_computed_one() {
    let rows = all();
    let of = |metric| rows.iter().filter(move |row| row.metric == metric);
    let mut nr = 0;
    for computed in of(metric::CLOSED_FORM) {
        let key = |row: &&Row| {
            (row.experiment, row.policy, row.x)
                == (computed.experiment, computed.policy, computed.x)
        };
        let measured = of(metric::IOPS_OF_ONE).find(key).expect("each was measured");
        let off = measured.value / computed.value - 1.0;
        assert!(off.abs() < 0.01, "{measured:?}, {}", computed.value);
        nr += 1;
    }
    assert_eq!(nr, 12, "four policies, 1, 16 and 64 threads");
}

#[test]
fn hold_and_requeue_differ_by_requeues_and_eliding_costs_nothing() {
    let rows = all();
    for experiment in ["flush-each", "flush-100"] {
        let value = |policy, metric| {
            let is_it = |row: &&Row| {
                (row.experiment, row.policy, row.x, row.metric) == (experiment, policy, 16, metric)
            };
            rows.iter().find(is_it).expect("a row").value
        };
        assert_eq!(value("requeue", metric::IOPS_OF_HOLD), 1.0);
        assert!(value("requeue", metric::REQUEUES) > value("hold", metric::REQUEUES));
        assert!(value("hold+elide", metric::IOPS_OF_HOLD) > 1.0);
        let issued = |policy| value(policy, metric::FLUSHES_ISSUED);
        assert!(issued("hold+elide") < issued("hold") && issued("hold") <= issued("tail"));
    }
}
