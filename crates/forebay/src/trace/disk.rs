//! The files of a traced disk, and the rings whose records they get.

use super::output::{Output, OutputFile};
use super::stats::TraceStats;
use crate::errno;
use crate::runtime::trace::rings::{DiskRings, NewRing, Source};
use crate::sys::clock;
use forebay_core::TraceReader;
use forebay_trace::writer::{Place, TraceFile};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A traced disk.
#[derive(Debug)]
pub(super) struct TracedDisk {
    pub(super) name: String,
    /// Its line in the list of the disks.
    pub(super) line: String,
    pub(super) device: u32,
    pub(super) rings: Arc<DiskRings>,
}

/// A traced disk with its files.
pub(super) struct OpenDisk {
    rings: Vec<OpenRing>,
    files: Files,
    is_listed: bool,
    /// Its files have all records of a disk that was closed.
    is_complete: bool,
}

/// A ring and its file.
struct OpenRing {
    reader: TraceReader,
    source: Source,
    /// The file, from the first record on.
    file: Option<TracedFile>,
    /// Records that were lost and that the file mentions, from this ring.
    nr_lost_noted: u64,
}

/// A disk, its unused files, and the number of files created.
struct Files {
    disk: TracedDisk,
    /// Files of rings that have ended, for the next ones.
    free: Vec<TracedFile>,
    /// The number of files that were created.
    nr: u32,
}

type TracedFile = TraceFile<OutputFile>;

impl OpenDisk {
    pub(super) fn new(disk: TracedDisk) -> OpenDisk {
        let files = Files { disk, free: Vec::new(), nr: 0 };
        OpenDisk { rings: Vec::new(), files, is_listed: false, is_complete: false }
    }

    /// Lists the disk, and takes the rings that were added. A disk without I/O has an empty file.
    pub(super) fn open(&mut self, output: &Output) -> io::Result<()> {
        if !self.is_listed {
            output.list(&self.files.disk.line)?;
            self.is_listed = true;
            let file = self.files.create(output)?;
            self.files.free.push(file);
        }
        self.rings.extend(self.files.disk.rings.take_added().into_iter().map(OpenRing::new));
        Ok(())
    }

    /// Writes the records of all rings. Returns whether one was more than an eighth full.
    pub(super) fn empty_rings(&mut self, output: &Output) -> io::Result<bool> {
        let OpenDisk { rings, files, .. } = self;
        let mut is_busy = false;
        let mut at = 0;
        while let Some(ring) = rings.get_mut(at) {
            // Read first: the last records before the end are then read below.
            let has_ended = ring.reader.has_ended();
            let nr = ring.empty(files, output)?;
            is_busy |= nr > ring.reader.capacity() / 8;
            match has_ended {
                true => {
                    ring.note_lost(files, output)?;
                    files.free.extend(rings.swap_remove(at).file);
                }
                false => at += 1,
            }
        }
        Ok(is_busy)
    }

    /// Records the losses for which the rings have no record.
    pub(super) fn note_lost(&mut self, output: &Output) -> io::Result<()> {
        self.rings.iter_mut().try_for_each(|ring| ring.note_lost(&mut self.files, output))
    }

    /// Writes the buffered records to the files.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.all_files().try_for_each(TraceFile::flush)
    }

    /// Returns whether the disk was closed.
    pub(super) fn is_closed(&self) -> bool {
        self.files.disk.rings.is_disk_closed()
    }

    /// Records that the files have all records of the disk, which was closed.
    pub(super) fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Returns whether the files have all records of the disk, which was closed.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Ends the records of the disk: threads that would begin to write get a closed ring.
    pub(super) fn refuse(&self) {
        self.files.disk.rings.close();
        self.close();
    }

    /// Ends the rings.
    pub(super) fn close(&self) {
        self.rings.iter().for_each(|ring| ring.reader.close());
    }

    /// Returns the counts of the files.
    pub(super) fn stats(&mut self) -> TraceStats {
        let mut stats = TraceStats::default();
        for file in self.all_files() {
            stats.records += file.nr_records();
            stats.lost += file.nr_lost();
        }
        stats
    }

    fn all_files(&mut self) -> impl Iterator<Item = &mut TracedFile> {
        self.rings.iter_mut().filter_map(|ring| ring.file.as_mut()).chain(&mut self.files.free)
    }
}

impl Files {
    /// Returns a file for records from `first_ns` on. The records of a file come in the order of
    /// their times: `blkparse` and the reports of this project depend on it. The file of an ended
    /// ring cannot take records that are older than its last one.
    fn take(&mut self, first_ns: u64, output: &Output) -> io::Result<TracedFile> {
        match self.free.iter().position(|file| file.last_ns() <= first_ns) {
            Some(at) => Ok(self.free.swap_remove(at)),
            None => self.create(output),
        }
    }

    fn create(&mut self, output: &Output) -> io::Result<TracedFile> {
        let index = self.nr;
        let file = output.create(&self.disk.name, index)?;
        self.nr += 1;
        let place = Place { device: self.disk.device, index, errno_of: errno::of_status };
        Ok(TraceFile::new(file, place))
    }
}

impl OpenRing {
    fn new(NewRing { source, reader }: NewRing) -> OpenRing {
        OpenRing { reader, source, file: None, nr_lost_noted: 0 }
    }

    /// Writes the records of the ring, and returns their number.
    fn empty(&mut self, files: &mut Files, output: &Output) -> io::Result<u64> {
        let OpenRing { reader, source, file, nr_lost_noted } = self;
        let mut result = Ok(());
        let nr = reader.drain(|record| {
            if result.is_ok() {
                let file = file_for_record(file, source, record.time_ns, files, output);
                result = file.and_then(|file| {
                    let nr_lost = file.nr_lost();
                    file.write(&record)?;
                    *nr_lost_noted += file.nr_lost() - nr_lost;
                    Ok(())
                });
            }
        });
        result.map(|()| nr)
    }

    /// Records the loss of the last records, for which the ring has no record.
    fn note_lost(&mut self, files: &mut Files, output: &Output) -> io::Result<()> {
        let OpenRing { reader, source, file, nr_lost_noted } = self;
        let nr = reader.nr_lost().saturating_sub(*nr_lost_noted);
        if nr > 0 {
            let now = clock::now_ns();
            file_for_record(file, source, now, files, output)?.lose(nr, now)?;
            *nr_lost_noted += nr;
        }
        Ok(())
    }
}

/// Returns the file of a ring. If this is the first record, which has this time, chooses the file
/// and begins the records of the ring in it.
fn file_for_record<'a>(
    file: &'a mut Option<TracedFile>,
    source: &Source,
    first_ns: u64,
    files: &mut Files,
    output: &Output,
) -> io::Result<&'a mut TracedFile> {
    let file = match file {
        Some(file) => return Ok(file),
        none => none,
    };
    let process = std::process::id();
    let (id, name) = match source {
        Source::Context(at) => (process, format!("context {at}")),
        Source::Thread { id, name } if name.is_empty() => (*id, format!("thread {id}")),
        Source::Thread { id, name } => (*id, name.clone()),
    };
    let before_ns = first_ns.saturating_sub(2);
    let age = Duration::from_nanos(clock::now_ns().saturating_sub(before_ns));
    let since_epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let mut taken = files.take(before_ns, output)?;
    taken.begin(id, &name, before_ns, since_epoch.saturating_sub(age))?;
    Ok(file.insert(taken))
}
