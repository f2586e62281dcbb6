//! Levels of log lines, and the formats in which they are written.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest line, bytes: a pipe takes a write of this length completely or not at all.
pub(super) const MAX_LINE_BYTES: usize = 4096;

/// Level of a log line, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum LogLevel {
    /// The server cannot continue, or data may be lost.
    Error,
    /// Something failed, and the server continues.
    Warning,
    /// Connections, changes, and the state of the server.
    #[default]
    Info,
}

impl LogLevel {
    /// All levels, the gravest first.
    pub const ALL: [LogLevel; 3] = [LogLevel::Error, LogLevel::Warning, LogLevel::Info];

    /// Returns the name, such as `warning`.
    pub const fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warning => "warning",
            LogLevel::Info => "info",
        }
    }

    /// Returns the priority of syslog(3).
    const fn syslog(self) -> u8 {
        match self {
            LogLevel::Error => 3,
            LogLevel::Warning => 4,
            LogLevel::Info => 6,
        }
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<LogLevel, String> {
        let found = LogLevel::ALL.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| "expected error, warning or info".to_owned())
    }
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// `forebay: TIME MESSAGE`, with the time in UTC.
    #[default]
    Text,
    /// An object with the fields `time`, `level` and `message`.
    Json,
    /// `<PRIORITY>MESSAGE`, for the journal of systemd, which adds the time and the program.
    Journald,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFormat, String> {
        let found = LogFormat::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| "expected text, json or journald".to_owned())
    }
}

impl LogFormat {
    /// All formats.
    pub const ALL: [LogFormat; 3] = [LogFormat::Text, LogFormat::Json, LogFormat::Journald];

    /// Returns the name, such as `json`.
    pub const fn name(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
            LogFormat::Journald => "journald",
        }
    }

    /// Returns a line with its end. Control characters of the message are escaped, so that it
    /// remains one line. A long message is cut off.
    pub fn line(self, level: LogLevel, time: SystemTime, message: &str) -> String {
        match self {
            LogFormat::Text => shown(&format!("forebay: {} ", utc(time)), message),
            LogFormat::Journald => shown(&format!("<{}>", level.syslog()), message),
            LogFormat::Json => {
                // An escaped character has at most six bytes.
                let message = shortened(message, (MAX_LINE_BYTES - 128) / 6);
                let (time, level) = (utc(time).to_string(), level.name());
                let line = serde_json::json!({ "time": time, "level": level, "message": message });
                format!("{line}\n")
            }
        }
    }
}

/// Returns the message as one line after `start`, with control characters escaped.
fn shown(start: &str, message: &str) -> String {
    let mut line = start.to_owned();
    for char in message.chars() {
        if line.len() > MAX_LINE_BYTES - 16 {
            line.push_str("...");
            break;
        }
        match char {
            char if char.is_control() => line.extend(char.escape_default()),
            char => line.push(char),
        }
    }
    line.push('\n');
    line
}

/// Returns at most about `max` bytes of a text.
fn shortened(text: &str, max: usize) -> String {
    match text.char_indices().find(|(at, _)| *at >= max) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

/// A time in UTC, as RFC 3339 has it, with milliseconds.
struct Utc {
    year: u64,
    month: u64,
    day: u64,
    of_day: Duration,
}

fn utc(time: SystemTime) -> Utc {
    const DAY_S: u64 = 86_400;
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (mut days, mut year) = (since.as_secs() / DAY_S, 1970);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let of_day = Duration::new(since.as_secs() % DAY_S, since.subsec_nanos());
    Utc { year, month, day: days + 1, of_day }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Utc { year, month, day, of_day } = self;
        let seconds = of_day.as_secs();
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let mut text = String::new();
        write!(text, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        write!(text, ".{:03}Z", of_day.subsec_millis())?;
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, ms: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(ms)
    }

    #[test]
    fn times_are_shown_in_utc() {
        for (seconds, ms, expected) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, 999, "2000-02-28T23:59:59.999Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.001Z"),
            (1_709_251_199, 0, "2024-02-29T23:59:59.000Z"),
            (1_735_689_599, 0, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(at(seconds, ms)).to_string(), expected);
        }
    }

    #[test]
    fn each_format_has_the_message_in_one_line() {
        let (time, message) = (at(951_782_400, 5), "export \"a\nb\": ü");
        let line = |format: LogFormat| format.line(LogLevel::Warning, time, message);
        assert_eq!(
            line(LogFormat::Text),
            "forebay: 2000-02-29T00:00:00.005Z export \"a\\nb\": ü\n"
        );
        assert_eq!(line(LogFormat::Journald), "<4>export \"a\\nb\": ü\n");
        let json: serde_json::Value =
            serde_json::from_str(line(LogFormat::Json).trim_end()).expect("one value");
        let expected = serde_json::json!({
            "time": "2000-02-29T00:00:00.005Z", "level": "warning", "message": message,
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn lines_fit_in_one_write_to_a_pipe() {
        for message in ["x".repeat(10_000), "\u{1}".repeat(10_000), "ü\"\\".repeat(3000)] {
            for format in [LogFormat::Text, LogFormat::Json, LogFormat::Journald] {
                let line = format.line(LogLevel::Error, at(0, 0), &message);
                assert!(line.len() <= MAX_LINE_BYTES, "{format:?}: {} bytes", line.len());
                assert_eq!(line.matches('\n').count(), 1);
            }
        }
    }

    #[test]
    fn names_are_parsed() {
        for level in LogLevel::ALL {
            assert_eq!(level.name().parse(), Ok(level));
        }
        assert!("debug".parse::<LogLevel>().is_err());
        assert_eq!("json".parse(), Ok(LogFormat::Json));
        assert!("xml".parse::<LogFormat>().is_err());
    }
}
