//! The result of a comparison: a row for each metric, with its pairs and their verdict.

use forebay_fio::generator::Direction;
use forebay_fio::sample::DirectionSample;

use super::measure::{Measured, Run};
use super::metric::{FEW, Metric};
use super::spread::{PAIRS_THAT_DECIDE, Spread, Verdict, shown};

/// A metric with its values, ratios and verdict.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) metric: Metric,
    /// Its direction, if there is more than one.
    pub(super) direction: Option<Direction>,
    /// A and B in each pair; `None` where the value is not known.
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
        // Pairs in which both sides have a value would be a biased selection.
        let is_partial = pairs.iter().any(|[a, b]| a.is_some() != b.is_some());
        let verdict = metric.tolerance().and_then(|tolerance| match is_partial {
            true => Some(Verdict::Undecided),
            false => ratio.map(|ratio| Verdict::of(ratio, tolerance)),
        });
        Self { metric, direction, pairs, medians, ratio, verdict }
    }

    /// Returns the name for people: `IOPS`, or `read IOPS`.
    pub(super) fn name(&self) -> String {
        match self.direction {
            Some(direction) => format!("{} {}", direction.word(), self.metric.name()),
            None => self.metric.name().to_owned(),
        }
    }

    /// Returns the unit of the medians for people, and its size ([`Metric::unit`]).
    pub(super) fn unit(&self) -> (&'static str, f64) {
        self.metric.unit(self.medians.iter().flatten().copied().fold(0.0, f64::max))
    }

    /// Returns the name with the unit.
    pub(super) fn title(&self) -> String {
        match self.unit() {
            ("", _) => self.name(),
            (unit, _) => format!("{}, {unit}", self.name()),
        }
    }

    /// Returns A/B for each pair.
    pub(super) fn ratios(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        ratios(&self.pairs)
    }

    /// Returns the number of pairs that have a ratio.
    pub(super) fn nr_ratios(&self) -> usize {
        self.ratios().flatten().count()
    }

    /// Returns a remark such as `3 of 5 pairs` if only some pairs have a ratio.
    pub(super) fn pairs_used(&self) -> Option<String> {
        let (nr, all) = (self.nr_ratios(), self.pairs.len());
        let is_judged = self.ratio.is_some() || self.verdict.is_some();
        (is_judged && nr < all).then(|| format!("{nr} of {all} pairs"))
    }

    fn is_known(&self) -> bool {
        self.pairs.iter().flatten().flatten().any(|&value| value > 0.0)
    }
}

/// Returns A/B for each pair, which is infinity where B alone is 0; `None` where a value is not
/// known or both are 0.
fn ratios(pairs: &[[Option<f64>; 2]]) -> impl Iterator<Item = Option<f64>> + '_ {
    pairs.iter().map(|&[a, b]| match (a, b) {
        (Some(a), Some(b)) if a > 0.0 || b > 0.0 => Some(a / b),
        _ => None,
    })
}

/// Returns the rows of a measurement.
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
            let value = |run| match figures(run, direction) {
                Some(figures) => metric.of_direction(figures),
                None => metric.of_idle_direction(),
            };
            let pairs = measured.pairs.iter().map(|[a, b]| [value(a), value(b)]);
            rows.push(Row::new(metric, named(direction), pairs.collect()));
        }
    }
    for metric in Metric::OF_RUN {
        let [a_before, b_before] = &measured.before;
        let counted = a_before.syscalls.zip(b_before.syscalls);
        let pairs = match (metric, counted) {
            // Counted by perf in the warm-up, for both sides.
            (Metric::Syscalls, Some((a, b))) => vec![[Some(a), Some(b)]],
            _ => {
                let value =
                    |[a, b]: &[Run; 2]| [metric.of_run(a, a_before), metric.of_run(b, b_before)];
                measured.pairs.iter().map(value).collect()
            }
        };
        rows.push(Row::new(metric, None, pairs));
    }
    // Without merges on either side, the row is omitted.
    rows.retain(|row| row.metric != Metric::Merges || row.is_known());
    rows
}

fn figures(run: &Run, direction: Direction) -> Option<&DirectionSample> {
    run.sample.directions.iter().find(|figures| figures.direction == direction)
}

/// A complete comparison.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Descriptions of A and B.
    pub(super) titles: [String; 2],
    /// The load, for the title of a figure.
    pub(super) workload: String,
    /// The commands of A and B.
    pub(super) commands: [String; 2],
    /// The requested number of pairs.
    pub(super) nr_asked: usize,
    /// The number of pairs measured.
    pub(super) nr_pairs: usize,
    /// Whether perf counted the system calls.
    pub(super) is_counted: bool,
    /// The machine that it ran on.
    pub(super) machine: String,
    /// Notes about the sides.
    pub(super) notes: Vec<String>,
    pub(super) rows: Vec<Row>,
}

impl Comparison {
    /// Returns whether any verdict is "worse".
    pub(super) fn is_worse(&self) -> bool {
        self.rows.iter().any(|row| row.verdict == Some(Verdict::Worse))
    }

    /// Returns caveats, one sentence each.
    pub(super) fn cautions(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.nr_pairs < self.nr_asked {
            all.push(format!(
                "Interrupted: {} of {} pairs are complete.",
                self.nr_pairs, self.nr_asked
            ));
        }
        if self.nr_pairs < PAIRS_THAT_DECIDE {
            all.push(format!("Fewer than {PAIRS_THAT_DECIDE} pairs allow no verdict."));
        }
        for row in self.rows.iter().filter(|row| row.metric == Metric::Iops) {
            if let Some(ratio) = row.ratio.filter(|ratio| ratio.max > 1.25 * ratio.min) {
                all.push(format!(
                    "The ratios of {} range from {} to {}: the machine or the device was not \
                     quiet. Take more pairs or longer runs.",
                    row.title(),
                    shown(ratio.min),
                    shown(ratio.max)
                ));
            }
        }
        all.extend(self.notes.iter().cloned());
        all
    }

    /// Returns explanations of the figures, one sentence each.
    pub(super) fn legend(&self) -> Vec<String> {
        let calls = match self.is_counted {
            true => "System calls: of the whole process, counted by perf in the warm-up.",
            false => {
                "System calls: those that the layer itself counts, because perf is not usable."
            }
        };
        let mut all = vec![
            "A, B: the median of the runs of each side. A/B: the median of the ratios of the \
             pairs, which is not the ratio of the two medians; range: the lowest and the highest \
             ratio."
                .to_owned(),
        ];
        all.extend(self.level().map(|level| {
            format!(
                "interval: it contains the median of all possible pairs with a probability of \
                 {level:.1} % (order statistics of {} pairs).",
                self.nr_pairs
            )
        }));
        let rest = [
            "ok: the whole interval keeps the limit. worse: none of it does. undecided: a part of \
             it does, there are fewer than 5 pairs, ratios beyond the limit differ by more than a \
             factor of 2, or a side has no sample in some pair.",
            "Latency: completion latency, from submission to completion.",
            "CPU: user and system time of the whole process, without that of an empty run.",
            "Context switches: voluntary and involuntary ones of the job threads.",
            calls,
        ];
        all.extend(rest.map(str::to_owned));
        all
    }

    /// Returns the level of the confidence intervals of all pairs, percent; `None` if there are too
    /// few pairs. Rows with fewer ratios than pairs have another level.
    pub(super) fn level(&self) -> Option<f64> {
        let interval = |row: &Row| row.ratio.and_then(|ratio| ratio.interval);
        let complete = self.rows.iter().filter(|row| row.nr_ratios() == self.nr_pairs);
        complete.filter_map(interval).map(|interval| interval.level * 100.0).next()
    }
}

#[cfg(test)]
mod tests;
