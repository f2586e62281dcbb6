//! The counters of files, in places of an area that all its processes share.
//!
//! A file is a device and an inode. It takes the first free place by a compare-and-swap of its
//! state. Until its identity is there, the place is that of no file: so two threads may take two
//! places for one file, and a process that is killed meanwhile may leave one that is lost. A reader
//! adds up the places of a file. The last place is that of all files that find no other one.

use super::text;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The number of places of an area, with that of the other files.
pub const NR_FILES: usize = 1024;

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

/// A counter of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCounter {
    /// Iocbs that `io_submit` has accepted.
    Iocbs,
    /// Requests passed to the kernel, including repeats.
    Requests,
    /// Iocbs that have joined the request of another one.
    Merges,
    /// Reads that have waited for those of later calls.
    Held,
    /// Iocbs that sync, and calls of `fsync` and `fdatasync`.
    Syncs,
}

impl FileCounter {
    /// All counters, in the order of a place.
    pub const ALL: [FileCounter; 5] = [
        FileCounter::Iocbs,
        FileCounter::Requests,
        FileCounter::Merges,
        FileCounter::Held,
        FileCounter::Syncs,
    ];
}

/// A place for a file.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Place {
    state: AtomicU32,
    reserved: u32,
    dev: AtomicU64,
    ino: AtomicU64,
    counters: [AtomicU64; FileCounter::ALL.len()],
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

    pub(super) fn add(&self, counter: FileCounter, nr: u64) {
        self.counters[counter as usize].fetch_add(nr, Ordering::Relaxed);
    }
}

/// Returns whether the place is that of the file.
pub(super) fn is_of(places: &[Place], number: FileNumber, dev: u64, ino: u64) -> bool {
    places[usize::from(number.0)].is_of(dev, ino)
}

/// Returns the place that a file has.
pub(super) fn known(places: &[Place], dev: u64, ino: u64) -> Option<FileNumber> {
    let nth = places.iter().position(|place| place.is_of(dev, ino))?;
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
    /// The counters, in the order of [`FileCounter::ALL`].
    pub counters: [u64; FileCounter::ALL.len()],
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
        let counters = FileCounter::ALL.map(|_| next());
        let is_other = number == usize::from(FileNumber::OTHER.0);
        if is_other && counters != [0; FileCounter::ALL.len()] {
            rows.push(FileRow { id: None, path: "other files".to_owned(), counters });
        } else if !is_other && state == READY {
            let path = text::of_bytes(&place[size_of::<Place>() - PATH_BYTES..]);
            match rows.iter_mut().find(|row| row.id == Some(id)) {
                Some(row) => row.counters.iter_mut().zip(counters).for_each(|(sum, nr)| *sum += nr),
                None => rows.push(FileRow { id: Some(id), path, counters }),
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(nr: usize) -> Vec<Place> {
        let zero = || AtomicU64::new(0);
        let place = || Place {
            state: AtomicU32::new(FREE),
            reserved: 0,
            dev: zero(),
            ino: zero(),
            counters: [(); FileCounter::ALL.len()].map(|()| zero()),
            path: [(); PATH_BYTES / 8].map(|()| zero()),
        };
        (0..nr).map(|_| place()).collect()
    }

    /// Returns the bytes of places, as in an area.
    fn bytes_of(places: &[Place]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for place in places {
            let state = place.state.load(Ordering::Relaxed);
            [state, place.reserved].iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
            let words = [&place.dev, &place.ino].into_iter().chain(&place.counters);
            let words = words.chain(&place.path).map(|word| word.load(Ordering::Relaxed));
            words.for_each(|word| bytes.extend(word.to_ne_bytes()));
        }
        bytes
    }

    #[test]
    fn file_has_one_place_with_its_first_path() {
        let places = places(8);
        let file = |ino, path: &str| find(&places, 8, ino, || path.as_bytes().to_vec());
        let long = format!("/{}/end", "x".repeat(PATH_BYTES));
        let (one, two) = (file(3, "/one"), file(4, &long));
        assert_eq!((file(3, "/renamed"), one != two), (one, true));
        assert!(is_of(&places, one, 8, 3) && !is_of(&places, one, 8, 4));
        assert!(!is_of(&places, FileNumber(7), 0, 0));
        places[usize::from(two.get())].add(FileCounter::Syncs, 5);
        let rows = rows(&bytes_of(&places));
        let [one, two] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((one.id, one.path.as_str(), one.counters), (Some((8, 3)), "/one", [0; 5]));
        assert_eq!((two.id, two.counters), (Some((8, 4)), [0, 0, 0, 0, 5]));
        assert!(two.path.starts_with("...x") && two.path.ends_with("x/end"), "{}", two.path);
        assert_eq!(two.path.len(), PATH_BYTES - 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "a million steps of safe code")]
    fn files_without_a_place_share_the_last_one() {
        let places = places(NR_FILES);
        let numbers: Vec<_> =
            (0..NR_FILES as u64 + 9).map(|ino| find(&places, 1, ino, Vec::new)).collect();
        let nr_other = numbers.iter().filter(|number| **number == FileNumber::OTHER).count();
        assert_eq!(nr_other, 10);
        numbers
            .iter()
            .for_each(|number| places[usize::from(number.get())].add(FileCounter::Iocbs, 1));
        let rows = rows(&bytes_of(&places));
        assert_eq!(rows.len(), NR_FILES);
        let last = rows.last().expect("rows");
        assert_eq!((last.id, last.path.as_str(), last.counters[0]), (None, "other files", 10));
    }

    #[test]
    fn two_places_of_a_file_are_one_row_and_a_lost_one_is_none() {
        let places = places(8);
        places[0].state.store(TAKEN, Ordering::Relaxed);
        let number = find(&places, 1, 2, || b"/a".to_vec());
        assert_eq!(number.get(), 1);
        assert!(places[5].take(1, 2, b"/b"));
        places[1].add(FileCounter::Iocbs, 3);
        places[5].add(FileCounter::Iocbs, 4);
        let path = "/a".to_owned();
        let row = FileRow { id: Some((1, 2)), path, counters: [7, 0, 0, 0, 0] };
        assert_eq!(rows(&bytes_of(&places)), [row]);
    }

    #[test]
    fn threads_that_race_for_places_lose_no_count() {
        // Each thread may take a place for each of the seven files.
        let places = places(4 * 7 + 1);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let places = &places;
                scope.spawn(move || {
                    for nth in 0..100 {
                        let number = find(places, 1, (nth * (thread + 1)) % 7, Vec::new);
                        places[usize::from(number.get())].add(FileCounter::Iocbs, 1);
                    }
                });
            }
        });
        let rows = rows(&bytes_of(&places));
        assert_eq!(rows.iter().map(|row| row.counters[0]).sum::<u64>(), 400);
        assert_eq!(rows.len(), 7);
    }
}
