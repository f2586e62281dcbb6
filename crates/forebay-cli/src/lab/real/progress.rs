//! The line that says how far it is, on a terminal.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use crate::output;

/// Between two updates.
const PERIOD: Duration = Duration::from_millis(500);

/// How far a list of cells is.
#[derive(Debug)]
pub(in crate::lab) struct Progress {
    is_shown: bool,
    nr_cells: usize,
    nr_done: usize,
    /// How long the cells that are not done take, this one included.
    left: Duration,
    name: String,
    took: Duration,
    began: Instant,
    shown: Option<Instant>,
    width: usize,
}

impl Progress {
    pub(in crate::lab) fn new(nr_cells: usize, left: Duration) -> Self {
        Self {
            is_shown: stderr().is_terminal(),
            nr_cells,
            nr_done: 0,
            left,
            name: String::new(),
            took: Duration::ZERO,
            began: Instant::now(),
            shown: None,
            width: 0,
        }
    }

    /// What is to come, for who does not see the line as well.
    pub(in crate::lab) fn announcement(&self) -> String {
        let seconds = self.left.as_secs();
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        format!("forebay: lab: {} cells, {minutes}:{seconds:02} minutes in all\n", self.nr_cells)
    }

    /// A cell begins, which takes so long.
    pub(in crate::lab) fn begin(&mut self, name: String, takes: Duration) {
        (self.name, self.took, self.began) = (name, takes, Instant::now());
    }

    /// It has ended.
    pub(in crate::lab) fn end(&mut self) {
        self.nr_done += 1;
        self.left = self.left.saturating_sub(self.took);
    }

    /// Renews the line, if it is time.
    pub(in crate::lab) fn tick(&mut self) {
        if !self.is_shown || self.shown.is_some_and(|shown| shown.elapsed() < PERIOD) {
            return;
        }
        self.shown = Some(Instant::now());
        let line = self.line(self.began.elapsed());
        let width = line.chars().count();
        output::stderr(&format!("\r{line:old$}", old = self.width));
        self.width = width;
    }

    fn line(&self, elapsed: Duration) -> String {
        let left = self.left.saturating_sub(elapsed).as_secs();
        let (at, of) = (self.nr_done + 1, self.nr_cells);
        let (minutes, seconds) = (left / 60, left % 60);
        format!("[{at}/{of}] {}; {minutes}:{seconds:02} left", self.name)
    }

    /// Takes the line away.
    pub(in crate::lab) fn clear(&mut self) {
        if self.width > 0 {
            output::stderr(&format!("\r{:1$}\r", "", self.width));
            self.width = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_runs_and_what_is_left() {
        let mut progress = Progress::new(3, Duration::from_secs(200));
        assert_eq!(progress.announcement(), "forebay: lab: 3 cells, 3:20 minutes in all\n");
        progress.begin("hdd, batch, 1 job".to_owned(), Duration::from_secs(70));
        progress.end();
        progress.begin("hdd, batch, 72 jobs".to_owned(), Duration::from_secs(70));
        let line = progress.line(Duration::from_secs(6));
        assert_eq!(line, "[2/3] hdd, batch, 72 jobs; 2:04 left");
    }
}
