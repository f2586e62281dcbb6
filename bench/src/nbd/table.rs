//! The table: a verdict for each load, followed by the figures of every server.

use super::loads::{Aim, Load, Work};
use super::{Cell, Sample};
use crate::distance::Distance;
use crate::servers::{Medium, Server};
use crate::table::{machine, median, sorted, spread};
use anyhow::Result;
use std::fmt::Write;
use std::time::Duration;

/// Limits for "not slower": I/Os per second, median latency, 99th percentile.
const NOT_SLOWER: [f64; 3] = [0.97, 1.05, 1.15];

/// Share of a processor from which the client's thread counts as the limit.
const BUSY: f64 = 0.9;

/// In that case, an I/O may cost at most this share of the best server's CPU time.
const HALF: f64 = 0.5;

/// One figure of a sample.
#[derive(Clone, Copy, Debug)]
struct What {
    name: &'static str,
    of: fn(&Sample) -> f64,
    decimals: usize,
    /// Whether higher is better.
    is_more_better: bool,
}

const RATE: What =
    What { name: "I/Os a second", of: |s| s.value, decimals: 0, is_more_better: true };
const SERVER: What = What {
    name: "server CPU per I/O, us",
    of: |s| s.server_us,
    decimals: 2,
    is_more_better: false,
};
const CLIENT: What = What {
    name: "client CPU per I/O, us",
    of: |s| s.client_us,
    decimals: 2,
    is_more_better: false,
};
const BUSINESS: What = What {
    name: "each client's thread busy, %",
    of: |s| s.client_busy * 100.0,
    decimals: 0,
    is_more_better: true,
};
const P50: What =
    What { name: "latency p50, us", of: |s| s.p50_us, decimals: 1, is_more_better: false };
const P99: What =
    What { name: "latency p99, us", of: |s| s.p99_us, decimals: 1, is_more_better: false };
const MEMORY: What =
    What { name: "memory (PSS), MiB", of: |s| s.value, decimals: 1, is_more_better: false };

/// The verdict on a load.
struct Verdict {
    ratio: String,
    cpu: String,
    best: String,
    aim: String,
    is_met: Option<bool>,
}

/// Returns the whole text.
pub(crate) fn render(
    cells: &[Cell],
    servers: &[&'static Server],
    command: &str,
    took: Duration,
) -> Result<String> {
    let mut text = String::from("# NBD servers\n\n");
    writeln!(
        text,
        "Written by `{command}` in {} minutes. Machine: {}.\n",
        took.as_secs().div_ceil(60),
        machine()
    )?;
    text.push_str(HOW);
    write_commands(&mut text, servers)?;
    let ours = servers[0].name;
    writeln!(
        text,
        "\n| load | {ours} | best of the others | ratio | ratio of server CPU per I/O | aim | |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|")?;
    for cell in cells {
        let verdict = verdict(cell, cells, servers);
        let met = match verdict.is_met {
            Some(true) => "met",
            Some(false) => "**not met**",
            None => "",
        };
        let main = main_figure(cell.load);
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {met} |",
            cell.load.name,
            show(cell.median(0, main), main),
            verdict.best,
            verdict.ratio,
            verdict.cpu,
            verdict.aim
        )?;
    }
    for cell in cells {
        write_details(&mut text, cell, servers)?;
    }
    Ok(text)
}

const HOW: &str = "\
Servers run one at a time, each started for its run, in turn within a round; who begins changes
from round to round. A ratio is ours to that of the others with the best median, and the median of
the rounds, with the lowest and the highest. The clients are fio's engine `nbd`, one process and
one connection each, and `nbdcopy`; all connect by a unix socket. The file is in the page cache,
in pages of 4k, or in large folios as a copied file is (`folios`), or it is opened with direct I/O
(`direct`), which nbdkit's file plugin cannot. Processor time is that of the server's process, over
the run, from `/proc/PID/stat`.

A virtual machine's two processors are near to each other at one time, and far at another: a cache
line takes 80 ns or 390 to the other and back, and an I/O of every server twice as long. So that is
measured around each run, and the servers of a round were all measured at the same distance; each
load says how many rounds were near, and how many far.

Where a client's thread is busy for 90 % of the time, it is the limit: then an aim is met too by a
server that spends at most half of the best one's processor time on an I/O.
";

fn write_commands(text: &mut String, servers: &[&'static Server]) -> Result<()> {
    text.push_str("\n```console\n");
    for medium in [Medium::Cached, Medium::Direct, Medium::Null] {
        for server in servers {
            if let Some(words) = server.shown(medium) {
                writeln!(text, "{words}")?;
            }
        }
    }
    text.push_str("```\n");
    Ok(())
}

/// Returns the figure that decides the verdict on a load.
fn main_figure(load: &Load) -> What {
    match (load.aim, load.work) {
        (Aim::Latency, _) => P50,
        (_, Work::CopyIn | Work::CopyOut) => What { name: "MiB a second", ..RATE },
        (_, Work::Idle(_)) => MEMORY,
        _ => RATE,
    }
}

fn verdict(cell: &Cell, cells: &[Cell], servers: &[&'static Server]) -> Verdict {
    let main = main_figure(cell.load);
    let best = cell.best(main);
    let ratio = best.and_then(|best| cell.ratio(main, best));
    let cpu = best.and_then(|best| cell.ratio(SERVER, best));
    let (aim, is_met) = match cell.load.aim {
        Aim::None => ("-".to_owned(), None),
        Aim::Times(times) => {
            let is_reached = ratio.map(|ratio| ratio[0] >= times);
            let is_cheap = cpu.is_some_and(|cpu| cpu[0] <= HALF);
            let is_at_limit = (cell.median(0, BUSINESS) / 100.0) >= BUSY;
            let is_met = is_reached.map(|is_reached| is_reached || is_at_limit && is_cheap);
            let limit = if is_at_limit { "; client's limit" } else { "" };
            (format!("at least {times:.2}{limit}"), is_met)
        }
        Aim::Latency => {
            let tail = cell.best(P99).and_then(|best| cell.ratio(P99, best));
            let is_met = ratio
                .zip(tail)
                .map(|(ratio, tail)| ratio[0] <= NOT_SLOWER[1] && tail[0] <= NOT_SLOWER[2]);
            let tail = tail.map_or("-".to_owned(), |tail| format!("{:.2}", tail[0]));
            (format!("p50 at most {}, p99 ({tail}) {}", NOT_SLOWER[1], NOT_SLOWER[2]), is_met)
        }
        Aim::NotBelowOne => {
            let one = cells.iter().find(|other| {
                Some(other.load.work) == cell.load.with_one_client()
                    && other.load.medium == cell.load.medium
            });
            let ratio = one.map(|one| cell.median(0, main) / one.median(0, main));
            let shown = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
            let is_met = ratio.filter(|ratio| !ratio.is_nan()).map(|r| r >= NOT_SLOWER[0]);
            (format!("with one client's ({shown}) at least {}", NOT_SLOWER[0]), is_met)
        }
        Aim::MaxMib(most) => {
            let memory = cell.median(0, main);
            (format!("below {most} MiB"), (!memory.is_nan()).then_some(memory < most))
        }
    };
    let best = best.map_or("-".to_owned(), |best| {
        format!("{} ({})", show(cell.median(best, main), main), servers[best].name)
    });
    Verdict { ratio: spread(ratio), cpu: spread(cpu), best, aim, is_met }
}

fn write_details(text: &mut String, cell: &Cell, servers: &[&'static Server]) -> Result<()> {
    let nr = |distance| cell.distances.iter().filter(|found| **found == distance).count();
    let shown = [Distance::Near, Distance::Far, Distance::Changed].map(|distance| {
        (nr(distance) > 0).then(|| format!("{} {}", nr(distance), distance.name()))
    });
    let shown: Vec<String> = shown.into_iter().flatten().collect();
    writeln!(text, "\n## {}\n\nRounds: {}.\n", cell.load.name, shown.join(", "))?;
    let those: Vec<usize> =
        (0..servers.len()).filter(|&which| servers[which].serves(cell.load.medium)).collect();
    let names: Vec<&str> = those.iter().map(|&which| servers[which].name).collect();
    writeln!(text, "| | {} |", names.join(" | "))?;
    writeln!(text, "|---{}|", "|---".repeat(names.len()))?;
    let main = main_figure(cell.load);
    let figures: &[What] = match cell.load.work {
        Work::Fio(_) => &[RATE, P50, P99, SERVER, CLIENT, BUSINESS],
        Work::CopyOut | Work::CopyIn => &[
            What { name: "MiB a second", ..RATE },
            What { name: "server CPU per MiB, us", ..SERVER },
            What { name: "client CPU per MiB, us", ..CLIENT },
        ],
        Work::Idle(_) => &[main],
    };
    for &what in figures {
        let medians: Vec<String> =
            those.iter().map(|&which| show(cell.median(which, what), what)).collect();
        writeln!(text, "| {} | {} |", what.name, medians.join(" | "))?;
    }
    Ok(())
}

impl Cell {
    /// Returns the median over a server's rounds; NaN if no round succeeded.
    fn median(&self, which: usize, what: What) -> f64 {
        let values = self.samples[which].iter().flatten().map(what.of);
        sorted(values).map_or(f64::NAN, |values| median(&values))
    }

    /// Returns the best of the other servers.
    fn best(&self, what: What) -> Option<usize> {
        let better = |&a: &usize, &b: &usize| {
            let (a, b) = (self.median(a, what), self.median(b, what));
            if what.is_more_better { a.total_cmp(&b) } else { b.total_cmp(&a) }
        };
        (1..self.samples.len()).filter(|&which| !self.median(which, what).is_nan()).max_by(better)
    }

    /// Returns the ratio of our server to another, round by round: median, lowest and highest.
    fn ratio(&self, what: What, other: usize) -> Option<[f64; 3]> {
        let pairs = self.samples[0].iter().zip(&self.samples[other]);
        let ratios =
            pairs.filter_map(|(a, b)| Some((what.of)(a.as_ref()?) / (what.of)(b.as_ref()?)));
        let ratios = sorted(ratios)?;
        Some([median(&ratios), ratios[0], ratios[ratios.len() - 1]])
    }
}

fn show(value: f64, what: What) -> String {
    if value.is_nan() { "-".to_owned() } else { format!("{value:.*}", what.decimals) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::loads;

    fn sample(value: f64, server_us: f64, client_busy: f64) -> Option<Sample> {
        Some(Sample { value, p50_us: 1.0, p99_us: 1.0, server_us, client_us: 1.0, client_busy })
    }

    fn is_met(name: &str, samples: Vec<Vec<Option<Sample>>>) -> Option<bool> {
        let load = loads::ALL.iter().find(|load| load.name == name).unwrap();
        let servers: Vec<_> = crate::nbd::servers::ALL.iter().take(samples.len()).collect();
        let cells = [Cell { load, samples, distances: Vec::new() }];
        verdict(&cells[0], &cells, &servers).is_met
    }

    #[test]
    fn the_best_of_the_others_counts_and_rounds_that_failed_do_not() {
        let name = "sequential 4k reads, depth 32";
        let slow = vec![sample(10.0, 1.0, 0.5), sample(12.0, 1.0, 0.5), None];
        let best = vec![sample(20.0, 1.0, 0.5), None, sample(18.0, 1.0, 0.5)];
        let twice = vec![sample(40.0, 1.0, 0.5), None, sample(1.0, 1.0, 0.5)];
        let ours = vec![sample(40.0, 1.0, 0.5), sample(39.0, 1.0, 0.5), sample(36.0, 1.0, 0.5)];
        assert_eq!(is_met(name, vec![ours, slow.clone(), best.clone()]), Some(true));
        assert_eq!(is_met(name, vec![twice, slow, best.clone()]), Some(false));
        assert_eq!(is_met(name, vec![vec![None], best]), None);
    }

    #[test]
    fn at_the_clients_limit_half_the_processor_time_will_do() {
        let name = "sequential 4k reads, depth 32";
        let best = vec![sample(20.0, 2.0, 0.9)];
        let with = |server_us, busy| vec![vec![sample(21.0, server_us, busy)], best.clone()];
        assert_eq!(is_met(name, with(0.9, 0.95)), Some(true));
        assert_eq!(is_met(name, with(1.1, 0.95)), Some(false));
        assert_eq!(is_met(name, with(0.9, 0.5)), Some(false));
    }
}
