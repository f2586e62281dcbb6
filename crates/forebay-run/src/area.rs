//! The counters of a tree of processes, in memory that they share with the program that has started
//! them.
//!
//! The area is a file in memory. The variable [`VARIABLE`] has its device, inode and path
//! ([`variable`]). A process opens the path, and maps the file if it is the one with that inode:
//! the program that created it may have ended, and its path may be that of another file. A
//! process takes a slot at its first `io_submit`, and adds to its counters there. So the counters
//! outlive a process that is killed. A child of a fork takes a slot of its own.
//!
//! A slot is taken by a compare-and-swap of its first word, from 0 to the id of the process. Each
//! counter is one atomic that orders nothing: a reader may see some counters of an I/O and not yet
//! others, until the process has ended.
//!
//! An area may be *detailed* ([`set_detailed`]). Then the processes also count by file
//! ([`FileRow`]), and measure how long I/O stays in each stage ([`Stage`]).
// Maps the memory, and accesses it by address.
#![allow(unsafe_code)]

mod files;
mod stages;
mod text;

pub use files::{FileNumber, FileRow, NR_FILES};
pub use stages::{Stage, Times};

use stages::Histogram;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The environment variable with the identity and the path of the area.
pub const VARIABLE: &str = "FOREBAY_RUN_AREA";

/// Returns the content of [`VARIABLE`] for an area, which other processes can open at `path`.
///
/// # Errors
/// Fails if the metadata of the file cannot be read.
pub fn variable(area: &File, path: &Path) -> io::Result<OsString> {
    let metadata = area.metadata()?;
    let mut content = OsString::from(format!("{}:{}:", metadata.dev(), metadata.ino()));
    content.push(path);
    Ok(content)
}

/// Makes a new area detailed.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn set_detailed(area: &File) -> io::Result<()> {
    area.write_all_at(&1_u32.to_ne_bytes(), std::mem::offset_of!(Area, is_detailed) as u64)
}

/// Opens the area that the content of [`VARIABLE`] names. `None` if it is not there any more.
fn open(content: &OsStr) -> Option<File> {
    let mut parts = content.as_bytes().splitn(3, |byte| *byte == b':');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
    let (dev, ino) = (number()?, number()?);
    let path = Path::new(OsStr::from_bytes(parts.next()?));
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    let is_it = (metadata.dev(), metadata.ino()) == (dev, ino);
    (is_it && metadata.len() >= AREA_BYTES as u64).then_some(file)
}

/// The time in milliseconds for which a process takes a descriptor to be of the same file, when it
/// counts by file.
pub const LOOKUP_MS: u64 = 100;

/// The number of processes that an area has room for. Those that come later count nowhere.
pub const NR_SLOTS: usize = 1024;

/// The size of an area in bytes.
pub const AREA_BYTES: usize = size_of::<Area>();

/// An area.
#[derive(Debug)]
#[repr(C)]
struct Area {
    slots: [Slot; NR_SLOTS],
    files: [files::Place; NR_FILES],
    /// 1 if the processes count by file, and measure times.
    is_detailed: AtomicU32,
    reserved: u32,
}

/// The bytes of the name of a process, which ends with a zero.
const NAME_BYTES: usize = 16;

/// The counters of a process.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slot {
    /// The id of the process; 0 if the slot is free.
    pid: AtomicU32,
    /// 1 if the process counts by file, and measures times.
    is_detailed: AtomicU32,
    name: [AtomicU64; NAME_BYTES / 8],
    counters: [AtomicU64; Counter::ALL.len()],
    stages: [Histogram; Stage::ALL.len()],
}

/// A counter of a process or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Iocbs that `io_submit` has accepted.
    Iocbs,
    /// Requests passed to the kernel, including repeats. A merged request counts even if the kernel
    /// refuses it; an iocb that `io_submit` rejects does not.
    Requests,
    /// Iocbs that have joined the request of another one.
    Merges,
    /// Reads that have waited for those of later calls.
    Held,
    /// Iocbs that sync, and calls of `fsync` and `fdatasync` after the first `io_submit`.
    Syncs,
    /// Calls that the sync of another thread served.
    SyncsJoined,
    /// Times that a queue was full: the context, so that `io_submit` did not accept the iocb; the
    /// tags of its file, so that the iocb bypassed the layer; or the kernel's context, so that the
    /// request was submitted again later.
    Full,
    /// Requests that were repeated in whole or in part: merged ones that were short or failed, and
    /// those of held reads whose descriptor was closed meanwhile, or that the kernel had no place
    /// for.
    Repeats,
}

impl Counter {
    /// All counters, in the order of a slot.
    pub const ALL: [Counter; 8] = [
        Counter::Iocbs,
        Counter::Requests,
        Counter::Merges,
        Counter::Held,
        Counter::Syncs,
        Counter::SyncsJoined,
        Counter::Full,
        Counter::Repeats,
    ];
}

/// A process and its counters, as a reader of the area sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name at its first `io_submit`.
    pub name: String,
    /// Its counters, in the order of [`Counter::ALL`].
    pub counters: [u64; Counter::ALL.len()],
    /// The times of its I/O, in the order of [`Stage::ALL`].
    pub stages: [Times; Stage::ALL.len()],
}

/// Returns a word of an area.
fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

/// Returns the processes in the bytes of an area, about in the order in which they have come.
pub fn processes(area: &[u8]) -> Vec<Process> {
    let slots = &area[..size_of::<[Slot; NR_SLOTS]>()];
    slots.chunks_exact(size_of::<Slot>()).filter_map(process_of).collect()
}

/// Returns the process in the bytes of a slot.
fn process_of(slot: &[u8]) -> Option<Process> {
    let pid = u32::from_ne_bytes(slot[..4].try_into().expect("four bytes"));
    let part = |start: usize, len: usize| &slot[start..start + len];
    let counters = part(std::mem::offset_of!(Slot, counters), 8 * Counter::ALL.len());
    let mut counters = counters.chunks_exact(8).map(word);
    let stage = |stage: Stage| {
        let start = std::mem::offset_of!(Slot, stages) + stage as usize * size_of::<Histogram>();
        Times::of_bytes(part(start, size_of::<Histogram>()))
    };
    (pid != 0).then(|| Process {
        pid,
        name: text::of_bytes(part(std::mem::offset_of!(Slot, name), NAME_BYTES)),
        counters: Counter::ALL.map(|_| counters.next().unwrap_or(0)),
        stages: Stage::ALL.map(stage),
    })
}

/// Returns the files in the bytes of an area. Empty unless it is detailed.
pub fn files(area: &[u8]) -> Vec<FileRow> {
    let start = std::mem::offset_of!(Area, files);
    files::rows(&area[start..start + size_of::<[files::Place; NR_FILES]>()])
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            pid: AtomicU32::new(0),
            is_detailed: AtomicU32::new(0),
            name: [const { AtomicU64::new(0) }; NAME_BYTES / 8],
            counters: [const { AtomicU64::new(0) }; Counter::ALL.len()],
            stages: [const { Histogram::new() }; Stage::ALL.len()],
        }
    }
}

/// The slot of a process that has none in an area.
static OWN: Slot = Slot::new();

/// The slot of this process. Null until it is first used, and again in the child of a fork.
static SLOT: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

/// The area of this process, also in the child of a fork. Null if it has none.
static AREA: AtomicPtr<Area> = AtomicPtr::new(std::ptr::null_mut());

/// Forgets the slot of the parent, in the child of a fork.
pub fn after_fork() {
    SLOT.store(std::ptr::null_mut(), Ordering::Relaxed);
}

/// Returns the slot of this process.
#[inline]
fn slot() -> &'static Slot {
    let slot = SLOT.load(Ordering::Acquire);
    // SAFETY: a slot stays mapped until the process ends.
    if slot.is_null() { attach() } else { unsafe { &*slot } }
}

/// Returns whether this process has counted. From then on, no function here allocates memory,
/// except for [`file()`].
pub fn is_attached() -> bool {
    !SLOT.load(Ordering::Acquire).is_null()
}

/// Adds to a counter of this process.
#[inline]
pub fn add(counter: Counter, nr: u64) {
    if nr > 0 {
        slot().counters[counter as usize].fetch_add(nr, Ordering::Relaxed);
    }
}

/// Returns whether this process counts by file, and measures times.
#[inline]
pub fn is_detailed() -> bool {
    slot().is_detailed.load(Ordering::Relaxed) != 0
}

/// Adds to a counter of this process and of a file. The second has an effect only if
/// [`is_detailed`].
#[inline]
pub fn count(number: FileNumber, counter: Counter, nr: u64) {
    if nr > 0 {
        add(counter, nr);
        add_of_file(number, counter, nr);
    }
}

/// Records the time of an I/O on a file in a stage. Has an effect only if [`is_detailed`].
pub fn record(stage: Stage, number: FileNumber, ns: u64) {
    if let Some(places) = places() {
        slot().stages[stage as usize].record(ns);
        places[usize::from(number.get())].record(stage, ns);
    }
}

/// Returns the place of a file, which takes one if it has none: then `path` is read. All files have
/// the same one unless [`is_detailed`].
pub fn file(dev: u64, ino: u64, path: impl FnOnce() -> Vec<u8>) -> FileNumber {
    places().map_or(FileNumber::OTHER, |places| files::find(places, dev, ino, path))
}

/// Returns whether a place is that of a file.
pub fn is_of_file(number: FileNumber, dev: u64, ino: u64) -> bool {
    places().is_some_and(|places| files::is_of(places, number, dev, ino))
}

/// Adds to a counter of a file. Has an effect only if [`is_detailed`].
pub fn add_of_file(number: FileNumber, counter: Counter, nr: u64) {
    if nr > 0
        && let Some(places) = places()
    {
        places[usize::from(number.get())].add(counter, nr);
    }
}

/// Returns the place that a file with this device and inode has, or else that of the other files.
pub fn known_file(dev: u64, ino: u64) -> FileNumber {
    let known = places().and_then(|places| files::known(places, dev, ino));
    known.unwrap_or(FileNumber::OTHER)
}

/// Returns the places of files. `None` unless [`is_detailed`].
fn places() -> Option<&'static [files::Place]> {
    if !is_detailed() {
        return None;
    }
    // SAFETY: null, or an area, which stays mapped until the process ends.
    let area = unsafe { AREA.load(Ordering::Acquire).as_ref() };
    area.map(|area| &area.files[..])
}

/// Returns the area that the environment names.
fn map() -> Option<&'static Area> {
    let found = AREA.load(Ordering::Acquire);
    if !found.is_null() {
        // SAFETY: an area stays mapped until the process ends.
        return Some(unsafe { &*found });
    }
    let file = open(&std::env::var_os(VARIABLE)?)?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let (null, fd) = (std::ptr::null_mut(), file.as_raw_fd());
    // SAFETY: new memory, at an address that the kernel chooses.
    let area = unsafe { libc::mmap(null, AREA_BYTES, access, libc::MAP_SHARED, fd, 0) };
    if area == libc::MAP_FAILED {
        return None;
    }
    let area = area.cast::<Area>();
    // Another thread may be first. Its area is the same memory.
    AREA.store(area, Ordering::Release);
    // SAFETY: the file has the size of an area, every content of which is valid. It stays mapped.
    Some(unsafe { &*area })
}

/// Takes a slot in the area that the environment names, or else the process's own.
#[cold]
fn attach() -> &'static Slot {
    let slot = map().and_then(|area| {
        let pid = std::process::id();
        let is_taken = |slot: &&Slot| {
            slot.pid.compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let slot = area.slots.iter().find(is_taken)?;
        let comm = std::fs::read("/proc/self/comm").unwrap_or_default();
        let name = comm.split(|byte| *byte == b'\n').next().unwrap_or_default();
        text::store(&slot.name, &name[..name.len().min(NAME_BYTES - 1)]);
        let is_detailed = area.is_detailed.load(Ordering::Relaxed);
        slot.is_detailed.store(is_detailed, Ordering::Relaxed);
        Some(slot)
    });
    let slot = slot.unwrap_or(&OWN);
    let (null, own) = (std::ptr::null_mut(), std::ptr::from_ref(slot).cast_mut());
    match SLOT.compare_exchange(null, own, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => slot,
        // Another thread was first. Nothing was counted in this slot.
        Err(first) => {
            slot.pid.store(0, Ordering::Relaxed);
            // SAFETY: a slot stays mapped until the process ends.
            unsafe { &*first }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no inodes")]
    fn another_file_at_the_path_of_the_area_is_not_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a:rea");
        let create = || {
            let file = File::create(&path).expect("a file");
            file.set_len(AREA_BYTES as u64).expect("a size");
            file
        };
        let area = create();
        let content = variable(&area, &path).expect("metadata");
        assert!(open(&content).is_some());
        std::fs::rename(&path, folder.path().join("other")).expect("a free name");
        create();
        assert!(open(&content).is_none() && open(path.as_os_str()).is_none());
    }

    #[test]
    fn processes_are_read_beside_free_slots() {
        let mut area = vec![0; AREA_BYTES];
        assert_eq!(processes(&area), []);
        assert_eq!(files(&area), []);
        let slot = size_of::<Slot>();
        let mut store = |at: usize, bytes: &[u8]| area[at..at + bytes.len()].copy_from_slice(bytes);
        store(0, &7_u32.to_ne_bytes());
        store(8, b"fio");
        store(24, &4_u64.to_ne_bytes());
        store(24 + 8 * 7, &3_u64.to_ne_bytes());
        let histograms = std::mem::offset_of!(Slot, stages);
        store(histograms + size_of::<Histogram>() + 8, &9_u64.to_ne_bytes());
        store(2 * slot, &8_u32.to_ne_bytes());
        let found = processes(&area);
        let [fio, other] = &found[..] else { panic!("{found:?}") };
        assert_eq!((fio.pid, fio.name.as_str()), (7, "fio"));
        assert_eq!(fio.counters, [4, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(Stage::ALL.map(|stage| fio.stages[stage as usize].count()), [0, 9, 0]);
        assert_eq!((other.pid, other.name.as_str(), other.counters), (8, "", [0; 8]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no inodes")]
    fn area_is_detailed_only_if_it_was_set() {
        let area = tempfile::tempfile().expect("a file");
        area.set_len(AREA_BYTES as u64).expect("a size");
        let is_detailed = || {
            let mut word = [0; 4];
            let at = std::mem::offset_of!(Area, is_detailed) as u64;
            area.read_exact_at(&mut word, at).expect("the area");
            u32::from_ne_bytes(word)
        };
        assert_eq!(is_detailed(), 0);
        set_detailed(&area).expect("a file");
        assert_eq!(is_detailed(), 1);
    }
}
