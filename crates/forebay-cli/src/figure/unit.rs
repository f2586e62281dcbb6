//! Units of the values of a chart, and their labels.

/// The unit of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A number, with k and M for thousands and millions.
    Count,
    /// A number with all its digits before the point.
    Number,
    /// Nanoseconds.
    Ns,
    /// Seconds.
    Seconds,
    /// Bytes per second, in decimal units.
    BytesPerSecond,
    /// Bytes, in fio's notation: 4k is 4096.
    Size,
    /// Hundredths.
    Percent,
    /// A percentile `p`, as `1 / (1 - p)`: each power of ten is one more nine.
    Nines,
}

/// Prefixes of decimal units.
const DECIMAL: [(f64, &str); 4] = [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];

impl Unit {
    /// Returns the text of a value, with at most three digits that count.
    pub(crate) fn label(self, value: f64) -> String {
        let scaled = |units: &[(f64, &str)]| {
            // 999.9 is 1000, which takes the next unit.
            let unit = units.iter().find(|(size, _)| value.abs() >= size * 0.9995);
            let &(size, name) = unit.or(units.last()).unwrap_or(&(1.0, ""));
            (digits(value / size), name.to_owned())
        };
        match self {
            _ if value == 0.0 => "0".to_owned(),
            Self::Count => {
                let (number, name) = scaled(&DECIMAL);
                number + &name
            }
            Self::Number if value.abs() >= 100.0 => format!("{value:.0}"),
            Self::Number => digits(value),
            Self::Ns => {
                let (number, name) =
                    scaled(&[(1e9, "s"), (1e6, "ms"), (1e3, "\u{b5}s"), (1.0, "ns")]);
                format!("{number} {name}")
            }
            Self::Seconds => format!("{} s", digits(value)),
            Self::BytesPerSecond => {
                let (number, name) = scaled(&DECIMAL);
                format!("{number} {name}B/s")
            }
            Self::Size => {
                let units = [("t", 40), ("g", 30), ("m", 20), ("k", 10), ("", 0)];
                let units = units.map(|(name, power)| (f64::from(power).exp2(), name));
                let fits = |(size, _): &&(f64, &str)| value >= *size && value % size == 0.0;
                let (size, name) = units.iter().find(fits).unwrap_or(&(1.0, ""));
                format!("{}{name}", value / size)
            }
            Self::Percent => format!("{} %", digits(value)),
            Self::Nines if value <= 1.0 => "0 %".to_owned(),
            Self::Nines => {
                let nines = (value.log10() - 2.0).round().max(0.0) as usize;
                format!("{:.nines$} %", 100.0 - 100.0 / value)
            }
        }
    }
}

/// Returns a number with at most three digits that count, without zeros at the end.
fn digits(value: f64) -> String {
    let before = value.abs().log10().floor();
    let decimals = (2.0 - before).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_the_unit_that_is_easy_to_read() {
        let labels = |unit: Unit, values: &[f64]| {
            values.iter().map(|&value| unit.label(value)).collect::<Vec<_>>().join("; ")
        };
        let counts = labels(Unit::Count, &[0.0, 0.25, 7.5, 999.9, 12_345.0, 2.5e6, -300.0]);
        assert_eq!(counts, "0; 0.25; 7.5; 1k; 12.3k; 2.5M; -300");
        assert_eq!(labels(Unit::Number, &[0.5, 64.0, 1024.0]), "0.5; 64; 1024");
        let times = labels(Unit::Ns, &[500.0, 10_000.0, 1.5e6, 3e9, 120e9]);
        assert_eq!(times, "500 ns; 10 \u{b5}s; 1.5 ms; 3 s; 120 s");
        assert_eq!(labels(Unit::Seconds, &[0.5, 10.0]), "0.5 s; 10 s");
        assert_eq!(labels(Unit::BytesPerSecond, &[5e8, 2e9]), "500 MB/s; 2 GB/s");
        assert_eq!(labels(Unit::Size, &[512.0, 4096.0, 1_048_576.0]), "512; 4k; 1m");
        assert_eq!(labels(Unit::Percent, &[42.0]), "42 %");
        let nines = labels(Unit::Nines, &[1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(nines, "0 %; 90 %; 99 %; 99.9 %; 99.99 %");
    }
}
