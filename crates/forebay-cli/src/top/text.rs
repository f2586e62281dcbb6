//! One sample as text, for `--once`.

use super::columns::{Column, DISKS, EXPORTS, OWNERS, count, percent, time_of, uptime, wait_text};
use super::sample::{DiskSample, Sample};
use crate::table::aligned;

/// Returns the text of a sample.
pub(super) fn of(sample: &Sample) -> String {
    let mut text = title(sample) + "\n";
    if sample.disks.is_empty() {
        text.push_str("\nno disk is open\n");
    }
    section(&mut text, &DISKS, &sample.disks);
    section(&mut text, &EXPORTS, &sample.exports);
    section(&mut text, &OWNERS, &sample.owners);
    for disk in &sample.disks {
        text += &format!("\n{}\n{}", disk.spec, details(disk));
    }
    text
}

/// Returns the first line: the process, and the time.
pub(super) fn title(sample: &Sample) -> String {
    let process = &sample.process;
    format!(
        "{} {} (forebay {}), up {}, CPU {}, over {:.1} s",
        process.name,
        process.pid,
        process.version,
        uptime(process.uptime_seconds),
        percent(process.cpus),
        sample.seconds
    )
}

/// Appends a table with all columns, unless it has no rows.
fn section<T>(text: &mut String, columns: &[Column<T>], rows: &[T]) {
    if rows.is_empty() {
        return;
    }
    let head = columns.iter().map(|column| column.title.to_owned()).collect();
    let cells = |row: &T| columns.iter().map(|column| (column.cell)(row)).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(cells)).collect();
    *text += &format!("\n{}", aligned(&rows, ""));
}

/// Returns the stages of a disk's requests, and what they waited for.
fn details(disk: &DiskSample) -> String {
    let head = ["stage", "per s", "mean", "p50", "p99"].map(str::to_owned).to_vec();
    let stages = disk.stages.iter().map(|stage| stage_row(stage).to_vec());
    let rows: Vec<_> = std::iter::once(head).chain(stages).collect();
    let mut text = aligned(&rows, "  ");
    for (name, list) in lists(disk) {
        text += &format!("  {name:<9} {list}\n");
    }
    text
}

/// Returns the row of a stage.
pub(super) fn stage_row(stage: &super::sample::StageSample) -> [String; 5] {
    [
        stage.stage.clone(),
        count(stage.per_second),
        time_of(stage, stage.mean_ns),
        time_of(stage, stage.p50_ns as f64),
        time_of(stage, stage.p99_ns as f64),
    ]
}

/// Returns the rates of a disk that are lists, each with its name. Those of 0 are left out.
pub(super) fn lists(disk: &DiskSample) -> [(&'static str, String); 5] {
    let waits = disk.waits.iter().filter(|wait| wait.per_second > 0.0);
    let waits = waits.map(|wait| format!("{} {}", wait.cause, wait_text(wait)));
    let other = [
        ("splits", disk.splits),
        ("requeues", disk.requeues),
        ("retries", disk.retries),
        ("timeouts", disk.timeouts),
    ];
    let flushes = disk.flushes.iter().map(|(name, rate)| (*name, *rate));
    let owned = |rates: &std::collections::BTreeMap<String, f64>| {
        rates_text(rates.iter().map(|(name, rate)| (name.as_str(), *rate)))
    };
    [
        ("waits", or_none(waits.collect())),
        ("flushes", rates_text(flushes)),
        ("merges", owned(&disk.merges)),
        ("unplugs", owned(&disk.unplugs)),
        ("other", rates_text(other.into_iter())),
    ]
}

fn rates_text<'a>(rates: impl Iterator<Item = (&'a str, f64)>) -> String {
    let rates = rates.filter(|(_, rate)| *rate > 0.0);
    or_none(rates.map(|(name, rate)| format!("{name} {}/s", count(rate))).collect())
}

fn or_none(list: Vec<String>) -> String {
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::super::answer::{Answer, tests::after};
    use super::super::tests::check_snapshot;
    use super::*;

    #[test]
    fn text_has_every_disk_export_and_owner_with_its_stages_and_waits() {
        let answer = |seconds| Answer::parse(after(seconds)).expect("an answer");
        check_snapshot("once", &of(&Sample::between(&answer(1), &answer(2))));
    }

    #[test]
    fn process_without_disks_has_no_tables() {
        let mut reply = after(1);
        reply["disks"] = serde_json::json!([]);
        reply["exports"] = serde_json::json!([]);
        let answer = Answer::parse(reply).expect("an answer");
        let text = of(&Sample::between(&answer, &answer));
        assert!(text.ends_with("\n\nno disk is open\n"), "{text}");
    }
}
