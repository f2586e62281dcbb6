//! Numbers in fio's notation: sizes, times, percentages and booleans.
//!
//! Source: fio's HOWTO, section "Parameter types". The base is the default one (`kb_base=1024`), in
//! which, on purpose and against IEC, `k` is 1024 and `kib` is 1000; `decimal` has the other one.
//! Suffixes are case-insensitive: `4k`, `4kB` and `4KB` are 4096. The HOWTO says that `ki` is
//! `kib`; fio 3.33 reads it as `k`, and so does this parser. A value that begins with a parenthesis
//! is an expression, such as `(4k*8)`.

mod arithmetic;
pub(crate) mod decimal;

use std::time::Duration;

use thiserror::Error;

/// A value of `size=`, `io_size=` or `offset=`: bytes, or a percentage of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage (1 to 100) of the device or file.
    Percent(u8),
}

impl Size {
    /// Returns the number of bytes, on a device of `whole` bytes.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            // The product needs 71 bits; the quotient is at most `whole`, since a percentage is at
            // most 100.
            Self::Percent(percent) => (u128::from(whole) * u128::from(percent) / 100) as u64,
        }
    }
}

/// A value of `size=`, `io_size=`, `offset=` or `offset_increment=` as given: also a number of
/// zones, such as `2z`, whose bytes depend on another option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenSize {
    /// Bytes, or a percentage.
    Size(Size),
    /// A number of zones of `zonesize` bytes.
    Zones(u64),
}

impl From<Size> for GivenSize {
    fn from(size: Size) -> Self {
        Self::Size(size)
    }
}

/// Why a text is not a number in fio's notation.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NumberError {
    /// The text does not start with a digit.
    #[error("not a whole number")]
    NoDigits,
    /// The text after the digits is not a unit.
    #[error("unknown unit '{0}'")]
    Suffix(String),
    /// A list where one number is expected.
    #[error("a list, where one value is expected")]
    List,
    /// The value does not fit into 64 bits (for times: of microseconds).
    #[error("too large")]
    TooLarge,
    /// A time that is a fraction, such as `0.5s`, and the same time in whole numbers. fio 3.33
    /// ignores the point and all that follows it: `0.5s` is 0 there, and `1.5m` is one second.
    #[error(
        "a fraction, which fio does not read (it ignores the point and everything after it): \
         write {0}"
    )]
    Fraction(String),
    /// A percentage outside 1 to 100.
    #[error("a percentage must be from 1% to 100%")]
    Percentage,
    /// An expression with a syntax error.
    #[error("error in the expression: {0}")]
    Expression(String),
    /// An expression that divides by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// An expression that applies `%` or `^` to a fraction.
    #[error("% and ^ need whole numbers")]
    NotWhole,
    /// An expression whose value is negative.
    #[error("negative value")]
    Negative,
    /// An expression that is nested too deeply.
    #[error("too many nested parentheses")]
    TooDeep,
    /// Not a boolean.
    #[error("neither 0 nor 1")]
    NotBoolean,
}

/// Parses a count or a number of bytes: decimal or `0x` hexadecimal, with an optional binary or
/// decimal suffix.
///
/// # Errors
///
/// [`NumberError`] if there are no digits, the suffix is not one of fio's, or 64 bits do not hold
/// it.
///
/// ```
/// # use forebay_fio::units::parse_bytes;
/// assert_eq!(parse_bytes("4k"), Ok(4096));
/// assert_eq!(parse_bytes("4kib"), Ok(4000));
/// assert_eq!(parse_bytes("0x10MB"), Ok(16 << 20));
/// ```
pub fn parse_bytes(text: &str) -> Result<u64, NumberError> {
    let text = text.trim();
    if arithmetic::is_expression(text) {
        return arithmetic::evaluate(text, byte_unit, 1);
    }
    let (value, suffix) = split_number(text)?;
    value.checked_mul(byte_unit(suffix)?).ok_or(NumberError::TooLarge)
}

/// Parses a size: bytes as in [`parse_bytes`], or a percentage such as `50%`.
///
/// # Errors
///
/// As [`parse_bytes`], and [`NumberError::Percentage`] for one outside 1 to 100.
pub fn parse_size(text: &str) -> Result<Size, NumberError> {
    let Some(percent) = text.trim().strip_suffix('%') else {
        return parse_bytes(text).map(Size::Bytes);
    };
    match split_number(percent.trim())? {
        (value @ 1..=100, "") => Ok(Size::Percent(value as u8)),
        (_, "") => Err(NumberError::Percentage),
        (_, suffix) => Err(NumberError::Suffix(suffix.to_owned())),
    }
}

/// Parses a size as in [`parse_size`], or a number of zones such as `2z`.
///
/// # Errors
///
/// As [`parse_size`].
///
/// ```
/// # use forebay_fio::units::{GivenSize, Size, parse_given_size};
/// assert_eq!(parse_given_size("2z"), Ok(GivenSize::Zones(2)));
/// assert_eq!(parse_given_size("2k"), Ok(GivenSize::Size(Size::Bytes(2048))));
/// ```
pub fn parse_given_size(text: &str) -> Result<GivenSize, NumberError> {
    match split_number(text.trim()) {
        Ok((zones, "z" | "Z")) => Ok(GivenSize::Zones(zones)),
        _ => parse_size(text).map(GivenSize::Size),
    }
}

/// Parses a time; a number without a suffix is in seconds.
///
/// # Errors
///
/// [`NumberError`] if there are no digits, the suffix is not a unit of time, or the time is longer
/// than 64 bits of microseconds (half a million years).
///
/// ```
/// # use forebay_fio::units::parse_time;
/// # use std::time::Duration;
/// assert_eq!(parse_time("5"), Ok(Duration::from_secs(5)));
/// assert_eq!(parse_time("250ms"), Ok(Duration::from_millis(250)));
/// assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
/// ```
pub fn parse_time(text: &str) -> Result<Duration, NumberError> {
    let text = text.trim();
    if arithmetic::is_expression(text) {
        return arithmetic::evaluate(text, time_unit, SECOND_US).map(Duration::from_micros);
    }
    let (value, suffix) = split_number(text)?;
    if let Some(whole) = whole_time(text) {
        return Err(NumberError::Fraction(whole));
    }
    let micros = value.checked_mul(time_unit(suffix)?).ok_or(NumberError::TooLarge)?;
    Ok(Duration::from_micros(micros))
}

/// Returns a fraction such as `1.5m` as a whole number of the largest unit that fits, `90s`,
/// rounded to microseconds, and at least one unless it is zero. `None`: the text is no fraction of
/// a time.
fn whole_time(text: &str) -> Option<String> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let (number, suffix) = text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()));
    if !number.contains('.') {
        return None;
    }
    let micros = number.parse::<f64>().ok()? * time_unit(suffix).ok()? as f64;
    let micros = (micros.round() as u64).max(u64::from(micros > 0.0));
    let units = [(3600 * SECOND_US, "h"), (60 * SECOND_US, "m"), (SECOND_US, "s"), (1000, "ms")];
    let fits = units.into_iter().find(|(unit, _)| micros > 0 && micros.is_multiple_of(*unit));
    let (unit, name) = fits.unwrap_or((1, "us"));
    Some(format!("{}{name}", micros / unit))
}

/// Parses a boolean: `1` or `0`, and the words `true`, `false`, `yes`, `no`, `on` and `off`.
///
/// # Errors
///
/// [`NumberError::NotBoolean`] for anything else.
pub fn parse_bool(text: &str) -> Result<bool, NumberError> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(NumberError::NotBoolean),
    }
}

/// Splits a text into its leading number and what follows it.
fn split_number(text: &str) -> Result<(u64, &str), NumberError> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(rest) => (rest, 16),
        None => (text, 10),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    if end == 0 {
        return Err(NumberError::NoDigits);
    }
    if digits.contains(',') {
        return Err(NumberError::List);
    }
    // All of these are digits of the radix, so the only way to fail is the range.
    let value = u64::from_str_radix(&digits[..end], radix).map_err(|_| NumberError::TooLarge)?;
    Ok((value, &digits[end..]))
}

fn byte_unit(suffix: &str) -> Result<u64, NumberError> {
    let lower = suffix.to_ascii_lowercase();
    let (prefix, base): (_, u64) = match lower.strip_suffix("ib") {
        Some(prefix) => (prefix, 1000),
        None => (lower.strip_suffix(['i', 'b']).unwrap_or(&lower), 1024),
    };
    let power = match prefix {
        "" if matches!(lower.as_str(), "" | "b") => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(NumberError::Suffix(suffix.to_owned())),
    };
    Ok(base.pow(power))
}

/// Microseconds per second.
const SECOND_US: u64 = 1_000_000;

/// Microseconds per unit of time.
fn time_unit(suffix: &str) -> Result<u64, NumberError> {
    match suffix.to_ascii_lowercase().as_str() {
        "us" | "usec" => Ok(1),
        "ms" | "msec" => Ok(1000),
        "" | "s" | "sec" => Ok(SECOND_US),
        "m" | "min" => Ok(60 * SECOND_US),
        "h" | "hour" => Ok(3600 * SECOND_US),
        "d" | "day" => Ok(24 * 3600 * SECOND_US),
        _ => Err(NumberError::Suffix(suffix.to_owned())),
    }
}

#[cfg(test)]
mod tests;
