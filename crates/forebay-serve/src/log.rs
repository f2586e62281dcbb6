//! What the server says while it runs: a line for each thing that whoever runs it may want to
//! know.
//!
//! A line is one write, and never waited for: a reader that has stopped, or is gone, must not hold
//! up a client's I/O. What comes in a flood is cut off after a while, and how much that was is said
//! when it is over. Whatever a peer may have chosen is shown in a way that cannot be taken for a
//! line, or a terminal's command, of its own.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::listen::Peer;
use crate::metrics::TrafficSum;

/// So many lines may come at once.
const BURST: u64 = 200;
/// And then one in so many ns.
const NS_PER_LINE: u64 = 100_000_000;
/// The longest line, bytes: what a pipe takes whole, if it takes anything.
const MAX_LINE_BYTES: usize = 4096;

/// Where lines go. Any thread may write.
#[derive(Debug)]
pub(crate) struct Log {
    output: Option<OwnedFd>,
    limit: Mutex<Limit>,
}

impl Log {
    /// Lines go there, or nowhere.
    pub(crate) fn to(output: Option<OwnedFd>) -> Log {
        Log { output, limit: Mutex::new(Limit::default()) }
    }

    /// Writes a line, at `now_ns` by any clock that does not go back.
    pub(crate) fn line(&self, now_ns: u64, text: impl fmt::Display) {
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left_out) = limit.admit(now_ns) else { return };
        let mut lines = vec![text.to_string()];
        if left_out > 0 {
            lines.insert(0, format!("{left_out} lines were left out here: too many at once"));
        }
        if !lines.iter().all(|line| self.write(line)) {
            limit.left_out = left_out + 1;
        }
    }

    /// Whether the output took it, or never will.
    fn write(&self, text: &str) -> bool {
        let Some(output) = &self.output else { return true };
        let line = shown(text);
        let mut ready = [PollFd::new(output, PollFlags::OUT)];
        let is_ready = poll(&mut ready, Some(&Timespec::default())).is_ok_and(|nr| nr > 0);
        if is_ready {
            // If nobody reads it nobody misses it.
            let _ = rustix::io::write(output, line.as_bytes());
        }
        is_ready
    }
}

/// How many lines may be written now.
#[derive(Debug, Default)]
struct Limit {
    /// When the lines so far would have been written one by one.
    until_ns: u64,
    left_out: u64,
}

impl Limit {
    /// Whether a line may be written; then, how many were left out before it.
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

/// A text as one line, whatever is in it.
fn shown(text: &str) -> String {
    let mut line = String::from("forebay: ");
    for char in text.chars() {
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

/// A connection that has chosen an export.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened<'a> {
    /// Its number.
    pub id: u64,
    /// Who.
    pub peer: Peer,
    /// What.
    pub export: &'a str,
    /// The version of TLS and the cipher; `None`: in the clear.
    pub tls: Option<&'a str>,
    /// What was agreed upon: simple or structured replies, extended headers.
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

/// A connection that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed<'a, Why> {
    /// Its number.
    pub id: u64,
    /// Who.
    pub peer: Peer,
    /// What, if it has chosen one.
    pub export: Option<&'a str>,
    /// Why it ended.
    pub why: Why,
    /// What it has done.
    pub traffic: TrafficSum,
    /// How long it was open, ns.
    pub open_ns: u64,
}

impl<Why: fmt::Display> fmt::Display for Closed<'_, Why> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = Duration::from_nanos(self.open_ns).as_secs_f64();
        write!(f, "connection {} from {}: {} after {open:.3} s", self.id, self.peer, self.why)?;
        if self.export.is_none() {
            return f.write_str("; it had chosen no export");
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

/// Bytes, in the largest unit of which there is one, with one place behind the point.
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
