//! Numbers of the command line, with their bounds.

/// Parses a number from `MIN` to `MAX`.
pub(crate) fn parse<const MIN: u64, const MAX: u64>(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
    number.ok_or_else(|| match MAX {
        u64::MAX => format!("expected a whole number, at least {MIN}"),
        _ => format!("expected a whole number from {MIN} to {MAX}"),
    })
}

/// Parses a power of two from `MIN` to `MAX`.
pub(crate) fn power_of_two<const MIN: u64, const MAX: u64>(text: &str) -> Result<u64, String> {
    let number = parse::<MIN, MAX>(text).ok().filter(|number| number.is_power_of_two());
    number.ok_or_else(|| format!("expected a power of two from {MIN} to {MAX}"))
}
