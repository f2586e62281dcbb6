//! The table: a verdict for each load, followed by the figures of every server.

use super::loads::Aim;
use super::{Cell, Sample};
use crate::distance::Distance;
use crate::servers::{Medium, Server};
use crate::table::{machine, median, sorted, spread};
use anyhow::Result;
use std::fmt::Write;

/// One figure of a sample: its name, value and decimals.
type What = (&'static str, fn(&Sample) -> f64, usize);

const IOPS: What = ("I/Os a second", |sample| sample.iops, 0);
const SERVER: What = ("server CPU per I/O, us", |sample| sample.server_us, 2);
const ALL: [What; 6] = [
    IOPS,
    ("latency p50, us", |sample| sample.p50_us, 1),
    ("latency p99, us", |sample| sample.p99_us, 1),
    SERVER,
    ("client CPU per I/O, us", |sample| sample.client_us, 2),
    ("I/Os that the server merged, of 1", |sample| sample.merged, 3),
];

const HOW: &str = "\
Servers run one at a time, each started for its run, in turn within a pair; which one begins changes
from pair to pair. A ratio is ours to that of the other with the best median: the median of the
pairs, with the lowest and the highest. It compares runs at the same distance of two processors
only (`near` or `far`, see NBD.md). Reads have 4 KiB. Processor time is that of the server's
process, over the run, from `/proc/PID/stat`, so it includes its polling.
";

/// Returns the whole text. `skipped` has the servers that cannot be run, with the reason.
pub(crate) fn render(
    cells: &[Cell],
    servers: &[&'static Server],
    skipped: &[(&'static str, String)],
    command: &str,
    poll_us: u32,
) -> Result<String> {
    let mut text = String::from("# vhost-user-blk servers\n\n");
    writeln!(text, "Written by `{command}`. Machine: {}.\n", machine())?;
    text.push_str(HOW);
    let mode = match poll_us {
        0 => "sleeps: `poll_us=0`".to_owned(),
        _ => format!("polls: `poll_us={poll_us}`"),
    };
    writeln!(text, "\nThe client of all figures is `forebay bench`, which {mode}.\n")?;
    for (name, why) in skipped {
        writeln!(text, "- SKIPPED: {name}: {why}")?;
    }
    text.push_str("\n```console\n");
    for medium in [Medium::Null, Medium::Direct, Medium::Model] {
        for shown in servers.iter().filter_map(|server| server.shown(medium)) {
            writeln!(text, "{shown}")?;
        }
    }
    text.push_str("```\n");
    verdicts(&mut text, cells, servers)?;
    for cell in cells {
        details(&mut text, cell, servers)?;
    }
    Ok(text)
}

fn verdicts(text: &mut String, cells: &[Cell], servers: &[&'static Server]) -> Result<()> {
    if servers.first().is_none_or(|first| !first.is_ours()) {
        return Ok(writeln!(text, "\nWithout our server there are no ratios.")?);
    }
    writeln!(text, "\n| load | ratio of IOPS | ratio of server CPU per I/O | aim | |")?;
    writeln!(text, "|---|---|---|---|---|")?;
    for cell in cells {
        let best = (1..servers.len()).max_by(|&a, &b| {
            cell.median(a, IOPS).unwrap_or(0.0).total_cmp(&cell.median(b, IOPS).unwrap_or(0.0))
        });
        let ratios = |what| match cell.load.aim {
            Aim::OfLoad(name, ..) => {
                let other = cells.iter().find(|other| other.load.name == name)?;
                let ratio = cell.median(0, what)? / other.median(0, what)?;
                Some([ratio; 3])
            }
            _ => cell.ratio(what, best?),
        };
        let (iops, cost) = (ratios(IOPS), ratios(SERVER));
        let (aim, is_met) = verdict(cell.load.aim, iops, cost);
        let met = is_met.map_or("", |is_met| if is_met { "met" } else { "**not met**" });
        let name = cell.load.name;
        writeln!(text, "| {name} | {} | {} | {aim} | {met} |", spread(iops), spread(cost))?;
    }
    Ok(())
}

/// Returns the text of an aim, and whether medians of ratios meet it.
fn verdict(aim: Aim, iops: Option<[f64; 3]>, cost: Option<[f64; 3]>) -> (String, Option<bool>) {
    let both = |least: f64, most: f64| Some(iops?[0] >= least && cost?[0] <= most);
    match aim {
        Aim::None => ("-".to_owned(), None),
        Aim::Times(times) => (format!("at least {times}"), iops.map(|iops| iops[0] >= times)),
        Aim::TimesAtCost(times, most) => {
            (format!("at least {times}, CPU at most {most}"), both(times, most))
        }
        Aim::OfLoad(name, times, most) => {
            let limit =
                if most.is_finite() { format!(", CPU at most {most}") } else { String::new() };
            (format!("at least {times} of ours at {name}{limit}"), both(times, most))
        }
    }
}

fn details(text: &mut String, cell: &Cell, servers: &[&'static Server]) -> Result<()> {
    let names: Vec<&str> = servers.iter().map(|server| server.name).collect();
    writeln!(text, "\n## {}\n\n| | {} |", cell.load.name, names.join(" | "))?;
    writeln!(text, "|---{}|", "|---".repeat(names.len()))?;
    for what in ALL {
        let medians = (0..servers.len()).map(|which| match cell.median(which, what) {
            Some(value) => format!("{value:.*}", what.2),
            None => "-".to_owned(),
        });
        writeln!(text, "| {} | {} |", what.0, medians.collect::<Vec<_>>().join(" | "))?;
    }
    let places = cell.samples.iter().map(|samples| {
        let nr = |distance| samples.iter().flatten().filter(|(_, at)| *at == distance).count();
        format!("{} near, {} far", nr(Distance::Near), nr(Distance::Far))
    });
    Ok(writeln!(text, "| runs | {} |", places.collect::<Vec<_>>().join(" | "))?)
}

impl Cell {
    /// Returns the median over a server's pairs, if it has the figure.
    fn median(&self, which: usize, what: What) -> Option<f64> {
        let values = self.samples[which].iter().flatten().map(|(sample, _)| what.1(sample));
        sorted(values).map(|values| median(&values))
    }

    /// Returns the ratio of our server to another, pair by pair: median, lowest and highest.
    fn ratio(&self, what: What, other: usize) -> Option<[f64; 3]> {
        let pairs = self.samples[0].iter().zip(&self.samples[other]);
        let ratios = pairs.filter_map(|(ours, other)| {
            let ((ours, here), (other, there)) = (ours.as_ref()?, other.as_ref()?);
            let is_comparable = here == there && *here != Distance::Changed;
            is_comparable.then(|| what.1(ours) / what.1(other))
        });
        let ratios = sorted(ratios)?;
        Some([median(&ratios), ratios[0], ratios[ratios.len() - 1]])
    }
}

#[cfg(test)]
mod tests {
    use super::super::loads;
    use super::*;

    fn sample(iops: f64, server_us: f64, distance: Distance) -> Option<(Sample, Distance)> {
        let nothing = f64::NAN;
        let sample = Sample {
            iops,
            p50_us: nothing,
            p99_us: nothing,
            server_us,
            client_us: nothing,
            merged: nothing,
        };
        Some((sample, distance))
    }

    #[test]
    fn ratio_compares_runs_at_the_same_distance() {
        use Distance::{Changed, Far, Near};
        let ours = vec![sample(30.0, 1.0, Near), sample(10.0, 1.0, Far), None];
        let other = vec![sample(10.0, 2.0, Near), sample(10.0, 1.0, Near), sample(1.0, 1.0, Near)];
        let cell = Cell { load: &loads::ALL[0], samples: vec![ours, other] };
        assert_eq!(cell.ratio(IOPS, 1), Some([3.0; 3]));
        assert_eq!(cell.ratio(SERVER, 1), Some([0.5; 3]));
        let changed = vec![vec![sample(1.0, 1.0, Changed)]; 2];
        let cell = Cell { load: &loads::ALL[0], samples: changed };
        assert_eq!(cell.ratio(IOPS, 1), None);
    }

    #[test]
    fn aim_with_a_cost_needs_both() {
        let aim = Aim::TimesAtCost(0.97, 0.9);
        let is_met = |iops, cost| verdict(aim, Some([iops; 3]), Some([cost; 3])).1;
        assert_eq!(is_met(1.0, 0.9), Some(true));
        assert_eq!((is_met(1.0, 0.95), is_met(0.9, 0.5)), (Some(false), Some(false)));
        assert_eq!(verdict(aim, None, None).1, None);
    }
}
