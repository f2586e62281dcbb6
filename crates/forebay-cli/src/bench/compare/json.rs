//! A comparison as one JSON value. Values are not rounded, and names end with their units. An
//! infinite ratio is null, because JSON cannot represent it.

use serde_json::{Value, json};

use super::comparison::{Comparison, Row};
use super::spread::{Tolerance, Verdict};

pub(super) fn render(comparison: &Comparison) -> String {
    let side =
        |at: usize| json!({ "title": comparison.titles[at], "command": comparison.commands[at] });
    let value = json!({
        "a": side(0),
        "b": side(1),
        "workload": comparison.workload,
        "machine": comparison.machine,
        "pairs_asked": comparison.nr_asked,
        "pairs": comparison.nr_pairs,
        "notes": comparison.cautions(),
        "metrics": comparison.rows.iter().map(row).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

fn row(row: &Row) -> Value {
    let limit = |tolerance| match tolerance {
        Tolerance::AtLeast(bound) => json!({ "at_least": bound }),
        Tolerance::AtMost(bound) => json!({ "at_most": bound }),
    };
    let values = |at: usize| row.pairs.iter().map(|pair| pair[at]).collect::<Vec<_>>();
    json!({
        "metric": row.metric.key(),
        "direction": row.direction.map(|direction| direction.word()),
        "better": row.metric.better().word(),
        "a": { "median": row.medians[0], "values": values(0) },
        "b": { "median": row.medians[1], "values": values(1) },
        "ratio": row.ratio.map(|ratio| {
            let values: Vec<_> = row.ratios().collect();
            json!({
                "median": ratio.median,
                "min": ratio.min,
                "max": ratio.max,
                "interval": ratio.interval.map(|interval| json!({
                    "low": interval.low,
                    "high": interval.high,
                    "level": interval.level,
                })),
                "values": values,
            })
        }),
        "pairs": row.nr_ratios(),
        "limit": row.metric.tolerance().map(limit),
        "verdict": row.verdict.map(Verdict::word),
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples::comparison;
    use super::*;

    #[test]
    fn all_values_are_there() {
        let text = render(&comparison());
        let value: Value = text.parse().expect("JSON");
        assert_eq!((&value["pairs_asked"], &value["pairs"]), (&json!(5), &json!(5)));
        assert_eq!(value["b"]["command"], "fio --thread --name=a");
        let expected = json!({
            "metric": "cpu_us_per_io",
            "direction": null,
            "better": "lower",
            "a": { "median": 3.0, "values": [3.0, 3.0, 3.0, 3.0, 3.0] },
            "b": { "median": 5.0, "values": [5.0, 5.0, 5.0, 5.0, 5.0] },
            "ratio": {
                "median": 0.6, "min": 0.6, "max": 0.6,
                "interval": { "low": 0.6, "high": 0.6, "level": 0.9375 },
                "values": [0.6, 0.6, 0.6, 0.6, 0.6]
            },
            "pairs": 5,
            "limit": null,
            "verdict": null,
        });
        assert_eq!(value["metrics"][6], expected);
        assert_eq!(value["metrics"][0]["limit"], json!({ "at_least": 0.97 }));
        assert_eq!(value["metrics"][0]["verdict"], "undecided");
        assert_eq!(value["metrics"][4]["limit"], json!({ "at_most": 1.15 }));
    }
}
