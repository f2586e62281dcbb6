//! The report of a trace as text.

use super::summary::Summary;
use crate::table;
use forebay_trace::record::Categories;
use forebay_trace::report::{DRIVER, LIMIT, Times, Traced};
use std::fmt::Write as _;

/// An I/O that the driver had for less completed in the turn that issued it. Records of one turn
/// are 1 ns apart.
const SAME_TURN_NS: u64 = 1000;

const SAME_TURN: &str = "
  Most I/Os completed in the turn that issued them, as with cached data. A turn has one time, so
  its system calls count as plug, not as driver.
";

/// Returns the report of a disk.
pub(super) fn render(summary: &Summary) -> String {
    let mut text = headline(summary);
    let counts = &summary.counts;
    // Writing to a String does not fail, here and below.
    let _ = writeln!(
        text,
        "  {} merged ({:.1} %), {} requests issued, {} flushes issued, {} split",
        counts.merged,
        100.0 * summary.merge_ratio(),
        counts.issued,
        counts.flushes,
        counts.splits
    );
    let _ = writeln!(
        text,
        "  {} requests waited for a tag, {} for a limit, {} found the driver busy, {} failed",
        counts.sleeps, counts.limited, counts.requeues, counts.errors
    );
    if summary.nr_open > 0 {
        let _ = writeln!(text, "  {} I/Os have no end in the trace", summary.nr_open);
    }
    if summary.nr_missing > 0 {
        let _ = writeln!(
            text,
            "  missing records: {} (gaps in the sequence numbers); I/Os left out because of them: \
             {}",
            summary.nr_missing, summary.nr_left_out
        );
    }
    if !summary.flushes.is_empty() {
        text.push_str(&flushes(summary));
    }
    if summary.total.is_empty() {
        text.push_str("\n  No I/O is complete, so there are no times.\n");
        return text;
    }
    text.push('\n');
    text.push_str(&table::aligned(&stages(summary), "  "));
    if summary.stages[DRIVER].percentile_ns(50.0) < SAME_TURN_NS {
        text.push_str(SAME_TURN);
    }
    let _ = writeln!(
        text,
        "\n  Where the time of the slowest {} (1 %, {} and more) went:",
        plural(summary.nr_slowest),
        time(summary.slowest_from_ns as f64)
    );
    let rows: Vec<_> = summary
        .shown_stages()
        .into_iter()
        .map(|(stage, name)| {
            vec![
                name.to_owned(),
                time(summary.slowest_mean_ns[stage]),
                format!("{:.1} %", 100.0 * summary.share_of_slowest(stage)),
            ]
        })
        .collect();
    text.push_str(&table::aligned(&rows, "    "));
    if !summary.slowest.is_empty() {
        let _ = writeln!(text, "\n  The slowest:");
        text.push_str(&table::aligned(&slowest(summary), "    "));
    }
    text
}

/// Returns the first line of the report of a disk.
pub(super) fn headline(summary: &Summary) -> String {
    let Summary { disk, nr_files, .. } = summary;
    let files = if *nr_files == 1 { "file" } else { "files" };
    let (queued, span) = (summary.counts.queued, time(summary.span_ns as f64));
    format!("{disk}: {queued} I/Os in {span}, from {nr_files} {files}\n")
}

/// Returns the table of the stages.
fn stages(summary: &Summary) -> Vec<Vec<String>> {
    let head = ["", "mean", "p50", "p99", "p99.9", "max", "share"].map(str::to_owned).to_vec();
    let row = |name: &str, times: &Times, share: f64| {
        let percentiles = [50.0, 99.0, 99.9, 100.0].map(|at| time(times.percentile_ns(at) as f64));
        let mut row = vec![name.to_owned(), time(times.mean_ns())];
        row.extend(percentiles);
        row.push(format!("{:.1} %", 100.0 * share));
        row
    };
    let of_stage = |(stage, name)| row(name, &summary.stages[stage], summary.share(stage));
    let stages = summary.shown_stages().into_iter().map(of_stage);
    std::iter::once(head).chain(stages).chain([row("total", &summary.total, 1.0)]).collect()
}

/// Returns the line of the flushes.
fn flushes(summary: &Summary) -> String {
    let times = &summary.flushes;
    let [p50, p99, max] = [50.0, 99.0, 100.0].map(|at| time(times.percentile_ns(at) as f64));
    let (nr, mean) = (times.len(), time(times.mean_ns()));
    let calls = if nr == 1 { "flush took" } else { "flushes took" };
    format!("  {nr} {calls} {mean} (mean), {p50} (p50), {p99} (p99), {max} (max)\n")
}

/// Returns the table of the slowest I/Os.
fn slowest(summary: &Summary) -> Vec<Vec<String>> {
    let shown = summary.shown_stages();
    let before = ["at", "", "offset", "bytes", "total"].into_iter();
    let head = before.chain(shown.iter().map(|(_, name)| *name)).chain([""]);
    let row = |bio: &Traced| {
        let mut row = vec![
            format!("{:.6} s", (bio.queued_ns - summary.first_ns) as f64 / 1e9),
            operation(bio.categories).to_owned(),
            bio.offset().to_string(),
            bio.bytes.to_string(),
            time(bio.total_ns() as f64),
        ];
        row.extend(shown.iter().map(|(stage, _)| time(bio.stages_ns[*stage] as f64)));
        row.push(notes(bio));
        row
    };
    std::iter::once(head.map(str::to_owned).collect())
        .chain(summary.slowest.iter().map(row))
        .collect()
}

/// Returns what an I/O does.
pub(super) fn operation(categories: Categories) -> &'static str {
    match () {
        () if categories.has(Categories::DISCARD) => "discard",
        () if categories.has(Categories::READ) => "read",
        () => "write",
    }
}

/// Returns what was special about an I/O.
fn notes(bio: &Traced) -> String {
    let all = [
        (bio.is_merged, "merged"),
        (bio.has_slept, "waited"),
        (bio.stages_ns[LIMIT] > 0, "limit"),
        (bio.was_requeued, "driver busy"),
        (bio.error != 0, "failed"),
    ];
    all.iter().filter(|(is_so, _)| *is_so).map(|(_, what)| *what).collect::<Vec<_>>().join(", ")
}

fn plural(nr: usize) -> String {
    if nr == 1 { "I/O".to_owned() } else { format!("{nr} I/Os") }
}

/// Returns a time with a unit.
fn time(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.1} us", ns / 1e3),
        ..1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.3} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_fits() {
        let all = [0.0, 999.0, 1500.0, 2.5e6, 3e9].map(time);
        assert_eq!(all, ["0 ns", "999 ns", "1.5 us", "2.50 ms", "3.000 s"]);
    }
}
