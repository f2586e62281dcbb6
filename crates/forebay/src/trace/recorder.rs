//! The thread that empties the rings of traced disks into files.

use super::output::{Output, OutputFile};
use crate::errno;
use crate::events;
use crate::runtime::trace::rings::{DiskRings, NewRing, Source};
use crate::sys::clock;
use forebay_core::TraceReader;
use forebay_trace::stream::Totals;
use forebay_trace::writer::{Place, TraceFile};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The shortest and the longest pause between two passes. A ring holds the records of at least
/// six longest pauses, at two million events a second.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];

/// How long a record may stay in the buffer of a file, where a killed process loses it.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Counts of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceStats {
    /// Records written to the files.
    pub records: u64,
    /// Records that found no room in their ring. The files have a message in their place.
    pub lost: u64,
}

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

/// A traced disk.
#[derive(Debug)]
pub(super) struct TracedDisk {
    pub(super) name: String,
    /// Its line in the list of the disks.
    pub(super) line: String,
    pub(super) device: u32,
    pub(super) rings: Arc<DiskRings>,
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
                if disk.is_complete {
                    closed.add(disk.stats());
                }
                !disk.is_complete
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

impl TraceStats {
    fn add(&mut self, other: TraceStats) {
        self.records += other.records;
        self.lost += other.lost;
    }
}

/// Empties all rings into their files. Completes the disks that were closed, whose counts are not
/// in the outcome.
fn pass(disks: &mut [OpenDisk], output: &Output, is_last: bool, flushes: bool) -> io::Result<Pass> {
    let mut all = Pass { stats: TraceStats::default(), is_busy: false };
    for disk in disks {
        // Read first: all records of a closed disk are then read below.
        let is_closed = disk.disk.rings.is_disk_closed();
        let is_last = is_last || is_closed;
        disk.open(output)?;
        if is_last {
            // Records that are written until the writers see this may stay unread.
            disk.close();
        }
        all.is_busy |= disk.empty_rings()?;
        if is_last {
            disk.note_lost()?;
        }
        if flushes || is_last {
            disk.files().try_for_each(TraceFile::flush)?;
        }
        match is_closed {
            true => disk.is_complete = true,
            false => all.stats.add(disk.stats()),
        }
    }
    Ok(all)
}

type TracedFile = TraceFile<OutputFile>;

/// A traced disk with its files.
struct OpenDisk {
    disk: TracedDisk,
    is_listed: bool,
    /// Its files have all records of a disk that was closed.
    is_complete: bool,
    rings: Vec<OpenRing>,
    /// Files of rings that have ended, for the next ones.
    free: Vec<TracedFile>,
    nr_files: u32,
}

/// A ring and its file.
struct OpenRing {
    reader: TraceReader,
    file: TracedFile,
    /// The writer, until the file has it.
    source: Option<Source>,
    /// Records that were lost and that the file mentions, from this ring.
    nr_lost_noted: u64,
}

impl OpenDisk {
    fn new(disk: TracedDisk) -> OpenDisk {
        let (rings, free) = (Vec::new(), Vec::new());
        OpenDisk { disk, is_listed: false, is_complete: false, rings, free, nr_files: 0 }
    }

    /// Lists the disk, and opens files for the rings that were added.
    fn open(&mut self, output: &Output) -> io::Result<()> {
        if !self.is_listed {
            output.list(&self.disk.line)?;
            self.is_listed = true;
        }
        for NewRing { source, reader } in self.disk.rings.take_added() {
            let file = match self.free.pop() {
                Some(file) => file,
                None => self.create_file(output)?,
            };
            self.rings.push(OpenRing { reader, file, source: Some(source), nr_lost_noted: 0 });
        }
        Ok(())
    }

    fn create_file(&mut self, output: &Output) -> io::Result<TracedFile> {
        let index = self.nr_files;
        let file = output.create(&self.disk.name, index)?;
        self.nr_files += 1;
        let place = Place { device: self.disk.device, index, errno_of: errno::of_status };
        Ok(TraceFile::new(file, place))
    }

    /// Writes the records of all rings. Returns whether one was more than an eighth full.
    fn empty_rings(&mut self) -> io::Result<bool> {
        let mut is_busy = false;
        let mut at = 0;
        while let Some(ring) = self.rings.get_mut(at) {
            // Read first: the last records before the end are then read below.
            let has_ended = ring.reader.has_ended();
            let nr = ring.empty()?;
            is_busy |= nr > ring.reader.capacity() / 8;
            match has_ended {
                true => {
                    ring.note_lost()?;
                    self.free.push(self.rings.swap_remove(at).file);
                }
                false => at += 1,
            }
        }
        Ok(is_busy)
    }

    /// Records the losses for which the rings have no record.
    fn note_lost(&mut self) -> io::Result<()> {
        self.rings.iter_mut().try_for_each(OpenRing::note_lost)
    }

    /// Ends the records of the disk: threads that would begin to write get a closed ring.
    fn refuse(&self) {
        self.disk.rings.close();
        self.close();
    }

    fn close(&self) {
        self.rings.iter().for_each(|ring| ring.reader.close());
    }

    fn files(&mut self) -> impl Iterator<Item = &mut TracedFile> {
        self.rings.iter_mut().map(|ring| &mut ring.file).chain(&mut self.free)
    }

    fn stats(&mut self) -> TraceStats {
        let mut stats = TraceStats::default();
        for file in self.files() {
            stats.records += file.nr_records();
            stats.lost += file.nr_lost();
        }
        stats
    }
}

/// Begins the records of a ring in its file. The first one has this time.
fn begin(file: &mut TracedFile, source: Source, first_ns: u64) -> io::Result<()> {
    let process = std::process::id();
    let (id, name) = match source {
        Source::Context(at) => (process, format!("context {at}")),
        Source::Thread { id, name } if name.is_empty() => (id, format!("thread {id}")),
        Source::Thread { id, name } => (id, name),
    };
    let before_ns = first_ns.saturating_sub(2);
    let age = Duration::from_nanos(clock::now_ns().saturating_sub(before_ns));
    let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    file.begin(id, &name, before_ns, since_epoch.saturating_sub(age))
}

impl OpenRing {
    /// Writes the records of the ring, and returns their number.
    fn empty(&mut self) -> io::Result<u64> {
        let OpenRing { reader, file, source, .. } = self;
        let nr_lost = file.nr_lost();
        let mut result = Ok(());
        let nr = reader.drain(|record| {
            if let Some(source) = source.take() {
                result = begin(file, source, record.time_ns);
            }
            if result.is_ok() {
                result = file.write(&record);
            }
        });
        self.nr_lost_noted += self.file.nr_lost() - nr_lost;
        result.map(|()| nr)
    }

    /// Records the loss of the last records, for which the ring has no record.
    fn note_lost(&mut self) -> io::Result<()> {
        let nr = self.reader.nr_lost().saturating_sub(self.nr_lost_noted);
        self.nr_lost_noted += nr;
        match nr {
            0 => Ok(()),
            nr => self.file.lose(nr, clock::now_ns()),
        }
    }
}
