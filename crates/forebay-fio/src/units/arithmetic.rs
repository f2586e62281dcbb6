//! Arithmetic in values: `(4k*8)`, `(1m+4k)/2`, `(2^10)`.
//!
//! Source: fio's HOWTO, "Parameter types": an expression begins with a parenthesis, its operators
//! are `+ - * / % ^`, and its numbers have the units of the option. The default unit of the option
//! (a second, for times) applies only if no number in the expression has a unit: `(2*30)` is 60
//! seconds, and so is `(2*30s)`.
//!
//! Numbers are exact fractions, so `(1.5*4k)` is 6144 and `(10/4*2)` is 5; only the result is
//! rounded, down. A number that is too large is an error.

use super::NumberError;

/// The limit on nested parentheses and signs. It bounds the stack.
const DEPTH_MAX: u32 = 64;

/// Returns whether a value is an expression.
pub(super) fn is_expression(text: &str) -> bool {
    text.starts_with('(')
}

/// Returns the value of an expression. `unit` returns the factor of a suffix; `bare` is the factor
/// if no number has a suffix.
///
/// # Errors
///
/// The first [`NumberError`].
pub(super) fn evaluate(
    text: &str,
    unit: fn(&str) -> Result<u64, NumberError>,
    bare: u64,
) -> Result<u64, NumberError> {
    let mut parser = Parser { rest: text, unit, has_units: false, depth: 0 };
    let mut value = parser.sum()?;
    if !parser.skip_blanks().is_empty() {
        return Err(parser.unexpected());
    }
    if !parser.has_units {
        value = value.times(Fraction::whole(bare))?;
    }
    value.floor()
}

/// A fraction in lowest terms, with a denominator above 0.
#[derive(Debug, Clone, Copy)]
struct Fraction {
    above: i128,
    below: i128,
}

impl Fraction {
    fn new(above: Option<i128>, below: Option<i128>) -> Result<Self, NumberError> {
        let (Some(above), Some(below)) = (above, below) else {
            return Err(NumberError::TooLarge);
        };
        if below == 0 {
            return Err(NumberError::DivisionByZero);
        }
        let mut divisor = (above.unsigned_abs(), below.unsigned_abs());
        while divisor.1 != 0 {
            divisor = (divisor.1, divisor.0 % divisor.1);
        }
        // The divisor is at most `|below|`; only 2^127 does not fit.
        let divisor = i128::try_from(divisor.0).map_err(|_| NumberError::TooLarge)?;
        let sign = below.signum();
        let (above, below) = ((above / divisor).checked_mul(sign), below.checked_div(divisor));
        match (above, below.and_then(|below| below.checked_mul(sign))) {
            (Some(above), Some(below)) => Ok(Self { above, below }),
            _ => Err(NumberError::TooLarge),
        }
    }

    fn whole(value: u64) -> Self {
        Self { above: i128::from(value), below: 1 }
    }

    fn plus(self, other: Self) -> Result<Self, NumberError> {
        let (a, b) = (self.above.checked_mul(other.below), other.above.checked_mul(self.below));
        let above = a.zip(b).and_then(|(a, b)| a.checked_add(b));
        Self::new(above, self.below.checked_mul(other.below))
    }

    fn negated(self) -> Result<Self, NumberError> {
        Self::new(self.above.checked_neg(), Some(self.below))
    }

    fn times(self, other: Self) -> Result<Self, NumberError> {
        Self::new(self.above.checked_mul(other.above), self.below.checked_mul(other.below))
    }

    fn over(self, other: Self) -> Result<Self, NumberError> {
        Self::new(self.above.checked_mul(other.below), self.below.checked_mul(other.above))
    }

    /// Returns the remainder of a division of whole numbers.
    fn modulo(self, other: Self) -> Result<Self, NumberError> {
        if (self.below, other.below) != (1, 1) {
            return Err(NumberError::NotWhole);
        }
        if other.above == 0 {
            return Err(NumberError::DivisionByZero);
        }
        Self::new(self.above.checked_rem(other.above), Some(1))
    }

    fn power(self, other: Self) -> Result<Self, NumberError> {
        if other.below != 1 || other.above < 0 {
            return Err(NumberError::NotWhole);
        }
        let exponent = u32::try_from(other.above).map_err(|_| NumberError::TooLarge)?;
        Self::new(self.above.checked_pow(exponent), self.below.checked_pow(exponent))
    }

    fn floor(self) -> Result<u64, NumberError> {
        if self.above < 0 {
            return Err(NumberError::Negative);
        }
        u64::try_from(self.above / self.below).map_err(|_| NumberError::TooLarge)
    }
}

struct Parser<'a> {
    rest: &'a str,
    unit: fn(&str) -> Result<u64, NumberError>,
    has_units: bool,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn skip_blanks(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        self.rest
    }

    fn take(&mut self, operator: char) -> bool {
        let rest = self.skip_blanks().strip_prefix(operator);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn unexpected(&self) -> NumberError {
        NumberError::Expression(match self.rest.chars().next() {
            None => "unexpected end".to_owned(),
            Some(c) => format!("unexpected '{c}'"),
        })
    }

    fn sum(&mut self) -> Result<Fraction, NumberError> {
        let mut sum = self.product()?;
        loop {
            if self.take('+') {
                sum = sum.plus(self.product()?)?;
            } else if self.take('-') {
                sum = sum.plus(self.product()?.negated()?)?;
            } else {
                return Ok(sum);
            }
        }
    }

    fn product(&mut self) -> Result<Fraction, NumberError> {
        let mut product = self.signed()?;
        loop {
            if self.take('*') {
                product = product.times(self.signed()?)?;
            } else if self.take('/') {
                product = product.over(self.signed()?)?;
            } else if self.take('%') {
                product = product.modulo(self.signed()?)?;
            } else {
                return Ok(product);
            }
        }
    }

    fn signed(&mut self) -> Result<Fraction, NumberError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(NumberError::TooDeep);
        }
        let value = if self.take('-') { self.signed()?.negated() } else { self.power() };
        self.depth -= 1;
        value
    }

    fn power(&mut self) -> Result<Fraction, NumberError> {
        let base = self.atom()?;
        if self.take('^') { base.power(self.signed()?) } else { Ok(base) }
    }

    fn atom(&mut self) -> Result<Fraction, NumberError> {
        if !self.take('(') {
            return self.number();
        }
        let value = self.sum()?;
        if self.take(')') { Ok(value) } else { Err(self.unexpected()) }
    }

    fn number(&mut self) -> Result<Fraction, NumberError> {
        let (hex, rest) = match self.rest.get(..2) {
            Some("0x" | "0X") => (true, &self.rest[2..]),
            _ => (false, self.rest),
        };
        let radix = if hex { 16 } else { 10 };
        let (digits, mut rest) = split(rest, |c| c.is_digit(radix));
        if digits.is_empty() {
            return Err(self.unexpected());
        }
        let whole = i128::from_str_radix(digits, radix).map_err(|_| NumberError::TooLarge)?;
        let mut value = Fraction::new(Some(whole), Some(1))?;
        if let Some(tail) = rest.strip_prefix('.').filter(|_| !hex) {
            let (digits, tail) = split(tail, |c| c.is_ascii_digit());
            let places = u32::try_from(digits.len()).map_err(|_| NumberError::TooLarge)?;
            let above = format!("0{digits}").parse::<i128>().ok();
            value = value.plus(Fraction::new(above, 10_i128.checked_pow(places))?)?;
            rest = tail;
        }
        let (suffix, rest) = split(rest, |c| c.is_ascii_alphabetic());
        if !suffix.is_empty() {
            self.has_units = true;
            value = value.times(Fraction::whole((self.unit)(suffix)?))?;
        }
        self.rest = rest;
        Ok(value)
    }
}

/// Splits a text after its longest beginning of such characters.
fn split(text: &str, is_such: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !is_such(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::super::{NumberError, parse_bytes, parse_size, parse_time};
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: u64) {
        assert_eq!(parse_bytes(text), Ok(expected), "{text}");
    }

    #[test]
    fn operators_bind_as_in_arithmetic() {
        check("(4k*8)", 32_768);
        check("(1m+4k)/2", 526_336);
        check("(1+2*3)", 7);
        check("((1+2)*3)", 9);
        check("(10-3-2)", 5);
        check("(2^3^2)", 512);
        check("(-2+10)", 8);
        check("( 7 % 4 )", 3);
        check("(0x10*2)", 32);
        check("(4KiB)", 4000);
    }

    #[test]
    fn fractions_are_exact_and_rounded_down_at_the_end() {
        check("(1.5*4k)", 6144);
        check("(10/4*2)", 5);
        check("(7/2)", 3);
        check("(1/3*3)", 1);
    }

    #[test]
    fn times_count_seconds_if_no_number_has_a_unit() {
        assert_eq!(parse_time("(2*30)").map(|t| t.as_secs()), Ok(60));
        assert_eq!(parse_time("(2*30s)").map(|t| t.as_secs()), Ok(60));
        assert_eq!(parse_time("(3*500ms)").map(|t| t.as_millis()), Ok(1500));
        assert_eq!(parse_time("(1/2)").map(|t| t.as_millis()), Ok(500));
    }

    #[track_caller]
    fn check_error(text: &str, message: &str) {
        assert_eq!(parse_size(text).expect_err(text).to_string(), message, "{text}");
    }

    #[test]
    fn expression_that_cannot_be_evaluated_has_a_reason() {
        check_error("(4k", "error in the expression: unexpected end");
        check_error("()", "error in the expression: unexpected ')'");
        check_error("(4k*)", "error in the expression: unexpected ')'");
        check_error("(4k)8", "error in the expression: unexpected '8'");
        check_error("(1/0)", "division by zero");
        check_error("(1%0)", "division by zero");
        check_error("(1.5%2)", "% and ^ need whole numbers");
        check_error("(2^-1)", "% and ^ need whole numbers");
        check_error("(1-2)", "negative value");
        check_error("(2^9999)", "too large");
        check_error("(2^64)", "too large");
        check_error("(4zz*2)", "unknown unit 'zz'");
        check_error(&"(".repeat(100_000), "too many nested parentheses");
        check_error(&format!("({}1)", "-".repeat(100_000)), "too many nested parentheses");
    }

    #[test]
    fn extremes_are_refused_rather_than_wrapped() {
        let least = "(-170141183460469231731687303715884105727-1)";
        for text in [least.to_owned(), format!("(1/{least})"), format!("({least}%-1)")] {
            assert!(parse_bytes(&text).is_err(), "{text}");
        }
        assert_eq!(parse_bytes(&format!("(-{least})")), Err(NumberError::TooLarge));
    }

    proptest! {
        #[test]
        fn no_expression_panics(text in "[(]?[-0-9a-z+*/%^(). ]{0,60}") {
            let _ = (parse_bytes(&text), parse_time(&text));
        }

        #[test]
        fn sums_and_products_are_those_of_numbers(a: u32, b: u32, c in 1_u32..) {
            let expected = (u64::from(a) + u64::from(b)) * 3 / u64::from(c);
            prop_assert_eq!(parse_bytes(&format!("(({a}+{b})*3/{c})")), Ok(expected));
        }
    }
}
