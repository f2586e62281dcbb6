//! Unit tests of `units`.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check_bytes(text: &str, expected: u64) {
    assert_eq!(parse_bytes(text), Ok(expected), "{text}");
    assert_eq!(parse_size(text), Ok(Size::Bytes(expected)), "{text}");
}

#[track_caller]
fn check_time(text: &str, micros: u64) {
    assert_eq!(parse_time(text), Ok(Duration::from_micros(micros)), "{text}");
}

#[test]
fn the_plain_suffix_is_binary_and_the_ib_suffix_decimal() {
    check_bytes("0", 0);
    check_bytes("4096", 4096);
    check_bytes("4k", 4096);
    check_bytes("4kB", 4096);
    check_bytes("4K", 4096);
    check_bytes("4ki", 4096);
    check_bytes("1Mi", 1 << 20);
    check_bytes("4KiB", 4000);
    check_bytes("1m", 1 << 20);
    check_bytes("1mib", 1_000_000);
    check_bytes("2G", 2 << 30);
    check_bytes("3t", 3 << 40);
    check_bytes("1p", 1 << 50);
    check_bytes("8192b", 8192);
    check_bytes("0x1000", 4096);
    check_bytes("0X10k", 16384);
}

#[test]
fn invalid_number_has_a_reason() {
    let suffix = |s: &str| Err(NumberError::Suffix(s.to_owned()));
    assert_eq!(parse_bytes(""), Err(NumberError::NoDigits));
    assert_eq!(parse_bytes("abc"), Err(NumberError::NoDigits));
    assert_eq!(parse_bytes("-1"), Err(NumberError::NoDigits));
    assert_eq!(parse_bytes("4z"), suffix("z"));
    assert_eq!(parse_bytes("4kk"), suffix("kk"));
    assert_eq!(parse_bytes("1.5m"), suffix(".5m"));
    assert_eq!(parse_bytes("1i"), suffix("i"));
    assert_eq!(parse_bytes("4k,8k"), Err(NumberError::List));
    assert_eq!(parse_bytes("99999999999999999999"), Err(NumberError::TooLarge));
    assert_eq!(parse_bytes("16384p"), Err(NumberError::TooLarge));
}

#[test]
fn percentages_are_of_something() {
    assert_eq!(parse_size("50%"), Ok(Size::Percent(50)));
    assert_eq!(parse_size("0%"), Err(NumberError::Percentage));
    assert_eq!(parse_size("101%"), Err(NumberError::Percentage));
    assert_eq!(Size::Percent(50).of(1001), 500);
    assert_eq!(Size::Percent(100).of(u64::MAX), u64::MAX);
    assert_eq!(Size::Bytes(7).of(1), 7);
}

#[test]
fn times_default_to_seconds() {
    check_time("5", 5_000_000);
    check_time("0", 0);
    check_time("7us", 7);
    check_time("7usec", 7);
    check_time("100MS", 100_000);
    check_time("2sec", 2_000_000);
    check_time("2m", 120_000_000);
    check_time("1h", 3_600_000_000);
    check_time("1d", 86_400_000_000);
    assert_eq!(parse_time("1x"), Err(NumberError::Suffix("x".to_owned())));
}

/// fio 3.33 takes `1.5m` as one second, and `0.5s` as 0.
#[test]
fn fraction_of_a_time_is_refused_with_the_whole_number() {
    for (text, whole) in [
        ("0.5", "500ms"),
        ("0.5s", "500ms"),
        ("1.5m", "90s"),
        ("1.5H", "90m"),
        ("2.0h", "2h"),
        ("0.0001s", "100us"),
        ("1.5ms", "1500us"),
        ("1.0000001s", "1s"),
        ("0.1us", "1us"),
        ("0.0us", "0us"),
        ("1.s", "1s"),
    ] {
        assert_eq!(parse_time(text), Err(NumberError::Fraction(whole.to_owned())), "{text}");
    }
    for text in ["1.5x", "1.5.2s"] {
        assert!(matches!(parse_time(text), Err(NumberError::Suffix(_))), "{text}");
    }
    assert_eq!(parse_time(".5s"), Err(NumberError::NoDigits));
}

#[test]
fn booleans_have_two_digits_and_six_words() {
    for text in ["1", "true", "YES", "on"] {
        assert_eq!(parse_bool(text), Ok(true), "{text}");
    }
    for text in ["0", "False", "no", "off"] {
        assert_eq!(parse_bool(text), Ok(false), "{text}");
    }
    assert_eq!(parse_bool("2"), Err(NumberError::NotBoolean));
}

proptest! {
    #[test]
    fn plain_numbers_come_back(value: u64) {
        prop_assert_eq!(parse_bytes(&value.to_string()), Ok(value));
        prop_assert_eq!(parse_bytes(&format!("{value:#x}")), Ok(value));
    }

    #[test]
    fn a_suffix_multiplies(value in 0..1_u64 << 14, power in 0_usize..6) {
        let binary = ["", "k", "m", "g", "t", "p"][power];
        prop_assert_eq!(parse_bytes(&format!("{value}{binary}")), Ok(value << (10 * power)));
        if power > 0 {
            let expected = value * 1000_u64.pow(power as u32);
            prop_assert_eq!(parse_bytes(&format!("{value}{binary}iB")), Ok(expected));
        }
    }

    #[test]
    fn no_text_panics(text: String) {
        let _ = (parse_bytes(&text), parse_size(&text), parse_time(&text), parse_bool(&text));
    }
}
