//! The rounds: every server in turn, at each load.

use super::layout::file_of;
use super::loads::{Load, Work};
use super::{Cell, Sample, client, idle};
use crate::distance::{self, Distance};
use crate::measure::say;
use crate::servers::{Paths, Server};
use anyhow::Result;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum number of passes over a load in a round. A pass is repeated until every server has been
/// measured at the same distance.
const NR_TRIES: usize = 4;

/// Parameters of all runs.
pub(crate) struct Run<'a> {
    pub(crate) forebay: &'a Path,
    pub(crate) file: &'a Path,
    pub(crate) seconds: u32,
    pub(crate) started: Instant,
}

/// Samples of one server in this round, at each distance.
#[derive(Debug, Default)]
struct Tried {
    near: Option<Sample>,
    far: Option<Sample>,
    /// Whether a run failed, so that a further pass would not help.
    has_failed: bool,
}

impl Tried {
    fn at(&self, distance: Distance) -> Option<Sample> {
        match distance {
            Distance::Near => self.near,
            Distance::Far => self.far,
            Distance::Changed => None,
        }
    }

    fn is_done(&self, distance: Distance) -> bool {
        self.has_failed || self.at(distance).is_some()
    }
}

impl Run<'_> {
    /// Runs each load once on each server in turn. The first server rotates from round to round.
    pub(crate) fn round(
        &self,
        cells: &mut [Cell],
        servers: &[&'static Server],
        (nth, of): (usize, usize),
    ) {
        let nr_cells = cells.len();
        for (at, cell) in cells.iter_mut().enumerate() {
            let done = nth * nr_cells + at;
            let left = left(self.started, done, of * nr_cells).as_secs();
            let what = format!(
                "round {} of {of}, load {} of {nr_cells} ({left} s left): {}",
                nth + 1,
                at + 1,
                cell.load.name
            );
            self.measure_all(cell, servers, nth, &what);
        }
        progress("");
    }

    /// Runs one load on each server in turn, and repeats if the distance has changed. If no
    /// distance lasts long enough for all servers, the round has no figures for this load.
    fn measure_all(&self, cell: &mut Cell, servers: &[&'static Server], nth: usize, what: &str) {
        let load = cell.load;
        let mut tried: Vec<Tried> = servers.iter().map(|_| Tried::default()).collect();
        let all = |tried: &[Tried], distance| {
            let mut those = servers.iter().zip(tried).filter(|(s, _)| s.serves(load.medium));
            those.all(|(_, tried)| tried.is_done(distance))
        };
        let found = |tried: &[Tried]| {
            [Distance::Near, Distance::Far].into_iter().find(|distance| all(tried, *distance))
        };
        let mut begun = distance::now();
        for _ in 0..NR_TRIES {
            for step in 0..servers.len() {
                let which = (step + nth) % servers.len();
                let server = servers[which];
                if !server.serves(load.medium) || tried[which].is_done(begun) {
                    continue;
                }
                progress(&format!("{what}: {}", server.name));
                let sample = self.measure(load, server);
                let ended = distance::now();
                match (sample, begun.until(ended)) {
                    (Ok(sample), Distance::Near) => tried[which].near = Some(sample),
                    (Ok(sample), Distance::Far) => tried[which].far = Some(sample),
                    (Ok(_), Distance::Changed) => {}
                    (Err(error), _) => {
                        progress("");
                        say(&format!("{}: {}: {error:#}", load.name, server.name));
                        tried[which].has_failed = true;
                    }
                }
                begun = ended;
            }
            if found(&tried).is_some() {
                break;
            }
        }
        let distance = found(&tried).unwrap_or(Distance::Changed);
        cell.distances.push(distance);
        for (samples, tried) in cell.samples.iter_mut().zip(&tried) {
            samples.push(tried.at(distance));
        }
    }

    fn measure(&self, load: &Load, server: &'static Server) -> Result<Sample> {
        let file = &file_of(self.file, load.medium);
        let running = server.start(Paths { forebay: self.forebay, file }, load.medium)?;
        match load.work {
            Work::Fio(job) => client::fio(&running, &job, self.seconds, self.file),
            Work::CopyOut => client::copy(&running, self.file, client::Way::Out),
            Work::CopyIn => client::copy(&running, self.file, client::Way::In),
            Work::Idle(nr) => idle::measure(&running, nr),
        }
    }
}

/// Estimates the remaining time.
fn left(started: Instant, done: usize, of: usize) -> Duration {
    let each = started.elapsed().as_secs_f64() / done.max(1) as f64;
    Duration::from_secs_f64(if done == 0 { 0.0 } else { each * (of - done) as f64 })
}

/// Shows a progress line in place of the last one, if standard error is a terminal.
fn progress(line: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // The line may be lost: standard error may be closed.
        let _ = write!(stderr, "\r\x1b[K{line}");
        let _ = stderr.flush();
    }
}
