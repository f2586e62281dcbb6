//! Unit tests of `report`.

use super::super::rows::{Bound, Part, sample};
use super::*;

fn rows() -> Vec<Row> {
    let batch = Row { note: "because".to_owned(), ..sample() };
    let over = Row { value: 90.0, x: 1, ..batch.clone() };
    let fair = Row { policy: "fair", published: None, note: String::new(), ..sample() };
    let jain = Row { metric: metric::JAIN, value: 0.25, ..fair.clone() };
    vec![over, batch, fair, jain]
}

#[test]
fn json_is_an_array_of_rows_with_these_keys() {
    let printed = print(&rows(), Format::Json, |_, _| unreachable!("JSON has no titles"));
    let value: Value = printed.parse().expect("JSON");
    let array = value.as_array().expect("an array");
    assert_eq!(array.len(), 4);
    let keys: Vec<_> = array[0].as_object().expect("an object").keys().collect();
    let expected = [
        "experiment",
        "device",
        "x",
        "metric",
        "policy",
        "value",
        "published",
        "note",
        "basis",
        "constants",
    ];
    assert_eq!(keys, expected);
    assert_eq!((&array[1]["basis"], &array[2]["basis"]), (&json!("fitted"), &json!("predicted")));
    assert_eq!(array[1]["constants"][0], "hdd.seek_ns");
    assert_eq!(array[0]["value"], 90.0);
    assert_eq!((&array[2]["published"], &array[2]["note"]), (&Value::Null, &json!("")));
}

#[test]
fn text_puts_published_and_measured_side_by_side() {
    let printed =
        print(&rows(), Format::Text, |experiment, device| format!("{experiment} on {device}"));
    let expected = "\
tags on hdd; virtual time

iops; jobs  published before  batch         deviation   fair
1                      100.0   90.0  -10.0 % ! fitted
72                     100.0  101.0     +1.0 % fitted  101.0

jain; jobs   fair
72          0.250

  iops; batch; at 1, 72: because

Constants. A row that no constant was fitted to is a prediction.

  hdd.seek_ns = 1900000: fitted to tags, hdd, iops; batch; at 1, 24, 48, 72: \
";
    assert!(printed.starts_with(expected), "{printed}");
    assert!(printed.contains("\n  thread.wake_min_ns = 5000: not fitted: usual\n"), "{printed}");
}

#[test]
fn rows_say_whether_they_are_predictions() {
    let stash = Row { policy: "stash", value: 99.0, ..sample() };
    assert_eq!(deviation(&stash), "-1.0 % predicted");
    assert_eq!(deviation(&sample()), "+1.0 % fitted");
    assert_eq!(deviation(&Row { part: Part::Real, ..stash }), "-1.0 %");
}

#[test]
fn a_deviation_of_nothing_is_not_negative() {
    let row = Row { value: 99.999, part: Part::Real, ..sample() };
    assert_eq!(deviation(&row), "+0.0 %");
    assert_eq!(deviation(&Row { value: 99.0, ..row.clone() }), "-1.0 %");
    let ratio = Row {
        metric: metric::IOPS_OF_HOLD,
        published: Some(0.8),
        bound: Some(Bound::Points(0.1)),
        ..row
    };
    assert_eq!(deviation(&Row { value: 0.7999, ..ratio.clone() }), "+0.000");
    assert_eq!(deviation(&Row { value: 0.69, ..ratio }), "-0.110 !");
}

#[test]
fn markdown_is_a_table_of_pipes() {
    let printed = print(&rows(), Format::Markdown, |_, _| "title".to_owned());
    assert!(
        printed.starts_with("## title; virtual time\n\n| iops; jobs | published before | batch |")
    );
    assert!(printed.contains("\n| ---: | ---: | ---: | ---: | ---: |\n"), "{printed}");
    assert!(printed.contains("| 1 | 100.0 | 90.0 | -10.0 % ! fitted |  |"), "{printed}");
    assert!(printed.contains("\n- iops; batch; at 1, 72: because\n"));
}
