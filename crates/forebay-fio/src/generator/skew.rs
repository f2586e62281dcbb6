//! Random blocks with unequal probabilities: `random_distribution=`.
//!
//! Source: fio's HOWTO. Zipf ranks are drawn as Gray et al. describe it ("Quickly Generating
//! Billion-Record Synthetic Databases", 1994), as in fio, so that the same theta is the same skew.
//! The ranks of `zipf`, `pareto` and `normal` are scattered over the region: fio hashes them, so
//! that some ranks share a block; here a bijection does it, so that none do.

use super::power::{logarithm, power};
use crate::permutation::Permutation;
use crate::random::Xoshiro256;

/// A distribution: the value of `random_distribution=`.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// Every block is equally likely.
    Random,
    /// Rank k has a probability proportional to k^-theta.
    Zipf(f64),
    /// A part `h` of the accesses goes to the part `1 - h` of the blocks, recursively.
    Pareto(f64),
    /// Normal, around the middle rank; the deviation is in percent of the blocks.
    Normal(f64),
    /// Zones, in order.
    Zoned(Vec<Zone>),
}

/// A part of the region, with its percentage of the accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// Percent of the accesses.
    pub access: u8,
    /// Percent of the region, or bytes.
    pub len: ZoneLen,
}

/// The length of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneLen {
    /// Percent of the region (`zoned:`).
    Percent(u8),
    /// Bytes (`zoned_abs:`).
    Bytes(u64),
}

/// Draws blocks of a region by a distribution.
#[derive(Debug, Clone)]
pub struct Skew {
    blocks: u64,
    shape: Shape,
    scatter: Permutation,
    draws: Xoshiro256,
}

#[derive(Debug, Clone)]
enum Shape {
    Even,
    Zipf {
        theta: f64,
        zetan: f64,
        eta: f64,
    },
    Pareto {
        exponent: f64,
    },
    Normal {
        dev: u64,
    },
    /// (upper limit of a draw below 100, first block, blocks)
    Zoned(Vec<(u64, u64, u64)>),
}

impl Skew {
    /// Draws from `blocks` blocks of `block_bytes` bytes.
    pub(crate) fn new(
        distribution: &Distribution,
        blocks: u64,
        block_bytes: u64,
        mut draws: Xoshiro256,
    ) -> Self {
        let n = blocks as f64;
        let shape = match distribution {
            Distribution::Random => Shape::Even,
            Distribution::Zipf(theta) => {
                let (zetan, zeta2) = (zeta(blocks, *theta), 1.0 + power(0.5, *theta));
                let eta = (1.0 - power(2.0 / n, 1.0 - theta)) / (1.0 - zeta2 / zetan);
                Shape::Zipf { theta: *theta, zetan, eta }
            }
            Distribution::Pareto(h) => {
                Shape::Pareto { exponent: logarithm(*h) / logarithm(1.0 - h) }
            }
            Distribution::Normal(percent) => {
                Shape::Normal { dev: ((n * percent / 100.0).ceil() as u64).min(blocks / 2) }
            }
            Distribution::Zoned(zones) => Shape::Zoned(place(zones, blocks, block_bytes)),
        };
        Self { blocks, shape, scatter: Permutation::new(blocks, &mut draws), draws }
    }

    pub(crate) fn draw(&mut self) -> u64 {
        let (blocks, n) = (self.blocks, self.blocks as f64);
        let rank = match &self.shape {
            Shape::Even => return self.draws.below(blocks),
            Shape::Zoned(zones) => {
                let place = self.draws.below(100);
                let zone = zones.iter().find(|zone| place < zone.0).or(zones.last());
                let (_, first, len) = zone.copied().unwrap_or((100, 0, blocks));
                return first + self.draws.below(len);
            }
            Shape::Zipf { theta, zetan, eta } => {
                let u = unit(&mut self.draws);
                let z = u * zetan;
                if z < 1.0 {
                    0
                } else if z < 1.0 + power(0.5, *theta) {
                    1
                } else {
                    (n * power(eta * u - eta + 1.0, 1.0 / (1.0 - theta))) as u64
                }
            }
            Shape::Pareto { exponent } => {
                ((n - 1.0) * power(unit(&mut self.draws), *exponent)) as u64
            }
            Shape::Normal { dev } => {
                /// So many even draws make a mean that is near enough to normal.
                const MEAN_OF: u64 = 12;
                let sum: u64 = (0..MEAN_OF).map(|_| self.draws.below(blocks)).sum();
                (sum / MEAN_OF + self.draws.below(dev + 1)).saturating_sub(dev / 2)
            }
        };
        self.scatter.at(rank.min(blocks - 1))
    }
}

/// Draws a number from 0 up to and excluding 1.
fn unit(draws: &mut Xoshiro256) -> f64 {
    (draws.draw() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns the sum of k^-theta for k from 1 to n. Beyond the first thousands of terms it is an
/// integral, which is right to nine digits there.
fn zeta(n: u64, theta: f64) -> f64 {
    const EXACT: u64 = 1 << 13;
    let exact = n.min(EXACT);
    let mut sum: f64 = (1..=exact).map(|k| power(k as f64, -theta)).sum();
    if n > exact {
        let (from, to) = (exact as f64, n as f64);
        sum += (power(to, 1.0 - theta) - power(from, 1.0 - theta)) / (1.0 - theta);
        sum += (power(to, -theta) - power(from, -theta)) / 2.0;
    }
    sum
}

/// Returns the positions of the zones. The last zone also gets the rest of the region, and the
/// accesses that no zone has. A zone beyond the end has the last block.
fn place(zones: &[Zone], blocks: u64, block_bytes: u64) -> Vec<(u64, u64, u64)> {
    let (mut access, mut first) = (0, 0);
    let mut placed = Vec::with_capacity(zones.len());
    for (at, zone) in zones.iter().enumerate() {
        let len = match zone.len {
            ZoneLen::Percent(percent) => (u128::from(blocks) * u128::from(percent) / 100) as u64,
            ZoneLen::Bytes(bytes) => bytes / block_bytes,
        };
        let start = first.min(blocks - 1);
        let rest = blocks - start;
        let len = if at + 1 == zones.len() { rest } else { len.clamp(1, rest) };
        access += u64::from(zone.access);
        placed.push((access, start, len));
        first = start + len;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u64 = 1000;
    const DRAWS: usize = 200_000;

    /// Returns how often each block was drawn, by block.
    fn counts(distribution: &Distribution) -> Vec<u64> {
        let mut skew = Skew::new(distribution, BLOCKS, 4096, Xoshiro256::new(5, 0));
        let mut counts = vec![0; BLOCKS as usize];
        (0..DRAWS).for_each(|_| counts[skew.draw() as usize] += 1);
        counts
    }

    fn ranked(distribution: &Distribution) -> Vec<u64> {
        let mut counts = counts(distribution);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    fn share(counts: &[u64]) -> f64 {
        counts.iter().sum::<u64>() as f64 / DRAWS as f64
    }

    #[test]
    fn zipf_ranks_fall_as_the_power_says() {
        for theta in [0.5, 0.8, 1.2, 1.8] {
            let ranked = ranked(&Distribution::Zipf(theta));
            let zetan = zeta(BLOCKS, theta);
            // Gray's method is exact for the first two ranks, and near for the sum of many.
            for rank in [1_u64, 2] {
                let expected = (rank as f64).powf(-theta) / zetan;
                let found = ranked[rank as usize - 1] as f64 / DRAWS as f64;
                assert!((found / expected - 1.0).abs() < 0.1, "{theta} {rank} {found} {expected}");
            }
            let expected = zeta(100, theta) / zetan;
            assert!((share(&ranked[..100]) - expected).abs() < 0.04, "{theta} {expected}");
        }
    }

    #[test]
    fn hot_blocks_are_scattered() {
        let counts = counts(&Distribution::Zipf(1.2));
        let hot: Vec<_> = (0..counts.len()).filter(|&at| counts[at] > 1000).collect();
        assert!(hot.len() > 5);
        assert!(hot.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() < 4, "{hot:?}");
    }

    #[test]
    fn pareto_repeats_its_share() {
        let ranked = ranked(&Distribution::Pareto(0.2));
        // Four fifths of the draws go to a fifth of the blocks.
        assert!((share(&ranked[..200]) - 0.8).abs() < 0.02, "{}", share(&ranked[..200]));
    }

    #[test]
    fn normal_draws_cluster_and_reach_few_blocks() {
        let ranked = ranked(&Distribution::Normal(10.0));
        assert!(share(&ranked[..200]) > 0.6, "{}", share(&ranked[..200]));
        assert!(share(&ranked[..600]) > 0.99);
    }

    #[test]
    fn zones_have_their_accesses() {
        let zone = |access, percent| Zone { access, len: ZoneLen::Percent(percent) };
        let zones = vec![zone(60, 10), zone(30, 20), zone(0, 30), zone(10, 40)];
        let counts = counts(&Distribution::Zoned(zones));
        for (blocks, expected) in
            [(0..100, 0.6), (100..300, 0.3), (300..600, 0.0), (600..1000, 0.1)]
        {
            assert!((share(&counts[blocks.clone()]) - expected).abs() < 0.01, "{blocks:?}");
        }
        let bytes = |access, len| Zone { access, len: ZoneLen::Bytes(len) };
        let zones = vec![bytes(50, 40_960), bytes(50, 1 << 40)];
        let counts = self::counts(&Distribution::Zoned(zones));
        assert!((share(&counts[..10]) - 0.5).abs() < 0.01);
    }

    #[test]
    fn the_long_sum_is_near_the_exact_one() {
        let n = (1 << 13) + 50_000;
        let exact: f64 = (1..=n).map(|k| (k as f64).powf(-0.9)).sum();
        assert!((zeta(n, 0.9) / exact - 1.0).abs() < 1e-9);
    }
}
