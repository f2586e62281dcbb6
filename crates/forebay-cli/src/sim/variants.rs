//! The same jobs on several disks: `--compare` and `--sweep`, as a table.

use std::fmt::Write;

use forebay_sim::{Summary, lab};

use super::disk::{self, Settings};
use crate::failure::Failure;

/// A disk that differs from the first one by some settings.
#[derive(Debug)]
pub(super) struct Variant {
    /// The settings that differ; `as given` if none do.
    pub(super) name: String,
    pub(super) settings: Settings,
}

/// Returns the disks to compare: that of `base` and one for each `--compare`, or one for each value
/// of the `--sweep`. Empty without either.
///
/// # Errors
/// A setting that is wrong or not simulated.
pub(super) fn of(
    base: &Settings,
    compare: &[String],
    sweep: Option<&str>,
) -> Result<Vec<Variant>, Failure> {
    let variant = |option: &str, key: &str, value: &str| {
        let mut settings = Settings::default();
        settings.add(key, value);
        let settings = base.and(&settings);
        let wrong = |error| Failure::Usage(format!("{option}: {error}"));
        settings.disk().map_err(wrong)?;
        Ok(Variant { name: format!("{key}={value}"), settings })
    };
    let parsed = |option: &str, text: &str| {
        disk::pair(text).map_err(|error| Failure::Usage(format!("{option}={text}: {error}")))
    };
    if let Some(text) = sweep {
        let (key, values) = parsed("--sweep", text)?;
        return values.split(',').map(|value| variant("--sweep", &key, value)).collect();
    }
    let mut variants = Vec::new();
    for text in compare {
        let (key, value) = parsed("--compare", text)?;
        variants.push(variant("--compare", &key, &value)?);
    }
    if !variants.is_empty() {
        variants.insert(0, Variant { name: "as given".to_owned(), settings: base.clone() });
    }
    Ok(variants)
}

/// The columns after the name.
const COLUMNS: [&str; 10] = [
    "IOPS",
    "MB/s",
    "p50 us",
    "p99 us",
    "max us",
    "requests",
    "merges",
    "tag waits",
    "switches/IO",
    "fairness",
];

/// Returns the table of the runs.
pub(super) fn table(runs: &[(String, Summary)]) -> String {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(runs.iter().map(|(_, summary)| cells(summary)));
    let names = ["setting"].into_iter().chain(runs.iter().map(|(name, _)| name.as_str()));
    let width = names.clone().map(str::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (name, row) in names.zip(&rows) {
        // Writing into a String does not fail.
        let _ = write!(text, "{name:<width$}");
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

fn cells(summary: &Summary) -> [String; COLUMNS.len()] {
    let Summary { tally, stats, now_ns, .. } = summary;
    let seconds = (*now_ns as f64 / 1e9).max(1e-9);
    let ios: u64 = tally.ios_of_tasks.iter().sum();
    let merges: u64 = forebay::MergeKind::ALL.iter().map(|&kind| stats.merges(kind)).sum();
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    [
        format!("{:.0}", ios as f64 / seconds),
        format!("{:.1}", tally.bytes as f64 / 1e6 / seconds),
        us(tally.latency.percentile(500_000)),
        us(tally.latency.percentile(990_000)),
        us(tally.latency.max()),
        stats.issued.to_string(),
        merges.to_string(),
        stats.tag_waits.to_string(),
        format!("{:.2}", summary.nr_sleeps as f64 / (ios as f64).max(1.0)),
        format!("{:.2}", lab::jain(&tally.ios_of_tasks)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Settings {
        let mut base = Settings::default();
        base.add("device", "nvme");
        base
    }

    fn names(compare: &[&str], sweep: Option<&str>) -> Vec<String> {
        let compare: Vec<_> = compare.iter().map(|text| (*text).to_owned()).collect();
        let variants = of(&base(), &compare, sweep).expect("good settings");
        variants.into_iter().map(|variant| variant.name).collect()
    }

    #[test]
    fn variants_have_the_setting_that_differs_as_their_name() {
        assert_eq!(names(&[], None), [""; 0]);
        assert_eq!(
            names(&["wake=batch", "device=hdd"], None),
            ["as given", "wake=batch", "device=hdd"]
        );
        assert_eq!(names(&[], Some("queue_depth=1,64")), ["queue_depth=1", "queue_depth=64"]);
        for wrong in ["wake", "wake=lifo", "kick=deferred", "queue_depth="] {
            let error = of(&base(), &[], Some(wrong)).expect_err(wrong).to_string();
            assert!(error.starts_with("--sweep"), "{error}");
        }
    }
}
