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
// Maps the memory, and accesses it by address.
#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
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

/// The number of processes that an area has room for. Those that come later count nowhere.
pub const NR_SLOTS: usize = 1024;

/// The size of an area in bytes.
pub const AREA_BYTES: usize = NR_SLOTS * size_of::<Slot>();

/// The bytes of the name of a process, which ends with a zero.
const NAME_BYTES: usize = 16;

/// The counters of a process.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slot {
    /// The id of the process; 0 if the slot is free.
    pid: AtomicU32,
    reserved: u32,
    name: [AtomicU64; NAME_BYTES / 8],
    counters: [AtomicU64; Counter::ALL.len()],
}

/// A counter of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Iocbs that `io_submit` has accepted.
    Iocbs,
    /// Requests passed to the kernel, including repeats and refused ones.
    Requests,
    /// Iocbs that have joined the request of another one.
    Merges,
    /// Calls of `fsync` and `fdatasync`, after the first `io_submit`.
    Syncs,
    /// How many of them have shared the sync of another thread.
    SyncsJoined,
}

impl Counter {
    /// All counters, in the order of a slot.
    pub const ALL: [Counter; 5] =
        [Counter::Iocbs, Counter::Requests, Counter::Merges, Counter::Syncs, Counter::SyncsJoined];
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
}

/// Returns the processes in the bytes of an area, about in the order in which they have come.
pub fn processes(area: &[u8]) -> Vec<Process> {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    let of_slot = |slot: &[u8]| {
        let pid = word(&slot[..8]) as u32;
        let name = &slot[8..8 + NAME_BYTES];
        let len = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        let name = String::from_utf8_lossy(&name[..len]).into_owned();
        let mut words = slot[8 + NAME_BYTES..].chunks_exact(8).map(word);
        let counters = Counter::ALL.map(|_| words.next().unwrap_or(0));
        (pid != 0).then_some(Process { pid, name, counters })
    };
    area.chunks_exact(size_of::<Slot>()).filter_map(of_slot).collect()
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            pid: AtomicU32::new(0),
            reserved: 0,
            name: [const { AtomicU64::new(0) }; NAME_BYTES / 8],
            counters: [const { AtomicU64::new(0) }; Counter::ALL.len()],
        }
    }
}

/// The slot of a process that has none in an area.
static OWN: Slot = Slot::new();

/// The slot of this process. Null until it is first used, and again in the child of a fork.
static SLOT: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

/// Forgets the slot of the parent, in the child of a fork.
pub fn after_fork() {
    SLOT.store(std::ptr::null_mut(), Ordering::Relaxed);
}

/// Adds to a counter of this process.
pub fn add(counter: Counter, nr: u64) {
    let slot = SLOT.load(Ordering::Acquire);
    // SAFETY: a slot stays mapped until the process ends.
    let slot = if slot.is_null() { attach() } else { unsafe { &*slot } };
    slot.counters[counter as usize].fetch_add(nr, Ordering::Relaxed);
}

/// Adds to a counter of this process if it has a slot, which [`add`] takes. Allocates no memory.
pub fn add_if_attached(counter: Counter, nr: u64) {
    let slot = SLOT.load(Ordering::Acquire);
    if !slot.is_null() {
        // SAFETY: a slot stays mapped until the process ends.
        unsafe { &*slot }.counters[counter as usize].fetch_add(nr, Ordering::Relaxed);
    }
}

/// Takes a slot in the area that the environment names, or else the process's own.
#[cold]
fn attach() -> &'static Slot {
    let slot = std::env::var_os(VARIABLE).and_then(|content| {
        let file = open(&content)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (null, fd) = (std::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: new memory, at an address that the kernel chooses.
        let area = unsafe { libc::mmap(null, AREA_BYTES, access, libc::MAP_SHARED, fd, 0) };
        if area == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the file has so many slots, and every content of one is valid. It stays mapped.
        let slots = unsafe { std::slice::from_raw_parts(area.cast::<Slot>(), NR_SLOTS) };
        let pid = std::process::id();
        let is_taken = |slot: &&Slot| {
            slot.pid.compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let slot = slots.iter().find(is_taken)?;
        let comm = std::fs::read("/proc/self/comm").unwrap_or_default();
        let mut name = [0; NAME_BYTES];
        let letters = comm.iter().take_while(|byte| **byte != b'\n').take(NAME_BYTES - 1);
        name.iter_mut().zip(letters).for_each(|(place, byte)| *place = *byte);
        for (place, bytes) in slot.name.iter().zip(name.chunks_exact(8)) {
            let word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            place.store(word, Ordering::Relaxed);
        }
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
        let slot = size_of::<Slot>();
        area[..4].copy_from_slice(&7_u32.to_ne_bytes());
        area[8..11].copy_from_slice(b"fio");
        area[slot - 8..slot].copy_from_slice(&3_u64.to_ne_bytes());
        area[2 * slot..2 * slot + 4].copy_from_slice(&8_u32.to_ne_bytes());
        let process = |pid, name: &str, counters| Process { pid, name: name.to_owned(), counters };
        let expected = [process(7, "fio", [0, 0, 0, 0, 3]), process(8, "", [0; 5])];
        assert_eq!(processes(&area), expected);
    }
}
