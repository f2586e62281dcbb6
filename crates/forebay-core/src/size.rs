//! Sizes in specs and settings.

/// Parses a number with an optional suffix `k`, `m`, `g` or `t` (powers of 1024), in either case.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        let good = [
            ("0", 0),
            ("512", 512),
            ("4k", 4096),
            ("1M", 1 << 20),
            ("2G", 2 << 30),
            ("3t", 3 << 40),
        ];
        for (text, bytes) in good {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        // A suffix that fio reads as a power of 1000 must not mean something else here.
        for text in ["", "k", "-1", "1.5g", "1x", "1GiB", "99999999999999t"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }
}
