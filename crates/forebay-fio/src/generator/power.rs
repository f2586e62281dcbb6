//! Powers and logarithms that are the same on every machine.
//!
//! The C library computes those of std, and two libraries may differ in the last bit. The same seed
//! would then draw other blocks. These functions add, multiply and divide only, which IEEE 754
//! defines to the bit. Their relative error is below 1e-13 for the powers that skews need.

/// The natural logarithm of 2, in two parts: the product of the first one and an exponent is exact.
const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Bits of the fraction of an `f64`, and the bias of its exponent.
const FRACTION_BITS: u32 = 52;
const BIAS: i64 = 1023;

/// Returns `base` to the power of `exponent`, for a base that is not negative.
pub(super) fn power(base: f64, exponent: f64) -> f64 {
    match base > 0.0 {
        true => exponential(exponent * logarithm(base)),
        false if exponent > 0.0 => 0.0,
        false if exponent < 0.0 => f64::INFINITY,
        false => 1.0,
    }
}

/// Returns the natural logarithm of a normal number above 0.
pub(super) fn logarithm(x: f64) -> f64 {
    let mut exponent = (x.to_bits() >> FRACTION_BITS) as i64 - BIAS;
    let fraction = x.to_bits() & ((1 << FRACTION_BITS) - 1);
    let mut m = f64::from_bits(fraction | (BIAS as u64) << FRACTION_BITS);
    if m > std::f64::consts::SQRT_2 {
        (m, exponent) = (m / 2.0, exponent + 1);
    }
    // ln m = 2 (s + s^3 / 3 + s^5 / 5 + ...), and s is at most 0.172.
    let s = (m - 1.0) / (m + 1.0);
    let terms = (0..12).rev().map(|nth| 1.0 / f64::from(2 * nth + 1));
    let series = terms.fold(0.0, |sum, term| sum * (s * s) + term);
    exponent as f64 * LN_2_HIGH + (2.0 * s * series + exponent as f64 * LN_2_LOW)
}

/// Returns e to the power of `x`: 0 or infinity if that is no normal number.
fn exponential(x: f64) -> f64 {
    let halves = x / std::f64::consts::LN_2;
    // The nearest whole number. A conversion to an integer saturates.
    let exponent = (halves + if halves < 0.0 { -0.5 } else { 0.5 }) as i64;
    if exponent <= -BIAS {
        return 0.0;
    }
    if exponent > BIAS {
        return f64::INFINITY;
    }
    // At most 0.347, so that the terms of Taylor's series become small quickly.
    let rest = (x - exponent as f64 * LN_2_HIGH) - exponent as f64 * LN_2_LOW;
    let series = (1..=15).rev().fold(1.0, |sum, nth| 1.0 + sum * rest / f64::from(nth));
    series * f64::from_bits(((exponent + BIAS) as u64) << FRACTION_BITS)
}

#[cfg(test)]
mod tests {
    use super::{exponential, logarithm, power};

    /// Checks a value against the one of the C library.
    fn check(found: f64, expected: f64) {
        let error = (found - expected).abs();
        assert!(error <= expected.abs() * 1e-13, "{found} is not {expected}");
    }

    #[test]
    fn logarithms_are_those_of_the_c_library() {
        for nth in 1..2000_i32 {
            let x = f64::from(nth) / 64.0;
            if nth != 64 {
                check(logarithm(x), x.ln());
            }
        }
        assert_eq!(logarithm(1.0), 0.0);
        check(logarithm(1e-300), 1e-300_f64.ln());
    }

    #[test]
    fn powers_are_those_of_the_c_library() {
        for exponent in [-1.8, -0.5, 0.01, 1.0, 5.0, 100.0] {
            for nth in 1..2000_u32 {
                let base = f64::from(nth) / 1999.0;
                check(power(base, exponent), base.powf(exponent));
            }
        }
        check(power(1e12, -0.9), 1e12_f64.powf(-0.9));
    }

    #[test]
    fn powers_at_the_limits_are_zero_one_or_infinite() {
        assert_eq!(power(0.0, 2.0), 0.0);
        assert_eq!(power(0.0, -2.0), f64::INFINITY);
        assert_eq!(power(7.0, 0.0), 1.0);
        assert_eq!((exponential(-1e9), exponential(1e9)), (0.0, f64::INFINITY));
    }
}
