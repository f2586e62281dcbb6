//! Patterns that fill blocks: `verify_pattern`, `buffer_pattern`.
//!
//! Source: fio's HOWTO and what fio 3.33 writes. A pattern is a sequence of texts in double quotes,
//! hexadecimal numbers (their digits in the order given), decimal numbers (little-endian, as few
//! bytes as hold them; negative ones four), and `%o`, the offset of the block as eight bytes,
//! little-endian. It restarts at the start of each block.

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// One period, with zeros where offsets belong.
    bytes: Vec<u8>,
    /// Where offsets belong.
    offsets: Vec<usize>,
}

/// A byte that differs from the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// Its position in the block.
    pub at: usize,
    /// The byte of the pattern.
    pub expected: u8,
    /// The byte found.
    pub found: u8,
}

impl Pattern {
    /// Parses a pattern. `%o` needs `with_offset`: the offset of the block is then known when it is
    /// filled.
    ///
    /// # Errors
    ///
    /// A message about the part that is wrong.
    pub fn parse(text: &str, with_offset: bool) -> Result<Self, String> {
        let mut pattern = Self { bytes: Vec::new(), offsets: Vec::new() };
        let mut rest = text;
        while !rest.is_empty() {
            rest = pattern.piece(rest, with_offset)?;
        }
        if pattern.bytes.is_empty() { Err("empty pattern".to_owned()) } else { Ok(pattern) }
    }

    /// Parses one piece. Returns the text after it.
    fn piece<'a>(&mut self, text: &'a str, with_offset: bool) -> Result<&'a str, String> {
        if let Some(rest) = text.strip_prefix('"') {
            let (string, rest) = rest.split_once('"').ok_or("missing closing quote")?;
            self.bytes.extend_from_slice(string.as_bytes());
            return Ok(rest);
        }
        if let Some(rest) = text.strip_prefix("%o") {
            if !with_offset {
                return Err("%o works only in --verify_pattern".to_owned());
            }
            self.offsets.push(self.bytes.len());
            self.bytes.extend_from_slice(&[0; 8]);
            return Ok(rest);
        }
        let end_of = |text: &str, is_digit: fn(char) -> bool| {
            text.find(|c: char| !is_digit(c)).unwrap_or(text.len())
        };
        if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            let (digits, rest) = hex.split_at(end_of(hex, |c| c.is_ascii_hexdigit()));
            if digits.is_empty() {
                return Err("no digits after 0x".to_owned());
            }
            let padded = format!("{}{digits}", if digits.len() % 2 == 1 { "0" } else { "" });
            let value = |c: u8| (c as char).to_digit(16).unwrap_or(0) as u8;
            let pairs = padded.as_bytes().chunks_exact(2);
            self.bytes.extend(pairs.map(|pair| value(pair[0]) << 4 | value(pair[1])));
            return Ok(rest);
        }
        let sign = usize::from(text.starts_with('-'));
        let (number, rest) = text.split_at(sign + end_of(&text[sign..], |c| c.is_ascii_digit()));
        match number.parse::<i32>() {
            Ok(number) => {
                let bytes = number.to_le_bytes();
                let len = match number {
                    ..0 => 4,
                    0 => 1,
                    _ => 4 - number.leading_zeros() as usize / 8,
                };
                self.bytes.extend_from_slice(&bytes[..len]);
                Ok(rest)
            }
            Err(_) if number.len() > sign => Err(format!("{number} does not fit into four bytes")),
            Err(_) => Err(format!("'{text}' is neither a number nor a text in double quotes")),
        }
    }

    /// Returns the bytes of the pattern in a block at `offset`.
    fn period(&self, offset: u64) -> Vec<u8> {
        let mut period = self.bytes.clone();
        for &at in &self.offsets {
            period[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        }
        period
    }

    /// Fills a block at `offset`.
    pub fn fill(&self, block: &mut [u8], offset: u64) {
        let period = self.period(offset);
        for chunk in block.chunks_mut(period.len()) {
            chunk.copy_from_slice(&period[..chunk.len()]);
        }
    }

    /// Returns the first byte of `data` that differs from the pattern in a block at `offset`. The
    /// data begin `start` bytes after the start of the block.
    pub fn first_difference(&self, data: &[u8], start: usize, offset: u64) -> Option<Difference> {
        let period = self.period(offset);
        let expected = period.iter().cycle().skip(start % period.len());
        let mut pairs = data.iter().zip(expected).enumerate();
        let (at, (&found, &expected)) = pairs.find(|(_, (found, expected))| found != expected)?;
        Some(Difference { at, expected, found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, offset: u64, bytes: &[u8]) {
        let pattern = Pattern::parse(text, true).expect(text);
        let mut block = vec![0; bytes.len()];
        pattern.fill(&mut block, offset);
        assert_eq!(block, bytes, "{text}");
        assert_eq!(pattern.first_difference(&block, 0, offset), None, "{text}");
    }

    /// The bytes that fio 3.33 wrote for these patterns.
    #[test]
    fn patterns_are_those_of_fio() {
        check("300", 4096, &[0x2c, 1, 0x2c, 1]);
        check("70000", 0, &[0x70, 0x11, 1, 0x70]);
        check("-1", 0, &[0xff; 9]);
        check("-300", 0, &[0xd4, 0xfe, 0xff, 0xff, 0xd4]);
        check("0xabc", 0, &[0x0a, 0xbc, 0x0a, 0xbc]);
        check("0x1", 0, &[1, 1]);
        check("0", 0, &[0, 0]);
        check("0xdeadbeef\"ab\"10", 0, &[0xde, 0xad, 0xbe, 0xef, b'a', b'b', 10, 0xde]);
        let bytes = [0xff, 0, 0x10, 0, 0, 0, 0, 0, 0, b'a', b'b', b'c', b'd', 0xf4, 0xff, 0xff];
        check("0xff%o\"abcd\"-12", 4096, &bytes);
    }

    #[test]
    fn a_changed_byte_is_found() {
        let pattern = Pattern::parse("%o\"x\"", true).expect("a pattern");
        let mut block = vec![0; 512];
        pattern.fill(&mut block, 8192);
        block[300] ^= 0x40;
        let found = pattern.first_difference(&block, 0, 8192).expect("a difference");
        assert_eq!((found.at, found.found), (300, found.expected ^ 0x40));
        assert!(pattern.first_difference(&block, 0, 4096).is_some(), "another block's offset");
    }

    #[test]
    fn invalid_pattern_is_refused() {
        for text in ["", "abc", "\"abc", "0x", "5000000000", "0x12,3", "-"] {
            assert!(Pattern::parse(text, true).is_err(), "{text}");
        }
        assert!(Pattern::parse("%o", false).is_err());
    }
}
