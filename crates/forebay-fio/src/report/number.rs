//! fio's short numbers: a fixed number of digits and a unit prefix, such as `46.0k` or `180MiB/s`.

use crate::measures::Units;

/// The step from one prefix to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// k, M, G, ...
    Decimal,
    /// Ki, Mi, Gi, ...
    Binary,
}

impl Base {
    fn other(self) -> Self {
        match self {
            Self::Decimal => Self::Binary,
            Self::Binary => Self::Decimal,
        }
    }

    fn step(self) -> u64 {
        match self {
            Self::Decimal => 1000,
            Self::Binary => 1024,
        }
    }

    /// A `u64` needs six steps at most, so there is always a prefix.
    fn prefix(self, power: usize) -> &'static str {
        match self {
            Self::Decimal => ["", "k", "M", "G", "T", "P", "E"][power],
            Self::Binary => ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power],
        }
    }
}

/// Returns a number with at most `digits` digits: unchanged if it has no more, otherwise divided
/// until its whole part has no more, with as many decimals as fit (the point counts as a digit).
///
/// ```
/// # use forebay_fio::report::number::{short, Base};
/// assert_eq!(short(9_999, 4, Base::Decimal, ""), "9999");
/// assert_eq!(short(46_012, 4, Base::Decimal, ""), "46.0k");
/// assert_eq!(short(188_743_680, 4, Base::Binary, "B/s"), "180MiB/s");
/// ```
pub fn short(value: u64, digits: usize, base: Base, unit: &str) -> String {
    let (mut power, mut divisor) = (0, 1_u64);
    while digits_of(value / divisor) > digits {
        power += 1;
        divisor *= base.step();
    }
    let prefix = base.prefix(power);
    if power == 0 {
        return format!("{value}{unit}");
    }
    let whole_digits = digits_of(value / divisor);
    let mut decimals = digits.saturating_sub(whole_digits + 1);
    let mut rounded = round(value, divisor, decimals);
    if decimals > 0 && digits_of(rounded) > whole_digits + decimals {
        // Rounding has carried into a new digit (99.96 -> 100.0): there is room for one less.
        decimals -= 1;
        rounded = round(value, divisor, decimals);
    }
    let ten = 10_u64.pow(decimals as u32);
    match decimals {
        0 => format!("{rounded}{prefix}{unit}"),
        _ => format!("{}.{:0decimals$}{prefix}{unit}", rounded / ten, rounded % ten),
    }
}

impl Units {
    fn base(self) -> Base {
        if self.decimal { Base::Decimal } else { Base::Binary }
    }

    /// Returns a number of bytes.
    pub fn size(self, bytes: u64) -> String {
        short(bytes, 4, self.base(), "B")
    }

    /// Returns a number of bytes with a prefix of the other base.
    pub fn size_in_other_base(self, bytes: u64) -> String {
        short(bytes, 4, self.base().other(), "B")
    }

    /// Returns a rate, with its time.
    pub fn rate(self, bytes_per_s: u64) -> String {
        self.rate_with(bytes_per_s, self.base())
    }

    /// Returns a rate with a prefix of the other base.
    pub fn rate_in_other_base(self, bytes_per_s: u64) -> String {
        self.rate_with(bytes_per_s, self.base().other())
    }

    fn rate_with(self, bytes_per_s: u64, base: Base) -> String {
        match self.bits {
            true => short(bytes_per_s.saturating_mul(8), 4, base, "bit/s"),
            false => short(bytes_per_s, 4, base, "B/s"),
        }
    }
}

/// Returns bytes with a binary prefix: `4096B`, `64.0KiB`.
pub fn bytes(value: u64) -> String {
    short(value, 4, Base::Binary, "B")
}

/// Returns a count: `7529`, `46.0k`.
pub fn count(value: u64) -> String {
    short(value, 4, Base::Decimal, "")
}

/// Returns fio's unit for times from `min_ns` to `max_ns`, and its size in ns: the one in which the
/// numbers are short but not blunt.
///
/// ```
/// # use forebay_fio::report::number::time_unit;
/// assert_eq!(time_unit(1_345_700, 107_073_000), ("usec", 1000));
/// assert_eq!(time_unit(2_100, 90_000), ("nsec", 1));
/// ```
pub fn time_unit(min_ns: u64, max_ns: u64) -> (&'static str, u64) {
    match (min_ns, max_ns) {
        (2_000_001.., 100_000_000..) => ("msec", 1_000_000),
        (2_001.., 100_000..) => ("usec", 1000),
        _ => ("nsec", 1),
    }
}

/// Returns `value / divisor` times ten to the `decimals`, to the nearest whole number.
fn round(value: u64, divisor: u64, decimals: usize) -> u64 {
    let ten = 10_u128.pow(decimals as u32);
    let divisor = u128::from(divisor);
    ((u128::from(value) * ten + divisor / 2) / divisor) as u64
}

fn digits_of(value: u64) -> usize {
    value.checked_ilog10().unwrap_or(0) as usize + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs that fio 3.33 printed.
    #[test]
    fn numbers_look_like_those_of_fio() {
        for (value, text) in [
            (512, "512B"),
            (4096, "4096B"),
            (9999, "9999B"),
            (10_000, "9.77KiB"),
            (10_240, "10.0KiB"),
            (12_345, "12.1KiB"),
            (131_072, "128KiB"),
            (1 << 20, "1024KiB"),
            (3_000_000, "2930KiB"),
            (10 << 20, "10.0MiB"),
            (94_700_000_000, "88.2GiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        let units = Units::default();
        for (value, text) in [(9728, "9728B"), (1_048_576, "1049kB"), (188_412_000, "188MB")] {
            assert_eq!(units.size_in_other_base(value), text);
        }
        let bits = Units { bits: true, ..units };
        assert_eq!(bits.rate(3_627_000_000), "27.0Gibit/s");
        assert_eq!(bits.rate_in_other_base(3_627_000_000), "29.0Gbit/s");
        let decimal = Units { decimal: true, ..units };
        assert_eq!((decimal.size(16_384), decimal.rate(1000)), ("16.4kB".into(), "1000B/s".into()));
        for (value, text) in [(0, "0"), (7529, "7529"), (45_996, "46.0k"), (23_097_375, "23.1M")] {
            assert_eq!(count(value), text);
        }
        for (value, text) in [(501_091, "501091"), (3_855_900, "3855.9k"), (1_311_142, "1311.1k")] {
            assert_eq!(short(value, 6, Base::Decimal, ""), text);
        }
    }

    #[test]
    fn a_carry_does_not_make_it_longer() {
        assert_eq!(count(99_960), "100k");
        assert_eq!(count(99_940), "99.9k");
        assert_eq!(bytes(u64::MAX), "16.0EiB");
    }
}
