//! Small random number generators whose streams never change.
//!
//! A benchmark is reproducible only if the same seed gives the same offsets in every version and on
//! every machine, which a general-purpose crate does not promise. Both generators are public domain
//! and fully specified: SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
//! Generators", 2014), which spreads a seed, and xoshiro256++ (Blackman and Vigna, "Scrambled
//! Linear Pseudorandom Number Generators", 2019), which draws the numbers. Neither is for
//! cryptography.

/// SplitMix64: turns any 64-bit seed, also a poor one such as 0 or 1, into well spread numbers.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns a generator that starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number of the stream.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// xoshiro256++: the stream of a job, about a nanosecond per number.
#[derive(Debug, Clone)]
pub struct Xoshiro256 {
    state: [u64; 4],
}

impl Xoshiro256 {
    /// Returns stream number `stream` of a seed. Different streams of one seed are unrelated, so
    /// every clone of a job can have its own, and every purpose inside it too.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut outer = SplitMix64::new(stream);
        let mut inner = SplitMix64::new(seed ^ outer.draw());
        Self { state: std::array::from_fn(|_| inner.draw()) }
    }

    /// Returns the next number of the stream, uniform over all 64-bit values.
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

    /// Fills `bytes` with the next numbers of the stream, little-endian.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let mut chunks = bytes.chunks_exact_mut(8);
        for chunk in &mut chunks {
            chunk.copy_from_slice(&self.draw().to_le_bytes());
        }
        let rest = chunks.into_remainder();
        if !rest.is_empty() {
            rest.copy_from_slice(&self.draw().to_le_bytes()[..rest.len()]);
        }
    }

    /// Returns the next number of the stream, uniform over `0..bound`; 0 if `bound` is 0.
    ///
    /// Lemire's multiply-and-shift without its rejection step: no value is off by more than
    /// `bound` / 2^64, which no benchmark can see, and the cost is one multiplication.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_matches_the_published_stream() {
        let mut rng = SplitMix64::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| rng.draw()), expected);
    }

    #[test]
    fn xoshiro_matches_the_published_stream() {
        let mut rng = Xoshiro256 { state: [1, 2, 3, 4] };
        let expected = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
        ];
        assert_eq!(expected.map(|_| rng.draw()), expected);
    }

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let first = |seed, stream| Xoshiro256::new(seed, stream).draw();
        assert_eq!(first(1, 0), first(1, 0));
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
        assert_ne!(first(0, 1), first(1, 0));
    }

    #[test]
    fn bounded_draws_are_even_and_inside() {
        let mut rng = Xoshiro256::new(7, 0);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[rng.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        assert_eq!(rng.below(1), 0);
        assert_eq!(rng.below(0), 0);
    }
}
