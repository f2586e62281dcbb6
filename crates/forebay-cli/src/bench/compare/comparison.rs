//! What came of it: a row for each metric, with the pairs and what they say.

use forebay_fio::generator::Direction;
use forebay_fio::sample::DirectionSample;

use super::measure::{Measured, Run};
use super::metric::{FEW, Metric};
use super::spread::{PAIRS_THAT_DECIDE, Spread, Verdict};

/// A metric, and what the pairs say of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) metric: Metric,
    /// Whose it is, if there is more than one direction.
    pub(super) direction: Option<Direction>,
    /// A and B in each pair, where it is known.
    pub(super) pairs: Vec<[Option<f64>; 2]>,
    /// The medians of A and of B.
    pub(super) medians: [Option<f64>; 2],
    /// A/B, pair by pair.
    pub(super) ratio: Option<Spread>,
    pub(super) verdict: Option<Verdict>,
}

impl Row {
    fn new(metric: Metric, direction: Option<Direction>, pairs: Vec<[Option<f64>; 2]>) -> Self {
        let median = |at: usize| {
            let known = pairs.iter().filter_map(move |pair| pair[at]);
            Spread::of(known).map(|spread| spread.median)
        };
        let medians = [median(0), median(1)];
        let is_few = Metric::OF_RUN.contains(&metric) && medians.iter().flatten().all(|&m| m < FEW);
        let ratios: Vec<f64> = ratios(&pairs).flatten().filter(|_| !is_few).collect();
        let ratio = Spread::of(ratios.iter().copied());
        let judge = |(ratio, tolerance)| Verdict::of(ratio, ratios.len(), tolerance);
        let verdict = ratio.zip(metric.tolerance()).map(judge);
        Self { metric, direction, pairs, medians, ratio, verdict }
    }

    /// `IOPS`, or `read IOPS`.
    pub(super) fn title(&self) -> String {
        match self.direction {
            Some(direction) => format!("{} {}", direction.word(), self.metric.title()),
            None => self.metric.title().to_owned(),
        }
    }

    /// A/B in each pair.
    pub(super) fn ratios(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        ratios(&self.pairs)
    }

    fn is_known(&self) -> bool {
        self.pairs.iter().flatten().flatten().any(|&value| value > 0.0)
    }
}

/// Of nothing there is no multiple.
fn ratios(pairs: &[[Option<f64>; 2]]) -> impl Iterator<Item = Option<f64>> + '_ {
    pairs.iter().map(|&[a, b]| match (a, b) {
        (Some(a), Some(b)) if a > 0.0 && b > 0.0 => Some(a / b),
        _ => None,
    })
}

/// The rows of all that was measured.
pub(super) fn rows(measured: &Measured) -> Vec<Row> {
    let has = |direction: &Direction| {
        let all = measured.pairs.iter().flatten();
        all.into_iter().any(|run| figures(run, *direction).is_some())
    };
    let directions: Vec<_> = Direction::ALL.into_iter().filter(has).collect();
    let named = |direction| (directions.len() > 1).then_some(direction);
    let mut rows = Vec::new();
    for &direction in &directions {
        for metric in Metric::OF_DIRECTION {
            let value = |run| figures(run, direction).and_then(|d| metric.of_direction(d));
            let pairs = measured.pairs.iter().map(|[a, b]| [value(a), value(b)]);
            rows.push(Row::new(metric, named(direction), pairs.collect()));
        }
    }
    for metric in Metric::OF_RUN {
        let [a_before, b_before] = &measured.before;
        let counted = a_before.syscalls.zip(b_before.syscalls);
        let pairs = match (metric, counted) {
            // By one method for both, in the warm-up.
            (Metric::Syscalls, Some((a, b))) => vec![[Some(a), Some(b)]],
            _ => {
                let value =
                    |[a, b]: &[Run; 2]| [metric.of_run(a, a_before), metric.of_run(b, b_before)];
                measured.pairs.iter().map(value).collect()
            }
        };
        rows.push(Row::new(metric, None, pairs));
    }
    // What nobody did needs no row.
    rows.retain(|row| row.metric != Metric::Merges || row.is_known());
    rows
}

fn figures(run: &Run, direction: Direction) -> Option<&DirectionSample> {
    run.sample.directions.iter().find(|figures| figures.direction == direction)
}

/// A comparison that is over.
#[derive(Debug)]
pub(super) struct Comparison {
    /// What A and B are.
    pub(super) titles: [String; 2],
    /// The commands that they ran.
    pub(super) commands: [String; 2],
    /// How many pairs were asked for.
    pub(super) nr_asked: usize,
    /// How many there are.
    pub(super) nr_pairs: usize,
    /// Whether perf counted the system calls.
    pub(super) is_counted: bool,
    /// Where it ran.
    pub(super) machine: String,
    /// What is to be known of the sides.
    pub(super) notes: Vec<String>,
    pub(super) rows: Vec<Row>,
}

impl Comparison {
    /// Whether anything is worse than the tolerance allows.
    pub(super) fn is_worse(&self) -> bool {
        self.rows.iter().any(|row| row.verdict == Some(Verdict::Worse))
    }

    /// What a reader should know before believing it, one sentence each.
    pub(super) fn cautions(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.nr_pairs < self.nr_asked {
            all.push(format!(
                "Interrupted: {} of {} pairs were done.",
                self.nr_pairs, self.nr_asked
            ));
        }
        if self.nr_pairs < PAIRS_THAT_DECIDE {
            all.push(format!("Fewer than {} pairs decide nothing.", PAIRS_THAT_DECIDE));
        }
        for row in self.rows.iter().filter(|row| row.metric == Metric::Iops) {
            if let Some(ratio) = row.ratio.filter(|ratio| ratio.max > 1.25 * ratio.min) {
                all.push(format!(
                    "The ratios of {} go from {:.2} to {:.2}: the machine or the device was not \
                     quiet; take more pairs, or longer runs.",
                    row.title(),
                    ratio.min,
                    ratio.max
                ));
            }
        }
        all.extend(self.notes.iter().cloned());
        all
    }

    /// How the figures are to be read, one sentence each.
    pub(super) fn legend(&self) -> Vec<String> {
        let calls = match self.is_counted {
            true => "System calls: counted by perf in the warm-up, of the whole process.",
            false => "System calls: as the layer counts its own; perf was not to be had.",
        };
        let all = [
            "A/B: the median of the ratios pair by pair, with the lowest and the highest; A and B \
             are the medians of their runs.",
            "ok: the median ratio keeps the limit; worse: it does not, and no pair is on the other \
             side of 1; unclear: some pair is, or there are fewer than 5.",
            "Latency: completion latency, from submission to completion.",
            "CPU: user and system time of the whole process, less that of a run that ends at once.",
            "Context switches: of the threads of the jobs, voluntary or not.",
            calls,
        ];
        all.map(str::to_owned).into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::measured;
    use super::*;

    #[test]
    fn a_row_has_medians_and_ratios_pair_by_pair() {
        let rows = rows(&measured());
        let titles: Vec<_> = rows.iter().map(Row::title).collect();
        assert_eq!(titles[0], "IOPS");
        assert!(!titles.contains(&"merges per I/O".to_owned()), "{titles:?}");
        let iops = &rows[0];
        assert_eq!(iops.medians, [Some(102_000.0), Some(100_000.0)]);
        assert_eq!(iops.verdict, Some(Verdict::Ok));
        assert_eq!(iops.ratios().count(), 5);
    }

    #[test]
    fn what_one_side_does_not_know_has_no_ratio() {
        let rows = rows(&Measured { before: Default::default(), ..measured() });
        let calls = rows.iter().find(|row| row.metric == Metric::Syscalls).expect("a row");
        assert_eq!((calls.medians[1], calls.ratio, calls.verdict), (None, None, None));
    }

    #[test]
    fn hardly_any_of_either_have_no_ratio() {
        let row = |a, b| Row::new(Metric::Switches, None, vec![[Some(a), Some(b)]; 5]);
        assert_eq!(row(0.0002, 0.0008).ratio, None);
        assert_eq!(row(0.0002, 1.0).ratio.map(|ratio| ratio.median), Some(0.0002));
    }

    #[test]
    fn directions_are_named_if_there_are_several() {
        let mut measured = measured();
        for run in measured.pairs.iter_mut().flatten() {
            let mut more = run.sample.directions[0].clone();
            more.direction = Direction::Write;
            run.sample.directions.push(more);
        }
        let titles: Vec<_> = rows(&measured).iter().map(Row::title).collect();
        assert!(titles.contains(&"read latency p99, us".to_owned()), "{titles:?}");
        assert!(titles.contains(&"write IOPS".to_owned()), "{titles:?}");
        assert!(titles.contains(&"CPU per I/O, us".to_owned()), "{titles:?}");
    }
}
