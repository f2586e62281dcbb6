//! Search for the greatest depth that keeps to a latency: `latency_target`, `latency_window`,
//! `latency_percentile`, `latency_run`.
//!
//! Source: fio's HOWTO, and the figures of fio 3.33. The job runs at one depth for a window. A
//! depth is met if enough of the I/Os of its window took no longer than the target. The search
//! doubles the depth until one is missed, and then halves the gap between the greatest depth that
//! was met and the smallest that was missed. A last window confirms the result. Every miss lowers
//! the upper bound, so the search ends on any device. This module reads no clock.

use std::time::Duration;

/// The options of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TargetOptions {
    /// `latency_target`; `None`: no search.
    pub target: Option<Duration>,
    /// `latency_window`.
    pub window: Duration,
    /// `latency_percentile`: the percentage of I/Os that meet the target; `None`: 100.
    pub percentile: Option<f64>,
    /// `latency_run`: whether the job goes on after the search, and adjusts its depth.
    pub runs_on: bool,
}

impl TargetOptions {
    /// Returns the percentage of I/Os that meet the target.
    pub fn percentile(&self) -> f64 {
        self.percentile.unwrap_or(100.0)
    }

    /// Returns the search of a job with this `iodepth`; `None` if it has no target.
    pub fn search(&self, iodepth: u32) -> Option<Search> {
        let target_ns = u64::try_from(self.target?.as_nanos()).unwrap_or(u64::MAX);
        Some(Search {
            target_ns,
            percentile: self.percentile(),
            runs_on: self.runs_on,
            depth: 1,
            met: 0,
            missed: iodepth.saturating_add(1),
            iodepth,
            state: State::Searches,
            ios: 0,
            good_ios: 0,
        })
    }

    /// Returns the name of an option that has no effect without `latency_target`.
    pub(crate) fn without_effect(&self) -> Option<&'static str> {
        let given = [
            ("latency_window", !self.window.is_zero()),
            ("latency_percentile", self.percentile.is_some()),
            ("latency_run", self.runs_on),
        ];
        let first = given.into_iter().find(|&(_, is_given)| is_given);
        first.filter(|_| self.target.is_none()).map(|(name, _)| name)
    }
}

/// A search, or the adjustment after it.
#[derive(Debug, Clone)]
pub struct Search {
    target_ns: u64,
    percentile: f64,
    runs_on: bool,
    iodepth: u32,
    /// The depth of the current window.
    depth: u32,
    /// The greatest depth that was met, or 0.
    met: u32,
    /// The smallest depth that was missed, or one more than the greatest to try.
    missed: u32,
    state: State,
    /// I/Os of the window.
    ios: u64,
    /// Those of them that kept to the target.
    good_ios: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Searches,
    /// The window confirms the depth that was found.
    Confirms,
    /// The job runs on, and has met its target in this number of windows in a row.
    RunsOn(u32),
}

/// The result of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Another window follows, at another depth or to confirm this one. Its figures begin anew.
    Restart,
    /// Another window follows, and its figures belong to those before.
    Continue,
    /// The depth is found.
    Found,
    /// Some I/O has missed the target even at a depth of 1, and none may.
    Missed,
}

impl Search {
    /// Counts an I/O that took `lat_ns`.
    #[inline]
    pub fn record(&mut self, lat_ns: u64) {
        self.ios += 1;
        self.good_ios += u64::from(lat_ns <= self.target_ns);
    }

    /// Returns the depth of the current window.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns whether even a depth of 1 has missed the target.
    pub fn is_hopeless(&self) -> bool {
        self.missed == 1 && matches!(self.state, State::Searches)
    }

    /// Returns whether the job has ended before the depth was found.
    pub fn is_unfinished(&self) -> bool {
        matches!(self.state, State::Searches) && !self.is_hopeless()
    }

    /// Forgets the I/Os of the window.
    pub fn restart_window(&mut self) {
        (self.ios, self.good_ios) = (0, 0);
    }

    /// Ends a window, and chooses the depth of the next one.
    pub fn end_window(&mut self) -> Step {
        if self.ios < self.depth.into() {
            // The window is too short for the depth, and goes on.
            return Step::Continue;
        }
        let (ios, good_ios) = (std::mem::take(&mut self.ios), std::mem::take(&mut self.good_ios));
        let is_met = good_ios as f64 * 100.0 >= self.percentile * ios as f64;
        match self.state {
            State::RunsOn(windows) => {
                self.adjust(is_met, windows);
                Step::Continue
            }
            State::Confirms if is_met && self.runs_on => {
                self.state = State::RunsOn(0);
                Step::Continue
            }
            State::Confirms if is_met => Step::Found,
            _ => self.narrow(is_met),
        }
    }

    /// Takes the result of a depth into the bounds.
    fn narrow(&mut self, is_met: bool) -> Step {
        match is_met {
            true => self.met = self.depth,
            false => {
                // A depth that was met before and is missed now is too deep.
                self.missed = self.depth;
                self.met = if self.met < self.missed { self.met } else { 0 };
            }
        }
        if self.missed == 1 {
            // Nothing is left to try.
            self.depth = 1;
            if self.runs_on {
                self.state = State::RunsOn(0);
            }
            // As in fio, a job of which every I/O has to meet the target fails.
            return match self.percentile >= 100.0 && !self.runs_on {
                true => Step::Missed,
                false => Step::Continue,
            };
        }
        let is_found = self.met + 1 == self.missed;
        let is_doubling = self.missed > self.iodepth;
        let next = match (is_found, is_doubling) {
            (true, _) => self.met,
            (false, true) => (self.met * 2).clamp(1, self.iodepth),
            (false, false) => (self.met + self.missed) / 2,
        };
        self.state = if is_found { State::Confirms } else { State::Searches };
        self.depth = next;
        // The figures so far include those of other depths, or of a search.
        Step::Restart
    }

    /// Lowers the depth after a miss, and raises it after several windows without one.
    fn adjust(&mut self, is_met: bool, windows: u32) {
        /// Windows after which a greater depth is tried.
        const PATIENCE: u32 = 4;
        let step = (self.depth / 8).max(1);
        let (depth, windows) = match is_met {
            false => (self.depth.saturating_sub(step).max(1), 0),
            true if windows + 1 >= PATIENCE => ((self.depth + step).min(self.iodepth), 0),
            true => (self.depth, windows + 1),
        };
        (self.depth, self.state) = (depth, State::RunsOn(windows));
    }
}

#[cfg(test)]
mod tests;
