//! The progress line of a comparison, on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use forebay_fio::job::Eta;

use crate::output::ProgressLine;

/// The interval between two updates of the line.
const PERIOD: Duration = Duration::from_secs(1);

/// The progress of a comparison.
#[derive(Debug)]
pub(super) struct Progress {
    is_shown: bool,
    what: String,
    entered: Instant,
    shown: Option<Instant>,
    /// The number of timed runs, and their time in total.
    runs: (usize, Duration),
    /// The number of runs in the end.
    all: usize,
    line: ProgressLine,
}

impl Progress {
    pub(super) fn new(eta: Eta) -> Self {
        let is_shown = match eta {
            Eta::Always => true,
            Eta::Never => false,
            Eta::Auto => std::io::stderr().is_terminal(),
        };
        Self {
            is_shown,
            what: String::new(),
            entered: Instant::now(),
            shown: None,
            runs: (0, Duration::ZERO),
            all: 0,
            line: ProgressLine::default(),
        }
    }

    /// Starts a step, which `what` names.
    pub(super) fn enter(&mut self, what: String) {
        self.what = what;
        self.entered = Instant::now();
        self.shown = None;
        self.tick();
    }

    /// Counts a run, one of `all`.
    pub(super) fn took(&mut self, time: Duration, all: usize) {
        self.runs = (self.runs.0 + 1, self.runs.1 + time);
        self.all = all;
    }

    /// Updates the line, if it is time.
    pub(super) fn tick(&mut self) {
        if !self.is_shown || self.shown.is_some_and(|shown| shown.elapsed() < PERIOD) {
            return;
        }
        self.shown = Some(Instant::now());
        let text = self.text(self.entered.elapsed());
        self.line.show(&text);
    }

    /// Removes the line.
    pub(super) fn clear(&mut self) {
        self.line.clear();
    }

    fn text(&self, elapsed: Duration) -> String {
        let left = match self.runs {
            (0, _) => String::new(),
            (nr, sum) => {
                let left = sum.as_secs_f64() / nr as f64 * (self.all.saturating_sub(nr)) as f64;
                format!(", about {:.0} s left", (left - elapsed.as_secs_f64()).max(0.0))
            }
        };
        format!("{}: {} s{left}", self.what, elapsed.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_progress_and_remaining_time() {
        let mut progress = Progress::new(Eta::Never);
        progress.enter("warming up: fio".to_owned());
        assert_eq!(progress.text(Duration::from_secs(1)), "warming up: fio: 1 s");
        progress.took(Duration::from_secs(5), 10);
        progress.took(Duration::from_secs(7), 10);
        progress.enter("pair 2 of 5: B, fio".to_owned());
        let line = "pair 2 of 5: B, fio: 2 s, about 46 s left";
        assert_eq!(progress.text(Duration::from_millis(2400)), line);
    }
}
