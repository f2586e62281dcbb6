//! Counters as text: [`Display`](fmt::Display) for readers, [`Debug`] for logs and tests.
//!
//! Both name operations, kinds of merges and causes of unplugs, and take counters from
//! [`COUNTERS`]. `Display` omits counters of 0.

use super::{COUNTERS, Histogram, OpStats, QueueStats};
use crate::bio::Op;
use crate::merge::MergeKind;
use crate::plug::UnplugCause;
use crate::stats::emulation::EmulationStats;
use core::fmt;

/// Percentiles in the text of a histogram, per million, with their names.
const PERCENTILES: [(&str, u32); 3] = [("p50", 500_000), ("p99", 990_000), ("p99.9", 999_000)];

/// A list of names and values, shown as a map.
struct ByName<I>(I);

impl<N, V, I> fmt::Debug for ByName<I>
where
    N: fmt::Display,
    V: fmt::Debug,
    I: Iterator<Item = (N, V)> + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.0.clone().map(|(name, value)| (Plain(name), value));
        f.debug_map().entries(entries).finish()
    }
}

/// A name without quotes.
struct Plain<N>(N);

impl<N: fmt::Display> fmt::Debug for Plain<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for QueueStats {
    /// Shows each counter under the name that it has in [`COUNTERS`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ops = Op::ALL.iter().map(|&op| (op.name(), self.op(op)));
        let merges = MergeKind::ALL.iter().map(|&kind| (kind.name(), self.merges(kind)));
        let unplugs = UnplugCause::ALL.iter().map(|&cause| (cause.name(), self.unplugs(cause)));
        let mut text = f.debug_struct("QueueStats");
        text.field("ops", &ByName(ops));
        for counter in COUNTERS {
            text.field(counter.name, &counter.of(self));
        }
        text.field("merges", &ByName(merges)).field("unplugs", &ByName(unplugs));
        text.field("stages", &self.stages).field("emulation", &self.emulation).finish()
    }
}

impl fmt::Display for QueueStats {
    /// Shows the operations and counters that are not 0, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for op in Op::ALL.into_iter().filter(|&op| *self.op(op) != OpStats::default()) {
            write!(f, "{separator}{}: {}", op.name(), self.op(op))?;
            separator = "; ";
        }
        for counter in COUNTERS.iter().filter(|counter| counter.of(self) > 0) {
            write!(f, "{separator}{}: {}", counter.name, counter.of(self))?;
            separator = "; ";
        }
        if separator.is_empty() { f.write_str("no I/O") } else { Ok(()) }
    }
}

impl fmt::Display for OpStats {
    /// Shows the numbers of bios, merges, requests and bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OpStats { bios, merges, requests, bytes, .. } = self;
        write!(f, "{bios} bios ({merges} merged), {requests} requests, {bytes} bytes")
    }
}

impl fmt::Debug for Histogram {
    /// Shows the number of values, their mean and largest, and some percentiles.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Histogram");
        text.field("count", &self.count()).field("mean", &self.mean());
        for (name, per_million) in PERCENTILES {
            text.field(name, &self.percentile(per_million));
        }
        text.field("max", &self.max()).finish()
    }
}

impl fmt::Display for Histogram {
    /// Shows the same as [`Debug`], as plain text. The values have no unit here.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values", self.count())?;
        if self.count() == 0 {
            return Ok(());
        }
        write!(f, ": mean {}", self.mean())?;
        for (name, per_million) in PERCENTILES {
            write!(f, ", {name} {}", self.percentile(per_million))?;
        }
        write!(f, ", max {}", self.max())
    }
}

impl fmt::Debug for EmulationStats {
    /// Shows each counter with its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, nr)| (Plain(name), nr))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::RunCounters;
    use alloc::format;
    use alloc::string::ToString;

    fn some() -> QueueStats {
        let counters = RunCounters::default();
        let reads = counters.of(Op::Read);
        reads.bios.add(16);
        reads.requests.add(1);
        reads.bytes.add(65536);
        counters.issued.add(1);
        counters.driver.record(900);
        let mut stats = QueueStats::default();
        stats.add_runs(&counters);
        stats
    }

    #[test]
    fn display_shows_in_one_line_what_is_not_zero() {
        assert_eq!(
            some().to_string(),
            "read: 16 bios (0 merged), 1 requests, 65536 bytes; issued: 1"
        );
        assert_eq!(QueueStats::default().to_string(), "no I/O");
    }

    #[test]
    fn debug_names_operations_kinds_and_causes() {
        let text = format!("{:?}", some());
        assert!(text.starts_with("QueueStats { ops: {read: OpStats { bios: 16, "), "{text}");
        assert!(!text.contains('['), "there is no bare array: {text}");
        for name in COUNTERS.iter().map(|counter| counter.name) {
            assert!(text.contains(&format!(" {name}: ")), "{name}: {text}");
        }
        let names = Op::ALL.map(Op::name).into_iter();
        let names = names.chain(MergeKind::ALL.map(MergeKind::name));
        for name in names.chain(UnplugCause::ALL.map(UnplugCause::name)).chain(["tag_sleeps"]) {
            assert!(text.contains(&format!("{name}: ")), "{name}: {text}");
        }
    }

    #[test]
    fn histogram_is_shown_by_percentiles() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.to_string(), "0 values");
        histogram.record(900);
        assert_eq!(
            format!("{histogram:?}"),
            "Histogram { count: 1, mean: 900, p50: 900, p99: 900, p99.9: 900, max: 900 }"
        );
        assert_eq!(
            histogram.to_string(),
            "1 values: mean 900, p50 900, p99 900, p99.9 900, max 900"
        );
    }
}
