//! The watched process: its answers, one for each interval, and the rates between them.

use super::answer::Answer;
use super::sample::Sample;
use crate::control::ask;
use crate::failure::Failure;
use forebay_insight::stats::WATCH_DURATION;
use serde_json::json;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest time between two requests. For [`WATCH_DURATION`] after each request, the process
/// counts the I/O of owners from its start to its end.
const RENEWAL: Duration = WATCH_DURATION.checked_div(2).expect("a divisor that is not 0");

/// A process that answers at a socket.
pub(super) struct Source {
    path: PathBuf,
    interval: Duration,
    before: Answer,
    /// The time of the next answer.
    next: Instant,
}

impl Source {
    /// Asks for the first time.
    ///
    /// # Errors
    /// Fails if no process answers there.
    pub(super) fn open(path: &Path, interval: Duration) -> Result<Source, Failure> {
        let before = answer(path)?;
        let next = Instant::now() + interval;
        Ok(Source { path: path.to_owned(), interval, before, next })
    }

    /// Waits until the interval is over, and returns its rates.
    ///
    /// # Errors
    /// Fails if the process has ended, or another one answers now.
    pub(super) fn next(&mut self) -> Result<Sample, Failure> {
        loop {
            let left = self.next.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(RENEWAL));
            if left <= RENEWAL {
                break;
            }
            self.ask()?;
        }
        // A late answer delays all later ones: the next interval begins now.
        self.next = Instant::now() + self.interval;
        let after = self.ask()?;
        let sample = Sample::between(&self.before, &after);
        self.before = after;
        Ok(sample)
    }

    /// Returns the present counters of the process.
    fn ask(&self) -> Result<Answer, Failure> {
        let ended = || {
            let pid = self.before.process.pid;
            Failure::Run(format!("{}: process {pid} has ended", self.path.display()))
        };
        let after = answer(&self.path)
            .map_err(|failure| if is_listening(&self.path) { failure } else { ended() })?;
        if after.process.pid != self.before.process.pid {
            return Err(ended());
        }
        Ok(after)
    }
}

/// Returns the counters of the process at this socket.
///
/// # Errors
/// Fails if no process answers there.
pub(super) fn answer(path: &Path) -> Result<Answer, Failure> {
    let reply = ask(path, &json!({ "command": "stats" }), &[])?;
    Answer::parse(reply).map_err(|why| Failure::Run(format!("{}: {why}", path.display())))
}

/// Returns whether a process listens at this path.
fn is_listening(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}
