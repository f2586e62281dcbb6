//! The metrics of a comparison: names, units, limits, and where each value is found.

use forebay_fio::sample::DirectionSample;

use super::measure::{Before, Run};
use super::spread::{Better, Tolerance};
use crate::figure::time_unit;

/// Fewer switches or calls than this for each I/O come from starting and ending the program, and
/// their ratio is meaningless.
pub(super) const FEW: f64 = 0.001;

/// A metric that both sides have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    Iops,
    Bandwidth,
    Mean,
    P50,
    P99,
    P999,
    Cpu,
    Switches,
    Syscalls,
    Merges,
}

impl Metric {
    /// The metrics of each direction.
    pub(super) const OF_DIRECTION: [Self; 6] =
        [Self::Iops, Self::Bandwidth, Self::Mean, Self::P50, Self::P99, Self::P999];
    /// The metrics of a whole run.
    pub(super) const OF_RUN: [Self; 4] = [Self::Cpu, Self::Syscalls, Self::Switches, Self::Merges];

    /// Returns its name, without the unit.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::Bandwidth => "bandwidth",
            Self::Mean => "latency mean",
            Self::P50 => "latency p50",
            Self::P99 => "latency p99",
            Self::P999 => "latency p99.9",
            Self::Cpu => "CPU per I/O",
            Self::Syscalls => "system calls per I/O",
            Self::Switches => "context switches per I/O",
            Self::Merges => "merges per I/O",
        }
    }

    /// Returns the unit in which values up to `max` are easy to read, and its size in the unit of
    /// [`key`](Self::key). Counts have none.
    pub(super) fn unit(self, max: f64) -> (&'static str, f64) {
        match self {
            Self::Bandwidth => ("MiB/s", 1.0),
            Self::Mean | Self::P50 | Self::P99 | Self::P999 | Self::Cpu => time_unit(max),
            Self::Iops | Self::Switches | Self::Syscalls | Self::Merges => ("", 1.0),
        }
    }

    /// Returns its name for programs, with the unit.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Iops => "iops",
            Self::Bandwidth => "bw_mib_per_s",
            Self::Mean => "clat_mean_us",
            Self::P50 => "clat_p50_us",
            Self::P99 => "clat_p99_us",
            Self::P999 => "clat_p999_us",
            Self::Cpu => "cpu_us_per_io",
            Self::Syscalls => "syscalls_per_io",
            Self::Switches => "switches_per_io",
            Self::Merges => "merges_per_io",
        }
    }

    /// Returns which way is better. More merges are better, because jobs with neighbours are meant
    /// to merge.
    pub(super) fn better(self) -> Better {
        match self {
            Self::Iops | Self::Bandwidth | Self::Merges => Better::Higher,
            _ => Better::Lower,
        }
    }

    /// Returns the limit for "not slower" in this project; `None` if there is none.
    pub(super) fn tolerance(self) -> Option<Tolerance> {
        match self {
            Self::Iops | Self::Bandwidth => Some(Tolerance::AtLeast(0.97)),
            Self::P50 => Some(Tolerance::AtMost(1.05)),
            Self::P99 => Some(Tolerance::AtMost(1.15)),
            _ => None,
        }
    }

    /// Returns a value for people, in units of `scale`: with about four digits.
    pub(super) fn show(self, value: Option<f64>, scale: f64) -> String {
        let Some(value) = value else { return "-".to_owned() };
        let value = value / scale;
        match self {
            Self::Iops if value >= 1e6 => format!("{:.3}M", value / 1e6),
            Self::Iops if value >= 1e4 => format!("{:.1}k", value / 1e3),
            Self::Iops => format!("{value:.0}"),
            Self::Bandwidth => format!("{value:.1}"),
            Self::Mean | Self::P50 | Self::P99 | Self::P999 if value >= 1000.0 => {
                format!("{value:.0}")
            }
            Self::Mean | Self::P50 | Self::P99 | Self::P999 => format!("{value:.2}"),
            _ if value > 0.0 && value < FEW => format!("<{FEW}"),
            _ => format!("{value:.3}"),
        }
    }

    pub(super) fn of_direction(self, figures: &DirectionSample) -> Option<f64> {
        let us = |ns: f64| ns / 1000.0;
        match self {
            Self::Iops => Some(figures.iops),
            Self::Bandwidth => Some(figures.bw_bytes / f64::from(1 << 20)),
            Self::Mean => Some(us(figures.clat_mean_ns)),
            Self::P50 => figures.clat_p50_ns.map(us),
            Self::P99 => figures.clat_p99_ns.map(us),
            Self::P999 => figures.clat_p999_ns.map(us),
            _ => None,
        }
    }

    /// Returns the value of a direction in which a run did no I/O. It has no latencies.
    pub(super) fn of_idle_direction(self) -> Option<f64> {
        matches!(self, Self::Iops | Self::Bandwidth).then_some(0.0)
    }

    pub(super) fn of_run(self, run: &Run, before: &Before) -> Option<f64> {
        let ios = run.sample.total_ios();
        let per_io = |count: u64| Some(count as f64 / ios as f64);
        match self {
            Self::Cpu => {
                let more_ios = ios.checked_sub(before.start_ios).filter(|&ios| ios > 0)?;
                let more_us = run.cpu_us - before.start_cpu_us;
                // Both are whole clock ticks: a run shorter than one tick has no figure.
                (more_us > 0.0).then_some(more_us / more_ios as f64)
            }
            Self::Switches => per_io(run.sample.switches),
            Self::Syscalls => run.sample.system_calls.and_then(per_io),
            // Merges in a device below are not merges of the layer.
            Self::Merges => run.sample.system_calls.and_then(|_| per_io(run.sample.merges)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::run;
    use super::*;

    #[test]
    fn startup_cost_is_not_counted_per_io() {
        let before = Before { start_cpu_us: 140_000.0, start_ios: 100, syscalls: None };
        let run = run(1.0, 1100, 142_000.0);
        assert_eq!(Metric::Cpu.of_run(&run, &before), Some(2.0));
        let all = Before { start_cpu_us: 142_000.0, ..before };
        assert_eq!(Metric::Cpu.of_run(&run, &all), None);
    }

    #[test]
    fn values_have_four_digits_or_so() {
        let iops = [812.4, 12_345.0, 2_335_100.0].map(|value| Metric::Iops.show(Some(value), 1.0));
        assert_eq!(iops, ["812", "12.3k", "2.335M"]);
        let p99 = [7.844, 1876.2].map(|value| Metric::P99.show(Some(value), 1.0));
        assert_eq!(p99, ["7.84", "1876"]);
        let switches = [0.0, 0.0002, 0.001].map(|value| Metric::Switches.show(Some(value), 1.0));
        assert_eq!(switches, ["0.000", "<0.001", "0.001"]);
        assert_eq!(Metric::Cpu.show(None, 1.0), "-");
        assert_eq!(Metric::P99.unit(3_000_000.0), ("s", 1e6));
        assert_eq!(Metric::P99.show(Some(3_000_000.0), 1e6), "3.00");
        assert_eq!(
            (Metric::Mean.unit(12_000.0), Metric::Cpu.unit(9999.0)),
            (("ms", 1e3), ("us", 1.0))
        );
    }
}
