//! The counters of files, in places of an area that all its processes share.
//!
//! A file is a device and an inode. It takes the first free place by a compare-and-swap of its
//! state. Until its identity is there, the place is that of no file: so two threads may take two
//! places for one file, and a process that is killed meanwhile may leave one that is lost. A reader
//! adds up the places of a file. The last place is that of all files that find no other one.

use super::{Counter, Histogram, Stage, Times, text};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The number of places of an area, with that of the other files.
pub const NR_FILES: usize = 512;

/// The bytes of the path of a file. A longer one loses its start.
const PATH_BYTES: usize = 192;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const READY: u32 = 2;

/// The place of a file in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileNumber(u16);

impl FileNumber {
    /// The place of the files that find no other one.
    pub const OTHER: FileNumber = FileNumber(NR_FILES as u16 - 1);

    /// Returns the number as such.
    pub fn get(self) -> u16 {
        self.0
    }

    /// Returns the place with a number that [`FileNumber::get`] has returned.
    pub fn from_number(number: u16) -> FileNumber {
        FileNumber(number.min(FileNumber::OTHER.0))
    }
}

/// A place for a file.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Place {
    state: AtomicU32,
    reserved: u32,
    dev: AtomicU64,
    ino: AtomicU64,
    counters: [AtomicU64; Counter::ALL.len()],
    stages: [Histogram; Stage::ALL.len()],
    path: [AtomicU64; PATH_BYTES / 8],
}

impl Place {
    fn is_of(&self, dev: u64, ino: u64) -> bool {
        let is_it = |word: &AtomicU64, value| word.load(Ordering::Relaxed) == value;
        // Acquire pairs with the Release of `take`: the identity is there.
        self.state.load(Ordering::Acquire) == READY
            && is_it(&self.dev, dev)
            && is_it(&self.ino, ino)
    }

    fn take(&self, dev: u64, ino: u64, path: &[u8]) -> bool {
        let (relaxed, state) = (Ordering::Relaxed, &self.state);
        if state.compare_exchange(FREE, TAKEN, relaxed, relaxed).is_err() {
            return false;
        }
        self.dev.store(dev, relaxed);
        self.ino.store(ino, relaxed);
        text::store(&self.path, &text::end_of(path, PATH_BYTES - 1));
        state.store(READY, Ordering::Release);
        true
    }

    pub(super) fn add(&self, counter: Counter, nr: u64) {
        self.counters[counter as usize].fetch_add(nr, Ordering::Relaxed);
    }

    pub(super) fn record(&self, stage: Stage, ns: u64) {
        self.stages[stage as usize].record(ns);
    }
}

/// Returns whether the place is that of the file.
pub(super) fn is_of(places: &[Place], number: FileNumber, dev: u64, ino: u64) -> bool {
    places[usize::from(number.0)].is_of(dev, ino)
}

/// Returns the place that a file has.
pub(super) fn known(places: &[Place], dev: u64, ino: u64) -> Option<FileNumber> {
    // Places are taken in order.
    let taken = places.iter().take_while(|place| place.state.load(Ordering::Relaxed) != FREE);
    let nth = taken.enumerate().find(|(_, place)| place.is_of(dev, ino))?.0;
    Some(FileNumber(nth as u16))
}

/// Returns the place of a file, which takes one if it has none. `path` is read if so.
pub(super) fn find(
    places: &[Place],
    dev: u64,
    ino: u64,
    path: impl FnOnce() -> Vec<u8>,
) -> FileNumber {
    let mut path = Some(path);
    let mut bytes = Vec::new();
    for (number, place) in places.iter().enumerate().take(NR_FILES - 1) {
        let is_free = place.state.load(Ordering::Relaxed) == FREE;
        if is_free && let Some(path) = path.take() {
            bytes = path();
        }
        if is_free && place.take(dev, ino, &bytes) || place.is_of(dev, ino) {
            return FileNumber(number as u16);
        }
    }
    FileNumber::OTHER
}

/// A file and its counters, as a reader of an area sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRow {
    /// The device and the inode. `None` for the files that have found no place.
    pub id: Option<(u64, u64)>,
    /// The path that the file had at its first iocb.
    pub path: String,
    /// The counters, in the order of [`Counter::ALL`].
    pub counters: [u64; Counter::ALL.len()],
    /// The times of its I/O, in the order of [`Stage::ALL`].
    pub stages: [Times; Stage::ALL.len()],
}

/// Returns the files in the bytes of all places, in the order in which they have come.
pub(super) fn rows(bytes: &[u8]) -> Vec<FileRow> {
    let mut rows: Vec<FileRow> = Vec::new();
    for (number, place) in bytes.chunks_exact(size_of::<Place>()).enumerate() {
        let mut words = place.chunks_exact(8).map(super::word);
        let mut next = || words.next().unwrap_or(0);
        // The two halves of the first word are the state and 0, in an order that depends on the
        // processor.
        let state = u32::from_ne_bytes(place[..4].try_into().expect("four bytes"));
        let (_, id) = (next(), (next(), next()));
        let counters = Counter::ALL.map(|_| next());
        let stages_at = std::mem::offset_of!(Place, stages);
        // Most places are free.
        let stages_of = || {
            Stage::ALL.map(|stage| {
                let start = stages_at + stage as usize * size_of::<Histogram>();
                Times::of_bytes(&place[start..start + size_of::<Histogram>()])
            })
        };
        let is_other = number == usize::from(FileNumber::OTHER.0);
        if is_other && counters != [0; Counter::ALL.len()] {
            let (path, stages) = ("other files".to_owned(), stages_of());
            rows.push(FileRow { id: None, path, counters, stages });
        } else if !is_other && state == READY {
            let path = text::of_bytes(&place[size_of::<Place>() - PATH_BYTES..]);
            let stages = stages_of();
            match rows.iter_mut().find(|row| row.id == Some(id)) {
                Some(row) => {
                    row.counters.iter_mut().zip(counters).for_each(|(sum, nr)| *sum += nr);
                    row.stages.iter_mut().zip(&stages).for_each(|(sum, times)| sum.merge(times));
                }
                None => rows.push(FileRow { id: Some(id), path, counters, stages }),
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests;
