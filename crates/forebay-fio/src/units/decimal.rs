//! Values under `kb_base=1000`, in which `k` is 1000 and `kib` is 1024, as in IEC 80000-13.
//!
//! The two bases have the same units with exchanged names, so a value is translated before it is
//! parsed.

/// Returns a value of base 1000 in the notation of base 1024: `4k` becomes `4kib`, and `4kib`
/// becomes `4kb`. Everything that is not a number with a unit stays as it is.
pub(crate) fn translated(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let (number, after) = rest.split_at(digits(rest));
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        out.push_str(number);
        match exchanged(unit).filter(|_| !number.is_empty()) {
            Some(other) => out.push_str(&other),
            None => out.push_str(unit),
        }
        rest = after;
    }
    out + rest
}

/// Returns the length of the number at the start of a text.
fn digits(text: &str) -> usize {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (prefix, digits, radix) = hex.map_or((0, text, 10), |hex| (2, hex, 16));
    let is_part = |c: char| c.is_digit(radix) || (radix == 10 && c == '.');
    prefix + digits.find(|c| !is_part(c)).unwrap_or(digits.len())
}

/// Returns the unit of the other base with the same name; `None` if it is not a unit of bytes with
/// a prefix.
fn exchanged(unit: &str) -> Option<String> {
    let lower = unit.to_ascii_lowercase();
    // fio reads `ki` as `k`.
    let (prefix, other) = match lower.strip_suffix("ib") {
        Some(prefix) => (prefix, "b"),
        None => (lower.strip_suffix(['i', 'b']).unwrap_or(&lower), "ib"),
    };
    matches!(prefix, "k" | "m" | "g" | "t" | "p").then(|| format!("{prefix}{other}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_exchanged_and_the_rest_stays() {
        for (text, expected) in [
            ("4k", "4kib"),
            ("4Ki", "4kib"),
            ("4KiB", "4kb"),
            ("4kB", "4kib"),
            ("4096", "4096"),
            ("50%", "50%"),
            ("4b", "4b"),
            ("4k,8kib,", "4kib,8kb,"),
            ("1m-2m", "1mib-2mib"),
            ("4k/50:64k/", "4kib/50:64kib/"),
            ("randread:8k", "randread:8kib"),
            ("zoned_abs:60/10g:40/90g", "zoned_abs:60/10gib:40/90gib"),
            ("0x10k", "0x10kib"),
            ("(1.5*4k)", "(1.5*4kib)"),
            ("4z", "4z"),
            ("", ""),
        ] {
            assert_eq!(translated(text), expected);
        }
    }
}
