//! The number of commands that a rotating disk sorts, from the spread of latencies.
//!
//! In the model of such a disk this number changes no rate. It changes the order: commands beyond
//! it wait in order of arrival, and their latencies differ little. So the ratio of two percentiles
//! of a deep random load determines it. That ratio has no closed form; the model itself is run for
//! some numbers, and the ratios between are interpolated.

use super::data::damped;
use super::probe::{Figures, Probe};
use forebay_core::Op;
use forebay_fio::stats::Latency;
use forebay_model::{Command, Hdd, HddParams, Machine, Random};

/// The numbers for which the model is run.
const NUMBERS: [u64; 17] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512];
/// Commands of a run that are measured, and those before, for each one in flight.
const NR_MEASURED: usize = 12_000;
const NR_WARM_UP: usize = 4;
/// Shallower loads show little of the order.
const DEPTH_MIN: u32 = 16;
const SEED: u64 = 1;
/// Without a stroke the size has no effect.
const CAPACITY: u64 = 1 << 40;

/// The ratios that the model predicts for some loads.
pub(super) struct Spreads {
    /// The indices of the loads.
    loads: Vec<usize>,
    /// For each of [`NUMBERS`], the logarithm of the ratio of each load.
    rows: Vec<Vec<f64>>,
}

impl Spreads {
    /// Runs the model with these constants for the deep random reads among the loads.
    pub(super) fn new(seek_ns: u64, bytes_per_s: u64, probes: &[Probe]) -> Spreads {
        let is_deep = |probe: &Probe| {
            let is_read = probe.access.is_random() && !probe.access.writes();
            is_read && !probe.is_check && probe.depth >= DEPTH_MIN
        };
        let loads: Vec<usize> = (0..probes.len()).filter(|&at| is_deep(&probes[at])).collect();
        let row = |&nr_sorted: &u64| {
            let params = HddParams { seek_ns, bytes_per_s, nr_sorted, ..HddParams::default() };
            loads.iter().map(|&at| run(params, &probes[at]).spread.ln()).collect()
        };
        Spreads { rows: NUMBERS.iter().map(row).collect(), loads }
    }

    /// Returns the number of loads that show the order.
    pub(super) fn nr_loads(&self) -> usize {
        self.loads.len()
    }

    /// Returns the number that fits the figures best, and the sum of the squared errors. `None`: no
    /// load is deep.
    pub(super) fn best(&self, figures: &[Figures]) -> Option<(f64, f64)> {
        let steps = (0..(NUMBERS.len() - 1) * 32).map(|step| step as f64 / 32.0);
        let sums = steps.map(|place| (number_at(place), self.sum_at(place, figures)));
        sums.filter(|_| !self.loads.is_empty()).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Returns the sum of the squared errors of a number.
    pub(super) fn sum(&self, nr_sorted: f64, figures: &[Figures]) -> f64 {
        let above = NUMBERS.iter().position(|&nr| nr as f64 >= nr_sorted);
        let above = above.unwrap_or(NUMBERS.len() - 1).max(1);
        let [low, high] = [above - 1, above].map(|at| (NUMBERS[at] as f64).ln());
        let part = ((nr_sorted.ln() - low) / (high - low)).clamp(0.0, 1.0);
        self.sum_at((above - 1) as f64 + part, figures)
    }

    /// Returns the sum at a place in the table, between two of its rows.
    fn sum_at(&self, place: f64, figures: &[Figures]) -> f64 {
        let (row, part) = ((place as usize).min(self.rows.len() - 2), place.fract());
        let part = if place as usize > row { 1.0 } else { part };
        let errors = self.loads.iter().enumerate().map(|(nth, &at)| {
            let [low, high] = [row, row + 1].map(|row| self.rows[row][nth]);
            damped(figures[at].spread.ln() - (low + (high - low) * part))
        });
        errors.map(|error| error * error).sum()
    }
}

/// Returns the number at a place in the table.
fn number_at(place: f64) -> f64 {
    let row = (place as usize).min(NUMBERS.len() - 2);
    let [low, high] = [row, row + 1].map(|row| (NUMBERS[row] as f64).ln());
    (low + (high - low) * (place - row as f64)).exp()
}

/// Runs a load on the model in a closed loop. Only the latencies of the result have a meaning.
fn run(params: HddParams, probe: &Probe) -> Figures {
    let mut hdd = Hdd::new(params, CAPACITY);
    let [mut places, mut random] = [0, 1].map(|stream| Random::new(SEED, stream));
    let len = u64::from(probe.block_bytes);
    let mut begun_ns = vec![0; probe.depth as usize];
    let mut begin = |hdd: &mut Hdd, id: u32, now: u64, random: &mut Random| {
        let command = Command { op: Op::Read, start: places.below(1 << 28) * len, len };
        hdd.begin(id, &command, now, random);
    };
    (0..probe.depth).for_each(|id| begin(&mut hdd, id, 0, &mut random));
    let mut latency = Latency::default();
    let nr_warm_up = NR_WARM_UP * probe.depth as usize;
    for nth in 0..nr_warm_up + NR_MEASURED {
        let now = hdd.next_at_ns().expect("commands are in flight");
        let done = hdd.take_done(now, &mut random).expect("one is due");
        let begun = &mut begun_ns[done.id as usize];
        if nth >= nr_warm_up {
            latency.record(now - *begun);
        }
        *begun = now;
        begin(&mut hdd, done.id, now, &mut random);
    }
    Figures::new(0, 0.0, 0.0, &latency)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::{Limits, plan};

    #[test]
    fn number_of_sorted_commands_is_found_from_latencies() {
        let limits =
            Limits { block_bytes: 512, request_bytes: 1 << 18, queue_depth: 256, writes: false };
        let probes = plan(&limits);
        let spreads = Spreads::new(4_000_000, 160_000_000, &probes);
        for nr_sorted in [8, 20, 32, 50, 110] {
            let params = HddParams { seek_ns: 4_100_000, nr_sorted, ..HddParams::default() };
            let figures: Vec<_> = probes.iter().map(|probe| run(params, probe)).collect();
            let (best, sum) = spreads.best(&figures).expect("deep loads");
            let error = best / nr_sorted as f64 - 1.0;
            assert!(error.abs() < 0.05, "{nr_sorted}: {best}");
            assert!((spreads.sum(best, &figures) - sum).abs() < 1e-6);
        }
        let shallow = Spreads::new(4_000_000, 160_000_000, &probes[..2]);
        assert_eq!(shallow.best(&[]), None);
    }
}
