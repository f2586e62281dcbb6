//! The sums over the seeds of `forebay sim --random`, and the progress line.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use forebay_sim::Summary;
use serde_json::{Value, json};

use super::seeds::Seeds;
use crate::output::ProgressLine;

/// Between two updates of the progress line.
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);

/// The sums over all seeds, and the progress line.
#[derive(Debug)]
pub(super) struct Total {
    seeds: Seeds,
    nr_done: u64,
    nr_bios: u64,
    nr_steps: u64,
    nr_blocks_read: u64,
    nr_crash_points: u64,
    nr_promises: u64,
    hash: u64,
    started: Instant,
    /// When the progress line was last updated; none is shown before the first period is over.
    shown: Option<Instant>,
    line: ProgressLine,
    is_terminal: bool,
}

impl Total {
    pub(super) fn new(seeds: Seeds) -> Total {
        Total {
            seeds,
            nr_done: 0,
            nr_bios: 0,
            nr_steps: 0,
            nr_blocks_read: 0,
            nr_crash_points: 0,
            nr_promises: 0,
            hash: 0,
            started: Instant::now(),
            shown: None,
            line: ProgressLine::default(),
            is_terminal: stderr().is_terminal(),
        }
    }

    pub(super) fn add(&mut self, summary: &Summary) {
        self.nr_done += 1;
        self.nr_bios += summary.nr_bios;
        self.nr_steps += summary.nr_steps;
        self.nr_blocks_read += summary.nr_blocks_read;
        self.nr_crash_points += summary.nr_crash_points;
        self.nr_promises += summary.nr_promises;
        self.hash = self.hash.rotate_left(1) ^ summary.hash;
        let last = self.shown.unwrap_or(self.started);
        if self.is_terminal && last.elapsed() >= PROGRESS_PERIOD {
            self.shown = Some(Instant::now());
            let percent = self.nr_done * 100 / self.seeds.nr();
            let (nr, bios) = (self.nr_done, self.nr_bios);
            self.line.show(&format!("{nr} seeds ({percent} %), {bios} bios checked"));
        }
    }

    pub(super) fn clear_line(&mut self) {
        self.line.clear();
    }

    /// Returns the sums as JSON.
    pub(super) fn json(&self, replay: &str) -> Value {
        json!({
            "seed": self.seeds.first(),
            "seeds": self.seeds.nr(),
            "checked": {
                "steps": self.nr_steps,
                "bios": self.nr_bios,
                "blocks_read": self.nr_blocks_read,
                "crash_points": self.nr_crash_points,
                "durable_writes": self.nr_promises,
            },
            "trace_hash": format!("{:016x}", self.hash),
            "replay": replay,
        })
    }

    /// Returns the report, with further lines before the command that repeats the runs.
    pub(super) fn report(&self, lines: &str, replay: &str) -> String {
        format!(
            "{}: no rule is broken\n  \
               checked      : {} bios in {} steps, {} blocks read\n  \
               power cuts   : checked at {} moments, {} writes durable\n\
             {lines}  \
               trace hash   : {:016x}\n  \
               replay with  : {replay}\n",
            self.seeds,
            self.nr_bios,
            self.nr_steps,
            self.nr_blocks_read,
            self.nr_crash_points,
            self.nr_promises,
            self.hash,
        )
    }
}
