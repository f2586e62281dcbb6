//! What a person sees while a comparison runs: one line on standard error, on a terminal.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use forebay_fio::job::Eta;

use crate::output;

/// How often the line is renewed.
const PERIOD: Duration = Duration::from_secs(1);

/// The line.
#[derive(Debug)]
pub(super) struct Progress {
    is_shown: bool,
    what: String,
    entered: Instant,
    shown: Option<Instant>,
    /// How many runs were timed, and how long they took together.
    runs: (usize, Duration),
    /// How many there will be.
    all: usize,
    width: usize,
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
            width: 0,
        }
    }

    /// Something else is done from now on.
    pub(super) fn enter(&mut self, what: String) {
        self.what = what;
        self.entered = Instant::now();
        self.shown = None;
        self.tick();
    }

    /// A run has ended, one of `all`.
    pub(super) fn took(&mut self, time: Duration, all: usize) {
        self.runs = (self.runs.0 + 1, self.runs.1 + time);
        self.all = all;
    }

    /// Renews the line, if it is time.
    pub(super) fn tick(&mut self) {
        if !self.is_shown || self.shown.is_some_and(|shown| shown.elapsed() < PERIOD) {
            return;
        }
        self.shown = Some(Instant::now());
        let line = self.line(self.entered.elapsed());
        output::stderr(&format!("\r{line:old$}", old = self.width));
        self.width = line.chars().count();
    }

    /// Takes the line away.
    pub(super) fn clear(&mut self) {
        if self.width > 0 {
            output::stderr(&format!("\r{:1$}\r", "", self.width));
            self.width = 0;
        }
    }

    fn line(&self, elapsed: Duration) -> String {
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
    fn the_line_says_what_is_done_and_how_long_it_will_take() {
        let mut progress = Progress::new(Eta::Never);
        progress.enter("warming up: fio".to_owned());
        assert_eq!(progress.line(Duration::from_secs(1)), "warming up: fio: 1 s");
        progress.took(Duration::from_secs(5), 10);
        progress.took(Duration::from_secs(7), 10);
        progress.enter("pair 2 of 5: B, fio".to_owned());
        let line = "pair 2 of 5: B, fio: 2 s, about 46 s left";
        assert_eq!(progress.line(Duration::from_millis(2400)), line);
    }
}
