//! The results table: medians, ratios pair by pair, and aims.

use crate::Options;
use crate::measure::Sample;
use anyhow::Result;
use std::fmt::Write;
use std::fs;

/// A column of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Iops,
    P50,
    P99,
    Cpu,
    /// Merges for each I/O, of side A only.
    Merged,
    /// Voluntary context switches.
    Switches,
    /// System calls, counted only in the warm-up pair, because counting takes time.
    Syscalls,
    /// Writes that share a sync.
    Shared,
}

/// The aim for the median ratio A/B, or for A itself with [`What::Merged`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    AtLeast(f64),
    /// The highest ratio is at least this: the range includes or exceeds it.
    Reaches(f64),
    AtMost(f64),
    Equal(f64),
    None,
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) title: &'static str,
    pub(crate) sides: [&'static str; 2],
    pub(crate) what: What,
    pub(crate) aim: Aim,
    pub(crate) pairs: Vec<(f64, f64)>,
}

impl What {
    pub(crate) fn of(self, sample: &Sample) -> f64 {
        match self {
            What::Iops => sample.iops,
            What::P50 => sample.p50_us,
            What::P99 => sample.p99_us,
            What::Cpu => sample.cpu_us,
            What::Merged => sample.merged,
            What::Switches => sample.switches,
            What::Syscalls => sample.syscalls,
            What::Shared => sample.shared,
        }
    }

    fn name(self) -> &'static str {
        match self {
            What::Iops => "IOPS",
            What::P50 => "latency p50, us",
            What::P99 => "latency p99, us",
            What::Cpu => "CPU per I/O, us",
            What::Merged => "merges per I/O",
            What::Switches => "voluntary switches per I/O",
            What::Syscalls => "system calls per I/O, in one pair",
            What::Shared => "writes per sync",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            What::Iops => format!("{value:.0}"),
            What::P50 | What::P99 | What::Shared => format!("{value:.1}"),
            What::Cpu | What::Switches | What::Syscalls => format!("{value:.2}"),
            What::Merged => format!("{value:.4}"),
        }
    }
}

/// Returns the whole table.
pub(crate) fn render(rows: &[Row], options: &Options) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "# Figures\n")?;
    writeln!(
        text,
        "{} pairs of {} s each, A and B in turn. The ratio A/B is the median of the pairs, with \
         the lowest and the highest. Written by `{}`.\n",
        options.pairs,
        options.seconds,
        options.command()
    )?;
    writeln!(text, "Machine: {}.", machine())?;
    let mut title = "";
    for row in rows {
        if row.title != title {
            title = row.title;
            let [a, b] = row.sides;
            writeln!(text, "\n## {title}\n\n| | A: {a} | B: {b} | A/B | aim | |")?;
            writeln!(text, "|---|---|---|---|---|---|")?;
        }
        writeln!(text, "{}", line(row))?;
    }
    Ok(text)
}

fn line(row: &Row) -> String {
    let spread = |values: Vec<f64>| {
        let mut values = values;
        values.sort_by(f64::total_cmp);
        (median(&values), values[0], values[values.len() - 1])
    };
    let a = spread(row.pairs.iter().map(|pair| pair.0).collect());
    let b = spread(row.pairs.iter().map(|pair| pair.1).collect());
    let ratio = spread(row.pairs.iter().map(|pair| pair.0 / pair.1).collect());
    let highest = ratio.2;
    let (shown, judged) = match row.what {
        What::Merged => (String::from("-"), a.0),
        _ => (format!("{:.2} ({:.2}-{:.2})", ratio.0, ratio.1, ratio.2), ratio.0),
    };
    let (aim, met) = match row.aim {
        Aim::AtLeast(bound) => (format!("at least {bound:.2}"), Some(judged >= bound)),
        Aim::Reaches(bound) => (format!("range reaches {bound:.2}"), Some(highest >= bound)),
        Aim::AtMost(bound) => (format!("at most {bound:.2}"), Some(judged <= bound)),
        // Only a last batch cut short by the end of the run may differ.
        Aim::Equal(value) => (format!("{value:.4}"), Some((judged - value).abs() < 1e-4)),
        Aim::None => (String::from("-"), None),
    };
    let met = match met {
        Some(true) => "met",
        Some(false) => "**not met**",
        None => "",
    };
    let (name, a, b) = (row.what.name(), row.what.show(a.0), row.what.show(b.0));
    format!("| {name} | {a} | {b} | {shown} | {aim} | {met} |")
}

/// Returns the median of sorted values; for an even number, the mean of the middle two.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let (below, above) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    below.midpoint(above)
}

/// Returns the numbers in order, if there are any.
pub(crate) fn sorted(values: impl Iterator<Item = f64>) -> Option<Vec<f64>> {
    let mut values: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then_some(values)
}

/// Returns a ratio with its range, `middle (low-high)`.
pub(crate) fn spread(ratio: Option<[f64; 3]>) -> String {
    match ratio {
        None => "-".to_owned(),
        Some([middle, low, high]) if low == high => format!("{middle:.2}"),
        Some([middle, low, high]) => format!("{middle:.2} ({low:.2}-{high:.2})"),
    }
}

/// Describes the machine: processor, number of processors, kernel.
pub(crate) fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |pair| pair.1);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{model}, {cpus} processors, Linux {kernel}")
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
        assert_eq!(median(&[7.0]), 7.0);
    }
}
