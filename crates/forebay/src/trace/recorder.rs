//! The thread that empties the rings of traced disks into files.

use super::disk::{OpenDisk, TracedDisk};
use super::output::Output;
use super::stats::TraceStats;
use crate::events;
use forebay_trace::stream::Totals;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The shortest and the longest pause between two passes. A ring holds the records of at least
/// six longest pauses, at two million events a second.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];

/// How long a record may stay in the buffer of a file, where a killed process loses it.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// The state that the recorder and the handles of the trace share.
#[derive(Debug, Default)]
pub(super) struct Recording {
    state: Mutex<State>,
    /// The recorder has to look at `state`, or has ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Disks that the recorder has not seen yet.
    new_disks: Vec<TracedDisk>,
    stats: TraceStats,
    is_over: bool,
    has_ended: bool,
    error: Option<io::Error>,
}

impl Recording {
    /// Passes a disk to the recorder. Returns false if the recorder has ended.
    pub(super) fn add(&self, disk: TracedDisk) -> bool {
        let mut state = self.lock();
        if !state.is_over {
            state.new_disks.push(disk);
            self.changed.notify_all();
        }
        !state.is_over
    }

    /// Returns the counts of the last pass.
    pub(super) fn stats(&self) -> TraceStats {
        self.lock().stats
    }

    /// Ends the recorder after one more pass.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Waits until the recorder has ended.
    pub(super) fn wait_for_end(&self) {
        let goes_on = |state: &mut State| !state.has_ended;
        drop(self.changed.wait_while(self.lock(), goes_on));
    }

    /// Returns the final counts, or the error that has ended the recorder.
    pub(super) fn outcome(&self) -> io::Result<TraceStats> {
        let state = self.lock();
        match &state.error {
            None => Ok(state.stats),
            Some(error) => Err(match error.raw_os_error() {
                Some(number) => io::Error::from_raw_os_error(number),
                None => io::Error::new(error.kind(), error.to_string()),
            }),
        }
    }

    /// Records until [`Recording::end`], until the receiver hangs up, or until a file cannot be
    /// written.
    ///
    /// Calls `end_disks` once no further disk is accepted.
    pub(super) fn run(&self, output: &Output, end_disks: impl FnOnce()) {
        let mut disks = Vec::new();
        let ended = self.record(output, &mut disks);
        disks.iter().for_each(OpenDisk::refuse);
        self.lock().is_over = true;
        end_disks();
        // Without the lock: a subscriber may call the trace.
        let TraceStats { records, lost } = self.stats();
        events::trace_ended(records, lost, ended.as_ref().err());
        let mut state = self.lock();
        // Disks that were added meanwhile have no reader.
        state.new_disks.drain(..).for_each(|disk| disk.rings.close());
        (state.is_over, state.has_ended, state.error) = (true, true, ended.err());
        self.changed.notify_all();
    }

    fn record(&self, output: &Output, disks: &mut Vec<OpenDisk>) -> io::Result<()> {
        let mut pause = PAUSES[0];
        // The counts of disks that were closed.
        let mut closed = TraceStats::default();
        let mut flushed = Instant::now();
        loop {
            let is_last = self.wait(pause, disks) || output.is_hung_up();
            let flushes = is_last || flushed.elapsed() >= FLUSH_EVERY;
            if is_last {
                output.limit_end();
            }
            let Pass { mut stats, is_busy } = pass(disks, output, is_last, flushes)?;
            disks.retain_mut(|disk| {
                if disk.is_complete() {
                    closed.add(disk.stats());
                }
                !disk.is_complete()
            });
            stats.add(closed);
            self.lock().stats = stats;
            if is_last {
                let TraceStats { records, lost } = stats;
                return output.end(Totals { records, lost });
            }
            if flushes {
                flushed = Instant::now();
            }
            pause = if is_busy { PAUSES[0] } else { (pause * 2).min(PAUSES[1]) };
        }
    }

    /// Pauses, and takes new disks. Returns whether the trace is over.
    fn wait(&self, pause: Duration, disks: &mut Vec<OpenDisk>) -> bool {
        let state = self.lock();
        let has_no_news = |state: &mut State| !state.is_over && state.new_disks.is_empty();
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, pause, has_no_news)
            .unwrap_or_else(PoisonError::into_inner);
        disks.extend(state.new_disks.drain(..).map(OpenDisk::new));
        state.is_over
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of a pass over all rings.
struct Pass {
    stats: TraceStats,
    /// A ring was more than an eighth full.
    is_busy: bool,
}

/// Empties all rings into their files. Completes the disks that were closed, whose counts are not
/// in the outcome.
fn pass(disks: &mut [OpenDisk], output: &Output, is_last: bool, flushes: bool) -> io::Result<Pass> {
    let mut all = Pass { stats: TraceStats::default(), is_busy: false };
    for disk in disks {
        // Read first: all records of a closed disk are then read below.
        let is_closed = disk.is_closed();
        let is_last = is_last || is_closed;
        disk.open(output)?;
        if is_last {
            // Records that are written until the writers see this may stay unread.
            disk.close();
        }
        all.is_busy |= disk.empty_rings(output)?;
        if is_last {
            disk.note_lost(output)?;
        }
        if flushes || is_last {
            disk.flush()?;
        }
        match is_closed {
            true => disk.complete(),
            false => all.stats.add(disk.stats()),
        }
    }
    Ok(all)
}
