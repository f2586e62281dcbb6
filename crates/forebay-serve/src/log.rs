//! Log of the server: one line per event.
//!
//! A line is one write, which never blocks: a reader that has stopped must not delay a client's
//! I/O. If too many lines are written, some are dropped, and the next line reports how many. Text
//! that a peer has chosen is escaped, so that it cannot form a line of its own, or a control
//! sequence of a terminal.

mod format;

pub use format::{LogFormat, LogLevel};

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::listen::Peer;
use crate::metrics::TrafficSum;

/// Most lines written in a burst.
const BURST: u64 = 200;
/// After a burst, one line is allowed per this many ns.
const NS_PER_LINE: u64 = 100_000_000;
/// Log that any thread may write to.
#[derive(Debug)]
pub(crate) struct Log {
    output: Option<OwnedFd>,
    format: LogFormat,
    /// Lowest severity that is written.
    level: AtomicU8,
    limit: Mutex<Limit>,
}

impl Log {
    /// Returns a log that writes to this descriptor; `None`: nowhere.
    pub(crate) fn to(output: Option<OwnedFd>, format: LogFormat, level: LogLevel) -> Log {
        Log { output, format, level: AtomicU8::new(level as u8), limit: Mutex::default() }
    }

    /// Changes the lowest severity that is written.
    pub(crate) fn set_level(&self, level: LogLevel) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// Returns the lowest severity that is written.
    pub(crate) fn level(&self) -> LogLevel {
        let level = self.level.load(Ordering::Relaxed);
        LogLevel::ALL.into_iter().find(|it| *it as u8 == level).unwrap_or_default()
    }

    /// Writes a line about the normal work of the server. `now_ns` is the current time of any
    /// monotonic clock.
    pub(crate) fn line(&self, now_ns: u64, text: impl fmt::Display) {
        self.write_at(LogLevel::Info, now_ns, text);
    }

    /// Writes a line about a failure after which the server continues.
    pub(crate) fn warn(&self, now_ns: u64, text: impl fmt::Display) {
        self.write_at(LogLevel::Warning, now_ns, text);
    }

    /// Writes a line of this level.
    pub(crate) fn write_at(&self, level: LogLevel, now_ns: u64, text: impl fmt::Display) {
        // Subscribers have levels and limits of their own.
        #[cfg(feature = "tracing")]
        match level {
            LogLevel::Error => tracing::error!(target: "forebay_serve", "{text}"),
            LogLevel::Warning => tracing::warn!(target: "forebay_serve", "{text}"),
            LogLevel::Info => tracing::info!(target: "forebay_serve", "{text}"),
        }
        if level as u8 > self.level.load(Ordering::Relaxed) {
            return;
        }
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left_out) = limit.admit(now_ns) else { return };
        let mut lines = vec![(level, text.to_string())];
        if left_out > 0 {
            let dropped = format!("{left_out} log lines dropped: too many at once");
            lines.insert(0, (LogLevel::Warning, dropped));
        }
        if !lines.iter().all(|(level, line)| self.write(*level, line)) {
            limit.left_out = left_out + 1;
        }
    }

    /// Returns whether the line was written, or can never be written.
    fn write(&self, level: LogLevel, text: &str) -> bool {
        let Some(output) = &self.output else { return true };
        let line = self.format.line(level, SystemTime::now(), text);
        let mut ready = [PollFd::new(output, PollFlags::OUT)];
        let is_ready = poll(&mut ready, Some(&Timespec::default())).is_ok_and(|nr| nr > 0);
        if is_ready {
            // An error means that the reader has gone.
            let _ = rustix::io::write(output, line.as_bytes());
        }
        is_ready
    }
}

/// Rate limit of the lines.
#[derive(Debug, Default)]
struct Limit {
    /// Time to which the lines so far extend, at one line per `NS_PER_LINE`.
    until_ns: u64,
    left_out: u64,
}

impl Limit {
    /// Returns how many lines were dropped before this one, or `None` if it must be dropped too.
    fn admit(&mut self, now_ns: u64) -> Option<u64> {
        let until_ns = self.until_ns.max(now_ns);
        if until_ns - now_ns >= BURST * NS_PER_LINE {
            self.left_out += 1;
            return None;
        }
        self.until_ns = until_ns + NS_PER_LINE;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Log line of a connection that has chosen an export.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened<'a> {
    /// Number of the connection.
    pub id: u64,
    /// The client.
    pub peer: Peer,
    /// Name of the export.
    pub export: &'a str,
    /// Version of TLS and cipher suite; `None`: not encrypted.
    pub tls: Option<&'a str>,
    /// Negotiated framing: simple replies, structured replies or extended headers.
    pub mode: &'a str,
}

impl fmt::Display for Opened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Opened { id, peer, export, tls, mode } = self;
        write!(f, "connection {id} from {peer}: export {export:?}, {mode}")?;
        match tls {
            Some(tls) => write!(f, ", {tls}"),
            None => f.write_str(", no TLS"),
        }
    }
}

/// Log line of a connection that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed<'a, Why> {
    /// Number of the connection.
    pub id: u64,
    /// The client.
    pub peer: Peer,
    /// Name of the export, if it has chosen one.
    pub export: Option<&'a str>,
    /// Reason for the end.
    pub why: Why,
    /// Counters of the connection.
    pub traffic: TrafficSum,
    /// Time from accept to close, ns.
    pub open_ns: u64,
}

impl<Why: fmt::Display> fmt::Display for Closed<'_, Why> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = Duration::from_nanos(self.open_ns).as_secs_f64();
        write!(f, "connection {} from {}: {} after {open:.3} s", self.id, self.peer, self.why)?;
        if self.export.is_none() {
            return f.write_str("; no export chosen");
        }
        let TrafficSum { errors, read_bytes, written_bytes, .. } = self.traffic;
        match self.traffic.all_requests() {
            1 => f.write_str("; 1 request")?,
            requests => write!(f, "; {requests} requests")?,
        }
        match errors {
            0 => {}
            1 => f.write_str(" (1 failed)")?,
            errors => write!(f, " ({errors} failed)")?,
        }
        write!(f, ", {} read, {} written", Size(read_bytes), Size(written_bytes))
    }
}

/// Number of bytes, shown with one decimal in the largest unit that it reaches.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let power = (self.0.max(1).ilog2() / 10) as usize;
        match power {
            0 => write!(f, "{} B", self.0),
            power => {
                write!(f, "{:.1} {}", self.0 as f64 / (1u64 << (10 * power)) as f64, UNITS[power])
            }
        }
    }
}

#[cfg(test)]
mod tests;
