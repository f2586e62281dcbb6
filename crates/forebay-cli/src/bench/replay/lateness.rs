//! How late the I/Os of a replay were submitted.

use forebay_fio::histogram::Histogram;
use forebay_fio::report::number::time_unit;
use serde_json::{Value, json};

/// A delay that the report counts.
const LATE_NS: u64 = 1_000_000;

/// The delays of a clone, or of a group of clones.
#[derive(Debug, Clone, Default)]
pub(in crate::bench) struct Lateness {
    histogram: Histogram,
    max_ns: u64,
    /// I/Os that were late by more than [`LATE_NS`].
    nr_late: u64,
}

impl Lateness {
    /// Records an I/O that was submitted `ns` after it was due.
    pub(in crate::bench) fn record(&mut self, ns: u64) {
        self.histogram.record(ns);
        self.max_ns = self.max_ns.max(ns);
        self.nr_late += u64::from(ns > LATE_NS);
    }

    /// Adds the delays of another clone.
    pub(in crate::bench) fn merge(&mut self, other: &Self) {
        self.histogram.merge(&other.histogram);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.nr_late += other.nr_late;
    }

    /// Returns the median, the 99th percentile and the maximum, ns.
    fn values(&self) -> [u64; 3] {
        match self.histogram.percentiles(&[50.0, 99.0])[..] {
            [p50, p99] => [p50.min(self.max_ns), p99.min(self.max_ns), self.max_ns],
            _ => [0; 3],
        }
    }

    /// Returns the object of the report.
    pub(in crate::bench) fn json(&self) -> Value {
        let [p50, p99, max] = self.values();
        json!({
            "ios": self.histogram.total(),
            "late_ns": { "p50": p50, "p99": p99, "max": max },
            "late_over_1ms": self.nr_late,
        })
    }

    /// Returns the text of the report.
    pub(in crate::bench) fn text(&self) -> String {
        let [p50, p99, max] = self.values();
        let (unit, scale) = time_unit(p50, max);
        let time = |ns: u64| format!("{:.1}", ns as f64 / scale as f64);
        format!(
            "I/Os={}, late ({unit}): p50={}, p99={}, max={}; by more than 1 ms={}",
            self.histogram.total(),
            time(p50),
            time(p99),
            time(max),
            self.nr_late
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_summed_up_over_clones() {
        let mut all = Lateness::default();
        (0..99).for_each(|_| all.record(500));
        let mut other = Lateness::default();
        other.record(2_000_000);
        all.merge(&other);
        let json = all.json();
        assert_eq!((&json["ios"], &json["late_over_1ms"]), (&json!(100), &json!(1)));
        assert_eq!(json["late_ns"]["max"], 2_000_000);
        assert!(json["late_ns"]["p99"].as_u64().is_some_and(|ns| ns < 1000), "{json}");
        assert!(all.text().contains("by more than 1 ms=1"), "{}", all.text());
    }
}
