//! Numbers of the command line, with their bounds.

/// Parses a number from `MIN` to `MAX`.
pub(crate) fn parse<const MIN: u64, const MAX: u64>(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
    number.ok_or_else(|| match MAX {
        u64::MAX => format!("expected a whole number, at least {MIN}"),
        _ => format!("expected a whole number from {MIN} to {MAX}"),
    })
}
