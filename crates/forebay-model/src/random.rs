//! A small deterministic random number generator.
//!
//! Source: xoshiro256++ and SplitMix64, by David Blackman and Sebastiano Vigna (prng.di.unimi.it),
//! both in the public domain. SplitMix64 seeds the generator, as its authors advise. The code is
//! here because its numbers are part of the meaning of a seed: no other version may change them.

/// A stream, identified by a seed and a number. Streams of one seed are independent of each other's
/// use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Creates the stream with this number.
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut outer = stream;
        let mut inner = seed ^ split_mix(&mut outer);
        Random { state: core::array::from_fn(|_| split_mix(&mut inner)) }
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number from `min` to `max`, both included.
    pub fn between(&mut self, min: u64, max: u64) -> u64 {
        assert!(min <= max);
        min + self.below(max - min + 1)
    }

    /// Returns true with the probability `nr` / `of`.
    #[inline]
    pub fn chance(&mut self, nr: u32, of: u32) -> bool {
        self.below(of.into()) < nr.into()
    }

    /// Returns a number from 0 up to and excluding 1.
    pub fn fraction(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a random element of a list.
    ///
    /// # Panics
    /// Panics if the list is empty.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// Draws from an exponential distribution with this mean, within 1 % and at most 45 times the
    /// mean.
    ///
    /// The result is the mean times -ln(u) for a uniform u in (0, 1], computed with integers. The
    /// leading zeroes of the draw are the integer part of -log2(u). For the rest, f + 0.344 f (1 -
    /// f) approximates log2(1 + f).
    pub fn exponential(&mut self, mean: u64) -> u64 {
        const LN_2: u128 = 45_426;
        let draw = self.draw() | 1;
        let zeroes = draw.leading_zeros();
        let f = ((draw << zeroes << 1) >> 48) as u128;
        let log2_1f = f + ((22_544 * f * (65_536 - f)) >> 32);
        let minus_log2 = (u128::from(zeroes + 1) << 16) - log2_1f;
        ((u128::from(mean) * minus_log2 * LN_2) >> 32) as u64
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_streams_come_out() {
        let mut state = 1_234_567;
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!(expected.map(|_| split_mix(&mut state)), expected);
        let mut random = Random { state: [1, 2, 3, 4] };
        let expected = [41_943_041, 58_720_359, 3_588_806_011_781_223];
        assert_eq!(expected.map(|_| random.draw()), expected);
    }

    #[test]
    fn an_exponential_has_its_mean_and_its_tail() {
        let mut random = Random::new(7, 0);
        let draws = 200_000;
        let (mut sum, mut above) = (0, 0);
        for _ in 0..draws {
            let value = random.exponential(10_000);
            sum += value;
            above += u32::from(value > 30_000);
        }
        let mean = sum / draws;
        assert!((9_800..10_200).contains(&mean), "{mean}");
        // A share of e^-3 exceeds three times the mean: 4.98 %.
        assert!((9_500..10_400).contains(&above), "{above}");
    }

    #[test]
    fn draws_stay_inside() {
        let mut random = Random::new(1, 2);
        assert!((0..1000).all(|_| (3..=5).contains(&random.between(3, 5))));
        assert_eq!((random.below(1), random.below(0)), (0, 0));
        assert!((0..1000).all(|_| !random.chance(0, 10) && random.chance(10, 10)));
    }
}
