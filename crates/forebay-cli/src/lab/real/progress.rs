//! The progress line of experiments in real time.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use crate::output::ProgressLine;

/// The interval between two updates of the line.
const PERIOD: Duration = Duration::from_millis(500);

/// The progress of a list of cells.
#[derive(Debug)]
pub(in crate::lab) struct Progress {
    is_shown: bool,
    nr_cells: usize,
    nr_done: usize,
    /// The time for the cells that are not done, this one included.
    left: Duration,
    name: String,
    took: Duration,
    began: Instant,
    shown: Option<Instant>,
    line: ProgressLine,
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
            line: ProgressLine::default(),
        }
    }

    /// Returns the number of cells and their time, for output without a progress line.
    pub(in crate::lab) fn announcement(&self) -> String {
        let seconds = self.left.as_secs();
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        format!("forebay: {} cells, {minutes}:{seconds:02} minutes in total\n", self.nr_cells)
    }

    /// Starts a cell, which takes this time.
    pub(in crate::lab) fn begin(&mut self, name: String, takes: Duration) {
        (self.name, self.took, self.began) = (name, takes, Instant::now());
    }

    /// Ends the cell.
    pub(in crate::lab) fn end(&mut self) {
        self.nr_done += 1;
        self.left = self.left.saturating_sub(self.took);
    }

    /// Updates the line, if it is time.
    pub(in crate::lab) fn tick(&mut self) {
        if !self.is_shown || self.shown.is_some_and(|shown| shown.elapsed() < PERIOD) {
            return;
        }
        self.shown = Some(Instant::now());
        let text = self.text(self.began.elapsed());
        self.line.show(&text);
    }

    fn text(&self, elapsed: Duration) -> String {
        let left = self.left.saturating_sub(elapsed).as_secs();
        let (at, of) = (self.nr_done + 1, self.nr_cells);
        let (minutes, seconds) = (left / 60, left % 60);
        format!("[{at}/{of}] {}; {minutes}:{seconds:02} left", self.name)
    }

    /// Removes the line.
    pub(in crate::lab) fn clear(&mut self) {
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_the_current_run_and_those_left() {
        let mut progress = Progress::new(3, Duration::from_secs(200));
        assert_eq!(progress.announcement(), "forebay: 3 cells, 3:20 minutes in total\n");
        progress.begin("hdd, batch, 1 job".to_owned(), Duration::from_secs(70));
        progress.end();
        progress.begin("hdd, batch, 72 jobs".to_owned(), Duration::from_secs(70));
        let line = progress.text(Duration::from_secs(6));
        assert_eq!(line, "[2/3] hdd, batch, 72 jobs; 2:04 left");
    }
}
