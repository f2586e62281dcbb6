//! The report of a scenario file: the sums over its seeds.

use std::collections::BTreeMap;
use std::fmt::Write;

use forebay_sim::{Reached, Summary};

use crate::range::Range;
use crate::sim::notes::Events;
use crate::sim::reached::events;
use crate::sim::report::statuses;
use crate::sim::seeds::Seeds;
use crate::sim::total::Total;
use crate::sim::variants::Variant;

/// The sums over the seeds.
#[derive(Debug)]
pub(super) struct Report {
    total: Total,
    reached: Reached,
    effects: Events,
    nr_bios: u64,
    /// The number of failed bios, by the name of the status.
    failures: BTreeMap<&'static str, u64>,
    /// The number of changed commands of each fault rule, in the order of the rules.
    faults: Vec<(String, u64)>,
    /// For each crash point of the scenario: its time, and for each seed the number of blocks that
    /// were written and of those that are not certain.
    crash_points: Vec<(u64, Vec<(u64, u64)>)>,
}

impl Report {
    pub(super) fn new(seeds: Seeds) -> Report {
        Report {
            total: Total::new(seeds),
            reached: Reached::default(),
            effects: Events::default(),
            nr_bios: 0,
            failures: BTreeMap::new(),
            faults: Vec::new(),
            crash_points: Vec::new(),
        }
    }

    pub(super) fn clear_line(&mut self) {
        self.total.clear_line();
    }

    /// Adds a run.
    pub(super) fn add(&mut self, summary: &Summary) {
        self.total.add(summary);
        self.reached.add(summary);
        self.effects.add(summary);
        self.nr_bios += summary.nr_bios;
        for (status, nr) in summary.tally.failures() {
            *self.failures.entry(status.name()).or_default() += nr;
        }
        if self.faults.is_empty() {
            self.faults = summary.faults.iter().map(|(rule, _)| (rule.clone(), 0)).collect();
        }
        for ((_, sum), (_, nr)) in self.faults.iter_mut().zip(&summary.faults) {
            *sum += nr;
        }
        let points = &summary.tally.crash_points;
        if self.crash_points.is_empty() {
            self.crash_points = points.iter().map(|point| (point.at_ns, Vec::new())).collect();
        }
        for ((_, counts), point) in self.crash_points.iter_mut().zip(points) {
            counts.push((point.nr_written, point.nr_unsure));
        }
    }

    /// Returns the text, which ends with the command that repeats the runs.
    pub(super) fn text(&self, variant: &Variant, replay: &str) -> String {
        let mut lines = String::new();
        let failed: u64 = self.failures.values().sum();
        let statuses = statuses(self.failures.iter().map(|(status, nr)| (*status, *nr)));
        // Writing into a String does not fail.
        let _ = writeln!(lines, "  bios         : {}, {failed} failed{statuses}", self.nr_bios);
        for (rule, nr) in &self.faults {
            let _ = writeln!(lines, "  faults       : {nr} by {rule}");
        }
        let shown = events(&self.reached).filter(|(_, nr)| *nr > 0);
        let shown: Vec<_> = shown.map(|(name, nr)| format!("{name}={nr}")).collect();
        if !shown.is_empty() {
            let _ = writeln!(lines, "  events       : {}", shown.join(", "));
        }
        for (at_ns, counts) in &self.crash_points {
            let range = |of: fn(&(u64, u64)) -> u64| {
                Range::of(counts.iter().map(|count| of(count) as f64))
                    .map_or_else(String::new, show)
            };
            let (written, unsure) = (range(|count| count.0), range(|count| count.1));
            let us = *at_ns as f64 / 1e3;
            let _ = writeln!(
                lines,
                "  at risk      : at {us} us, {unsure} of {written} written blocks"
            );
        }
        for note in variant.notes(&self.effects) {
            let _ = writeln!(lines, "  note         : {note}");
        }
        self.total.report(&lines, replay)
    }
}

/// Returns a median, with its range if the values differ.
fn show(range: Range) -> String {
    match range.min < range.max {
        true => format!("{} ({}..{})", range.median, range.min, range.max),
        false => range.median.to_string(),
    }
}
