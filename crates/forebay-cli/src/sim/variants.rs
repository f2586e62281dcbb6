//! Runs of the same jobs on several disks (`--compare`, `--sweep`), as a table.

use std::fmt::Write;

use forebay_sim::{JobDisk, Summary};

use super::settings::{self, Settings};
use crate::failure::Failure;

/// A disk that differs from the base disk by one setting.
#[derive(Debug)]
pub(super) struct Variant {
    /// The setting that differs; `(base)` if none does.
    pub(super) name: String,
    pub(super) disk: JobDisk,
}

/// Returns the disks to compare: for `--compare`, the base disk and one per setting; for `--sweep`,
/// one per value. Returns an empty list without either.
///
/// # Errors
/// A setting that is wrong or not simulated.
pub(super) fn of(
    base: &Settings,
    compare: &[String],
    sweep: Option<&str>,
) -> Result<Vec<Variant>, Failure> {
    let variant = |key: &str, value: &str| {
        let mut setting = Settings::default();
        setting.add(key, value);
        let name = format!("{key}={value}");
        base.then(&setting).disk().map(|disk| Variant { name, disk })
    };
    if let Some(text) = sweep {
        let hint = "expected KEY=A,B,C, such as queue_depth=1,8";
        let wrong = |why: String| Failure::Usage(format!("--sweep={text}: {why}"));
        let (key, values) = settings::pair(text).map_err(|_| wrong(hint.to_owned()))?;
        let is_device = key == settings::DEVICE && text.contains(':');
        if is_device {
            let why = "a comma separates values; use --compare for a device with constants";
            return Err(wrong(why.to_owned()));
        }
        return values.split(',').map(|value| variant(&key, value).map_err(wrong)).collect();
    }
    let mut variants = Vec::new();
    for text in compare {
        let found = settings::pair(text).and_then(|(key, value)| variant(&key, &value));
        variants.push(found.map_err(|why| Failure::Usage(format!("--compare={text}: {why}")))?);
    }
    if !variants.is_empty() {
        let disk = base.disk().map_err(Failure::Usage)?;
        variants.insert(0, Variant { name: "(base)".to_owned(), disk });
    }
    Ok(variants)
}

/// The run of a variant.
pub(super) struct Run {
    pub(super) name: String,
    pub(super) summary: Summary,
    /// Whether the device models latencies, so that speeds are meaningful.
    pub(super) has_times: bool,
    /// Whether all jobs run for a fixed time, so that their shares are comparable.
    pub(super) is_timed: bool,
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
pub(super) fn table(runs: &[Run]) -> String {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(runs.iter().map(cells));
    let names = ["setting"].into_iter().chain(runs.iter().map(|run| run.name.as_str()));
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

fn cells(run: &Run) -> [String; COLUMNS.len()] {
    let Run { summary, has_times, is_timed, .. } = run;
    let only_if = |is_shown: bool, text: String| if is_shown { text } else { "-".to_owned() };
    let latency = &summary.tally.latency;
    let us = |ns: u64| only_if(*has_times, format!("{:.1}", ns as f64 / 1e3));
    [
        only_if(*has_times, format!("{:.0}", summary.iops())),
        only_if(*has_times, format!("{:.1}", summary.mb_per_s())),
        us(latency.percentile(500_000)),
        us(latency.percentile(990_000)),
        us(latency.max()),
        summary.stats.issued.to_string(),
        summary.nr_merges().to_string(),
        summary.stats.tag_waits.to_string(),
        only_if(summary.nr_ios() > 0, format!("{:.2}", summary.switches_per_io())),
        only_if(*is_timed, format!("{:.2}", summary.fairness())),
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
            ["(base)", "wake=batch", "device=hdd"]
        );
        assert_eq!(names(&[], Some("queue_depth=1,64")), ["queue_depth=1", "queue_depth=64"]);
        for (wrong, why) in [
            ("wake", "--sweep=wake: expected KEY=A,B,C, such as queue_depth=1,8"),
            ("wake=lifo", "--sweep=wake=lifo: wake=lifo: expected fair,"),
            ("queue_depth=1,", "--sweep=queue_depth=1,: queue_depth=: expected a number"),
            ("device=nvme:size=1g,hdd", "a comma separates values; use --compare"),
        ] {
            let error = of(&base(), &[], Some(wrong)).expect_err(wrong).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
