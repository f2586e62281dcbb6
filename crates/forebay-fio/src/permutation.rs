//! A random order of the numbers `0..len` that needs no memory per number.
//!
//! Random I/O "with a map" visits every block once before it visits any again. A bitmap of visited
//! blocks costs memory per block and gets slower as it fills. Here the order is a keyed bijection
//! instead: number `i` of the pass *is* block `at(i)`.
//!
//! The bijection works on the smallest power of two that holds `len`, as a few rounds of adding a
//! key, multiplying by an odd key, and folding the upper half of the bits into the lower half: each
//! step can be undone, so the whole can. A result outside `0..len` is put in again until it falls
//! inside ("cycle walking", Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002),
//! which keeps it a bijection on `0..len` and takes fewer than two tries on average, because `len`
//! is more than half of the power of two.

use crate::random::Xoshiro256;

/// Four rounds are the fewest whose neighbours are as rare as in a random order for every seed,
/// also in small regions (see the tests; with three, some seeds are poor). More only cost time.
const ROUNDS: usize = 4;

/// A keyed, seemingly random bijection of `0..len` onto itself.
#[derive(Debug, Clone)]
pub struct Permutation {
    len: u64,
    mask: u64,
    fold: u32,
    rounds: [Round; ROUNDS],
}

#[derive(Debug, Clone, Copy)]
struct Round {
    add: u64,
    /// Odd, hence invertible modulo a power of two.
    multiply: u64,
}

impl Permutation {
    /// Returns the permutation of `0..len` whose keys are the next eight numbers of `rng`.
    ///
    /// # Panics
    ///
    /// If `len` is 0 or above 2^63.
    pub fn new(len: u64, rng: &mut Xoshiro256) -> Self {
        assert!((1..=1 << 63).contains(&len), "a permutation needs between 1 and 2^63 numbers");
        let mask = len.next_power_of_two() - 1;
        let bits = mask.count_ones();
        let rounds = std::array::from_fn(|_| Round { add: rng.draw(), multiply: rng.draw() | 1 });
        Self { len, mask, fold: bits.div_ceil(2).max(1), rounds }
    }

    /// Returns the number at position `index`.
    ///
    /// # Panics
    ///
    /// In debug builds, if `index` is not below the length.
    #[inline]
    pub fn at(&self, index: u64) -> u64 {
        debug_assert!(index < self.len, "place {index} of a permutation of {}", self.len);
        let mut x = self.mix(index);
        // Ends: the bijection on the power of two, repeated, comes back to `index`, which is
        // inside.
        while x >= self.len {
            x = self.mix(x);
        }
        x
    }

    #[inline]
    fn mix(&self, mut x: u64) -> u64 {
        for round in &self.rounds {
            x = x.wrapping_add(round.add).wrapping_mul(round.multiply) & self.mask;
            x ^= x >> self.fold;
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn permutation(len: u64, seed: u64) -> Permutation {
        Permutation::new(len, &mut Xoshiro256::new(seed, 0))
    }

    #[track_caller]
    fn check_bijective(len: u64, seed: u64) {
        let order = permutation(len, seed);
        let mut seen = vec![false; len as usize];
        for index in 0..len {
            let number = order.at(index) as usize;
            assert!(!std::mem::replace(&mut seen[number], true), "{number} twice in 0..{len}");
        }
    }

    #[test]
    fn every_small_length_is_bijective() {
        for len in 1..700 {
            check_bijective(len, len ^ 0x55);
        }
    }

    #[test]
    fn a_large_one_is_bijective() {
        check_bijective((1 << 20) + 1, 3);
    }

    /// A block layer merges neighbours, so an order with too many of them would measure something
    /// else. In a random order two steps of `len` go to a neighbour on average, whatever `len` is.
    #[test]
    fn neighbours_are_as_rare_as_in_a_random_order() {
        for len in [16, 64, 100, 1000, 4096, (1 << 14) + 17] {
            let seeds = 100;
            let neighbours: Vec<_> = (0..seeds)
                .map(|seed| {
                    let order = permutation(len, seed);
                    (1..len).filter(|&i| order.at(i).abs_diff(order.at(i - 1)) == 1).count() as u64
                })
                .collect();
            let mean = neighbours.iter().sum::<u64>() as f64 / seeds as f64;
            assert!((1.4..2.6).contains(&mean), "{mean} neighbours in 0..{len}");
            assert!(neighbours.iter().all(|&n| n <= 12), "{neighbours:?} in 0..{len}");
        }
    }

    #[test]
    fn the_first_part_of_a_pass_is_spread_over_everything() {
        let len = 1 << 20;
        let order = permutation(len, 11);
        let mut quarters = [0_u32; 16];
        for index in 0..16_384 {
            quarters[(order.at(index) * 16 / len) as usize] += 1;
        }
        assert!(quarters.iter().all(|&n| (800..1250).contains(&n)), "{quarters:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_length_and_seed_is_bijective(len in 1_u64..20_000, seed: u64) {
            check_bijective(len, seed);
        }

        #[test]
        fn huge_lengths_stay_inside(len in 1_u64..=1 << 63, seed: u64, at: u64) {
            prop_assert!(permutation(len, seed).at(at % len) < len);
        }
    }
}
